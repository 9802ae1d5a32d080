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
        await self.enter(name)
        try:
            yield
        finally:
            self.leave(name)

    async def enter(self, name: str) -> None:
        """Take the lock of that name, as `lane` does; whoever has taken it must `leave`."""
        # A lock that has just been released looks free while its next holder is still to run. It goes with
        # its last user, or whoever comes now would get another one and overtake those who wait.
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            await lock.acquire()
        except BaseException:
            self._forget(name)
            raise

    def leave(self, name: str) -> None:
        """Give the lock of that name to whoever waits next."""
        self._locks[name].release()
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._users[name] -= 1
        if not self._users[name]:
            del self._users[name], self._locks[name]
