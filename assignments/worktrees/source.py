"""Who tells a session its worktree groups: the Herdr that it lives in, or git where there is none."""

from collections.abc import Mapping

from assignments.worktrees.groups import Groups
from herd.core.config import NO_SOCKET


def groups_at(place_socket: str, child_environment: Mapping[str, str]) -> Groups:
    """Give the groups as a session on that socket has to ask for them.

    A Herdr that does not answer is not replaced by git: who lives in Herdr is judged by Herdr's word.

    Args:
        place_socket: The Herdr socket the session lives on, or `none`.
        child_environment: What git may see where it is asked.
    """
    if place_socket == NO_SOCKET:
        from assignments.worktrees.git_groups import GitGroups  # one of the two is needed, never both

        return GitGroups(child_environment)
    from assignments.worktrees.herdr import HerdrGroups

    return HerdrGroups(place_socket)
