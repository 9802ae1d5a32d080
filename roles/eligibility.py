"""Who may write to whom: from evidence to verdict, without looking at anything else.

Today Leads alone are peers, the terminal's among them, on one machine; whoever has another role is denied
until the evidence about it exists. Callers ask at discovery, at submission, at acceptance and at delivery,
each time under the authority lock and across their own commit.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from assignments.evidence import Held, Scan
from assignments.worktrees.groups import Grouped, Ungrouped, Unproven
from roles.model import LEAD, MANAGED, Allowed, Denied, Party, Unverified, Verdict


class Judge(Protocol):
    """Turns the evidence about two sessions into a verdict."""

    def verdict(self, sender: Party, target: Party, scan: Scan, *, reply: bool = False) -> Verdict:
        """Judge whether `sender` may write to `target`; see the function `verdict`."""
        ...


class Leads:
    """The real judge."""

    def verdict(self, sender: Party, target: Party, scan: Scan, *, reply: bool = False) -> Verdict:
        """See the function `verdict`."""
        return verdict(sender, target, scan, reply=reply)


class _Side(NamedTuple):
    name: str
    party: Party
    held: tuple[Held, ...]

    @property
    def bound(self) -> bool:
        return self.party.kind == MANAGED or bool(self.held)


def verdict(sender: Party, target: Party, scan: Scan, *, reply: bool = False) -> Verdict:
    """Judge whether `sender` may write to `target`.

    Ordinary Leads that no assignment names write to each other. Where one side is managed or assigned, both
    have to be on one socket and in one worktree group, and an assignment of that socket and that repository
    has to name each such side. The terminal session writes to every Lead, and is answered by it.

    Args:
        sender: Who writes.
        target: Who is written to.
        scan: What the assignment records prove, read under the lock that the caller holds.
        reply: Whether the message answers one of the target's to the sender.

    Returns:
        `Unverified` wherever evidence that counts is missing, incomplete or ambiguous; never `Allowed` then.
    """
    if sender.key == target.key:
        return Denied("a session does not write to itself")
    sides = (
        _Side("sender", sender, scan.held.get(sender.key, ())),
        _Side("recipient", target, scan.held.get(target.key, ())),
    )
    return _by_role(sides) or _by_evidence(sides, scan) or _between_leads(sides, reply=reply)


def _by_role(sides: Iterable[_Side]) -> Verdict | None:
    for side in sides:
        if side.party.role not in {LEAD, None}:
            return Denied(f"the {side.name} is a {side.party.role}, and no Lead")
    return None


def _by_evidence(sides: Iterable[_Side], scan: Scan) -> Verdict | None:
    for side in sides:
        if side.party.kind is None or side.party.role is None:
            why = side.party.fault or "no record of it proves them"
            return Unverified(f"the {side.name}'s kind and role are not proven: {why}")
    if scan.lacking is not None:
        return Unverified(f"the assignments are not proven: {scan.lacking.path}: {scan.lacking.reason}")
    for side in sides:
        if len(side.held) > 1:
            branches = ", ".join(f"{one.branch} of {one.repo}" for one in side.held)
            return Unverified(f"several assignments name the {side.name}: {branches}")
    return None


def _between_leads(sides: tuple[_Side, _Side], *, reply: bool) -> Verdict:
    sender, target = sides
    if sender.party.terminal or not (sender.bound or target.bound):
        return Allowed()
    if target.party.terminal:
        if reply:
            return Allowed()
        if sender.bound:
            return Denied("a managed or assigned Lead writes to a terminal session only to answer it")
    for side in sides:
        if side.bound and not side.held:
            return Denied(f"the {side.name} is a managed Lead, and no assignment names it")
    return _on_one_socket(sides) or _in_one_group(sides)


def _on_one_socket(sides: tuple[_Side, _Side]) -> Verdict | None:
    for side in sides:
        if side.party.socket is None:
            return Unverified(f"the {side.name}'s Herdr socket is not proven: no record tells it")
    socket = sides[0].party.socket
    if socket != sides[1].party.socket:
        return Denied("one of the two is managed or assigned, and they are on different Herdr sockets")
    for side in sides:
        if side.held and side.held[0].socket != socket:
            return Denied(f"the {side.name}'s assignment is of another Herdr socket than it is on")
    return None


def _in_one_group(sides: tuple[_Side, _Side]) -> Verdict:
    keys: list[str] = []
    certain: Verdict | None = None
    for side in sides:
        match side.party.membership:
            case Grouped(key):
                keys.append(key)
            case Ungrouped(reason):
                certain = certain or Denied(f"the {side.name} is in no worktree group: {reason}")
            case Unproven(reason):
                return Unverified(f"the {side.name}'s worktree group is not proven: {reason}", of_group=True)
            case _:
                return Unverified(
                    f"the {side.name}'s worktree group is not proven: nothing tells it", of_group=True
                )
    if certain is not None:
        return certain
    if keys[0] != keys[1]:
        return Denied("one of the two is managed or assigned, and they are in different worktree groups")
    for side in sides:
        if side.held and side.held[0].repo != keys[0]:
            return Denied(f"the {side.name}'s assignment is of another repository than it works in")
    return Allowed()
