"""Whether a folder's checkout belongs to a worktree group: the seam between Herd and whoever can prove it.

A group is a repository's primary checkout and its linked worktrees; its key is the real path of the common
directory. What could not be proved is `Unproven`, and never `Ungrouped`.
"""

from typing import NamedTuple, Protocol


class Grouped(NamedTuple):
    """The checkout is proven to be in this group."""

    key: str
    """The real path of the group's common directory."""


class Ungrouped(NamedTuple):
    """It is certain that the folder lies in no checkout of a group."""

    reason: str


class Unproven(NamedTuple):
    """Nothing is certain: no answer, an error, a partial answer, or none that is fresh enough."""

    reason: str


Membership = Grouped | Ungrouped | Unproven


class Groups(Protocol):
    """Knows the worktree group of a folder."""

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """Look a folder up, within `SUBPROCESS_S`.

        Args:
            cwd: The absolute folder a session works in; a symlink on the way to it changes nothing.
            workspace_id: The Herdr workspace the session says it is in, where it is in one.
        """
        ...
