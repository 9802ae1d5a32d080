"""One contract for the custody of a session, whether it lives or sleeps.

`Reach` is what a sender's coordinator gets to hand in a message, to ask for it and to tell a receipt. Bob is
reached by Alice's real coordinator: over the connection to his own real coordinator, or by a visit to his
mailbox where he has none. Every test runs over both.
"""

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from herd.core.clock import SystemClock
from herd.core.errors import (
    BodyMissing,
    CustodyChanged,
    EligibilityDenied,
    EligibilityUnverified,
    HerdError,
    InvalidParams,
    InvalidReply,
    MessageIdConflict,
    MessageTooLarge,
    QueueFull,
    RateLimited,
    ScopeDenied,
    UnknownTarget,
)
from herd.core.identity import SessionName
from herd.core.limits import DEFAULT_LIMITS
from herd.core.moments import Moment
from herd.core.paths import Layout
from herd.mail import inbox, outbox, whole
from herd.mail.outbox import Outgoing
from herd.mail.parts import Bodies, Part, Parts
from herd.mail.reach import ConnectionReach, Reach, VisitReach
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, PENDING, REJECTED, REPLIED, Receipt
from herd.mail.together import Together
from herd.mail.wire import Envelope, read_envelope
from herd.presence.session_file import read_session_file
from roles.eligibility_fake import FakeJudge
from roles.model import Allowed, Denied, Unverified, Verdict
from tests.fakes.bounds import UNHURRIED
from tests.fakes.checkouts import Checkouts
from tests.fakes.coordinators import IN_TIME_S, PatientClock, Running, running, until, until_async
from tests.fakes.mail import ALICE, BOB, CAROL, NOW, envelope, inside, outgoing, sender, started_once, target
from tests.fakes.records import layout_at

WAYS = ("connection", "visit")


class StillClock(PatientClock):
    """A clock whose deciding time stands still until a test moves it, while sleeps take their time."""

    at = 5_000.0

    def elapsed(self) -> float:
        """See `Clock.elapsed`."""
        return self.at

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)


