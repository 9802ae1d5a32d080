"""Where a working directory belongs: the seam between Herd and whoever knows about worktrees."""

from typing import NamedTuple, Protocol


class Whereabouts(NamedTuple):
    """What labels a session: repository and branch names for people, never permission."""

    repo: str | None = None
    branch: str | None = None
    workspace_label: str | None = None


class Topology(Protocol):
    """Knows the checkout a folder lies in."""

    async def whereabouts(self, cwd: str) -> Whereabouts:
        """Look a folder up; empty where it lies in no checkout, or where that cannot be told in time."""
        ...
