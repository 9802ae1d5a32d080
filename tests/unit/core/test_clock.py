import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from herd.core.clock import Clock, FakeClock, SystemClock, first_of


@asynccontextmanager
async def going_by_itself(clock):
    yield


@asynccontextmanager
async def moved_by_us(clock):
    async def move():
        while True:
            await clock.wait_for_sleepers()
            clock.advance(0.001)
            await asyncio.sleep(0)

    mover = asyncio.create_task(move())
    yield
    mover.cancel()
    with pytest.raises(asyncio.CancelledError):
        await mover


@pytest.fixture(params=["system", "fake"])
def clock(request) -> Clock:
    return SystemClock() if request.param == "system" else FakeClock(start_elapsed=12.5)


@pytest.fixture
def running(clock):
    return moved_by_us(clock) if isinstance(clock, FakeClock) else going_by_itself(clock)


class TestEveryClock:
    def test_elapsed_never_goes_back(self, clock):
        seen = [clock.elapsed() for _ in range(10_000)]

        assert all(isinstance(one, float) for one in seen)
        assert seen == sorted(seen)

    def test_the_wall_clock_gives_whole_milliseconds_since_the_epoch(self, clock):
        assert type(clock.wall_ms()) is int
        assert clock.wall_ms() > 1_600_000_000_000

    @pytest.mark.parametrize("seconds", [0.001, 0.0123456789, 0.02])
    async def test_a_sleep_never_ends_before_its_time(self, clock, running, seconds):
        async with running:
            for _ in range(5):
                start = clock.elapsed()
                await clock.sleep(seconds)
                assert clock.elapsed() >= start + seconds - 1e-9

    @pytest.mark.parametrize("seconds", [0, -5, -0.0])
    async def test_a_sleep_of_nothing_lets_the_others_run_once(self, clock, seconds):
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)

        await asyncio.wait_for(clock.sleep(seconds), 5)

        assert ran.is_set()

    async def test_shorter_sleeps_end_first(self, clock, running):
        ended = []

        async def nap(seconds):
            await clock.sleep(seconds)
            ended.append(seconds)

        # An hour and no less: of two short ones the later begun may be due later, where the machine is busy.
        naps = [asyncio.create_task(nap(seconds)) for seconds in (3600.0, 0.0, 0.03)]
        async with running:
            await asyncio.gather(*naps[1:])

        assert ended == [0.0, 0.03]
        naps[0].cancel()

    async def test_a_sleep_can_be_cancelled(self, clock):
        task = asyncio.create_task(clock.sleep(3600))
        await asyncio.sleep(0)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)

    async def test_what_is_to_be_called_is_called_once_and_never_before_its_time(self, clock, running):
        called, start = asyncio.Event(), clock.elapsed()
        calls = []

        def call():
            calls.append(clock.elapsed())
            called.set()

        clock.after(0.01, call)
        async with running:
            await asyncio.wait_for(called.wait(), 5)
            await clock.sleep(0.01)

        assert len(calls) == 1
        assert calls[0] >= start + 0.01 - 1e-9

    async def test_what_was_called_off_is_not_called(self, clock, running):
        calls = []
        call_off = clock.after(0.01, lambda: calls.append("late"))
        async with running:
            call_off()
            await clock.sleep(0.02)
            call_off()

        assert calls == []


class TestSystemClock:
    def test_elapsed_counts_from_the_machines_start_with_its_suspended_time(self):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        elapsed = SystemClock().elapsed()

        assert before <= elapsed <= time.clock_gettime(time.CLOCK_BOOTTIME)

    def test_two_clocks_of_one_boot_agree(self):
        first, second, again = SystemClock().elapsed(), SystemClock().elapsed(), SystemClock().elapsed()

        assert first <= second <= again

    def test_the_wall_clock_is_the_systems(self):
        assert abs(SystemClock().wall_ms() - time.time() * 1000) < 5_000


