"""Time that decides: one seam, so that everything with a deadline can be tested without waiting for it.

Above it are all that expire, retry or wait; below it the kernel's boot clock. It knows nothing of what is
timed. `FakeClock` ships here and obeys the same contract.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

_NS = 1_000_000_000

if sys.platform == "linux":
    _BOOT_CLOCK = time.CLOCK_BOOTTIME
else:
    # Darwin's CLOCK_MONOTONIC counts while asleep; time.monotonic() there reads another, which does not.
    _BOOT_CLOCK = time.CLOCK_MONOTONIC


class Clock(Protocol):
    """The only source of time that decides anything."""

    def elapsed(self) -> float:
        """Give seconds since some fixed instant of this boot.

        It never goes back, nobody can set it, and it counts while the machine is suspended. Between two
        boots, or two machines, its values cannot be compared.
        """

    def wall_ms(self) -> int:
        """Give milliseconds since the epoch: may jump either way, is shown, decides nothing within a boot."""

    async def sleep(self, seconds: float) -> None:
        """Return once `elapsed` has grown by `seconds`, never before.

        Zero, or less, lets the other tasks run once. While the machine is suspended a sleep stands still,
        so it may end late by that much: whoever has a deadline asks `elapsed` afterwards.
        """

    def after(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Have something called in the running event loop once a sleep of so long would end.

        It costs a fraction of a task that sleeps, so it is for waits that nearly always end sooner.

        Returns:
            What calls it off: it is not called any more then; too late, or again: nothing.
        """


class SystemClock:
    """The kernel's clocks."""

    def elapsed(self) -> float:
        """Give seconds since the machine started, suspended time included."""
        return time.clock_gettime(_BOOT_CLOCK)

    def wall_ms(self) -> int:
        """Give milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Return once `elapsed` has grown by `seconds`."""
        import asyncio  # blocking front ends read clocks too, and asyncio costs them 75 ms

        end = self.elapsed() + seconds
        while True:
            await asyncio.sleep(max(end - self.elapsed(), 0))
            # The loop rounds its deadlines to its own resolution and may call a little early.
            if self.elapsed() >= end:
                return

    def after(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """See `Clock.after`."""
        import asyncio  # see `sleep`

        loop, end = asyncio.get_running_loop(), self.elapsed() + seconds
        timer: asyncio.TimerHandle

        def due() -> None:
            nonlocal timer
            left = end - self.elapsed()
            if left > 0:  # see `sleep`
                timer = loop.call_later(left, due)
            else:
                call()

        def call_off() -> None:
            timer.cancel()  # the one that runs now

        timer = loop.call_later(seconds, due)
        return call_off


class FakeClock:
    """A clock that stands still until a test moves it.

    Args:
        start_elapsed: Seconds that `elapsed` gives at first.
        start_wall_ms: Milliseconds that `wall_ms` gives at first.

    It belongs to the thread of one event loop; other threads may read it, and none but that one moves it.
    """

    def __init__(self, start_elapsed: float = 0.0, start_wall_ms: int = 1_800_000_000_000) -> None:
        # Whole nanoseconds, since ten steps of 0.1 s would otherwise fall short of one second.
        self._now_ns = round(start_elapsed * _NS)
        self._wall_offset_ns = start_wall_ms * 1_000_000 - self._now_ns
        self._sleepers: dict[asyncio.Future[None], int] = {}
        self._watchers: dict[asyncio.Future[None], int] = {}

    @property
    def sleeping(self) -> int:
        """How many sleeps have not ended."""
        return len(self._sleepers)

    def elapsed(self) -> float:
        """Give the seconds this clock was moved to."""
        return self._now_ns / _NS

    def wall_ms(self) -> int:
        """Give the milliseconds since the epoch this clock was moved to."""
        return (self._now_ns + self._wall_offset_ns) // 1_000_000

    async def sleep(self, seconds: float) -> None:
        """Return once `advance` has moved this clock by `seconds`."""
        import asyncio  # see SystemClock.sleep

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers[sleeper] = self._now_ns + round(seconds * _NS)
        _end([watcher for watcher, count in self._watchers.items() if count <= self.sleeping])
        try:
            await sleeper
        finally:
            self._sleepers.pop(sleeper, None)

    def after(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call it once `advance` has moved this clock by `seconds`; see `Clock.after`."""
        import asyncio  # see SystemClock.sleep

        async def slept() -> None:
            await self.sleep(seconds)
            call()

        return asyncio.ensure_future(slept()).cancel

    def advance(self, seconds: float) -> None:
        """Move both times on and end the sleeps that are due, the earliest first.

        Raises:
            ValueError: `seconds` is negative; time that decides never goes back.
        """
        if seconds < 0:
            raise ValueError(f"a clock cannot be moved by {seconds} seconds")
        self._now_ns += round(seconds * _NS)
        due = [sleeper for sleeper, at in self._sleepers.items() if at <= self._now_ns]
        due.sort(key=self._sleepers.__getitem__)
        for sleeper in due:
            del self._sleepers[sleeper]
        _end(due)

    def shift_wall(self, milliseconds: int) -> None:
        """Let the wall clock jump, either way, as an operator or a time server would."""
        self._wall_offset_ns += milliseconds * 1_000_000

    async def wait_for_sleepers(self, count: int = 1) -> None:
        """Return once at least `count` sleeps are under way, at once where they are."""
        import asyncio  # see SystemClock.sleep

        if self.sleeping >= count:
            return
        watcher = asyncio.get_running_loop().create_future()
        self._watchers[watcher] = count
        try:
            await watcher
        finally:
            self._watchers.pop(watcher, None)


def _end(futures: "list[asyncio.Future[None]]") -> None:
    for future in futures:
        if not future.done():  # its task may have been cancelled in this very turn of the loop
            future.set_result(None)


async def first_of(event: "asyncio.Event", clock: Clock, seconds: float) -> bool:
    """Wait for an event, `seconds` at most on that clock; True where the event came."""
    import asyncio  # short commands use the clock without a loop

    if event.is_set():
        return True
    # The caller itself waits for the event, so that it goes on in the next turn of the loop.
    try:
        async with asyncio.timeout(None) as bound:
            now = asyncio.get_running_loop().time()
            # Called off inside: a bound that is over takes no other time any more.
            call_off = clock.after(seconds, lambda: bound.reschedule(now))
            try:
                await event.wait()
            finally:
                call_off()
    except TimeoutError:
        pass
    return event.is_set()


def shown_time(wall_ms: int | None) -> str | None:
    """Give a time as it is shown: ISO 8601 in UTC with milliseconds, such as `2026-11-30T16:40:28.120Z`."""
    if wall_ms is None:
        return None
    seconds, milliseconds = divmod(wall_ms, 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"
