"""What a coordinator is: the facts about its own session that do not change while it lives."""

from assignments.worktrees.groups import Grouped
from herd.core.identity import TERMINAL, SessionName, peer_id_of, target_of
from herd.mail.correspondents import identity_of
from herd.mail.inbox import Sender
from herd.presence.record import Record
from herd.presence.scopes import Extent, limited
from roles.model import LEAD, Folder, Party


class Own:
    """One session in one instance, or one run in it; only its name, and where it works, may change meanwhile.

    Args:
        session: What names it.
        kind: Fixed at the session's first start.
        role: From its last lease.
        instance_id: This life of its coordinator.
        socket: Where in Herdr it runs, or `none`.
        name: What people call it.
        extent: What its scope takes in and is taken in by.
        folder: The folder it works in, where its worktree group is looked up.
        run: The peer id of the run that this is; None for the session itself.

    Attributes:
        group: The key of its worktree group as last proven and published; None without proof.
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
        folder: Folder | None = None,
        run: str | None = None,
    ) -> None:
        self.session = session
        self.kind = kind
        self.role = role
        self.instance_id = instance_id
        self.socket = socket
        self.name = name
        self.extent = extent
        self.folder = folder
        self.group: str | None = None
        self.run = run

    def with_run(self, run: str, name: str, scope: str | None) -> "Own":
        """Give a run of this session, by its peer id; its scope is never wider than the session's."""
        return OwnRun(self, run, name, scope)

    @property
    def key(self) -> str:
        """The session key."""
        return self.session.key

    @property
    def identity(self) -> str:
        """Who this is as messages are told apart by it; see `herd.mail.inbox.Sender.identity`."""
        return identity_of(self.key, self.run)

    @property
    def session_target(self) -> str:
        """The target of the session itself, in its role."""
        return target_of(self.role, self.key)

    @property
    def target(self) -> str:
        """What others write to: the session's target in its role, or the run's peer id."""
        return self.session_target if self.run is None else self.run

    @property
    def names(self) -> tuple[str, ...]:
        """What an envelope's `to` may say to mean this: its target, or its exact peer id."""
        return (self.target, peer_id_of(self.instance_id)) if self.run is None else (self.run,)

    def as_sender(self) -> Sender:
        """Give the verified context that travels with what this session, or this run of it, sends."""
        return Sender(
            self.key,
            self.target,
            self.role,
            self.session.host,
            self.name,
            self.kind,
            self.socket,
            self.run,
            self.group,
        )

    def as_party(self) -> Party:
        """Give this session as evidence."""
        terminal = self.session.host == TERMINAL
        return Party(
            self.key, self.role, self.kind, self.extent, self.socket, terminal=terminal, folder=self.folder
        )


class OwnRun(Own):
    """A run of a session, which is where the session is.

    Args:
        session: The session.
        run: The run's peer id.
        name: What people call it.
        scope: How far it reaches at most; as far as the session where None.
    """

    def __init__(self, session: Own, run: str, name: str, scope: str | None) -> None:
        super().__init__(
            session.session,
            kind=session.kind,
            role=session.role,
            instance_id=session.instance_id,
            socket=session.socket,
            name=name,
            extent=session.extent,
            run=run,
        )
        self._of = session
        self._scope = scope

    def as_party(self) -> Party:
        """See `Own.as_party`; the session's own scope and place may change at any time."""
        self.extent, self.folder = limited(self._of.extent, self._scope), self._of.folder
        return super().as_party()


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
        group=presence.group if presence else None,
    )


def party_of(sender: Sender) -> Party:
    """Give a sender as the evidence that acceptance stored about it, which stands; its scope is not kept."""
    return Party(
        sender.key,
        sender.role,
        sender.kind,
        socket=sender.socket,
        membership=None if sender.group is None else Grouped(sender.group),
        terminal=sender.host == TERMINAL,
    )