class Custody:
    """Bob's custody and whoever hands in there."""

    def __init__(self, layout: Layout, way: str, stack: AsyncExitStack) -> None:
        self.way = way
        self.judge = FakeJudge()
        self.chosen: dict[str, Any] = {}
        self._layout = layout
        self._stack = stack
        self._running: dict[SessionName, Running] = {}
        self._lives: dict[SessionName, AsyncExitStack] = {}

    async def begin(self) -> None:
        """Let Alice live, and Bob if it is that way."""
        await asyncio.to_thread(started_once, self._layout, BOB)
        await self.start(ALICE)
        if self.way == "connection":
            await self.start(BOB)

    async def start(self, session: SessionName, **chosen: Any) -> Running:
        life = await self._stack.enter_async_context(AsyncExitStack())
        given = {**self.chosen, **chosen}
        one = await life.enter_async_context(running(self._layout, session, judge=self.judge, **given))
        self._lives[session], self._running[session] = life, one
        return one

    async def end(self, session: SessionName) -> None:
        del self._running[session]
        await self._lives.pop(session).aclose()

    async def choose(self, **chosen: Any) -> None:
        """Let everyone live on with something else than most tests have."""
        self.chosen = chosen
        for session in list(self._running):
            await self.restart(session)

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask Alice's coordinator as her host does."""
        return await self._running[ALICE].ask(method, **params)

    async def restart(self, session: SessionName = BOB, **chosen: Any) -> None:
        """End an instance and start the next; who sleeps lives for a moment."""
        if session in self._running:
            await self.end(session)
            await self.start(session, **chosen)
        else:
            await self.start(session, **chosen)
            await self.end(session)

    async def reach(self, by: SessionName = ALICE, to: SessionName = BOB) -> Reach:
        """Give the custody as the sender's own coordinator finds it."""
        caller = self._running.get(by) or await self.start(by)
        async with asyncio.timeout(IN_TIME_S):
            reach = await caller.coordinator.carrier.reach(to.key)
        assert isinstance(reach, ConnectionReach if to in self._running else VisitReach)
        assert reach.running is (to in self._running)
        return reach

    async def accept(self, message_id: str = "m-1", content: str = "hello", **changes: Any) -> Receipt:
        reach = await self.reach()
        async with asyncio.timeout(IN_TIME_S):
            return await reach.accept(envelope(message_id, content, **changes))

    async def refused(self, kind: type[HerdError], message_id: str = "m-1", **changes: Any) -> HerdError:
        """Hand in what is refused, and find Bob's mailbox as it was before."""
        before = await self.stored()
        with pytest.raises(kind) as caught:
            await self.accept(message_id, **changes)
        assert await self.stored() == before
        return caught.value

    async def offer(self, receipt: Receipt, by: SessionName = ALICE, digest: str | None = None) -> None:
        reach = await self.reach(by)
        async with asyncio.timeout(IN_TIME_S):
            await reach.offer(receipt, digest)

    async def bob(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Look into Bob's mailbox, or change it as his own coordinator would."""
        if BOB in self._running:
            return await self._running[BOB].coordinator.mailbox.run(work)
        return await asyncio.to_thread(inside, self._layout, BOB, work)

    async def alice(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        return await self._running[ALICE].coordinator.mailbox.run(work)

    async def stored(self) -> list[Any]:
        """Give all that Bob's mailbox holds, but not what Alice may be told at any time."""
        rows = await self.bob(lambda c: c.execute("SELECT * FROM inbox ORDER BY sequence").fetchall())
        names = await self.bob(lambda c: [row[1] for row in c.execute("PRAGMA table_info(inbox)")])
        owed = names.index("owed")
        sent = await self.bob(lambda c: c.execute("SELECT * FROM outbox ORDER BY position").fetchall())
        return [[row[:owed] + row[owed + 1 :] for row in rows], sent]

    async def waiting(self) -> list[inbox.Incoming]:
        rows: list[inbox.Incoming] = await self.bob(inbox.undelivered)
        return rows

    async def custody_id(self) -> str:
        file = await asyncio.to_thread(read_session_file, self._layout, BOB.key)
        assert file is not None
        assert file.custody_id is not None
        return file.custody_id

    async def sent_by_bob(self, message_id: str = "b-1", to: SessionName = ALICE, **changes: Any) -> Outgoing:
        """Let Bob's outbox hold a message that no route carries."""
        row = outgoing(message_id, to=to, **changes)._replace(sender=sender(BOB)._asdict())
        stored: Outgoing = await self.bob(lambda connection: outbox.enqueue(connection, row))
        return stored

    async def state_at_bob(self, message_id: str = "b-1") -> Receipt:
        row = await self.bob(lambda connection: outbox.required(connection, message_id))
        receipt: Receipt = row.receipt
        return receipt

    def routes(self) -> Any:
        return self._running[ALICE].coordinator.routes


@pytest.fixture(params=WAYS)
async def custody(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[Custody]:
    async with AsyncExitStack() as stack:
        one = Custody(layout_at(home), request.param, stack)
        await one.begin()
        yield one


def told_by_alice(message_id: str = "b-1", state: str = ACCEPTED, **changes: Any) -> Receipt:
    """Give a receipt of Alice's custody for a message of Bob's."""
    whole = Receipt(message_id, target(ALICE), "custody-of-alice", state, 5, accepted_at=NOW)
    return whole._replace(**changes)


def with_bodies(
    text: bytes = b"long " * 20_000, message_id: str = "m-1", **files: bytes
) -> tuple[Envelope, Bodies]:
    """Give a message whose text and files lie outside its envelope."""
    parts = Parts(Part.of(text), tuple(Part.of(data, name) for name, data in files.items()))
    shape = {**envelope(message_id).to_wire(), **parts.shape()}
    del shape["content"]
    return read_envelope(shape), Bodies(parts, dict(enumerate((text, *files.values()))))


# --- bodies -----------------------------------------------------------------------------------------


async def handed_in(custody: Custody, message: Envelope, bodies: Bodies | None) -> Receipt:
    reach = await custody.reach()
    async with asyncio.timeout(IN_TIME_S):
        return await reach.accept(message, bodies)


@pytest.mark.requirement("A-methods-14", "H-files-11", "H-files-12")
async def test_a_message_and_its_bodies_are_there_together(custody: Custody):
    message, bodies = with_bodies(a=b"one", b=b"")
    receipt = await handed_in(custody, message, bodies)

    (row,) = await custody.waiting()
    assert receipt.state == ACCEPTED
    assert (await custody.bob(lambda c: whole.whole(c, row))).content.encode() == bodies.data[0]
    files = await custody.bob(lambda c: [whole.attachment(c, row, number) for number in (1, 2)])
    assert files == ["one", ""]


@pytest.mark.requirement("A-methods-14", "H-files-11")
@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("wrong", [b"", b"other", b"long tEXt", b"fone"])
async def test_a_body_that_is_not_what_was_told_is_never_taken(custody: Custody, part: int, wrong: bytes):
    message, bodies = with_bodies(b"long text", a=b"fine")
    before = await custody.stored()
    with pytest.raises(InvalidParams):
        await handed_in(custody, message, Bodies(bodies.parts, {**bodies.data, part: wrong}))

    assert await custody.stored() == before
    assert await custody.bob(lambda c: c.execute("SELECT count(*) FROM chunks").fetchone()) == (0,)


@pytest.mark.requirement("H-files-11")
async def test_a_message_without_its_bodies_is_refused_for_now(custody: Custody):
    message, _ = with_bodies()
    with pytest.raises(BodyMissing):
        await handed_in(custody, message, None)
    assert await custody.waiting() == []


@pytest.mark.requirement("A-errors-26")
async def test_more_than_the_recipient_takes_is_too_large(custody: Custody):
    most = DEFAULT_LIMITS.mailbox_payload_bytes
    message, bodies = with_bodies(b"x" * (most - 2), a=b"abc")
    with pytest.raises(MessageTooLarge):
        await handed_in(custody, message, bodies)
    assert await custody.waiting() == []


async def test_a_message_with_bodies_that_comes_again_is_there_once(custody: Custody):
    message, bodies = with_bodies(a=b"one")
    first = await handed_in(custody, message, bodies)

    assert await handed_in(custody, message, bodies) == first
    assert await handed_in(custody, message, None) == first
    other, others = with_bodies(b"something else")
    with pytest.raises(MessageIdConflict):
        await handed_in(custody, other, others)
    assert len(await custody.waiting()) == 1


# --- accept ----------------------------------------------------------------------------------------


@pytest.mark.requirement("D-visit-04", "A-methods-02")
async def test_an_accepted_message_is_in_the_mailbox_with_its_true_sender(custody: Custody):
    text = "a\0b\u6f22\r\n\x1b[31m"

    receipt = await custody.accept("m-1", text, topic="build", noReplyNeeded=True)

    assert (receipt.message_id, receipt.to, receipt.state) == ("m-1", target(BOB), ACCEPTED)
    assert receipt.custody_id == await custody.custody_id()
    assert receipt.accepted_at is not None
    (row,) = await custody.waiting()
    assert (row.content, row.topic, row.no_reply_needed) == (text, "build", True)
    assert (row.sender.key, row.sender.target, row.sender.role) == (ALICE.key, target(ALICE), "lead")
    assert row.receipt._replace(custody_id=receipt.custody_id) == receipt


@pytest.mark.requirement("D-visit-04", "A-custody-05", "C9")
async def test_a_message_that_comes_again_gets_the_first_receipt_and_is_there_once(custody: Custody):
    first = await custody.accept()
    before = await custody.stored()

    assert await custody.accept() == first
    assert await custody.accept(createdAt=1, noReplyNeeded=True) == first
    assert await custody.stored() == before


@pytest.mark.requirement("A-custody-05", "D-visit-04")
@pytest.mark.parametrize("restarted", [BOB, ALICE], ids=["receiver", "sender"])
async def test_it_gets_the_first_receipt_after_a_restart_of_either_side_too(
    custody: Custody, restarted: SessionName
):
    first = await custody.accept()
    await custody.restart(restarted)

    assert await custody.accept(custodyId=first.custody_id) == first
    assert await custody.accept() == first
    assert [row.message_id for row in await custody.waiting()] == ["m-1"]


@pytest.mark.requirement("A-errors-27", "C9", "D-visit-04")
@pytest.mark.parametrize(
    "changes", [{"content": "other"}, {"topic": "t"}, {"replyTo": "m-0"}, {"correlationId": "m-0"}]
)
async def test_a_known_id_with_other_content_is_a_conflict(custody: Custody, changes: dict[str, Any]):
    await custody.accept()

    await custody.refused(MessageIdConflict, **changes)


@pytest.mark.requirement("A-limits-03", "A-limits-19", "A-limits-21", "A-custody-07", "D-visit-04")
async def test_a_full_inbox_refuses_what_is_new_and_answers_what_it_knows(custody: Custody):
    receipts = [await custody.accept(f"m-{number}") for number in range(DEFAULT_LIMITS.inbox_messages)]
    assert len(receipts) == 32

    refusal = await custody.refused(QueueFull, "m-33")
    assert refusal.details["retry_after_ms"] > 0
    assert await custody.accept("m-7") == receipts[7]
    assert [row.message_id for row in await custody.waiting()] == [f"m-{number}" for number in range(32)]

    await custody.bob(lambda connection: inbox.count_handovers(connection, [1], NOW))
    await custody.bob(lambda connection: inbox.confirm(connection, [1], "hook", NOW))
    assert (await custody.accept("m-33")).state == ACCEPTED


@pytest.mark.requirement("A-limits-06", "A-limits-20", "A-limits-21", "A-custody-07")
async def test_a_mailbox_that_would_take_up_too_much_refuses_what_is_new_and_still_writes_receipts(
    custody: Custody,
):
    await custody.choose(limits=UNHURRIED._replace(inbox_messages=1_000, storage_bytes=250_000))
    receipts: list[Receipt] = []
    with suppress(QueueFull):
        while True:
            receipts.append(await custody.accept(f"m-{len(receipts)}", "x" * 5_000))
    assert len(receipts) > 3

    refusal = await custody.refused(QueueFull, "m-new", content="x" * 5_000)
    assert refusal.details["retry_after_ms"] > 0
    assert await custody.accept("m-1", "x" * 5_000) == receipts[1]
    sequences = [row.sequence for row in await custody.waiting()]
    await custody.bob(lambda connection: inbox.count_handovers(connection, sequences, NOW))
    changed = await custody.bob(lambda connection: inbox.confirm(connection, sequences, "hook", NOW))
    assert len(changed) == len(receipts)


@pytest.mark.requirement("A-limits-03")
async def test_the_33rd_message_stays_in_the_outbox_of_its_sender(custody: Custody):
    for number in range(DEFAULT_LIMITS.inbox_messages):
        await custody.accept(f"m-{number}")
    row = await custody.alice(lambda connection: outbox.enqueue(connection, outgoing("m-33")))

    custody.routes().add(row)
    await until(lambda: custody.routes().refusal(row) is not None)

    assert isinstance(custody.routes().refusal(row), QueueFull)
    kept = await custody.alice(lambda connection: outbox.required(connection, "m-33"))
    assert kept.receipt.state == PENDING


async def hurried(custody: Custody) -> StillClock:
    """Let the rates that are the default be in force, and time stand still."""
    clock = StillClock()
    await custody.choose(limits=DEFAULT_LIMITS, clock=clock)
    return clock


@pytest.mark.requirement("A-limits-07", "A-limits-08", "A-limits-22", "A-errors-12")
async def test_a_sender_above_its_rate_is_told_when_to_come_back_and_no_other_one_notices(custody: Custody):
    clock = await hurried(custody)
    receipts = [await custody.accept(f"m-{number}") for number in range(20)]

    refusal = await custody.refused(RateLimited, "m-21")
    assert refusal.details["retry_after_ms"] == 100
    assert await custody.accept("m-7") == receipts[7]
    assert (await (await custody.reach(by=CAROL)).accept(envelope("c-1", by=CAROL))).state == ACCEPTED

    clock.at += 0.06
    refusal = await custody.refused(RateLimited, "m-21")
    assert refusal.details["retry_after_ms"] == 40
    clock.at += 0.04
    assert (await custody.accept("m-21")).state == ACCEPTED
    await custody.refused(RateLimited, "m-22")


@pytest.mark.requirement("A-limits-07")
async def test_what_is_known_costs_its_sender_no_token(custody: Custody):
    await hurried(custody)
    for _ in range(3):
        for number in range(10):
            await custody.accept(f"m-{number}")
    for number in range(10, 20):
        await custody.accept(f"m-{number}")

    await custody.refused(RateLimited, "m-20")


@pytest.mark.requirement("A-limits-08", "A-errors-12")
async def test_a_message_above_the_rate_stays_queued_says_when_it_is_tried_and_arrives(custody: Custody):
    clock = await hurried(custody)
    rows = [await custody.alice(enqueued(f"m-{number}")) for number in range(25)]
    for row in rows:
        custody.routes().add(row)
    await until(lambda: isinstance(custody.routes().refusal(rows[20]), RateLimited))
    await custody.routes().written()

    pending = await custody.alice(outbox.pending)
    assert [row.message_id for row in pending] == [f"m-{number}" for number in range(20, 25)]
    told = await custody.ask("status", message_id="m-20")
    assert (told["state"], told["outcome"]) == (PENDING, "RATE_LIMITED")
    assert re.fullmatch(
        r"Nothing to do: the message stays queued and is tried again at 20\d\d-\d\d-\d\dT[\d:.]+Z\.",
        told["hint"],
    )
    clock.at += 0.5
    await until(lambda: not custody.routes().has(rows[24]))
    assert [row.message_id for row in await custody.waiting()] == [f"m-{number}" for number in range(25)]


@pytest.mark.requirement("A-custody-18", "D-visit-04")
async def test_a_message_that_may_lie_in_another_custody_is_not_taken(custody: Custody):
    await custody.accept("m-0")

    await custody.refused(CustodyChanged, custodyId="another-custody")
    await custody.refused(CustodyChanged, "m-0", custodyId="another-custody")
    assert (await custody.accept(custodyId=await custody.custody_id())).state == ACCEPTED


@pytest.mark.requirement("A-custody-02")
@pytest.mark.parametrize(
    ("verdict", "kind"),
    [(Denied("not these two"), EligibilityDenied), (Unverified("nobody knows"), EligibilityUnverified)],
)
async def test_what_the_judge_does_not_allow_is_not_taken(
    custody: Custody, verdict: Verdict, kind: type[HerdError]
):
    await custody.accept("m-0")
    custody.judge.now = verdict

    refusal = await custody.refused(kind)

    assert refusal.message in str(verdict)
    custody.judge.now = Allowed()
    assert (await custody.accept()).state == ACCEPTED


@pytest.mark.requirement("A-order-04", "A-methods-15")
async def test_the_receiver_counts_what_it_accepts_in_its_own_order(custody: Custody):
    for number, created in enumerate([NOW, 5, NOW + 10**9, 0]):
        await custody.accept(f"m-{number}", createdAt=created)
    carols = await custody.reach(by=CAROL)
    await carols.accept(envelope("m-4", by=CAROL))

    rows = await custody.waiting()

    assert [(row.sequence, row.message_id) for row in rows] == [
        (number + 1, f"m-{number}") for number in range(5)
    ]
    assert rows[4].sender.key == CAROL.key


async def test_messages_handed_in_together_are_each_there_once_with_sequences_that_rise_by_one(
    custody: Custody,
):
    receipts = await asyncio.gather(*(custody.accept(f"m-{number}") for number in range(20)))

    assert {receipt.state for receipt in receipts} == {ACCEPTED}
    rows = await custody.waiting()
    assert [row.sequence for row in rows] == list(range(1, 21))
    assert len({row.message_id for row in rows}) == 20


@pytest.mark.requirement("D-visit-05")
async def test_accepting_asking_and_telling_hands_nothing_over(custody: Custody):
    await custody.sent_by_bob()
    await custody.accept()
    await (await custody.reach()).status("m-1", target(BOB))
    await custody.offer(told_by_alice())
    await custody.restart()

    (row,) = await custody.waiting()

    assert (row.handovers, row.evidence, row.receipt.state) == (0, None, ACCEPTED)


@pytest.mark.requirement("A-discover-09")
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("machine", "repository"), ("repository", "machine"), ("workspace", "workspace")],
)
@pytest.mark.parametrize("together", [False, True], ids=["one", "several"])
async def test_a_message_beyond_the_scope_of_either_side_is_refused_for_good_and_stores_nothing(
    custody: Custody, tmp_path: Path, mine: str, theirs: str, together: bool
):
    at = await asyncio.to_thread(Checkouts, tmp_path)
    await custody.restart(ALICE, cwd=str(at.main), scope=mine)
    await custody.restart(BOB, cwd=str(at.main), scope=theirs)
    first = await custody.accept("m-1")
    await custody.restart(BOB, cwd=str(at.clone), scope=theirs)
    before = await custody.stored()

    reach = await custody.reach()
    new = envelope("m-2")
    with pytest.raises(ScopeDenied) as refused:
        await (reach.accept_together([new, envelope("m-3")]) if together else reach.accept(new))

    assert f"the sender's scope is {mine} and the recipient's is {theirs}" in refused.value.message
    assert not refused.value.may_pass
    assert await custody.stored() == before
    # What is in custody already is not refused: its sender would hold it for lost.
    assert await reach.status("m-1", target(BOB)) == first
    assert await reach.accept(envelope("m-1")) == first
    known = await reach.accept_together([envelope("m-1"), new])
    assert known.receipts == (first,)
    assert isinstance(known.refusal, ScopeDenied)
    assert await custody.stored() == before


# --- status ----------------------------------------------------------------------------------------


@pytest.mark.requirement("D-visit-04")
@pytest.mark.parametrize("restarted", [False, True])
async def test_the_status_of_a_message_is_its_receipt_as_it_stands_now(custody: Custody, restarted: bool):
    first = await custody.accept()
    if restarted:
        await custody.restart()
    assert await (await custody.reach()).status("m-1", target(BOB)) == first

    await custody.bob(lambda connection: inbox.count_handovers(connection, [1], NOW))
    await custody.bob(lambda connection: inbox.confirm(connection, [1], "hook", NOW + 9))

    now = await (await custody.reach()).status("m-1", target(BOB))
    assert (now.state, now.delivered_at, now.accepted_at) == (DELIVERED, NOW + 9, first.accepted_at)


@pytest.mark.requirement("D-visit-04")
async def test_the_status_of_what_never_came_is_unknown_and_of_another_s_denied(custody: Custody):
    with pytest.raises(UnknownTarget):
        await (await custody.reach()).status("m-1", target(BOB))
    await custody.accept()
    await custody.sent_by_bob("b-1")

    for by, message_id, to, kind in (
        (ALICE, "m-2", target(BOB), UnknownTarget),
        (ALICE, "m-1", target(CAROL), ScopeDenied),
        (CAROL, "m-1", target(BOB), ScopeDenied),
        (ALICE, "b-1", target(ALICE), ScopeDenied),
    ):
        with pytest.raises(kind):
            await (await custody.reach(by)).status(message_id, to)


# --- receipts --------------------------------------------------------------------------------------


@pytest.mark.requirement("D-visit-04", "D-visit-06", "A-custody-22")
async def test_a_receipt_that_is_told_is_recorded_and_told_again_changes_nothing(custody: Custody):
    await custody.sent_by_bob()

    await custody.offer(told_by_alice())
    accepted = await custody.state_at_bob()
    await custody.offer(told_by_alice())

    assert accepted == await custody.state_at_bob()
    assert (accepted.state, accepted.accepted_at, accepted.custody_id) == (ACCEPTED, NOW, "custody-of-alice")
    await custody.offer(told_by_alice(state=DELIVERED, delivered_at=NOW + 1))
    assert (await custody.state_at_bob()).state == DELIVERED


@pytest.mark.requirement("A-receipts-02")
@pytest.mark.parametrize("late", [ACCEPTED, REJECTED])
async def test_a_receipt_that_comes_late_makes_nothing_less(custody: Custody, late: str):
    await custody.sent_by_bob()
    await custody.offer(told_by_alice(state=DELIVERED, delivered_at=NOW + 1))
    before = await custody.state_at_bob()

    await custody.restart()
    await custody.offer(told_by_alice(state=late, outcome="SCOPE_DENIED"))

    assert await custody.state_at_bob() == before


@pytest.mark.requirement("A-receipts-08")
async def test_a_denial_at_delivery_is_told_with_its_code(custody: Custody):
    await custody.sent_by_bob()
    await custody.offer(told_by_alice())

    await custody.offer(told_by_alice(state=REJECTED, outcome="ELIGIBILITY_DENIED"))

    now = await custody.state_at_bob()
    assert (now.state, now.outcome, now.accepted_at) == (REJECTED, "ELIGIBILITY_DENIED", NOW)


@pytest.mark.requirement("A-methods-10", "D-visit-04")
@pytest.mark.parametrize(
    ("by", "receipt"),
    [
        (ALICE, told_by_alice("b-9")),
        (ALICE, told_by_alice(to=target(CAROL))),
        (CAROL, told_by_alice()),
        (CAROL, told_by_alice(to=target(CAROL))),
        (ALICE, told_by_alice(custody_id="another-custody")),
    ],
    ids=["unknown message", "other recipient", "stranger", "stranger as himself", "other custody"],
)
async def test_nobody_tells_a_receipt_but_the_custody_that_the_message_went_to(
    custody: Custody, by: SessionName, receipt: Receipt
):
    await custody.sent_by_bob(custody_id="custody-of-alice")
    before = await custody.stored()

    with pytest.raises(ScopeDenied):
        await custody.offer(receipt, by)

    assert await custody.stored() == before


@pytest.mark.requirement("C9")
async def test_a_receipt_is_not_taken_for_another_message_that_was_sent_under_the_same_id(custody: Custody):
    await custody.sent_by_bob()
    before = await custody.stored()
    [digest] = await custody.bob(lambda c: c.execute("SELECT digest FROM outbox").fetchone())

    with pytest.raises(MessageIdConflict):
        await custody.offer(told_by_alice(), digest=digest[::-1])

    assert await custody.stored() == before
    await custody.offer(told_by_alice(), digest=digest)
    assert (await custody.state_at_bob()).state == ACCEPTED


async def test_a_session_that_has_no_mailbox_was_told_nothing_and_gets_none(custody: Custody):
    with pytest.raises(ScopeDenied):
        await custody.offer(told_by_alice())
    with pytest.raises(UnknownTarget):
        await (await custody.reach()).status("m-1", target(BOB))

    with pytest.raises(AssertionError):
        await custody.custody_id()


# --- replies ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-receipts-07", "D-visit-04", "D-visit-06")
@pytest.mark.parametrize(
    "known", [True, False], ids=["its acceptance was known", "its receipt is still owed"]
)
async def test_a_reply_settles_the_message_it_answers(custody: Custody, known: bool):
    await custody.sent_by_bob()
    if known:
        await custody.offer(told_by_alice())

    receipt = await custody.accept("m-1", replyTo="b-1", correlationId="b-1")

    now = await custody.state_at_bob()
    assert (now.state, now.replied_at) == (REPLIED, receipt.accepted_at)
    (row,) = await custody.waiting()
    assert (row.reply_to, row.correlation_id) == ("b-1", "b-1")


@pytest.mark.requirement("A-reply-03", "A-errors-10")
@pytest.mark.parametrize(
    "changes",
    [
        {"replyTo": "b-9", "correlationId": "b-1"},
        {"replyTo": "b-1", "correlationId": "b-9"},
        {"replyTo": "b-2", "correlationId": "b-2"},
    ],
    ids=["other message", "other correlation", "sent to another"],
)
async def test_a_reply_to_something_else_is_refused_and_settles_nothing(
    custody: Custody, changes: dict[str, str]
):
    await custody.sent_by_bob()
    await custody.sent_by_bob("b-2", CAROL)

    refusal = await custody.refused(InvalidReply, **changes)

    assert "received from this very target" in refusal.next_step
    assert "original message id" in refusal.next_step
    assert (await custody.state_at_bob()).state == PENDING


@pytest.mark.requirement("A-reply-03")
async def test_a_strangers_reply_is_refused_and_settles_nothing(custody: Custody):
    await custody.sent_by_bob()
    reach = await custody.reach(by=CAROL)

    with pytest.raises(InvalidReply):
        await reach.accept(envelope("m-1", by=CAROL, replyTo="b-1", correlationId="b-1"))

    assert (await custody.state_at_bob()).state == PENDING
    assert await custody.waiting() == []


@pytest.mark.requirement("A-reply-04")
@pytest.mark.parametrize("state", [PENDING, ACCEPTED, DELIVERED, REPLIED])
async def test_a_reply_comes_in_whatever_became_of_what_it_answers(custody: Custody, state: str):
    await custody.sent_by_bob()
    if state != PENDING:
        await custody.offer(told_by_alice(state=state))

    await custody.accept("m-1", replyTo="b-1", correlationId="b-1")

    assert (await custody.state_at_bob()).state == REPLIED


# --- lifetimes -------------------------------------------------------------------------------------


@pytest.mark.requirement("A-limits-13")
async def test_what_is_left_is_counted_from_the_acceptance_on(custody: Custody):
    await custody.accept(expiresInMs=3_600_000)

    (row,) = await custody.waiting()
    assert row.lifetime_ms is not None
    assert 3_590_000 < row.lifetime_ms <= 3_600_000
    assert abs(Moment.now(SystemClock()).since(Moment.read(row.since or ""))) < 60_000


@pytest.mark.requirement("A-limits-12")
async def test_a_lifetime_longer_than_allowed_is_refused(custody: Custody):
    refusal = await custody.refused(InvalidParams, expiresInMs=3_600_001)

    assert "expiresInMs: 3600001 is more than 3600000" in refusal.message


@pytest.mark.requirement("A-limits-24")
async def test_what_expired_here_is_told_with_when_it_was_accepted(custody: Custody):
    first = await custody.accept(expiresInMs=3_600_000)
    await custody.bob(lambda c: c.execute("UPDATE inbox SET lifetime_ms = 1").rowcount)
    if custody.way == "connection":
        await custody.restart()  # whoever starts looks first; a visitor looks itself

    async def expired() -> bool:
        receipt = await (await custody.reach()).status("m-1", target(BOB))
        return (receipt.state, receipt.accepted_at) == (EXPIRED, first.accepted_at)

    await until_async(expired)
    assert await custody.waiting() == []
    assert (await custody.accept(expiresInMs=1)).state == EXPIRED


# --- from one way to the other ---------------------------------------------------------------------


@pytest.mark.requirement("A-custody-05", "D-visit-04")
async def test_what_was_accepted_one_way_is_known_the_other_way(custody: Custody):
    first = await custody.accept()
    if custody.way == "connection":
        await custody.end(BOB)
    else:
        await custody.start(BOB)

    assert await custody.accept() == first
    assert await (await custody.reach()).status("m-1", target(BOB)) == first
    assert [row.message_id for row in await custody.waiting()] == ["m-1"]
    assert (await custody.accept("m-2")).custody_id == first.custody_id


# --- several at once -------------------------------------------------------------------------------


async def together(custody: Custody, *envelopes: Envelope) -> Together:
    reach = await custody.reach()
    async with asyncio.timeout(IN_TIME_S):
        return await reach.accept_together(envelopes)


def several(*names: str) -> list[Envelope]:
    return [envelope(name) for name in names]


def enqueued(message_id: str) -> Callable[[sqlite3.Connection], Outgoing]:
    return lambda connection: outbox.enqueue(connection, outgoing(message_id))


@pytest.mark.requirement("D-visit-04", "A-order-01")
async def test_several_handed_in_at_once_are_there_in_their_order_with_a_receipt_each(custody: Custody):
    names = [f"m-{number}" for number in range(20)]

    receipts, refusal = await together(custody, *several(*names))

    assert refusal is None
    assert [(one.message_id, one.state) for one in receipts] == [(name, ACCEPTED) for name in names]
    rows = await custody.waiting()
    assert [(row.sequence, row.message_id) for row in rows] == list(enumerate(names, start=1))
    custody_id = await custody.custody_id()
    assert [row.receipt._replace(custody_id=custody_id) for row in rows] == list(receipts)
    assert {row.sender.key for row in rows} == {ALICE.key}


@pytest.mark.requirement("D-visit-04", "A-custody-05", "C9")
async def test_several_that_come_again_get_their_first_receipts_and_are_there_once(custody: Custody):
    first = await together(custody, *several("m-1", "m-2"))
    single = await custody.accept("m-3")
    before = await custody.stored()

    assert await together(custody, *several("m-1", "m-2")) == first
    assert await custody.accept("m-2") == first.receipts[1]
    assert (await together(custody, *several("m-2", "m-3", "m-3"))).receipts == (
        first.receipts[1],
        single,
        single,
    )
    assert await custody.stored() == before


@pytest.mark.requirement("A-order-02", "A-errors-27")
@pytest.mark.parametrize("inside", [True, False], ids=["with one of them", "with what is stored"])
async def test_a_conflict_in_the_middle_keeps_what_is_before_it_and_takes_nothing_behind(
    custody: Custody, inside: bool
):
    if not inside:
        await custody.accept("m-1")

    receipts, refusal = await together(
        custody, *several("m-1", "m-2"), envelope("m-1", "other"), *several("m-4")
    )

    assert [one.message_id for one in receipts] == ["m-1", "m-2"]
    assert isinstance(refusal, MessageIdConflict)
    assert [row.message_id for row in await custody.waiting()] == ["m-1", "m-2"]


@pytest.mark.requirement("A-limits-03", "A-order-02")
async def test_of_33_the_last_one_is_refused_where_32_have_room(custody: Custody):
    names = [f"m-{number}" for number in range(33)]

    receipts, refusal = await together(custody, *several(*names))

    assert [one.message_id for one in receipts] == names[:32]
    assert isinstance(refusal, QueueFull)
    assert refusal.details["retry_after_ms"] > 0
    assert [row.message_id for row in await custody.waiting()] == names[:32]
    again = await together(custody, *several("m-31", "m-32", "m-0"))
    assert again.receipts == receipts[31:]
    assert isinstance(again.refusal, QueueFull)


@pytest.mark.requirement("A-limits-08", "A-order-02")
async def test_of_several_those_are_taken_for_which_there_is_a_token(custody: Custody):
    clock = await hurried(custody)
    names = [f"m-{number}" for number in range(25)]

    receipts, refusal = await together(custody, *several(*names))
    assert [one.message_id for one in receipts] == names[:20]
    assert isinstance(refusal, RateLimited)
    assert refusal.details["retry_after_ms"] == 100

    clock.at += 0.5
    receipts, refusal = await together(custody, *several(*names))
    assert [one.message_id for one in receipts] == names
    assert refusal is None


@pytest.mark.requirement("A-custody-18")
async def test_one_that_may_lie_in_another_custody_ends_it(custody: Custody):
    await custody.accept("m-0")

    receipts, refusal = await together(
        custody, *several("m-1"), envelope("m-2", custodyId="another-custody"), *several("m-3")
    )

    assert [one.message_id for one in receipts] == ["m-1"]
    assert isinstance(refusal, CustodyChanged)
    assert [row.message_id for row in await custody.waiting()] == ["m-0", "m-1"]


@pytest.mark.requirement("A-custody-02")
@pytest.mark.parametrize(
    ("verdict", "kind"),
    [(Denied("not these two"), EligibilityDenied), (Unverified("nobody knows"), EligibilityUnverified)],
)
async def test_where_the_judge_does_not_allow_it_none_of_several_is_taken(
    custody: Custody, verdict: Verdict, kind: type[HerdError]
):
    await custody.accept("m-0")
    before, asked = await custody.stored(), len(custody.judge.asked)
    custody.judge.now = verdict

    with pytest.raises(kind):
        await together(custody, *several("m-1", "m-2", "m-3"))

    assert await custody.stored() == before
    assert len(custody.judge.asked) == asked + 1, "one verdict for all of them"


@pytest.mark.requirement("A-receipts-07", "D-visit-06")
async def test_replies_among_several_settle_the_messages_they_answer(custody: Custody):
    await custody.sent_by_bob("b-1")
    await custody.sent_by_bob("b-2")

    await together(
        custody,
        envelope("m-1", replyTo="b-1", correlationId="b-1"),
        envelope("m-2"),
        envelope("m-3", replyTo="b-2", correlationId="b-2"),
    )

    assert [(await custody.state_at_bob(one)).state for one in ("b-1", "b-2")] == [REPLIED, REPLIED]


@pytest.mark.requirement("A-limits-03", "A-order-01", "A-order-02")
async def test_of_34_waiting_on_a_route_the_last_two_stay_in_the_outbox(custody: Custody):
    names = [f"m-{number}" for number in range(34)]
    rows = [await custody.alice(enqueued(name)) for name in names]
    for row in rows:
        custody.routes().add(row)
    await until(lambda: isinstance(custody.routes().refusal(rows[32]), QueueFull))
    await custody.routes().written()

    pending = await custody.alice(outbox.pending)
    assert [row.message_id for row in pending] == names[32:]
    assert [row.message_id for row in await custody.waiting()] == names[:32]
    assert custody.routes().refusal(rows[33]) is None
