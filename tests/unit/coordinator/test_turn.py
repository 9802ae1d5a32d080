import asyncio

import pytest

from herd.coordinator.authority import Authority
from herd.coordinator.turn import Turn
from herd.core.errors import LockTimeout
from herd.core.locks import AuthorityLock
from roles.eligibility_fake import FakeJudge
from tests.fakes.records import layout_at


@pytest.fixture
def layout(home):
    return layout_at(home)


@pytest.fixture
def authority(layout):
    return Authority(layout, FakeJudge())


def changing(layout, wait_s=0.0):
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    return lock.exclusive(wait_s)


async def test_what_was_found_in_one_turn_is_not_known_in_the_next():
    turn = Turn()
    turn.found()["x"] = 1

    assert turn.found() == {"x": 1}
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert turn.found() == {}


async def test_what_is_added_after_the_turn_has_ended_is_found_by_nobody():
    turn = Turn()
    found = turn.found()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    found["x"] = 1

    assert turn.found() == {}


async def test_all_who_judge_in_one_turn_hold_the_lock_together_until_the_last_has_ended(layout, authority):
    shares = [await authority.share() for _ in range(20)]

    for share in shares[:-1]:
        share.release()
        share.release()
        with pytest.raises(LockTimeout):
            changing(layout)
    shares[-1].release()

    changing(layout).release()


async def test_who_comes_in_a_later_turn_waits_behind_a_change_that_waits(layout, authority):
    with await authority.share():
        change = asyncio.ensure_future(asyncio.to_thread(changing, layout, 20))
        async with asyncio.timeout(20):
            while (probe := authority._lock.try_shared()) is not None:  # until the change has the gate
                probe.release()
                await asyncio.sleep(0)
        later = asyncio.ensure_future(authority.share())
        await asyncio.sleep(0)
        assert not later.done()
    async with asyncio.timeout(20):
        (await change).release()
        (await later).release()


async def test_what_was_allowed_under_one_hold_is_not_allowed_under_the_next(authority):
    (await authority.hold()).release()  # the first one reads the assignments, in another thread
    with await authority.share() as share:
        share.allowed.add(("key", False))
        with await authority.share() as other:
            assert other.allowed == {("key", False)}

    with await authority.share() as next_one:
        assert next_one.allowed == set()