class TestFakeClock:
    def test_it_stands_still_until_it_is_moved(self):
        clock = FakeClock(start_elapsed=3.0, start_wall_ms=42_000)
        assert (clock.elapsed(), clock.wall_ms()) == (3.0, 42_000)

        clock.advance(1.5)
        assert (clock.elapsed(), clock.wall_ms()) == (4.5, 43_500)

    def test_the_wall_clock_may_jump_back_while_elapsed_does_not_notice(self):
        clock = FakeClock(start_wall_ms=1_000_000)
        clock.shift_wall(-900_000)
        clock.advance(1)

        assert (clock.elapsed(), clock.wall_ms()) == (1.0, 101_000)

    def test_it_cannot_be_moved_back(self):
        clock = FakeClock()
        with pytest.raises(ValueError, match="-1"):
            clock.advance(-1)
        assert clock.elapsed() == 0

    async def test_it_wakes_exactly_those_who_are_due_and_counts_the_rest(self):
        clock = FakeClock()
        async with asyncio.TaskGroup() as group:
            early, exact, late = (group.create_task(clock.sleep(seconds)) for seconds in (1, 2, 3))
            await asyncio.wait_for(clock.wait_for_sleepers(3), 5)

            clock.advance(2)
            await asyncio.wait_for(asyncio.gather(early, exact), 5)
            assert clock.sleeping == 1
            assert not late.done()

            clock.advance(1)
            assert clock.sleeping == 0

    async def test_many_small_steps_are_as_long_as_one_large_one(self):
        clock = FakeClock()
        sleeper = asyncio.create_task(clock.sleep(1))
        await clock.wait_for_sleepers()

        for _ in range(10):
            clock.advance(0.1)

        await asyncio.wait_for(sleeper, 5)
        assert clock.elapsed() == 1.0

    async def test_those_due_at_one_move_wake_in_the_order_of_their_time(self):
        clock, woken = FakeClock(), []

        async def nap(seconds):
            await clock.sleep(seconds)
            woken.append(seconds)

        async with asyncio.TaskGroup() as group:
            for seconds in (5, 1, 4, 2, 3):
                group.create_task(nap(seconds))
            await clock.wait_for_sleepers(5)
            clock.advance(100)

        assert woken == [1, 2, 3, 4, 5]

    async def test_a_cancelled_sleeper_is_counted_no_more_even_where_it_was_due(self):
        clock = FakeClock()
        cancelled = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 9)]
        await clock.wait_for_sleepers(2)
        for task in cancelled:
            task.cancel()
        clock.advance(1)  # one was cancelled and is due within the same turn of the loop

        ended = await asyncio.gather(*cancelled, return_exceptions=True)

        assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
        assert clock.sleeping == 0

    async def test_whoever_waits_for_sleepers_is_told_when_the_last_of_them_sleeps(self):
        clock = FakeClock()
        waiting = asyncio.create_task(clock.wait_for_sleepers(2))
        async with asyncio.TaskGroup() as group:
            group.create_task(clock.sleep(1))
            for _ in range(3):
                await asyncio.sleep(0)
            assert not waiting.done()

            group.create_task(clock.sleep(1))
            await asyncio.wait_for(waiting, 5)
            clock.advance(1)

    async def test_a_watcher_that_gave_up_does_not_disturb_the_next_sleeper(self):
        clock = FakeClock()
        waiting = asyncio.create_task(clock.wait_for_sleepers())
        await asyncio.sleep(0)
        waiting.cancel()

        sleeper = asyncio.create_task(clock.sleep(1))
        await asyncio.wait_for(clock.wait_for_sleepers(), 5)
        clock.advance(1)
        await asyncio.wait_for(sleeper, 5)
        assert waiting.cancelled()


async def test_an_event_and_the_end_of_the_time_in_one_turn_of_the_loop_disturb_nobody():
    clock, event = FakeClock(), asyncio.Event()
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    waiting = asyncio.ensure_future(first_of(event, clock, 1))
    await clock.wait_for_sleepers()

    clock.advance(1)
    event.set()

    assert await waiting
    await asyncio.sleep(0)
    assert faults == []
