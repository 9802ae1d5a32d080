"""A topology that answers from memory; it keeps the same contract as the real one."""

from collections.abc import Mapping

from assignments.worktrees.topology import Whereabouts


class FakeTopology:
    """Knows the folders it was given.

    Args:
        known: For each folder its whereabouts; any other lies in no checkout.
    """

    def __init__(self, known: Mapping[str, Whereabouts]) -> None:
        self._known = known

    async def whereabouts(self, cwd: str) -> Whereabouts:
        """See `Topology.whereabouts`."""
        return self._known.get(cwd, Whereabouts())
