"""Groups that answer from memory; they keep the same contract as the real ones."""

import asyncio
import os
from collections.abc import Mapping

from assignments.worktrees.groups import Membership, Ungrouped, Unproven


class FakeGroups:
    """Knows the checkouts it was given.

    Args:
        known: The membership of each checkout and of what is to be none, by real path; a folder has that of
            the nearest one at it or above.

    Attributes:
        asked: What it was asked, in order.
    """

    def __init__(self, known: Mapping[str, Membership]) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self._known = known

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """See `Groups.membership`."""
        self.asked.append((cwd, workspace_id))
        try:
            folder = await asyncio.to_thread(os.path.realpath, cwd, strict=True)
        except (OSError, ValueError) as error:
            return Unproven(f"{cwd}: {error}")
        while folder not in self._known and folder != "/":
            folder = os.path.dirname(folder)
        return self._known.get(folder, Ungrouped(f"no checkout is at {cwd} or above it"))
