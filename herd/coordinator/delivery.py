"""From the inbox to the host: waiting, hand-overs that are counted before they are made, and evidence.

Handing over proves nothing. A message is delivered when evidence says that the host has it; what was handed
over on a connection that ended without evidence is given again, marked so, and after the second time waits
for a person. While a reader still holds a message nobody else is given it.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from herd.coordinator.health import Health
from herd.coordinator.shapes import shape_message, shape_receipt, size_of
from herd.coordinator.told import Told
from herd.core.clock import Clock, first_of
from herd.core.errors import NoSession, ResourceBusy, UnknownTarget
from herd.core.limits import ANSWER_BYTES, HANDOVERS, READ_BYTES
from herd.mail import inbox
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, REJECTED
from herd.mail.steps import EVIDENCE_AFTER, EVIDENCE_BEFORE, HANDOVER_AFTER, HANDOVER_BEFORE, Step, no_step
from roles.model import Allowed, Denied, Verdict, require

__all__ = ["Delivery", "Handed", "Query", "shape_message", "shape_receipt"]


class Query(NamedTuple):
    """What a reader asks for; None where it does not narrow."""

    after: int | None = None
    sender: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    offset: int = 0
    wait_ms: int = 0


class Handed(NamedTuple):
    """What a read gives: messages with how often each was handed over before, and changed receipts."""

    messages: list[Incoming]
    receipts: list[Outgoing]
    cursor: int
    more: bool


class Delivery:
    """The one place that takes messages out of the inbox.

    Args:
        mailbox: The session's own.
        health: Nothing is handed over while this session is unhealthy.
        judge: Asked about each message again at its delivery, by its sender as acceptance verified it.
        changed: Told each row whose receipt changed, so that its sender is told.
        hold: Takes the authority lock shared, around each verdict and the count that rests on it.
        clock: Says when.
        step: The fault-test seam.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        health: Health,
        judge: Callable[[Incoming], Verdict],
        changed: Callable[[Incoming], None],
        *,
        hold: Callable[[], Awaitable[AbstractContextManager[object]]],
        clock: Clock,
        step: Step = no_step,
    ) -> None:
        self._mailbox = mailbox
        self._health = health
        self._judge = judge
        self._changed = changed
        self._hold = hold
        self._clock = clock
        self._step = step
        self._told = Told(mailbox)
        self._holders: dict[int, Hashable] = {}
        self._reading = asyncio.Lock()
        self._news = asyncio.Event()
        self._over = False

    def end(self) -> None:
        """Answer whoever still waits: this session is no longer served here."""
        self._over = True
        self.arrived()

    def arrived(self) -> None:
        """Wake whoever waits: a message was accepted, or a receipt changed."""
        self._news.set()
        self._news = asyncio.Event()

    async def read(self, reader: Hashable, query: Query, *, person: bool = False) -> Handed:
        """Hand over what waits, or wait for something to come.

        Args:
            reader: Who takes it: the messages stay with it until it confirms, releases, or ends.
            query: What it asks for.
            person: Whether a person reads, who is also given what waits after its last hand-over.

        Raises:
            UnknownTarget: `message_id` names no message of this session.
            ResourceBusy: another reader holds that message.
            HerdError: the mailbox cannot be read, or the session is unhealthy.
        """
        deadline = self._clock.elapsed() + query.wait_ms / 1000
        while True:
            news = self._news  # before looking, so that nothing committed in between is missed
            handed = await self._take(reader, query, person=person)
            left = deadline - self._clock.elapsed()
            if handed.messages or handed.receipts or left <= 0:
                return handed
            await first_of(news, self._clock, left)

    async def confirm(self, reader: Hashable | None, message_ids: Sequence[str], evidence: str) -> None:
        """Record evidence that the host has these messages; unknown or settled ones change nothing.

        Args:
            reader: Confirm only what this reader holds, where several messages bear one id; None for all.
            message_ids: The messages.
            evidence: What proves it, in a word or two.
        """

        def chosen(connection: sqlite3.Connection) -> list[int]:
            rows = [row for one in message_ids for row in inbox.by_id(connection, one)]
            return [row.sequence for row in rows if self._may_confirm(reader, row)]

        await self._confirm(chosen, evidence)
        if reader is not None:
            await self._told.told(reader)

    async def confirm_held(self, reader: Hashable, evidence: str) -> None:
        """Record evidence that the host has everything that a reader still holds."""
        held = [number for number, holder in self._holders.items() if holder == reader]
        if held:
            await self._confirm(lambda _: held, evidence)
        await self._told.told(reader)

    async def _confirm(self, chosen: Callable[[sqlite3.Connection], list[int]], evidence: str) -> None:
        now = self._clock.wall_ms()

        def work(connection: sqlite3.Connection) -> list[Incoming]:
            return inbox.confirm(connection, chosen(connection), evidence, now)

        self._step(EVIDENCE_BEFORE)
        rows = await self._mailbox.read(work) or []
        self._step(EVIDENCE_AFTER)
        self.settled(rows)

    def settled(self, rows: Iterable[Incoming]) -> None:
        """Take note of rows that have just become delivered, however the evidence came."""
        for row in rows:
            self._holders.pop(row.sequence, None)
            self._changed(row)

    def release(self, reader: Hashable) -> None:
        """Take back what a reader that has ended holds without evidence, so that it is given again."""
        self._told.forget(reader)
        released = [number for number, holder in self._holders.items() if holder == reader]
        for number in released:
            del self._holders[number]
        if released:
            self.arrived()

    async def _take(self, reader: Hashable, query: Query, *, person: bool) -> Handed:
        if self._over:
            raise NoSession(
                "this session has ended here, or the process was bound to another one", hint="Read again."
            )
        self._health.require()
        async with self._reading:
            if query.message_id is not None:
                return await self._take_one(reader, query.message_id, query)
            with await self._hold():
                chosen, more = await self._chosen(query, person=person)
                await self._hand_over(reader, chosen)
            changed = await self._told.changed(
                reader, query.after, message_id=query.reply_to, target=query.sender
            )
            return Handed(chosen, changed.receipts, changed.cursor, more or changed.more)

    async def _take_one(self, reader: Hashable, message_id: str, query: Query) -> Handed:
        with await self._hold():
            rows = await self._mailbox.read(lambda connection: inbox.by_id(connection, message_id)) or []
            # What was rejected at its delivery is shown to no host.
            chosen = [row for row in rows if _asked_for(row, query) and row.receipt.state != REJECTED]
            if not chosen:
                raise UnknownTarget(
                    f"no message {message_id} came to this session",
                    hint="Use the message_id that stands over a message.",
                )
            open_ones = [row for row in chosen if row.receipt.state == ACCEPTED]
            for row in open_ones:
                if self._holders.get(row.sequence, reader) != reader:
                    raise ResourceBusy(f"another reader of this session holds message {message_id} just now")
                require(await self._verdict(row))
            await self._hand_over(reader, [row for row in open_ones if row.sequence not in self._holders])
        return Handed(chosen, [], await self._told.cursor(), more=False)

    async def _chosen(self, query: Query, *, person: bool) -> tuple[list[Incoming], bool]:
        """Choose what to hand over now, and tell whether more waits than one answer carries."""
        chosen: list[Incoming] = []
        text = whole = 0
        for row in await self._mailbox.read(inbox.undelivered) or []:
            if not (self._is_free(row, person=person) and _asked_for(row, query)):
                continue
            if not isinstance(await self._verdict(row), Allowed):
                continue
            text += len(row.content.encode())
            whole += size_of(shape_message(row))
            if chosen and (text > READ_BYTES or whole > ANSWER_BYTES):
                return chosen, True
            chosen.append(row)
        return chosen, False

    async def _verdict(self, row: Incoming) -> Verdict:
        """Judge an accepted message as evidence is now; what is denied is rejected for good."""
        verdict = self._judge(row)
        if isinstance(verdict, Denied):
            now = self._clock.wall_ms()
            refused = await self._mailbox.run(
                lambda connection: inbox.refuse(connection, row.sequence, "ELIGIBILITY_DENIED", now)
            )
            if refused is not None:
                self._changed(refused)
        return verdict

    def _is_free(self, row: Incoming, *, person: bool) -> bool:
        return row.sequence not in self._holders and (person or row.handovers < HANDOVERS)

    def _may_confirm(self, reader: Hashable | None, row: Incoming) -> bool:
        return row.handovers > 0 and (reader is None or self._holders.get(row.sequence) in {None, reader})

    async def _hand_over(self, reader: Hashable, rows: list[Incoming]) -> None:
        if not rows:
            return
        numbers = [row.sequence for row in rows]
        self._step(HANDOVER_BEFORE)
        await self._mailbox.run(lambda connection: inbox.count_handovers(connection, numbers))
        self._holders.update(dict.fromkeys(numbers, reader))
        self._step(HANDOVER_AFTER)


def _asked_for(row: Incoming, query: Query) -> bool:
    return query.sender in {None, row.sender.target} and query.reply_to in {None, row.reply_to}
