"""Work on one thing in the order in which it was asked for, and on different things at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lanes:
    """A lock for each name, there while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}

    @asynccontextmanager
    async def lane(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of that name; who asks first gets it first."""
        # A lock that has just been released looks free while its next holder is still to run. It goes with
        # its last user, or whoever comes now would get another one and overtake those who wait.
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name], self._locks[name]
