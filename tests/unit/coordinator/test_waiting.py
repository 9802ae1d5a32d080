import pytest

from herd.coordinator.waiting import Waiting
from herd.core.clock import FakeClock
from tests.fakes.coordinators import until


@pytest.fixture
async def waiting(tmp_path):
    """A watch on a folder, its clock, and how often it tried again."""
    clock, tries = FakeClock(), []
    one = Waiting(str(tmp_path), lambda: tries.append(clock.elapsed()), clock=clock)
    yield one, clock, tries
    one.end()


async def told(tries, count):
    await until(lambda: len(tries) >= count)


async def test_nothing_is_watched_while_nothing_waits(waiting, tmp_path):
    one, _, _ = waiting
    assert not one.watches
    one.begin()
    assert one.watches
    one.end()
    assert not one.watches


async def test_each_step_of_a_return_is_tried_and_not_the_first_alone(waiting, tmp_path):
    """What is tried after the first change may be too early, and say so only after the last one."""
    one, _, tries = waiting
    one.begin()
    for number in range(3):
        (tmp_path / str(number)).touch()
        before = len(tries)
        await told(tries, before + 1)


async def test_the_watch_ends_with_the_first_change_after_nothing_has_waited_for_long(waiting, tmp_path):
    one, clock, tries = waiting
    one.begin()
    clock.advance(119)
    (tmp_path / "a").touch()
    await told(tries, 1)
    clock.advance(2)
    (tmp_path / "b").touch()
    await until(lambda: not one.watches)

    assert set(tries) == {119}


async def test_whatever_still_waits_says_so_and_keeps_the_watch(waiting, tmp_path):
    one, clock, tries = waiting
    for number in range(5):
        clock.advance(60)
        one.begin()
        (tmp_path / str(number)).touch()
        await told(tries, len(tries) + 1)

    assert one.watches


async def test_a_folder_that_cannot_be_watched_leaves_the_pauses_alone(tmp_path):
    one = Waiting(str(tmp_path / "gone"), lambda: None, clock=FakeClock())
    one.begin()
    assert not one.watches
    one.end()
