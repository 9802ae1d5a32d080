"""Whom a command's session may write to: judged as its coordinator does, by the same evidence."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from assignments.evidence import NOTHING_ASSIGNED, Scan
from assignments.worktrees.groups import Membership
from herd.cli.context import Context
from herd.core.clock import SystemClock
from herd.core.locks import AuthorityHold, AuthorityLock
from herd.presence.record import Record
from roles.discovery import eligible
from roles.eligibility import verdict
from roles.model import Folder, Party, Unverified, Verdict


class _Judging:
    """Judges by one scan and by what is known of worktree groups; notes which ones are lacking."""

    def __init__(self, scan: Scan, known: dict[Folder, Membership]) -> None:
        self._scan = scan
        self._known = known
        self.lacking: set[Folder] = set()

    def verdict(self, sender: Party, target: Party) -> Verdict:
        found = verdict(sender, target, self._scan)
        if not (isinstance(found, Unverified) and found.of_group):
            return found
        return verdict(self._grouped(sender), self._grouped(target), self._scan)

    def _grouped(self, party: Party) -> Party:
        if party.folder is None:
            return party
        if party.folder not in self._known:
            self.lacking.add(party.folder)
        return party._replace(membership=self._known.get(party.folder))


class Found(NamedTuple):
    """Who may be written to, and why somebody is left out about whom nothing is certain."""

    peers: list[Record]
    unproven: list[Unverified]


def peers_of(context: Context, listed: Sequence[Record], me: Party) -> Found:
    """Give those of the listed sessions that a session may write to.

    Raises:
        LockTimeout: authority is being changed for too long.
        SystemWant: the disk or the kernel refuses the lock.
    """
    layout = context.layout
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)

    def judged(known: dict[Folder, Membership]) -> tuple[Found, set[Folder]]:
        unproven: list[Unverified] = []
        with lock.shared() as hold:
            judging = _Judging(_scan(context, lock, hold), known)
            peers = eligible(listed, me, judging, unproven=unproven)
            return Found(peers, unproven), judging.lacking

    found, lacking = judged({})
    return judged(_looked_up(context, lacking))[0] if lacking else found


def _scan(context: Context, lock: AuthorityLock, hold: AuthorityHold) -> Scan:
    # Where nobody has ever got an assignment, nothing is imported that reads them.
    if not os.path.lexists(context.layout.assignments):
        return NOTHING_ASSIGNED
    from assignments.scan import Scans

    return Scans(context.layout, lock).scan(hold)


def _looked_up(context: Context, folders: set[Folder]) -> dict[Folder, Membership]:
    import asyncio

    from assignments.worktrees.fresh import FreshGroups

    async def looked_up() -> dict[Folder, Membership]:
        fresh = FreshGroups(context.groups(), SystemClock())
        try:
            await fresh.refresh(folders)
            return {folder: fresh.membership(*folder) for folder in folders}
        finally:
            await fresh.close()

    return asyncio.run(looked_up())
