"""Whether an inventory proves that the checkout of an assignment is gone: one pure function.

Only proven absence retires. Whatever leaves a doubt keeps the assignment, and is named.
"""

from assignments.record import Assignment
from assignments.worktrees.inventory import Inventoried, Inventory, Partial, Worktree


def kept_by(assignment: Assignment, inventory: Inventory) -> str | None:
    """Give what keeps an assignment; None where its checkout is proven to be gone.

    It is gone where the list of its own group is complete and has the primary checkout, no worktree stands at
    the checkout's path or has its branch, and none that is listed so may come back. Where the assignment does
    not say which checkout is its own, any linked one that is there may be it: a session can check out another
    branch.
    """
    if isinstance(inventory, Partial):
        return f"the inventory of worktrees is not complete: {inventory.reason}"
    if inventory.key != assignment.repo:
        return f"the inventory is of another repository, {inventory.key}"
    return _kept_by_group(inventory) or _kept_by_one(assignment, inventory)


def _kept_by_group(inventory: Inventoried) -> str | None:
    paths = [one.path for one in inventory.worktrees]
    if len(set(paths)) != len(paths):
        return "the inventory names a worktree twice"
    primary = [one for one in inventory.worktrees if not one.linked]
    if len(primary) != 1 or not primary[0].present:
        return "the inventory does not show the primary checkout"
    return None


def _kept_by_one(assignment: Assignment, inventory: Inventoried) -> str | None:
    of_branch = [one for one in inventory.worktrees if one.branch == assignment.branch]
    if len(of_branch) > 1:
        return f"{len(of_branch)} worktrees have {assignment.branch} checked out"
    for one in inventory.worktrees:
        if one in of_branch or one.path == assignment.checkout:
            if not _is_gone(one):
                return f"the worktree {one.path} is there, or may come back"
        elif assignment.checkout is None and one.linked and (one.present or one.locked):
            return f"the worktree {one.path} may be its checkout"
    return None


def _is_gone(worktree: Worktree) -> bool:
    return worktree.linked and worktree.prunable and not worktree.locked and not worktree.present
