"""Which of the listed sessions a session may write to: discovery's share of eligibility."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from herd.core.errors import AmbiguousTarget, UnknownTarget
from herd.core.text import printable
from herd.presence.entries import entries_of, names_shown
from herd.presence.record import Record
from herd.presence.registry import names_of
from herd.presence.scopes import mutual
from roles.evidence import party_on_record
from roles.model import Allowed, Party, Unverified, Verdict


class Judging(Protocol):
    """Judges by the evidence of one hold of the authority lock."""

    def verdict(self, sender: Party, target: Party) -> Verdict:
        """Judge whether `sender` may write to `target`."""
        ...


def eligible(
    listed: Iterable[Record],
    me: Party,
    judge: Judging,
    target_of: Callable[[Record], str] = lambda record: names_of(record)[0],
    *,
    unproven: list[Unverified] | None = None,
) -> list[Record]:
    """Give the listed sessions of the caller's role that it may write to, in the order of their targets.

    Those alone whose scope and the caller's take each other in.
    Two sessions with one target are both left out, whoever may write to them: a message could reach either.
    To `unproven` goes why somebody is left out about whom nothing is certain.
    """
    bearers: dict[str, list[Record]] = {}
    for record in listed:
        bearers.setdefault(target_of(record), []).append(record)
    alone = [records[0] for _, records in sorted(bearers.items()) if len(records) == 1]
    return [record for record in alone if _may_be_written_to(record, me, judge, unproven)]


def named(peers: list[Record], name: str) -> Record:
    """Give the one peer that bears a name, as published or as a list shows it.

    Raises:
        UnknownTarget: none does.
        AmbiguousTarget: several do; `candidates` are their exact targets.
    """
    shown = zip(peers, entries_of(peers), strict=True)
    found = [peer for peer, entry in shown if name in _names(peer, entry)]
    if len(found) > 1:
        targets = [names_of(peer)[0] for peer in found]
        raise AmbiguousTarget(
            f"{len(found)} sessions are named {printable(name)!r}: {', '.join(targets)}", candidates=targets
        )
    if not found:
        raise UnknownTarget(f"no session that may be written to is named {printable(name)!r}")
    return found[0]


def _names(peer: Record, entry: dict[str, Any]) -> set[str]:
    # Also those that a list showed at another time: who bears one of them now could get what is another's.
    told = (peer.presence.name if peer.presence else None, entry.get("name"))
    return names_shown(peer).union(name for name in told if name)


def _may_be_written_to(record: Record, me: Party, judge: Judging, unproven: list[Unverified] | None) -> bool:
    presence = record.presence
    if presence is None or record.key == me.key or presence.role != me.role:
        return False
    if not mutual(me.extent, presence.extent):
        return False
    verdict = judge.verdict(me, party_on_record(record, me.socket))
    if isinstance(verdict, Unverified) and unproven is not None:
        unproven.append(verdict)
    return isinstance(verdict, Allowed)
