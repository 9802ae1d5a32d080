"""The routes of an outbox: head first, each by itself, over a real mailbox and a clock that stands still."""

import asyncio
import logging
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herd.core.clock import FakeClock
from herd.core.errors import (
    BY_CODE,
    DeliveryUnknown,
    EligibilityUnverified,
    HerdError,
    PeerOffline,
    QueueFull,
    ScopeDenied,
)
from herd.core.identity import SessionName
from herd.core.limits import RETRY_FIRST_MS, RETRY_GREATEST_MS, SENT_TOGETHER
from herd.core.paths import Layout
from herd.mail import outbox
from herd.mail.carrier_fake import FAKE_CUSTODY, FakeCarrier
from herd.mail.database import Work
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, REJECTED, Receipt
from herd.mail.routes import Carried, CarriedTogether, Progress, Routes
from herd.mail.steps import (
    COMMIT_AFTER,
    COMMIT_BEFORE,
    RECEIPT_AFTER,
    RECEIPT_BEFORE,
    SEND_AFTER,
    SEND_BEFORE,
    Step,
    no_step,
)
from tests.fakes.mail import ALICE, BOB, CAROL, CUSTODY, NOW, mailbox_of, outgoing, receipt, target
from tests.fakes.records import layout_at

IN_TIME_S = 20
MS = 0.001
TO_BOB, TO_CAROL = target(BOB), target(CAROL)

PASSING = [kind for kind in BY_CODE.values() if kind.may_pass]
DEFINITIVE = [kind for kind in BY_CODE.values() if not kind.may_pass]
by_name: Callable[[type], str] = lambda kind: kind.__name__  # noqa: E731


def enqueued(message: Outgoing) -> Work[Outgoing]:
    return lambda connection: outbox.enqueue(connection, message)


