"""The worktree groups that verdicts rest on: read before the authority lock, and believed for a moment.

Nothing is asked while the lock is held. A verdict that needs what is not known, or not freshly, is put off:
the asker lets the lock go, has it looked up, and judges once more.
"""

from contextlib import contextmanager
from typing import TYPE_CHECKING

from assignments.worktrees.fresh import FreshGroups
from assignments.worktrees.groups import Groups, Membership, Unproven
from herd.core.clock import Clock
from herd.core.limits import TOPOLOGY_FRESH_S, TOPOLOGY_KEPT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from roles.model import Folder


class NoGroups:
    """Where nobody can tell a group: nothing is ever proven."""

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """See `Groups.membership`."""
        del workspace_id
        return Unproven(f"nothing here can tell the worktree group of {cwd}")


NO_GROUPS = NoGroups()


class NotFresh(Exception):
    """A verdict needs worktree groups that were not read, or too long ago; `Authority.fresh` has them read.

    Attributes:
        folders: Whose.
    """

    def __init__(self, folders: "Collection[Folder]") -> None:
        named = ", ".join(folder.cwd for folder in folders)
        super().__init__(f"the worktree group of {named} was not read within {TOPOLOGY_FRESH_S} s")
        self.folders = folders


class Topologies:
    """What is known freshly of worktree groups; `found` may be asked from every thread.

    Args:
        groups: Who knows.
        clock: Judges how old an answer is.

    *Resource handling*: `close` ends what is being read.
    """

    def __init__(self, groups: Groups, clock: Clock) -> None:
        self._clock = clock
        self._fresh = FreshGroups(groups, clock)
        self._asked: dict[Folder, float] = {}
        self._resigned = 0

    def found(self, folder: "Folder") -> Membership | None:
        """Give what is known of a folder; None where it has to be looked up first.

        What was looked up a moment ago without a proof is not looked up again at once: a source that hangs
        would hold up everybody anew.
        """
        found = self._fresh.membership(*folder)
        if isinstance(found, Unproven) and not self._resigned:
            asked = self._asked.get(folder)
            if asked is None or self._clock.elapsed() - asked > TOPOLOGY_FRESH_S:
                return None
        return found

    @contextmanager
    def resigned(self) -> "Iterator[None]":
        """Let what is not known freshly count as not proven until the block ends."""
        self._resigned += 1
        try:
            yield
        finally:
            self._resigned -= 1

    async def refresh(self, folders: "Collection[Folder]") -> None:
        """Look these folders up, for `TOPOLOGY_WAIT_S` at most; what gave no answer by then is not proven."""
        await self._fresh.refresh(folders)
        for folder in folders:
            self._asked.pop(folder, None)
            if isinstance(self._fresh.membership(*folder), Unproven):
                self._asked[folder] = self._clock.elapsed()
        while len(self._asked) > TOPOLOGY_KEPT:
            del self._asked[next(iter(self._asked))]

    async def close(self) -> None:
        """End what is being read."""
        await self._fresh.close()
