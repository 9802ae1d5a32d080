"""What could not be verified at its delivery is judged again, with growing pauses, until it is certain."""

import asyncio
from collections.abc import Awaitable, Callable

from herd.coordinator.tasks import Tasks
from herd.core.backoff import pause_ms
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError


class Rejudging:
    """One session's received mail whose verdict is not certain.

    Args:
        judge: Judges it again; gives whether something is still uncertain.
        tasks: Runs the tries.
        clock: Measures the pauses.
        jitter: Gives a number in [0, 1) for each pause.
    """

    def __init__(
        self,
        judge: Callable[[], Awaitable[bool]],
        tasks: Tasks,
        *,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self._judge = judge
        self._tasks = tasks
        self._clock = clock
        self._jitter = jitter
        self._running = False
        self._news = asyncio.Event()

    def begin(self) -> None:
        """Take note that something is uncertain."""
        if not self._running:
            self._running = True
            self._tasks.create_task(self._run())

    def retry(self) -> None:
        """Judge at once: presence has changed, and evidence may have."""
        if self._running:
            self._news.set()

    async def _run(self) -> None:
        attempt = 0
        try:
            uncertain = True
            while uncertain:
                attempt += 1
                await first_of(self._news, self._clock, pause_ms(attempt, self._jitter()) / 1000)
                self._news.clear()
                try:
                    uncertain = await self._judge()
                except HerdError:
                    uncertain = True  # nothing can be judged now
        finally:
            self._running = False
