"""A host's adapter that listens for waiting mail, and the raw messages that make a session be told of it.

It owns what was heard. It is ignorant of what a host does about it.
"""

import asyncio
from typing import Any

from herd.coordinator.attention import Arrival
from tests.fakes.coordinators import IN_TIME_S, Running, until


class Listening:
    """Listens to one session from now on.

    Attributes:
        heard: What was told, in its order.
        stop: Ends it.
    """

    def __init__(self, session: Running) -> None:
        self._session = session
        self.heard: list[Arrival] = []
        self.stop = session.coordinator.attention.listen(self.heard.append)

    @property
    def wakes(self) -> int:
        """How often an idle session might be woken."""
        return sum(one.wake for one in self.heard)

    async def all_heard(self) -> list[Arrival]:
        """Wait until everything that is there was told, and give what was told since the last time."""
        await looked(self._session)
        heard, self.heard[:] = list(self.heard), []
        return heard

    async def hears(self, count: int) -> None:
        """Wait until so many arrivals were told."""
        await until(lambda: len(self.heard) >= count)


async def looked(session: Running) -> None:
    """Wait until no look into a session's mailbox is under way."""
    await until(lambda: not session.coordinator.attention._looking)


async def drained(session: Running, **params: Any) -> dict[str, Any]:
    """Drain as the session's host does."""
    return await session.ask("drain", **params)


async def within_bounds(asking: Any) -> Any:
    """Wait for something that must come."""
    async with asyncio.timeout(IN_TIME_S):
        return await asking
