"""Inventories that a test chooses; they keep the same contract as real ones."""

from collections.abc import Awaitable, Callable

from assignments.worktrees.inventory import Inventory


class FakeInventories:
    """Gives one inventory after the other, and the last of them for ever.

    Args:
        answers: The inventories.
        meanwhile: Called with the number of each question, from 1 on, before it is answered.

    Attributes:
        asked: The keys it was asked for, in order.
    """

    def __init__(
        self, *answers: Inventory, meanwhile: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        self.asked: list[str] = []
        self._answers = answers
        self._meanwhile = meanwhile

    async def inventory(self, key: str) -> Inventory:
        """See `Inventories.inventory`."""
        self.asked.append(key)
        if self._meanwhile is not None:
            await self._meanwhile(len(self.asked))
        return self._answers[min(len(self.asked), len(self._answers)) - 1]
