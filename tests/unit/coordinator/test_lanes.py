import asyncio

import pytest

from herd.coordinator.lanes import Lanes


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_whoever_asks_while_another_is_about_to_go_on_does_not_overtake_it():
    """A lock that was just released looks free until the one who waited for it runs."""
    lanes, order = Lanes(), []
    may_end = asyncio.Event()

    async def hold(name):
        async with lanes.lane("x"):
            order.append(f"{name} begins")
            await (may_end.wait() if name == "first" else turns())
            order.append(f"{name} ends")

    tasks = [asyncio.ensure_future(hold("first"))]
    await turns()
    tasks.append(asyncio.ensure_future(hold("second")))
    await turns()
    may_end.set()
    tasks[0].add_done_callback(lambda _: tasks.append(asyncio.ensure_future(hold("third"))))
    async with asyncio.timeout(5):
        while len(tasks) < 3:
            await turns(1)
        await asyncio.gather(*tasks)

    assert order == [f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")]


async def test_different_names_do_not_wait_for_each_other():
    lanes = Lanes()
    async with asyncio.timeout(5), lanes.lane("x"), lanes.lane("y"):
        assert set(lanes._locks) == {"x", "y"}


async def test_nothing_is_left_of_a_lane_that_nobody_uses():
    lanes = Lanes()
    with pytest.raises(ZeroDivisionError):
        async with lanes.lane("x"):
            raise ZeroDivisionError
    async with lanes.lane("y"):
        waiting = asyncio.ensure_future(lanes.lane("y").__aenter__())
        await turns()
        waiting.cancel()
        await asyncio.wait({waiting})

    assert not lanes._locks
    assert not lanes._users
