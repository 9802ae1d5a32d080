"""Which of the listed sessions a session may write to: discovery's share of eligibility."""

from collections.abc import Iterable

from herd.core.errors import AmbiguousTarget, UnknownTarget
from herd.core.text import printable
from herd.presence.entries import entries_of
from herd.presence.record import Record
from herd.presence.registry import names_of
from roles.eligibility import Judge
from roles.model import Allowed, Party


def eligible(listed: Iterable[Record], me: Party, judge: Judge) -> list[Record]:
    """Give the listed sessions of the caller's role that it may write to, in the order of their targets.

    Two sessions with one target are both left out: a message to it could reach either.
    """
    found: dict[str, list[Record]] = {}
    for record in listed:
        presence = record.presence
        if presence is None or record.key == me.key or presence.role != me.role:
            continue
        if isinstance(judge.verdict(me, Party(record.key, presence.role, record.kind)), Allowed):
            found.setdefault(names_of(record)[0], []).append(record)
    return [records[0] for _, records in sorted(found.items()) if len(records) == 1]


def named(peers: list[Record], name: str) -> Record:
    """Give the one peer that bears a name, as published or as a list shows it.

    Raises:
        UnknownTarget: none does.
        AmbiguousTarget: several do; `candidates` are their exact targets.
    """
    shown = zip(peers, entries_of(peers), strict=True)
    found = [
        peer
        for peer, entry in shown
        if peer.presence is not None and name in {peer.presence.name, entry.get("name")}
    ]
    if len(found) > 1:
        targets = [names_of(peer)[0] for peer in found]
        raise AmbiguousTarget(
            f"{len(found)} sessions are named {printable(name)!r}: {', '.join(targets)}", candidates=targets
        )
    if not found:
        raise UnknownTarget(f"no session that may be written to is named {printable(name)!r}")
    return found[0]
