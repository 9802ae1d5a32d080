"""Memberships that are remembered: how long they are believed, who is asked, and who waits for whom."""

import asyncio

import pytest

from assignments.worktrees.fresh import FreshGroups
from assignments.worktrees.groups import Grouped, Membership, Ungrouped, Unproven
from herd.core.clock import FakeClock
from herd.core.limits import LOOKUPS_AT_ONCE, SUBPROCESS_S, TOPOLOGY_KEPT, TOPOLOGY_WAIT_S
from tests.fakes.coordinators import IN_TIME_S, until

A, B = ("/a", None), ("/b", "w2")


class Slow:
    """Groups that answer when a test lets them."""

    def __init__(self) -> None:
        self.answer: Membership = Grouped("/r/.git")
        self.begun: list[tuple[str, str | None]] = []
        self.called_off = 0
        self.let = asyncio.Event()
        self.let.set()

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        self.begun.append((cwd, workspace_id))
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.called_off += 1
            raise
        return self.answer


@pytest.fixture
def source() -> Slow:
    return Slow()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
async def fresh(source, clock):
    one = FreshGroups(source, clock)
    yield one
    await one.close()


async def refreshed(fresh, *folders) -> None:
    async with asyncio.timeout(IN_TIME_S):
        await fresh.refresh(folders)


async def test_what_nobody_had_read_is_not_proven(fresh, source):
    assert isinstance(fresh.membership(*A), Unproven)
    assert source.begun == []


@pytest.mark.parametrize("answer", [Grouped("/r/.git"), Ungrouped("no"), Unproven("hung")])
async def test_what_was_read_is_given_until_it_is_two_seconds_old(fresh, source, clock, answer):
    source.answer = answer
    await refreshed(fresh, A)

    clock.advance(2)
    assert fresh.membership(*A) == answer
    clock.advance(0.001)
    assert isinstance(fresh.membership(*A), Unproven)


async def test_an_answer_is_as_old_as_its_question(fresh, source, clock):
    source.let.clear()
    asking = asyncio.create_task(fresh.refresh([A]))
    await until(lambda: source.begun == [A])
    clock.advance(1.5)
    source.let.set()
    await asking

    clock.advance(0.5)
    assert fresh.membership(*A) == source.answer
    clock.advance(0.1)
    assert isinstance(fresh.membership(*A), Unproven)


async def test_folder_and_workspace_are_remembered_together(fresh, source):
    await refreshed(fresh, B)

    assert fresh.membership(*B) == source.answer
    assert isinstance(fresh.membership("/b"), Unproven)
    assert isinstance(fresh.membership("/b", "w3"), Unproven)


async def test_what_is_new_is_not_read_again_and_what_is_older_is(fresh, source, clock):
    await refreshed(fresh, A)
    clock.advance(1)
    await refreshed(fresh, A, B, A)
    assert source.begun == [A, B]

    clock.advance(0.001)
    source.answer = Ungrouped("moved")
    await refreshed(fresh, A)
    assert source.begun == [A, B, A]
    assert fresh.membership(*A) == Ungrouped("moved")


async def test_askers_for_one_folder_share_one_reading(fresh, source):
    source.let.clear()
    askers = [asyncio.create_task(fresh.refresh([A])) for _ in range(20)]
    await until(lambda: source.begun == [A])
    source.let.set()
    async with asyncio.timeout(IN_TIME_S):
        await asyncio.gather(*askers)

    assert source.begun == [A]
    assert fresh.membership(*A) == source.answer


async def test_an_asker_that_is_called_off_takes_the_reading_from_no_other(fresh, source):
    source.let.clear()
    first, second = (asyncio.create_task(fresh.refresh([A])) for _ in range(2))
    await until(lambda: source.begun == [A])
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    source.let.set()
    async with asyncio.timeout(IN_TIME_S):
        await second

    assert source.called_off == 0
    assert fresh.membership(*A) == source.answer


async def test_a_source_that_hangs_delays_nobody_beyond_the_bound(fresh, source, clock):
    source.let.clear()
    asking = asyncio.create_task(fresh.refresh([A]))
    await clock.wait_for_sleepers()
    clock.advance(TOPOLOGY_WAIT_S)
    async with asyncio.timeout(IN_TIME_S):
        await asking

    assert isinstance(fresh.membership(*A), Unproven)


async def test_one_folder_that_hangs_keeps_no_answer_from_the_others(fresh, source, clock):
    source.let.clear()
    asking = asyncio.create_task(fresh.refresh([A]))
    await until(lambda: source.begun == [A])
    source.let = asyncio.Event()
    source.let.set()
    await refreshed(fresh, B)

    assert fresh.membership(*B) == source.answer
    assert not asking.done()
    clock.advance(TOPOLOGY_WAIT_S)
    await asking


async def test_a_source_that_breaks_proves_nothing(fresh, source, monkeypatch):
    async def broken(*_):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(source, "membership", broken)
    await refreshed(fresh, A)

    found = fresh.membership(*A)
    assert isinstance(found, Unproven)
    assert "no such thing" in found.reason


async def test_a_bounded_number_is_read_at_once(fresh, source):
    source.let.clear()
    folders = [(f"/{number}", None) for number in range(3 * LOOKUPS_AT_ONCE)]
    asking = asyncio.create_task(fresh.refresh(folders))
    await until(lambda: len(source.begun) >= LOOKUPS_AT_ONCE)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(source.begun) == LOOKUPS_AT_ONCE

    source.let.set()
    async with asyncio.timeout(IN_TIME_S):
        await asking
    assert all(fresh.membership(*one) == source.answer for one in folders)


async def test_a_bounded_number_is_remembered_and_what_is_old_is_forgotten(fresh, source, clock):
    folders = [(f"/{number}", None) for number in range(TOPOLOGY_KEPT + 10)]
    await refreshed(fresh, *folders[:TOPOLOGY_KEPT])
    await refreshed(fresh, *folders[TOPOLOGY_KEPT:])
    assert len(fresh._known) == TOPOLOGY_KEPT
    assert fresh.membership(*folders[-1]) == source.answer

    clock.advance(3)
    await refreshed(fresh, A)
    assert list(fresh._known) == [A]


async def test_closing_ends_what_is_being_read(fresh, source):
    source.let.clear()
    asking = asyncio.create_task(fresh.refresh([A]))
    await until(lambda: source.begun == [A])
    async with asyncio.timeout(IN_TIME_S):
        await fresh.close()
        await asking

    assert source.called_off == 1
    assert isinstance(fresh.membership(*A), Unproven)


async def test_a_source_that_gives_up_after_its_own_bound_has_the_last_word(fresh, source, clock):
    assert SUBPROCESS_S < TOPOLOGY_WAIT_S
    source.let.clear()
    source.answer = Unproven("git hung")
    asking = asyncio.create_task(fresh.refresh([A]))
    await until(lambda: source.begun == [A])
    clock.advance(TOPOLOGY_WAIT_S - 0.5)
    source.let.set()
    async with asyncio.timeout(IN_TIME_S):
        await asking

    assert fresh.membership(*A) == Unproven("git hung")
