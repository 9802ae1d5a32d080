import asyncio
import logging

import pytest

from herd.coordinator.tasks import Tasks, in_thread
from herd.core.errors import PeerOffline
from tests.fakes.coordinators import until


async def test_what_the_body_raises_is_passed_on_as_it_is():
    with pytest.raises(KeyError, match="mine"):
        async with Tasks():
            raise KeyError("mine")


async def test_a_fault_in_one_task_is_logged_and_ends_no_other(caplog):
    goes_on = asyncio.Event()

    async def fails():
        raise RuntimeError("my own")

    async def works():
        await asyncio.sleep(0)
        goes_on.set()

    async with Tasks() as tasks:
        tasks.create_task(fails())
        tasks.create_task(works())
        async with asyncio.timeout(20):
            await goes_on.wait()

    assert [one.levelno for one in caplog.records] == [logging.ERROR]
    assert "my own" in caplog.text


async def test_work_is_finished_though_its_caller_has_gone():
    may_end, ended = asyncio.Event(), asyncio.Event()

    async def work():
        await may_end.wait()
        ended.set()

    async with Tasks() as tasks, asyncio.timeout(20):
        caller = asyncio.ensure_future(tasks.finish(work()))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        may_end.set()
        await ended.wait()

    assert caller.cancelled()


async def test_a_caller_gets_the_result_or_what_was_raised():
    async def work(value):
        await asyncio.sleep(0)
        if value is None:
            raise KeyError("none")
        return value

    async with Tasks() as tasks:
        assert await tasks.finish(work(7)) == 7
        with pytest.raises(KeyError, match="none"):
            await tasks.finish(work(None))


async def test_what_was_raised_after_its_caller_had_gone_is_logged(caplog):
    may_end = asyncio.Event()

    async def work():
        await may_end.wait()
        raise KeyError("late")

    async with Tasks() as tasks:
        caller = asyncio.ensure_future(tasks.finish(work()))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait({caller})
        may_end.set()
        await until(lambda: bool(caplog.records))

    assert "late" in caplog.text


async def test_nobody_waits_for_work_that_was_cancelled_before_it_began():
    begun = []

    async def work():
        begun.append(True)

    async with Tasks() as tasks, asyncio.timeout(20):
        caller = asyncio.ensure_future(tasks.finish(work()))
        await asyncio.sleep(0)
        tasks.create_task(work())
        await tasks.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    assert begun == []


async def test_the_end_cancels_what_runs_and_what_that_begins():
    async def again():
        try:
            await asyncio.Event().wait()
        finally:
            tasks.create_task(forever())

    async def forever():
        await asyncio.Event().wait()

    async with asyncio.timeout(20), Tasks() as tasks:
        tasks.create_task(again())
        await asyncio.sleep(0)

    assert tasks._running == set()


async def test_a_thread_is_waited_for_though_its_caller_is_called_off():
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def block():
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result()
        ended.append(True)

    async with asyncio.timeout(20):
        caller = asyncio.ensure_future(in_thread(block))
        await begun.wait()
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await caller

    assert ended == [True]


async def test_what_a_thread_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 // 0)


async def test_after_the_end_nothing_is_begun_and_the_caller_is_told_so():
    begun = []

    async def work():
        begun.append(True)

    async with Tasks() as tasks:
        pass
    with pytest.raises(PeerOffline):
        tasks.create_task(work())
    with pytest.raises(PeerOffline):
        await tasks.finish(work())

    assert begun == []