class Background:
    """Runs work for its owner, ends it with its owner, and lets no fault pass unseen."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def create_task(self, work: Coroutine[Any, Any, None]) -> object:
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        faults = [fault for fault in outcomes if isinstance(fault, Exception)]
        assert faults == []


class World:
    """One session's outbox and its routes, with all that they tell."""

    def __init__(self, mailbox: Mailbox, step: Step) -> None:
        self.mailbox = mailbox
        self.clock = FakeClock()
        self.carrier = FakeCarrier(self.clock)
        self.progress: dict[str, Progress] = {}
        self.recorded: list[Outgoing] = []
        self.waits = 0
        self.told: list[str] = []
        self._step = step
        self._more = asyncio.Event()
        self.tasks = Background()
        self.routes = Routes(
            mailbox,
            self.carrier,
            self.tasks,
            clock=self.clock,
            changed=self._changed,
            recorded=self._recorded,
            waits=self._waiting,
            jitter=lambda: 0.0,
            step=self._passed,
        )

    def _changed(self, progress: Progress) -> None:
        self.told.append("changed")
        self.progress[progress.receipt.message_id] = progress
        self._more.set()

    def _recorded(self, row: Outgoing) -> None:
        self.told.append("recorded")
        self.recorded.append(row)
        self._more.set()

    def _waiting(self) -> None:
        self.waits += 1

    def _passed(self, name: str) -> None:
        self.told.append(name)
        self._step(name)

    async def send(self, *ids: str, to: SessionName = BOB, **changes: Any) -> list[Outgoing]:
        """Commit messages and hand them to their route, in that order."""
        rows = [await self.mailbox.run(enqueued(outgoing(name, to=to, **changes))) for name in ids]
        for row in rows:
            self.routes.add(row)
        return rows

    async def begun(self, count: int) -> list[str]:
        """Wait until so many attempts have begun, and give them all."""
        async with asyncio.timeout(IN_TIME_S):
            await self.carrier.begun(count)
        return self.carrier.attempts

    async def paused(self, heads: int = 1) -> None:
        """Wait until so many heads wait for the clock."""
        async with asyncio.timeout(IN_TIME_S):
            await self.clock.wait_for_sleepers(heads)

    async def idle(self) -> None:
        """Let everything run that can without time, a thread or another attempt."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def settled(self, count: int) -> None:
        """Wait until what became of so many messages is written down."""
        async with asyncio.timeout(IN_TIME_S):
            while len(self.recorded) < count:
                self._more.clear()
                await self._more.wait()
            await self.routes.written()

    async def progressed(self, count: int) -> None:
        """Wait until the progress of so many messages was told."""
        async with asyncio.timeout(IN_TIME_S):
            while len(self.progress) < count:
                self._more.clear()
                await self._more.wait()

    async def moved(self) -> None:
        """Wait until something is written down or waits for the clock."""
        self._more.clear()
        ways = [asyncio.ensure_future(one) for one in (self._more.wait(), self.clock.wait_for_sleepers())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)

    async def written(self) -> None:
        async with asyncio.timeout(IN_TIME_S):
            await self.routes.written()

    async def state(self, message_id: str) -> Receipt:
        row = await self.mailbox.run(lambda connection: outbox.required(connection, message_id))
        return row.receipt


@asynccontextmanager
async def world_in(layout: Layout, step: Step = no_step) -> AsyncIterator[World]:
    def commits_too(name: str) -> None:
        if name in {COMMIT_BEFORE, COMMIT_AFTER}:
            step(name)

    async with mailbox_of(layout, ALICE, step=commits_too) as mailbox:
        world = World(mailbox, step)
        try:
            yield world
        finally:
            await world.tasks.end()


@pytest.fixture
async def world(home: Path) -> AsyncIterator[World]:
    async with world_in(layout_at(home)) as one:
        yield one


# --- order -----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-order-02")
async def test_messages_of_one_route_are_carried_in_the_order_in_which_they_were_added(world: World):
    names = [f"m-{number}" for number in range(20)]
    await world.send(*names)

    await world.settled(20)

    assert world.carrier.attempts == names
    assert [row.message_id for row in world.recorded] == names
    assert {(await world.state(name)).state for name in names} == {ACCEPTED}


@pytest.mark.requirement("A-order-02")
async def test_while_the_head_is_unresolved_nothing_behind_it_is_carried(world: World):
    world.carrier.answer(TO_BOB, *[PeerOffline("away") for _ in range(5)])
    await world.send("m-1", "m-2", "m-3")

    for attempt in range(1, 6):
        await world.paused()
        assert await world.begun(attempt) == ["m-1"] * attempt
        world.clock.advance(60)
    await world.settled(3)

    assert world.carrier.attempts == [*["m-1"] * 6, "m-2", "m-3"]


@pytest.mark.requirement("A-order-02")
async def test_one_attempt_is_made_at_a_time_on_a_route(world: World):
    world.carrier.hold(TO_BOB)
    await world.send("m-1", "m-2")
    await world.begun(1)
    await world.idle()

    assert world.carrier.attempts == ["m-1"]
    world.carrier.release(TO_BOB)
    await world.settled(2)


@pytest.mark.requirement("A-order-03")
async def test_a_route_whose_attempt_hangs_delays_no_other(world: World):
    world.carrier.hold(TO_BOB)
    await world.send("m-1", "m-2")
    await world.begun(1)

    await world.send("m-3", "m-4", to=CAROL)
    await world.settled(2)

    assert [row.message_id for row in world.recorded] == ["m-3", "m-4"]
    assert world.carrier.attempts == ["m-1", "m-3", "m-4"]


@pytest.mark.requirement("A-order-03")
async def test_a_route_that_waits_delays_no_other(world: World):
    world.carrier.answer(TO_BOB, QueueFull("full", retry_after_ms=3_600_000))
    await world.send("m-1")
    await world.paused()

    await world.send("m-2", to=CAROL)
    await world.settled(1)

    assert (await world.state("m-1")).state == PENDING
    assert (await world.state("m-2")).state == ACCEPTED


async def test_two_names_of_one_session_are_two_routes(world: World):
    exact = "peer-" + "0" * 32
    world.carrier.hold(TO_BOB)
    await world.send("m-1")
    await world.send("m-2", recipient=exact)
    await world.settled(1)

    assert [row.message_id for row in world.recorded] == ["m-2"]


async def test_a_route_that_has_run_empty_begins_again(world: World):
    await world.send("m-1")
    await world.settled(1)
    assert not world.routes.has(world.recorded[0])

    await world.send("m-2")
    await world.settled(2)

    assert world.carrier.attempts == ["m-1", "m-2"]


# --- what may pass ---------------------------------------------------------------------------------


@pytest.mark.requirement("A-order-05", "A-custody-08")
@pytest.mark.parametrize("kind", PASSING, ids=by_name)
async def test_a_refusal_that_may_pass_keeps_the_head_pending_and_it_is_tried_again(
    world: World, kind: type[HerdError]
):
    world.carrier.answer(TO_BOB, kind("not now"))
    (row,) = await world.send("m-1")
    await world.paused()

    assert (await world.state("m-1")).state == PENDING
    assert world.routes.has(row)
    assert isinstance(world.routes.refusal(row), kind)
    assert world.progress == {}

    world.clock.advance(RETRY_FIRST_MS * MS)
    await world.settled(1)
    assert world.carrier.attempts == ["m-1", "m-1"]
    assert (await world.state("m-1")).state == ACCEPTED


@pytest.mark.requirement("A-order-05")
def test_all_that_has_to_keep_the_head_pending_does():
    codes = {kind.code for kind in PASSING}

    assert codes >= {
        "QUEUE_FULL",
        "RATE_LIMITED",
        "PEER_OFFLINE",
        "DELIVERY_UNKNOWN",
        "RECOVERY_REQUIRED",
        "AUTHENTICATION_FAILED",
        "INVALID_RPC",
        EligibilityUnverified.code,
    }


@pytest.mark.requirement("A-order-05")
@pytest.mark.parametrize(
    "fault", [OSError("a socket"), KeyError("a fault of ours"), sqlite3.OperationalError("x")]
)
async def test_a_fault_inside_the_carrier_keeps_the_head_pending_and_the_route_alive(
    world: World, fault: Exception, caplog: pytest.LogCaptureFixture
):
    world.carrier.answer(TO_BOB, fault)
    (row,) = await world.send("m-1")
    await world.paused()
    assert (await world.state("m-1")).state == PENDING
    refusal = world.routes.refusal(row)
    assert refusal is not None
    assert refusal.code == "INVALID_RPC"
    assert str(fault) not in refusal.message

    world.clock.advance(1)
    await world.settled(1)
    assert [record.levelno for record in caplog.records if record.exc_info] == [logging.ERROR]


@pytest.mark.requirement("A-order-05")
async def test_the_pause_doubles_up_to_a_greatest_one_and_no_attempt_comes_before_its_end(world: World):
    pauses = [min(RETRY_FIRST_MS * 2**number, RETRY_GREATEST_MS) // 2 for number in range(14)]
    world.carrier.answer(TO_BOB, *[PeerOffline("away") for _ in pauses])
    await world.send("m-1")

    for attempt, pause in enumerate(pauses, start=1):
        await world.paused()
        world.clock.advance((pause - 1) * MS)
        await world.idle()
        assert len(world.carrier.attempts) == attempt
        world.clock.advance(1 * MS)
        await world.begun(attempt + 1)

    assert pauses[-1] == RETRY_GREATEST_MS // 2
    await world.settled(1)


async def test_the_pauses_of_the_next_message_begin_from_the_first(world: World):
    world.carrier.answer(TO_BOB, *[PeerOffline("away") for _ in range(8)])
    await world.send("m-1", "m-2")
    for _ in range(8):
        await world.paused()
        world.clock.advance(60)
    world.carrier.answer(TO_BOB, Carried(world_receipt("m-1")), PeerOffline("away"))
    await world.begun(10)
    await world.paused()

    world.clock.advance(RETRY_FIRST_MS / 2 * MS)
    assert await world.begun(11) == [*["m-1"] * 9, "m-2", "m-2"]


def world_receipt(message_id: str, to: str = TO_BOB) -> Receipt:
    return Receipt(message_id, to, FAKE_CUSTODY, ACCEPTED, 1, accepted_at=NOW)


@pytest.mark.requirement("A-order-09")
async def test_a_head_that_waits_is_tried_at_once_when_asked(world: World):
    world.carrier.answer(TO_BOB, *[PeerOffline("away") for _ in range(6)])
    await world.send("m-1")
    for _ in range(5):
        await world.paused()
        world.clock.advance(60)
    await world.begun(6)
    await world.paused()

    world.routes.retry()
    await world.settled(1)

    assert world.carrier.attempts == ["m-1"] * 7


@pytest.mark.requirement("A-order-09")
async def test_being_asked_during_an_attempt_is_not_forgotten(world: World):
    # The change that was told may have come after this attempt looked.
    world.carrier.hold(TO_BOB)
    world.carrier.answer(TO_BOB, PeerOffline("away"))
    await world.send("m-1")
    await world.begun(1)

    world.routes.retry()
    world.carrier.release(TO_BOB)

    await world.settled(1)
    assert world.carrier.attempts == ["m-1", "m-1"]


async def test_after_being_asked_the_pauses_grow_from_the_start_again(world: World):
    world.carrier.answer(TO_BOB, *[PeerOffline("away") for _ in range(10)])
    await world.send("m-1")
    for _ in range(8):
        await world.paused()
        world.clock.advance(60)
    await world.begun(9)
    await world.paused()
    world.routes.retry()
    await world.begun(10)
    await world.paused()
    await world.idle()
    assert len(world.carrier.attempts) == 10, "once for each time it was asked"

    world.clock.advance(RETRY_FIRST_MS / 2 * MS)

    await world.begun(11)


async def test_whoever_watches_for_changes_is_told_before_each_wait_and_before_each_further_look(
    world: World,
):
    world.carrier.answer(TO_BOB, PeerOffline("away"), PeerOffline("away"))
    await world.send("m-1")
    await world.paused()
    assert world.waits == 1

    world.carrier.hold(TO_BOB)
    world.clock.advance(1)
    await world.begun(2)
    assert world.waits == 2, "a change during this look has to be noticed"
    world.carrier.release(TO_BOB)
    await world.paused()
    assert world.waits == 3


# --- being told when -------------------------------------------------------------------------------


@pytest.mark.requirement("A-limits-21")
@pytest.mark.parametrize("after_ms", [1, 250, 200_000])
async def test_a_head_that_was_told_when_is_tried_no_earlier_whoever_asks(world: World, after_ms: int):
    world.carrier.answer(TO_BOB, QueueFull("full", retry_after_ms=after_ms))
    await world.send("m-1")
    await world.paused()

    world.clock.advance((after_ms - 0.5) * MS)
    world.routes.retry()
    await world.idle()
    assert world.carrier.attempts == ["m-1"]

    world.clock.advance(0.5 * MS)
    await world.settled(1)
    assert world.carrier.attempts == ["m-1", "m-1"]


@pytest.mark.requirement("A-order-08")
async def test_when_a_head_that_was_told_when_is_taken_back_the_next_goes_at_once(world: World):
    world.carrier.answer(TO_BOB, QueueFull("full", retry_after_ms=3_600_000))
    first, _ = await world.send("m-1", "m-2")
    await world.paused()

    world.routes.settled_elsewhere(first)
    await world.settled(1)

    assert world.carrier.attempts == ["m-1", "m-2"]
    assert world.clock.elapsed() == 0


async def test_a_head_that_was_told_when_is_not_hastened_by_a_message_taken_back_behind_it(world: World):
    world.carrier.answer(TO_BOB, QueueFull("full", retry_after_ms=1_000))
    _, second, _ = await world.send("m-1", "m-2", "m-3")
    await world.paused()

    world.routes.settled_elsewhere(second)
    await world.idle()
    assert world.carrier.attempts == ["m-1"]

    world.clock.advance(1)
    await world.settled(2)
    assert world.carrier.attempts == ["m-1", "m-1", "m-3"]


async def test_what_was_taken_back_while_the_route_was_held_hastens_nobody(world: World):
    world.carrier.answer(TO_BOB, PeerOffline("away"), QueueFull("full", retry_after_ms=1_000))
    first, _ = await world.send("m-1", "m-2")
    await world.paused()
    async with asyncio.timeout(IN_TIME_S), world.routes.held(first):
        world.clock.advance(1)
        await world.idle()
        assert world.carrier.attempts == ["m-1"]
        world.routes.settled_elsewhere(first)
    await world.begun(2)
    await world.paused()

    await world.idle()

    assert world.carrier.attempts == ["m-1", "m-2"]


# --- definitive refusals ---------------------------------------------------------------------------


@pytest.mark.requirement("A-order-06", "A-receipts-08")
@pytest.mark.parametrize("kind", DEFINITIVE, ids=by_name)
async def test_any_other_refusal_rejects_the_head_with_its_code_and_the_next_one_goes(
    world: World, kind: type[HerdError]
):
    refusal = kind("never")
    world.carrier.answer(TO_BOB, refusal)
    await world.send("m-1", "m-2")
    await world.settled(2)

    rejected = await world.state("m-1")
    assert (rejected.state, rejected.outcome) == (REJECTED, kind.code)
    assert (await world.state("m-2")).state == ACCEPTED
    assert world.progress["m-1"].refusal is refusal
    assert world.progress["m-1"].receipt.state == REJECTED
    assert world.carrier.attempts == ["m-1", "m-2"]


@pytest.mark.requirement("A-order-07")
async def test_the_error_of_the_head_is_never_that_of_a_message_behind_it(world: World):
    world.carrier.answer(TO_BOB, QueueFull("full", retry_after_ms=1_000))
    first, second = await world.send("m-1", "m-2")
    await world.paused()

    assert isinstance(world.routes.refusal(first), QueueFull)
    assert world.routes.refusal(second) is None
    assert world.routes.refusal(outgoing("m-3", to=CAROL)) is None
    assert world.progress == {}


@pytest.mark.requirement("A-order-07")
async def test_neither_is_it_when_the_head_is_taken_back_during_its_attempt(world: World):
    world.carrier.hold(TO_BOB)
    world.carrier.answer(TO_BOB, QueueFull("full", retry_after_ms=1_000), PeerOffline("away"))
    first, second = await world.send("m-1", "m-2")
    await world.begun(1)

    world.routes.settled_elsewhere(first)
    world.carrier.release(TO_BOB)
    await world.paused()

    refusal = world.routes.refusal(second)
    assert isinstance(refusal, PeerOffline), "its own, and without having waited"
    assert world.clock.elapsed() == 0


async def test_a_late_refusal_of_what_is_settled_already_is_told_to_nobody(world: World):
    world.carrier.hold(TO_BOB)
    world.carrier.answer(TO_BOB, ScopeDenied("never"))
    (row,) = await world.send("m-1")
    await world.begun(1)
    told = receipt("m-1", DELIVERED)
    await world.mailbox.run(lambda connection: outbox.record_receipt(connection, told, BOB.key, now_ms=NOW))

    world.routes.settled_elsewhere(row)
    world.carrier.release(TO_BOB)
    await world.send("m-2")
    await world.settled(1)

    assert "m-1" not in world.progress
    assert (await world.state("m-1")).state == DELIVERED


# --- custody ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-custody-18")
@pytest.mark.parametrize("refused_there", [True, False])
async def test_where_another_custody_answers_the_row_stays_and_its_status_says_so(
    world: World, refused_there: bool
):
    other = world_receipt("m-1")._replace(custody_id="another")
    answer: Carried | HerdError = BY_CODE["CUSTODY_CHANGED"]("another") if refused_there else Carried(other)
    world.carrier.answer(TO_BOB, *[answer] * 3)
    first, second = await world.send("m-1", "m-2", custody_id=CUSTODY)
    before = await world.state("m-1")

    for attempt in range(1, 4):
        await world.paused()
        assert await world.begun(attempt) == ["m-1"] * attempt
        refusal = world.routes.refusal(first)
        assert refusal is not None
        assert refusal.code == "CUSTODY_CHANGED"
        assert await world.state("m-1") == before
        world.clock.advance(60)
    await world.settled(2)

    assert (await world.state("m-1")).custody_id == CUSTODY
    assert second.custody_id == CUSTODY


@pytest.mark.requirement("A-custody-09", "A-custody-08")
async def test_every_attempt_at_a_message_carries_the_same_message(world: World):
    carried: list[Outgoing] = []
    carry = world.carrier.carry

    class Noting(FakeCarrier):
        async def carry(self, message: Outgoing) -> Carried:
            carried.append(message)
            return await carry(message)

    noting = Noting(world.clock)
    routes = Routes(
        world.mailbox,
        noting,
        world.tasks,
        clock=world.clock,
        changed=lambda _: None,
        recorded=world.recorded.append,
        jitter=lambda: 0.0,
    )
    world.carrier.answer(TO_BOB, *[BY_CODE["DELIVERY_UNKNOWN"]("lost") for _ in range(3)])
    row = await world.mailbox.run(lambda connection: outbox.enqueue(connection, outgoing("m-1")))
    routes.add(row)
    for _ in range(3):
        await world.paused()
        world.clock.advance(60)
    await world.begun(4)

    assert [one.envelope().to_wire() for one in carried] == [row.envelope().to_wire()] * 4
    async with asyncio.timeout(IN_TIME_S):
        await routes.written()


@pytest.mark.parametrize("other", [world_receipt("m-2"), world_receipt("m-1", to=TO_CAROL)])
async def test_the_receipt_of_another_message_is_no_answer_and_the_head_is_tried_again(
    world: World, other: Receipt
):
    world.carrier.answer(TO_BOB, Carried(other))
    (row,) = await world.send("m-1")
    await world.paused()

    refusal = world.routes.refusal(row)
    assert refusal is not None
    assert refusal.code == "INVALID_RPC"
    assert (await world.state("m-1")).state == PENDING
    world.clock.advance(1)
    await world.settled(1)
    assert (await world.state("m-1")).state == ACCEPTED


# --- writing down ----------------------------------------------------------------------------------


@pytest.mark.requirement("A-custody-22")
async def test_whoever_waits_is_told_first_and_then_it_is_written_down(home: Path):
    steps: list[str] = []
    async with world_in(layout_at(home), steps.append) as world:
        world.told.clear()
        await world.send("m-1")
        await world.settled(1)

        assert world.told == [SEND_BEFORE, SEND_AFTER, "changed", RECEIPT_BEFORE, RECEIPT_AFTER, "recorded"]
        assert steps[2:] == [
            SEND_BEFORE,
            SEND_AFTER,
            RECEIPT_BEFORE,
            COMMIT_BEFORE,
            COMMIT_AFTER,
            RECEIPT_AFTER,
        ]


@pytest.mark.requirement("A-custody-22")
async def test_after_a_death_before_it_was_written_down_the_next_life_gets_the_first_receipt_again(
    home: Path,
):
    class Died(BaseException):
        pass

    def step(name: str) -> None:
        if name == RECEIPT_BEFORE:
            raise Died

    layout = layout_at(home)
    async with mailbox_of(layout, ALICE) as mailbox:
        world = World(mailbox, step)
        await world.send("m-1")
        await world.begun(1)
        await world.idle()
        first = world.progress["m-1"].receipt
        carrier = world.carrier
        assert first.state == ACCEPTED
        assert (await world.state("m-1")).state == PENDING
        await world.tasks.end()

    async with world_in(layout) as world:
        (row,) = await world.mailbox.run(outbox.pending)
        world.routes = Routes(
            world.mailbox,
            carrier,
            world.tasks,
            clock=world.clock,
            changed=world._changed,
            recorded=world._recorded,
        )
        world.routes.add(row)
        await world.settled(1)

        assert world.progress["m-1"].receipt == first
        assert (await world.state("m-1"))._replace(cursor=0) == first._replace(cursor=0)


async def test_what_cannot_be_written_down_now_is_written_when_asked_and_not_carried_again(home: Path):
    faults = [sqlite3.OperationalError("disk I/O error")]
    armed = False

    def step(name: str) -> None:
        if armed and name == COMMIT_BEFORE and faults:
            raise faults.pop()

    async with world_in(layout_at(home), step) as world:
        world.carrier.hold(TO_BOB)
        await world.send("m-1")
        await world.begun(1)
        armed = True
        world.carrier.release(TO_BOB)
        await world.progressed(1)
        await world.written()
        assert faults == []
        assert (await world.state("m-1")).state == PENDING
        assert world.recorded == []

        world.routes.retry()
        await world.settled(1)

        assert (await world.state("m-1")).state == ACCEPTED
        assert world.carrier.attempts == ["m-1"]
        world.routes.retry()
        await world.written()
        assert len(world.recorded) == 1


async def test_a_rejection_that_cannot_be_written_down_now_stays_a_rejection(home: Path):
    faults = [sqlite3.OperationalError("disk I/O error")]
    armed = False

    def step(name: str) -> None:
        if armed and name == COMMIT_BEFORE and faults:
            raise faults.pop()

    async with world_in(layout_at(home), step) as world:
        world.carrier.hold(TO_BOB)
        world.carrier.answer(TO_BOB, ScopeDenied("never"))
        await world.send("m-1")
        await world.begun(1)
        armed = True
        world.carrier.release(TO_BOB)
        await world.progressed(1)
        await world.written()
        assert faults == []

        world.routes.retry()
        await world.settled(1)

        assert (await world.state("m-1")).outcome == "SCOPE_DENIED"
        assert world.carrier.attempts == ["m-1"]


async def test_waiting_until_all_is_written_waits_for_every_write(world: World):
    await world.send(*(f"m-{number}" for number in range(10)))
    await world.begun(10)
    await world.progressed(10)
    await world.written()

    assert {(await world.state(f"m-{number}")).state for number in range(10)} == {ACCEPTED}


async def test_whether_the_recipient_runs_is_told_with_the_receipt(world: World):
    world.carrier.answer(TO_BOB, Carried(world_receipt("m-1"), running=False))
    await world.send("m-1", "m-2")
    await world.settled(2)

    assert [world.progress[name].running for name in ("m-1", "m-2")] == [False, True]


async def test_a_receipt_that_says_more_than_accepted_is_told_as_it_is(world: World):
    world.carrier.answer(
        TO_BOB, Carried(world_receipt("m-1")._replace(state=DELIVERED, delivered_at=NOW + 1))
    )
    await world.send("m-1")
    await world.settled(1)

    assert world.progress["m-1"].receipt.state == DELIVERED
    assert (await world.state("m-1")).delivered_at == NOW + 1


# --- holding and ending ----------------------------------------------------------------------------


async def test_holding_a_route_waits_for_its_attempt_and_lets_none_begin(world: World):
    world.carrier.hold(TO_BOB)
    first, _ = await world.send("m-1", "m-2")
    await world.begun(1)
    entered = asyncio.Event()
    leave = asyncio.Event()

    async def hold() -> None:
        async with world.routes.held(first):
            entered.set()
            await leave.wait()

    holding = asyncio.create_task(hold())
    await world.idle()
    assert not entered.is_set()
    world.carrier.release(TO_BOB)
    async with asyncio.timeout(IN_TIME_S):
        await entered.wait()
    await world.idle()
    assert world.carrier.attempts == ["m-1"]

    leave.set()
    async with asyncio.timeout(IN_TIME_S):
        await holding
    await world.settled(2)


async def test_holding_one_route_holds_no_other_and_none_that_is_not_there(world: World):
    (row,) = await world.send("m-1")
    await world.settled(1)
    async with (
        asyncio.timeout(IN_TIME_S),
        world.routes.held(row),
        world.routes.held(outgoing("m-9", to=CAROL)),
    ):
        await world.send("m-2", to=CAROL)
        await world.settled(2)


@pytest.mark.requirement("A-order-08")
async def test_a_message_taken_back_behind_the_head_is_never_carried(world: World):
    world.carrier.hold(TO_BOB)
    _, second, _ = await world.send("m-1", "m-2", "m-3")
    await world.begun(1)

    world.routes.settled_elsewhere(second)
    world.carrier.release(TO_BOB)
    await world.settled(2)

    assert world.carrier.attempts == ["m-1", "m-3"]
    assert not world.routes.has(second)


@pytest.mark.requirement("A-order-08")
async def test_a_head_taken_back_while_it_waits_lets_the_next_go_at_once(world: World):
    world.carrier.answer(TO_BOB, PeerOffline("away"))
    first, _ = await world.send("m-1", "m-2")
    await world.paused()

    world.routes.settled_elsewhere(first)
    await world.settled(1)

    assert world.carrier.attempts == ["m-1", "m-2"]
    assert world.clock.elapsed() == 0


async def test_the_next_head_takes_over_neither_the_refusal_nor_the_pauses_of_one_taken_back(world: World):
    world.carrier.answer(TO_BOB, *[PeerOffline("away") for _ in range(9)])
    first, second = await world.send("m-1", "m-2")
    for _ in range(7):
        await world.paused()
        world.clock.advance(60)
    await world.begun(8)
    await world.paused()
    assert world.routes.refusal(first) is not None

    world.routes.settled_elsewhere(first)
    assert world.routes.refusal(second) is None
    await world.begun(9)
    await world.paused()

    world.clock.advance(RETRY_FIRST_MS / 2 * MS)
    assert (await world.begun(10))[8:] == ["m-2", "m-2"]


async def test_settling_what_is_not_queued_changes_nothing(world: World):
    (row,) = await world.send("m-1")
    await world.settled(1)

    world.routes.settled_elsewhere(row)
    world.routes.settled_elsewhere(outgoing("m-9", to=CAROL))

    await world.send("m-2")
    await world.settled(2)


async def test_ending_the_background_work_leaves_every_unsettled_row_pending(home: Path):
    layout = layout_at(home)
    async with world_in(layout) as world:
        world.carrier.hold(TO_BOB)
        world.carrier.answer(TO_CAROL, PeerOffline("away"))
        await world.send("m-1", "m-2")
        await world.send("m-3", to=CAROL)
        await world.paused()

    async with world_in(layout) as world:
        rows = await world.mailbox.run(outbox.pending)
        assert [row.message_id for row in rows] == ["m-1", "m-2", "m-3"]
        for row in rows:
            world.routes.add(row)
        await world.settled(3)


# --- several at once -------------------------------------------------------------------------------


@pytest.mark.requirement("A-order-01")
async def test_the_head_of_a_route_goes_alone_and_those_that_wait_behind_it_go_together(world: World):
    names = [f"m-{number}" for number in range(2 * SENT_TOGETHER)]
    await world.send(*names)
    await world.settled(len(names))

    assert world.carrier.requests == [1, SENT_TOGETHER, SENT_TOGETHER - 1]
    assert world.carrier.attempts == names
    assert [row.message_id for row in world.recorded] == names


async def test_messages_that_come_one_after_the_other_each_go_alone_and_at_once(world: World):
    for number in range(3):
        await world.send(f"m-{number}")
        await world.settled(number + 1)

    assert world.carrier.requests == [1, 1, 1]


async def test_what_has_no_room_in_one_attempt_comes_with_the_next_one(world: World):
    world.carrier.room = 2
    await world.send(*(f"m-{number}" for number in range(6)))
    await world.settled(6)

    assert world.carrier.requests == [1, 2, 2, 1]
    assert world.carrier.attempts == [f"m-{number}" for number in range(6)]


@pytest.mark.requirement("A-order-05", "A-order-02")
@pytest.mark.parametrize("kind", [kind for kind in PASSING if kind is not DeliveryUnknown], ids=by_name)
async def test_a_refusal_in_the_middle_that_may_pass_keeps_that_one_and_all_behind_it(
    world: World, kind: type[HerdError]
):
    world.carrier.answer(TO_BOB, *taken("m-1", "m-2"), kind("not now"))
    rows = await world.send("m-1", "m-2", "m-3", "m-4")
    await world.settled(2)
    await world.paused()

    assert [(await world.state(row.message_id)).state for row in rows] == [ACCEPTED] * 2 + [PENDING] * 2
    assert list(world.progress) == ["m-1", "m-2"]
    assert isinstance(world.routes.refusal(rows[2]), kind)
    assert world.routes.refusal(rows[3]) is None

    world.clock.advance(1)
    await world.settled(4)
    assert world.carrier.requests == [1, 3, 1, 1], "what is tried again goes alone"
    assert [row.message_id for row in world.recorded] == ["m-1", "m-2", "m-3", "m-4"]


def taken(*names: str) -> list[Carried]:
    return [Carried(world_receipt(name)) for name in names]


@pytest.mark.requirement("A-order-06", "A-receipts-08")
@pytest.mark.parametrize("kind", DEFINITIVE, ids=by_name)
async def test_a_definitive_refusal_in_the_middle_rejects_that_one_and_the_rest_goes_on_together(
    world: World, kind: type[HerdError]
):
    world.carrier.answer(TO_BOB, *taken("m-1", "m-2"), kind("never"))
    await world.send("m-1", "m-2", "m-3", "m-4", "m-5")
    await world.settled(5)

    states = [(await world.state(f"m-{number}")) for number in range(1, 6)]
    assert [one.state for one in states] == [ACCEPTED, ACCEPTED, REJECTED, ACCEPTED, ACCEPTED]
    assert states[2].outcome == kind.code
    assert list(world.progress) == ["m-1", "m-2", "m-3", "m-4", "m-5"]
    assert world.carrier.requests == [1, 4, 2]
    assert world.clock.elapsed() == 0


@pytest.mark.requirement("A-custody-08", "A-order-02")
@pytest.mark.parametrize("fault", [DeliveryUnknown("lost"), OSError("a fault of ours")], ids=str)
async def test_after_an_attempt_that_failed_as_a_whole_its_messages_go_one_by_one_under_their_ids(
    world: World, fault: Exception
):
    names = [f"m-{number}" for number in range(1, 6)]
    world.carrier.answer(TO_BOB, *taken("m-1", "m-2"), fault)
    rows = await world.send(*names)
    await world.settled(1)
    await world.paused()

    assert list(world.progress) == ["m-1"], "of the others nothing is known"
    assert world.routes.refusal(rows[1]) is not None
    assert world.routes.refusal(rows[2]) is None

    await world.send("m-6", "m-7")
    world.clock.advance(60)
    await world.settled(7)
    assert world.carrier.requests == [1, 4, 1, 1, 1, 1, 2]
    assert world.carrier.attempts == [*names, *names[1:], "m-6", "m-7"]
    assert {(await world.state(name)).state for name in names} == {ACCEPTED}


@pytest.mark.requirement("A-custody-18")
async def test_a_receipt_among_several_that_cannot_be_believed_keeps_that_one_and_those_behind_it(
    world: World,
):
    other = world_receipt("m-3")._replace(custody_id="another")
    world.carrier.answer(TO_BOB, *taken("m-1", "m-2"), Carried(other), *taken("m-4"))
    rows = await world.send("m-1", "m-2")
    rows += await world.send("m-3", custody_id=CUSTODY)
    rows += await world.send("m-4")
    await world.settled(2)
    await world.paused()

    assert [(await world.state(row.message_id)).state for row in rows] == [ACCEPTED] * 2 + [PENDING] * 2
    refusal = world.routes.refusal(rows[2])
    assert refusal is not None
    assert refusal.code == "CUSTODY_CHANGED"


@pytest.mark.parametrize("receipts", [0, 4])
async def test_an_attempt_that_says_nothing_or_too_much_is_no_answer(world: World, receipts: int):
    class Odd(FakeCarrier):
        async def carry_together(self, messages: Sequence[Outgoing]) -> CarriedTogether:
            self.requests.append(len(messages))
            return CarriedTogether(tuple(world_receipt(f"m-{number + 2}") for number in range(receipts)))

    odd = Odd(world.clock)
    routes = routes_over(world, odd)
    rows = [await world.mailbox.run(enqueued(outgoing(f"m-{number}"))) for number in (1, 2, 3, 4)]
    for row in rows:
        routes.add(row)
    await world.settled(1)
    await world.paused()

    refusal = routes.refusal(rows[1])
    assert refusal is not None
    assert refusal.code == "INVALID_RPC"
    world.clock.advance(60)
    await world.settled(4)
    assert odd.attempts == ["m-1", "m-2", "m-3", "m-4"]


def routes_over(world: World, carrier: FakeCarrier) -> Routes:
    return Routes(
        world.mailbox,
        carrier,
        world.tasks,
        clock=world.clock,
        changed=world._changed,
        recorded=world._recorded,
        jitter=lambda: 0.0,
    )


@pytest.mark.requirement("A-order-08")
async def test_what_was_taken_back_before_its_request_is_in_none_and_hastens_nobody(world: World):
    world.carrier.hold(TO_BOB)
    _, _, third, _ = await world.send("m-1", "m-2", "m-3", "m-4")
    await world.begun(1)

    world.routes.settled_elsewhere(third)
    world.carrier.release(TO_BOB)
    await world.settled(3)

    assert world.carrier.attempts == ["m-1", "m-2", "m-4"]
    assert world.carrier.requests == [1, 2]


async def under_way_together(world: World, *names: str) -> list[Outgoing]:
    """Send messages, and hold the attempt at all but the first, which is settled by then."""
    world.carrier.hold(TO_BOB)
    rows = await world.send(*names)
    await world.begun(1)
    world.carrier.release(TO_BOB)
    world.carrier.hold(TO_BOB)
    await world.begun(len(names))
    return rows


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize(
    "refusal", [None, QueueFull("full", retry_after_ms=1_000), ScopeDenied("never")], ids=str
)
async def test_what_was_settled_elsewhere_during_its_attempt_is_left_as_it_is(
    world: World, place: int, refusal: HerdError | None
):
    names = ["m-1", "m-2", "m-3", "m-4"]
    rows = await under_way_together(world, *names)
    # The attempt will say this of exactly the one that is settled meanwhile.
    outcomes = [*taken(*names[1:place]), *([refusal] if refusal else taken(names[place]))]
    world.carrier.answer(TO_BOB, *outcomes)
    told = receipt(names[place], DELIVERED)
    await world.mailbox.run(lambda connection: outbox.record_receipt(connection, told, BOB.key, now_ms=NOW))

    world.routes.settled_elsewhere(rows[place])
    world.carrier.release(TO_BOB)
    await world.settled(3)

    assert names[place] not in world.progress
    assert (await world.state(names[place])).state == DELIVERED
    assert {(await world.state(name)).state for name in names if name != names[place]} == {ACCEPTED}
    assert world.clock.elapsed() == 0, "nobody waits for what is settled"


async def test_whoever_holds_a_route_waits_for_the_attempt_at_several_and_lets_none_begin(world: World):
    rows = await under_way_together(world, "m-1", "m-2", "m-3")
    late = await world.send("m-4", "m-5")
    holding = asyncio.create_task(held_until_taken_back(world, late[0]))
    await world.idle()
    assert not holding.done()

    world.carrier.release(TO_BOB)
    async with asyncio.timeout(IN_TIME_S):
        await holding
    await world.settled(4)

    assert world.carrier.attempts == ["m-1", "m-2", "m-3", "m-5"]
    assert not any(world.routes.has(row) for row in rows)


async def held_until_taken_back(world: World, row: Outgoing) -> None:
    async with world.routes.held(row):
        await asyncio.sleep(0)
        world.routes.settled_elsewhere(row)


async def test_two_sessions_under_one_name_never_share_a_request(world: World):
    world.carrier.hold(TO_BOB)
    await world.send("m-1", "m-2", "m-3")
    await world.send("m-4", "m-5", recipient_key=CAROL.key)
    world.carrier.release(TO_BOB)
    await world.settled(5)

    assert world.carrier.requests == [1, 2, 2]


# --- any weather -----------------------------------------------------------------------------------

WEATHER = st.sampled_from(["accept", "offline", "full", "never", "fault", "lost"])
ANSWERS: dict[str, Callable[[], BaseException]] = {
    "offline": lambda: PeerOffline("away"),
    "full": lambda: QueueFull("full", retry_after_ms=700),
    "never": lambda: ScopeDenied("never"),
    "fault": lambda: RuntimeError("a fault of ours"),
    "lost": lambda: BY_CODE["DELIVERY_UNKNOWN"]("lost"),
}


@settings(max_examples=25)
@given(st.lists(WEATHER, max_size=12), st.lists(WEATHER, max_size=12), st.integers(1, 7), st.integers(1, 4))
def test_in_any_weather_every_message_is_settled_once_and_in_order(
    to_bob: list[str], to_carol: list[str], messages: int, room: int
):
    async def run() -> None:
        with tempfile.TemporaryDirectory(prefix="herd-", dir="/tmp") as home:
            async with world_in(layout_at(Path(home))) as world:
                world.carrier.room = room
                for route, weather in ((TO_BOB, to_bob), (TO_CAROL, to_carol)):
                    answers = [ANSWERS[one]() for one in weather if one != "accept"]
                    world.carrier.answer(route, *answers)
                for session, name in ((BOB, "b"), (CAROL, "c")):
                    await world.send(*(f"{name}-{number}" for number in range(messages)), to=session)
                await until_all_are_settled(world, 2 * messages)
                for name, weather in (("b", to_bob), ("c", to_carol)):
                    in_order = [f"{name}-{number}" for number in range(messages)]
                    told = [one for one in world.progress if one.startswith(name)]
                    assert told == in_order
                    states = [(await world.state(one)).state for one in in_order]
                    assert states.count(REJECTED) == min(weather.count("never"), messages)
                    assert set(states) <= {ACCEPTED, REJECTED}

    asyncio.run(run())


async def until_all_are_settled(world: World, count: int) -> None:
    async with asyncio.timeout(IN_TIME_S):
        while len(world.recorded) < count:
            await world.moved()
            world.clock.advance(60)
