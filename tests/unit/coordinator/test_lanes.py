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
    async with asyncio.timeout(20):
        while len(tasks) < 3:
            await turns(1)
        await asyncio.gather(*tasks)

    assert order == [f"{name} {what}" for name in ("first", "second", "third") for what in ("begins", "ends")]


async def test_different_names_do_not_wait_for_each_other():
    lanes = Lanes()
    async with asyncio.timeout(20), lanes.lane("x"), lanes.lane("y"):
        assert set(lanes._lines) == {"x", "y"}


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

    assert not lanes._lines


async def test_whoever_asks_for_several_has_a_place_in_all_of_them_before_it_waits_for_any():
    lanes, order = Lanes(), []

    async def hold(name, *lines):
        await lanes.enter(*lines)
        order.append(name)
        await turns()
        lanes.leave(*lines)

    await lanes.enter("x")
    several = asyncio.ensure_future(hold("several", "x", "y", "z", "y"))
    await turns()
    later = [asyncio.ensure_future(hold(f"later {one}", one)) for one in ("z", "y")]
    await turns()
    assert order == []

    lanes.leave("x")
    async with asyncio.timeout(20):
        await asyncio.gather(several, *later)

    assert order == ["several", "later y", "later z"]
    assert not lanes._lines


async def test_two_who_ask_for_the_same_ones_in_different_orders_never_wait_for_each_other():
    lanes, order = Lanes(), []

    async def hold(name, *lines):
        await lanes.enter(*lines)
        order.append(name)
        await turns()
        lanes.leave(*lines)

    await lanes.enter("a", "c")
    asked = (("first", "a", "b"), ("second", "c", "b", "a"))
    both = [asyncio.ensure_future(hold(*one)) for one in asked]
    await turns()
    lanes.leave("c")
    await turns()
    lanes.leave("a")
    async with asyncio.timeout(20):
        await asyncio.gather(*both)

    assert order == ["first", "second"]


@pytest.mark.parametrize("granted", [False, True])
async def test_whoever_is_cancelled_while_it_waits_for_several_leaves_none_of_them_taken(granted):
    lanes = Lanes()
    await lanes.enter("x")
    waiting = asyncio.ensure_future(lanes.enter("w", "x", "y"))
    await turns()
    if granted:
        lanes.leave("x")  # its turn has come, and it has not run yet
    waiting.cancel()
    await asyncio.wait({waiting})
    if not granted:
        lanes.leave("x")

    assert not lanes._lines
    async with asyncio.timeout(20):
        await lanes.enter("y", "x", "w")
