"""Messages and receipts between three mailboxes in any order of things: sent, lost, late, twice, crashed."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from herd.core.errors import DeliveryUnknown, HerdError, PeerOffline
from herd.mail import inbox, outbox
from herd.mail.inbox import Incoming
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, PENDING, REJECTED, REPLIED
from herd.mail.routes import CarriedTogether
from herd.mail.steps import COMMIT_AFTER, COMMIT_BEFORE
from herd.mail.wire import content_digest
from tests.fakes.mail import ALICE, BOB, CAROL, NOW, outgoing, sender
from tests.fakes.records import layout_at
from tests.properties.mail_nodes import Attempt, Node, Told, Wire, rows_of

Result = TypeVar("Result")

IN_TIME_S = 30
RANKS = {PENDING: 0, ACCEPTED: 1, DELIVERED: 2, REPLIED: 3, REJECTED: 4, EXPIRED: 4}
CANCELLED = "CANCELLED"
MANY_MS = 120_000
MANY = 12
"""Receipts that are on their way at once."""

NODES = st.integers(0, 2)
PICKS = st.integers(0, 1_000)
CUTS = st.sampled_from(["", "", "", "", COMMIT_BEFORE, COMMIT_AFTER])
"""Where the life of the one whose turn it is ends: mostly nowhere, else at its next commit."""


class Sent(NamedTuple):
    """What the test knows of a message it had sent."""

    source: int
    sink: int
    content: str
    reply_to: str | None


class MailMachine(RuleBasedStateMachine):
    """The rules are what may happen; the invariants what must hold whatever happens.

    A rule for which there is nothing yet does nothing, and none has a precondition: which messages share a
    commit is for threads to decide, and what is drawn may not depend on that.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(
            tempfile.mkdtemp(prefix="herd-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        )
        peers: dict[str, Node] = {}
        layout = layout_at(self.folder)
        self.nodes = [Node(layout, session, peers) for session in (ALICE, BOB, CAROL)]
        peers |= {node.key: node for node in self.nodes}
        self.wires: list[Wire] = []
        self.flying: list[Told] = []
        self.sent: dict[str, Sent] = {}
        self.cancelled: set[str] = set()
        self.handed: dict[str, int] = {}
        """How often each message reached its recipient's host."""
        self.evidenced: set[str] = set()
        """The messages whose evidence was recorded, as the host was told."""
        self.states: dict[tuple[int, str, str], str] = {}
        self.count = 0

    def teardown(self) -> None:
        try:
            if self.count:
                self._do(self._come_to_rest())
        finally:
            for node in self.nodes:
                if node.lives:
                    self._do(node.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.folder)

    # --- lives -------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        for who in range(3):
            self._living(who)
        for who in range(3):
            self._send(who, (who + 1) % 3, None, "")
        self.flow()

    @rule(who=NODES, orderly=st.booleans(), sleeps=st.booleans())
    def die(self, who: int, orderly: bool, sleeps: bool) -> None:
        """A life ends, and the next one begins at once or when it is needed."""
        node = self._living(who)
        self._do(node.close() if orderly else node.crash())
        if not sleeps:
            self._living(who)

    # --- sending -----------------------------------------------------------------------------------

    @rule(who=NODES, other=st.integers(1, 2), count=st.integers(1, 6), cut=CUTS)
    def send(self, who: int, other: int, count: int, cut: str) -> None:
        for _ in range(count):
            self._send(who, (who + other) % 3, None, cut)

    @rule(pick=PICKS, cut=CUTS)
    def reply(self, pick: int, cut: str) -> None:
        if not self.handed:
            return
        message_id = sorted(self.handed)[pick % len(self.handed)]
        answered = self.sent[message_id]
        self._send(answered.sink, answered.source, message_id, cut)

    @rule(who=NODES, waits=st.booleans())
    def nudge(self, who: int, waits: bool) -> None:
        """Somebody came back, so that every head is tried at once; or the longest pause is over."""
        node = self._living(who)
        if waits:
            node.clock.advance(MANY_MS / 1000)
        else:
            node.routes.retry()
        self._do(asyncio.sleep(0))

    @rule(pick=PICKS, cut=CUTS, over=st.booleans())
    def cancel(self, pick: int, cut: str, over: bool) -> None:
        """A message is taken back, or its lifetime is over, while its recipient can be asked."""
        if not self._pending():
            return
        message_id = self._pending()[pick % len(self._pending())]
        source = self._living(self.sent[message_id].source)
        on_the_way = [*self.wires, *(attempt.wire for attempt in source.attempts)]
        if not any(wire.holds(message_id) for wire in on_the_way):
            self._cut(source, cut, self._cancel(message_id, over=over))

    @rule(who=NODES, picks=st.lists(st.integers(0, 5), max_size=3), cut=CUTS)
    def lapse(self, who: int, picks: list[int], cut: str) -> None:
        """Lifetimes are over where messages wait that no reader holds."""
        node = self.nodes[who]

        def work(connection: sqlite3.Connection) -> None:
            rows = [row for row in inbox.undelivered(connection) if row.sequence not in node.holding]
            for pick in picks:
                if pick < len(rows):
                    inbox.expire(connection, rows[pick].sequence, NOW)

        async def lapsed() -> None:
            await node.run(work)

        self._cut(node, cut, lapsed())

    # --- the wire ----------------------------------------------------------------------------------

    @rule(pick=PICKS, cut=CUTS, whose=st.booleans(), lost=st.booleans())
    def arrive(self, pick: int, cut: str, whose: bool, lost: bool) -> None:
        """A message arrives, and its answer comes back or is lost; one side or the other may die of it."""
        if not self._attempts():
            return
        node, index = self._attempts()[pick % len(self._attempts())]
        attempt = node.attempts[index]
        sink = attempt.wire.sink
        self._cut(sink if whose else node, cut, self._arrived(attempt, lost=lost))

    @rule()
    def flow(self) -> None:
        """Everything arrives that is on its way, as it mostly does."""
        for _ in range(4):
            for attempt in [node.attempts[index] for node, index in self._attempts()]:
                self._do(self._arrived(attempt, lost=False))

    @rule(pick=PICKS, leaves=st.booleans())
    def fail(self, pick: int, leaves: bool) -> None:
        """An attempt fails; what was sent may still be on its way."""
        if not self._attempts():
            return
        node, index = self._attempts()[pick % len(self._attempts())]
        attempt = node.attempts[index]
        if leaves:
            self.wires.append(attempt.wire)
            _end(attempt.answer, DeliveryUnknown("it took too long"))
        else:
            _end(attempt.answer, PeerOffline("nobody there"))
        self._do(asyncio.sleep(0))

    @rule(pick=PICKS, cut=CUTS, again=st.booleans())
    def arrive_late(self, pick: int, cut: str, again: bool) -> None:
        """What was on its way arrives although nobody waits for an answer, perhaps once more later."""
        if not self.wires:
            return
        wire = self.wires[pick % len(self.wires)]
        if not again:
            self.wires.remove(wire)

        async def arrived() -> None:
            try:
                await wire.sink.accept(wire)
            except HerdError:
                return

        self._cut(wire.sink, cut, arrived())

    # --- reading -----------------------------------------------------------------------------------

    @rule(who=NODES, cut=CUTS, flows=st.booleans(), confirms=st.booleans())
    def read(self, who: int, cut: str, flows: bool, confirms: bool) -> None:
        if flows:
            self.flow()
        node = self._living(who)
        if self._cut(node, cut, self._read(node)) and confirms:
            for message_id in [
                one for one, sent in self.sent.items() if sent.sink == who and one in self.handed
            ]:
                self._do(self._confirm(node, message_id))
                self.evidenced.add(message_id)

    @rule(pick=PICKS, cut=CUTS)
    def confirm(self, pick: int, cut: str) -> None:
        """The host says that it has a message, in the life in which it was given it or in a later one."""
        if not self.handed:
            return
        message_id = sorted(self.handed)[pick % len(self.handed)]
        node = self._living(self.sent[message_id].sink)
        if self._cut(node, cut, self._confirm(node, message_id)):
            self.evidenced.add(message_id)

    # --- receipts ----------------------------------------------------------------------------------

    @rule()
    def offer(self) -> None:
        """What is owed now goes on its way."""
        for who in range(3):
            self.flying += self._do(self._living(who).owed())
        self.flying = self.flying[-MANY:]

    @rule(picks=st.lists(PICKS, min_size=1, max_size=4), again=st.booleans())
    def receipts_arrive(self, picks: list[int], again: bool) -> None:
        """Some of the receipts on their way arrive, in any order, perhaps once more later."""
        for pick in picks:
            if self.flying:
                told = self.flying[pick % len(self.flying)]
                if not again:
                    self.flying.remove(told)
                self._do(self._told(told, lost=False))

    @rule(pick=PICKS, cut=CUTS, whose=st.booleans(), lost=st.booleans())
    def receipt_arrives(self, pick: int, cut: str, whose: bool, lost: bool) -> None:
        """A receipt arrives and one side or the other dies of it, or nobody tells that it has arrived."""
        if not self.flying:
            return
        told = self.flying[pick % len(self.flying)]
        self._cut(told.sink if whose else told.source, cut, self._told(told, lost=lost))

    # --- what must hold ----------------------------------------------------------------------------

    @invariant()
    def everything_is_true(self) -> None:
        if self.count:
            self._check(self._do(self._all_rows()))

    def _check(self, rows: list[dict[str, list[dict[str, Any]]]]) -> None:
        for number, mail in enumerate(rows):
            cursors = [row["cursor"] for table in ("inbox", "outbox") for row in mail[table]]
            assert len(set(cursors)) == len(cursors), "two changes with one cursor"
            for table in ("inbox", "outbox"):
                for row in mail[table]:
                    self._only_grows(number, table, row)
            for other in range(3):
                if other != number:
                    self._is_in_custody_once(number, other, mail["outbox"], rows[other])

    def _only_grows(self, number: int, table: str, row: dict[str, Any]) -> None:
        known = (number, table, row["message_id"])
        before = self.states.get(known, PENDING)
        assert RANKS[row["state"]] >= RANKS[before], f"{before} became {row['state']}"
        assert before not in {REJECTED, EXPIRED} or row["state"] == before
        self.states[known] = row["state"]

    def _is_in_custody_once(
        self, number: int, other: int, sent: list[dict[str, Any]], there: dict[str, list[dict[str, Any]]]
    ) -> None:
        mine, theirs = self.nodes[number].key, self.nodes[other].key
        went = {row["message_id"]: row for row in sent if row["recipient_key"] == theirs}
        came = [row for row in there["inbox"] if row["sender_key"] == mine]
        order = list(went)
        positions = [order.index(row["message_id"]) for row in came]
        assert positions == sorted(set(positions)), "accepted twice or out of order"
        replied = {row["reply_to"] for row in there["outbox"]}
        for row in came:
            self._agrees(went[row["message_id"]], row)
            answered = next((one for one in there["outbox"] if one["message_id"] == row["reply_to"]), None)
            assert answered is None or answered["state"] in {REPLIED, EXPIRED}, (
                "its reply has come, and it is not replied"
            )
        accepted = {row["message_id"]: row["state"] for row in came}
        for message_id, row in went.items():
            taken_back = row["state"] == REJECTED or (row["state"] == EXPIRED and row["accepted_at"] is None)
            assert row["content"] == self.sent[message_id].content
            assert row["state"] != REJECTED or row["outcome"] == CANCELLED
            assert (message_id in accepted) or taken_back or row["state"] == PENDING, "told, and not there"
            assert not (taken_back and message_id in accepted), "taken back or over, and there"
            assert taken_back or row["state"] != EXPIRED or accepted[message_id] == EXPIRED, "over, and not"
            assert row["state"] != REPLIED or message_id in replied, "replied without a reply"

    def _agrees(self, out: dict[str, Any], row: dict[str, Any]) -> None:
        message_id = row["message_id"]
        assert row["content"] == out["content"]
        assert row["handovers"] >= self.handed.get(message_id, 0), "handed over before it was counted"
        assert (row["state"] in {DELIVERED, REPLIED}) >= (out["state"] == DELIVERED)
        assert row["state"] != DELIVERED or row["evidence"]
        in_time = row["state"] != EXPIRED
        assert message_id not in self.evidenced or row["evidence"] or not in_time, "evidence was lost"
        # A receipt that the sender has not heard of is owed, or comes with the next attempt.
        if not row["owed"]:
            late = out["state"] == REPLIED and not in_time  # its reply came in, whatever it had waited for
            assert late or RANKS[out["state"]] >= RANKS[row["state"]], "a receipt is lost"

    # --- how things are done -----------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        async def done() -> Result:
            async with asyncio.timeout(IN_TIME_S):
                result = await work
                await self._until_idle()
            return result

        return self.loop.run_until_complete(done())

    async def _until_idle(self) -> None:
        while not all(node.idle for node in self.nodes):  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0)

    def _cut(self, node: Node, step: str, work: Coroutine[Any, Any, None]) -> bool:
        """Do something, and crash the node if it reaches that step of a commit; False where it did."""
        lived = node.lives
        if lived:
            node.cut_at(step)
        try:
            self._do(work)
        finally:
            cut = lived and node.was_cut
            if cut:
                self._do(node.crash())
        return not cut

    async def _arrived(self, attempt: Attempt, *, lost: bool) -> None:
        sink = attempt.wire.sink
        try:
            together = await sink.accept(attempt.wire)
            outcome: CarriedTogether | HerdError = CarriedTogether(
                together.receipts, sink.lives, together.refusal
            )
        except HerdError as refusal:
            outcome = refusal
        if lost or sink.was_cut:
            outcome = DeliveryUnknown("the answer was lost")
        _end(attempt.answer, outcome)

    def _living(self, who: int) -> Node:
        """Give a node that lives, if need be from now on."""
        node = self.nodes[who]
        if not node.lives:
            self._do(node.open())
        return node

    def _pending(self) -> list[str]:
        """Give the messages of which no more is known to their sender than that they were sent."""
        found = []
        for message_id, sent in self.sent.items():
            if self.states.get((sent.source, "outbox", message_id)) == PENDING:
                found.append(message_id)
        return found

    def _attempts(self) -> list[tuple[Node, int]]:
        return [(node, index) for node in self.nodes for index in range(len(node.attempts))]

    def _send(self, who: int, to: int, reply_to: str | None, cut: str) -> None:
        node, other = self._living(who), self.nodes[to]
        message_id = f"m-{self.count}"
        content = f"text of {message_id}"
        self.count += 1
        self.sent[message_id] = Sent(who, to, content, reply_to)

        async def sending() -> None:
            row = await self._enqueued(node, other, message_id, content, reply_to)
            if not node.was_cut:
                node.routes.add(row)

        self._cut(node, cut, sending())

    async def _enqueued(
        self, node: Node, other: Node, message_id: str, content: str, reply_to: str | None
    ) -> Any:
        def work(connection: sqlite3.Connection) -> Any:
            correlation, conversation, depth = message_id, message_id, 0
            if reply_to is not None:
                correlation, conversation, received = outbox.require_reply(connection, reply_to, other.key)
                depth = received + 1
                answered = inbox.by_id(connection, reply_to)
                inbox.confirm(connection, [row.sequence for row in answered if row.handovers], "reply", NOW)
            row = outgoing(
                message_id,
                content,
                other.session,
                sender=sender(node.session)._asdict(),
                reply_to=reply_to,
                correlation_id=correlation,
                conversation_id=conversation,
                depth=depth,
                digest=content_digest(content, None, reply_to, correlation),
            )
            return outbox.enqueue(connection, row)

        return await node.run(work)

    async def _cancel(self, message_id: str, *, over: bool) -> None:
        """Take a message back or end it, as a coordinator does: its route at rest, its recipient asked."""
        sent = self.sent[message_id]
        source, sink = self.nodes[sent.source], self.nodes[sent.sink]
        row = await source.run(lambda connection: outbox.find(connection, message_id))
        if (
            row is None
            or row.receipt.state != PENDING
            or any(one.wire.sink is sink for one in source.attempts)
        ):
            return
        async with source.routes.held(row):
            custody_id = await sink.custody_id()
            came = await sink.run(
                lambda connection: inbox.find(connection, source.key, message_id, sink.target)
            )
            if came is None:
                row = await source.run(
                    lambda connection: (
                        outbox.expire(connection, message_id, NOW)
                        if over
                        else outbox.reject(connection, message_id, CANCELLED, NOW)
                    )
                )
            else:
                receipt = came.receipt._replace(custody_id=custody_id)
                row = await source.run(
                    lambda connection: outbox.record_receipt(connection, receipt, sink.key, now_ms=NOW)
                )
        source.recorded(row)

    async def _read(self, node: Node) -> None:
        rows: list[Incoming] = await node.run(inbox.undelivered)
        given = [row for row in rows if inbox.may_be_handed_over(row) and row.sequence not in node.holding]
        numbers = [row.sequence for row in given]
        await node.run(lambda connection: inbox.count_handovers(connection, numbers, NOW))
        if node.was_cut:
            return  # the host never got the answer
        node.holding |= set(numbers)
        for row in given:
            assert row.message_id not in self.evidenced, "given again after its evidence"
            assert row.handovers > 0 or row.message_id not in self.handed, "given again and not marked"
            self.handed[row.message_id] = self.handed.get(row.message_id, 0) + 1
            assert self.handed[row.message_id] <= 2, "given a third time"

    async def _confirm(self, node: Node, message_id: str) -> None:
        def work(connection: sqlite3.Connection) -> list[Incoming]:
            rows = [row.sequence for row in inbox.by_id(connection, message_id) if row.handovers]
            return inbox.confirm(connection, rows, "evidence", NOW)

        for row in await node.run(work):
            node.holding.discard(row.sequence)

    async def _told(self, told: Told, *, lost: bool) -> None:
        row = await told.sink.run(
            lambda connection: outbox.record_receipt(connection, told.receipt, told.source.key, now_ms=NOW)
        )
        told.sink.recorded(row)
        if not (lost or told.sink.was_cut) and told.source.lives and told.source.life == told.life:
            await told.source.run(
                lambda connection: inbox.settle(connection, told.row.sequence, told.row.receipt.cursor)
            )

    async def _all_rows(self) -> list[dict[str, list[dict[str, Any]]]]:
        return [
            await node.run(lambda c: {table: rows_of(c, table) for table in ("inbox", "outbox")})
            for node in self.nodes
        ]

    async def _come_to_rest(self) -> None:
        """Let everybody live and everything arrive: then each message is delivered, or over."""
        for node in self.nodes:
            if not node.lives:
                await node.open()
        while True:
            rows = await self._all_rows()
            if all(RANKS[row["state"]] >= RANKS[DELIVERED] for mail in rows for row in mail["outbox"]):
                break
            await self._carry_on()
        self._check(rows)
        assert all(row["state"] != ACCEPTED for mail in rows for row in mail["inbox"])

    async def _carry_on(self) -> None:
        for node in self.nodes:
            node.clock.advance(MANY_MS / 1000)
        await self._until_idle()
        for attempt in [node.attempts[index] for node, index in self._attempts()]:
            await self._arrived(attempt, lost=False)
        for node in self.nodes:
            await self._read_by_a_person(node)
            for told in await node.owed():
                await self._told(told, lost=False)

    async def _read_by_a_person(self, node: Node) -> None:
        """Give and confirm everything, also what was handed over twice without evidence."""

        def work(connection: sqlite3.Connection) -> None:
            numbers = [row.sequence for row in inbox.undelivered(connection)]
            inbox.count_handovers(connection, numbers, NOW)
            inbox.confirm(connection, numbers, "a person", NOW)

        await node.run(work)


def _end(answer: "asyncio.Future[CarriedTogether]", outcome: CarriedTogether | HerdError) -> None:
    if answer.done():
        return
    if isinstance(outcome, HerdError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


@pytest.mark.timeout(300)
def test_whatever_happens_each_message_is_in_one_custody_in_order_and_no_receipt_is_lost():
    run_state_machine_as_test(
        MailMachine,
        settings=settings(
            max_examples=40, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
