"""Worktree groups and their inventories by git's own list, checked against the files of the checkout.

The files prove that the checkout and the common directory lead to each other, git that it has the checkout
on its list. One without the other proves nothing.
"""

import asyncio
import os
from collections.abc import Mapping

from assignments.worktrees.checkout import Checkout, checkout_of, is_absent, is_repository
from assignments.worktrees.groups import Grouped, Membership, Ungrouped, Unproven
from assignments.worktrees.inventory import Inventoried, Inventory, Partial, Worktree
from assignments.worktrees.porcelain import Entry, Malformed, entries_of
from assignments.worktrees.running import Git, Silent
from herd.core.limits import SUBPROCESS_S

_LIST = ("worktree", "list", "--porcelain", "-z")


class GitGroups:
    """Asks the git on the path; of a folder outside every checkout not even that.

    Args:
        child_environment: What a child process may see; see `Git`.
    """

    def __init__(self, child_environment: Mapping[str, str]) -> None:
        self._git = Git(child_environment)

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """See `Groups.membership`; workspaces are Herdr's, and git knows nothing of them."""
        del workspace_id
        try:
            async with asyncio.timeout(SUBPROCESS_S):
                return await self._membership(cwd)
        except TimeoutError:
            return Unproven(f"git did not tell the worktree group within {SUBPROCESS_S} s")

    async def _membership(self, cwd: str) -> Membership:
        checkout = await asyncio.to_thread(checkout_of, cwd)
        if isinstance(checkout, Ungrouped | Unproven):
            return checkout
        listed = await _listed(self._git, checkout.top)
        if isinstance(listed, Unproven):
            return listed
        return await asyncio.to_thread(_confirmed, checkout, listed)


class GitInventories:
    """Takes inventories by the git on the path.

    Args:
        child_environment: What a child process may see; see `Git`.
    """

    def __init__(self, child_environment: Mapping[str, str]) -> None:
        self._git = Git(child_environment)

    async def inventory(self, key: str) -> Inventory:
        """See `Inventories.inventory`."""
        try:
            async with asyncio.timeout(SUBPROCESS_S):
                return await self._inventory(key)
        except TimeoutError:
            return Partial(f"git did not list the worktrees within {SUBPROCESS_S} s")

    async def _inventory(self, key: str) -> Inventory:
        lacking = await asyncio.to_thread(_no_common_directory, key)
        if lacking is not None:
            return Partial(lacking)
        # Named outright: git would look for a repository further up where this one is spoilt.
        listed = await _listed(self._git, key, f"--git-dir={key}")
        if isinstance(listed, Unproven):
            return Partial(listed.reason)
        if listed[0].path != _primary_path(key):
            return Partial("git lists another repository than was asked for")
        try:
            return Inventoried(key, await asyncio.to_thread(_worktrees, listed))
        except (OSError, ValueError) as error:
            return Partial(f"a worktree on git's list cannot be looked at: {error}")


async def _listed(git: Git, folder: str, *options: str) -> tuple[Entry, ...] | Unproven:
    answer = await git.ask(folder, *options, *_LIST)
    if isinstance(answer, Silent):
        return Unproven(f"git's list of worktrees is lacking: {answer.reason}")
    try:
        return entries_of(answer.output)
    except Malformed as error:
        return Unproven(f"git's list of worktrees is lacking: {error}")


def _confirmed(checkout: Checkout, listed: tuple[Entry, ...]) -> Membership:
    """Give the group of a checkout, if git's list is that group's and has exactly this checkout on it."""
    if listed[0].path != _primary_path(checkout.common):
        return Unproven("git lists the worktrees of another repository than the checkout leads to")
    if checkout.linked:
        own = [entry for entry in listed[1:] if os.path.realpath(entry.path) == checkout.top]
    else:
        own = [listed[0]]
    if len(own) != 1 or own[0].bare or own[0].prunable:
        return Unproven(f"git's list does not have {checkout.top} as one of its worktrees")
    return Grouped(checkout.common)


def _primary_path(common: str) -> str:
    """Give what git lists first for a common directory: the folder of its checkout, or itself."""
    return common.removesuffix("/.git")


def _no_common_directory(key: str) -> str | None:
    try:
        if os.path.realpath(key, strict=True) != key:
            return f"{key} is not the real path of a common directory"
    except (OSError, ValueError) as error:
        return f"{key} cannot be looked at: {error}"
    return None if is_repository(key) else f"{key} is no common directory of a repository"


def _worktrees(listed: tuple[Entry, ...]) -> tuple[Worktree, ...]:
    return tuple(_worktree(entry, linked=number > 0) for number, entry in enumerate(listed))


def _worktree(entry: Entry, *, linked: bool) -> Worktree:
    present = not is_absent(entry.path)
    return Worktree(
        os.path.realpath(entry.path) if present else entry.path,
        entry.branch,
        linked=linked,
        prunable=entry.prunable,
        locked=entry.locked,
        present=present,
    )
