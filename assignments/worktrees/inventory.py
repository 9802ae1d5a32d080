"""All worktrees of a group at one moment: the evidence by which an assignment is retired, or is not.

An inventory is complete, or it proves nothing. Whoever makes one knows git; here are its values and its seam.
"""

from typing import NamedTuple, Protocol


class Worktree(NamedTuple):
    """One checkout that the repository has on its list."""

    path: str
    """Absolute, as the repository has it; of what exists, the real path."""
    branch: str | None
    """The branch it has checked out, without `refs/heads/`; None where it is detached or bare."""
    linked: bool = True
    """Whether it is a linked one; exactly one of a group, the primary checkout, is not."""
    prunable: bool = False
    """Whether the repository itself holds that its checkout is gone."""
    locked: bool = False
    """Whether somebody asked that it be kept, as for a disk that is not always there."""
    present: bool = True
    """Whether anything is at its path, by a look of its own and not by the repository's word."""


class Inventoried(NamedTuple):
    """The complete list: every worktree of the group, and nothing that could not be read."""

    key: str
    """The group's key, as it was found there: the real path of the common directory."""
    worktrees: tuple[Worktree, ...]


class Partial(NamedTuple):
    """No complete list: no answer in time, an error, or an answer that could not be understood whole."""

    reason: str


Inventory = Inventoried | Partial


class Inventories(Protocol):
    """Takes the inventory of a group."""

    async def inventory(self, key: str) -> Inventory:
        """Take it anew, within `SUBPROCESS_S`; nothing remembered is given.

        Args:
            key: The group's key, as an assignment keeps it in `repo`.
        """
        ...
