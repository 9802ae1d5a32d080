"""Work on one thing in the order in which it was asked for, and on different things at once."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Lanes:
    """A lock for each name, there while somebody holds it or waits for it."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}
        """Who asked for a name, in that order. The first one holds it, and its future has ended."""

    @asynccontextmanager
    async def lane(self, name: str) -> AsyncIterator[None]:
        """Hold the lock of that name; who asks first gets it first."""
        await self.enter(name)
        try:
            yield
        finally:
            self.leave(name)

    async def enter(self, *names: str) -> None:
        """Take the locks of those names, as `lane` does; whoever has taken them must `leave`.

        A place in every line is taken before any is waited for. So whoever asks later for one of several is
        behind in all of them, and two who ask for several never wait for each other.
        """
        places = [(name, self._place(name)) for name in dict.fromkeys(names)]
        try:
            for _, place in places:
                if not place.done():
                    await place
        except BaseException:
            for name, place in places:
                self._give_up(name, place)
            raise

    def leave(self, *names: str) -> None:
        """Give the locks of those names to whoever waits next for each."""
        for name in dict.fromkeys(names):
            self._give_up(name, self._lines[name][0])

    def _place(self, name: str) -> "asyncio.Future[None]":
        line = self._lines.setdefault(name, deque())
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not line:
            place.set_result(None)
        line.append(place)
        return place

    def _give_up(self, name: str, place: "asyncio.Future[None]") -> None:
        line = self._lines[name]
        held = line[0] is place
        line.remove(place)
        if not line:
            del self._lines[name]
        elif held and not line[0].done():  # else it was cancelled just now, and gives it up itself
            line[0].set_result(None)
