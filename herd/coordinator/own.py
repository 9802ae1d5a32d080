"""What a coordinator is: the facts about its own session that do not change while it lives."""

from herd.core.identity import SessionName, peer_id_of, target_of
from herd.mail.inbox import Sender
from herd.presence.record import Record
from herd.presence.scopes import ANYWHERE, Extent
from roles.model import LEAD, Party


class Own:
    """One session in one instance; only its name, and where it is, may change while it lives.

    Args:
        session: What names it.
        kind: Fixed at the session's first start.
        role: From its last lease.
        instance_id: This life of its coordinator.
        socket: Where in Herdr it runs, or `none`.
        name: What people call it.
        extent: What its scope takes in and is taken in by.
    """

    def __init__(
        self,
        session: SessionName,
        *,
        kind: str,
        role: str,
        instance_id: str,
        socket: str,
        name: str,
        extent: Extent,
    ) -> None:
        self.session = session
        self.kind = kind
        self.role = role
        self.instance_id = instance_id
        self.socket = socket
        self.name = name
        self.extent = extent

    @property
    def key(self) -> str:
        """The session key."""
        return self.session.key

    @property
    def target(self) -> str:
        """The target under which others write to this session in its role."""
        return target_of(self.role, self.key)

    @property
    def names(self) -> tuple[str, str]:
        """What an envelope's `to` may say to mean this instance: its target, or its exact peer id."""
        return self.target, peer_id_of(self.instance_id)

    def as_sender(self) -> Sender:
        """Give the verified context that travels with what this session sends."""
        return Sender(self.key, self.target, self.role, self.session.host, self.name, self.kind, self.socket)

    def as_party(self) -> Party:
        """Give this session as evidence."""
        return Party(self.key, self.role, self.kind, self.extent)


def sender_of(record: Record) -> Sender:
    """Give the verified context of a caller, from its own instance record and from nothing it said."""
    presence = record.presence
    role = presence.role if presence else LEAD
    return Sender(
        key=record.key,
        target=target_of(role, record.key),
        role=role,
        host=record.session.host,
        name=presence.name if presence else None,
        kind=record.kind,
        socket=presence.socket if presence else "none",
    )


def party_of(sender: Sender, extent: Extent = ANYWHERE) -> Party:
    """Give a sender as evidence; its extent counts at acceptance alone, and is not kept with what it sent."""
    return Party(sender.key, sender.role, sender.kind, extent)
