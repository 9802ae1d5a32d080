"""From the inbox to the host: waiting, hand-overs that are counted before they are made, and evidence.

Handing over proves nothing. A message is delivered when evidence says that the host has it; what was handed
over on a connection that ended without evidence is given again, marked so, and after the second time waits
for a person. While a reader still holds a message nobody else is given it.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from herd.core.clock import Clock, first_of, shown_time
from herd.core.errors import UnknownTarget
from herd.core.identity import TERMINAL
from herd.core.limits import HANDOVERS, READ_BYTES
from herd.mail import counter, inbox, outbox
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED
from herd.mail.steps import EVIDENCE_AFTER, EVIDENCE_BEFORE, HANDOVER_AFTER, HANDOVER_BEFORE, Step, no_step
from roles.model import Denied, Unverified, Verdict

_RECEIPTS = 50


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
        judge: Asked about each message again at its delivery, by its sender as acceptance verified it.
        changed: Told each row whose receipt changed, so that its sender is told.
        hold: Takes the authority lock shared, around each verdict and the count that rests on it.
        clock: Says when.
        step: The fault-test seam.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        judge: Callable[[Incoming], Verdict],
        changed: Callable[[Incoming], None],
        *,
        hold: Callable[[], Awaitable[AbstractContextManager[object]]],
        clock: Clock,
        step: Step = no_step,
    ) -> None:
        self._mailbox = mailbox
        self._judge = judge
        self._changed = changed
        self._hold = hold
        self._clock = clock
        self._step = step
        self._holders: dict[int, Hashable] = {}
        self._untold: dict[Hashable, int] = {}
        self._reading = asyncio.Lock()
        self._news = asyncio.Event()

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
            HerdError: the mailbox cannot be read.
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
            await self._tell(reader)

    async def _confirm(self, chosen: Callable[[sqlite3.Connection], list[int]], evidence: str) -> None:
        now = self._clock.wall_ms()

        def work(connection: sqlite3.Connection) -> list[Incoming]:
            return inbox.confirm(connection, chosen(connection), evidence, now)

        self._step(EVIDENCE_BEFORE)
        rows = await self._mailbox.read(work) or []
        self._step(EVIDENCE_AFTER)
        for row in rows:
            self._holders.pop(row.sequence, None)
            self._changed(row)

    async def confirm_held(self, reader: Hashable, evidence: str) -> None:
        """Record evidence that the host has everything that a reader still holds."""
        held = [number for number, holder in self._holders.items() if holder == reader]
        if held:
            await self._confirm(lambda _: held, evidence)
        await self._tell(reader)

    def release(self, reader: Hashable) -> None:
        """Take back what a reader that has ended holds without evidence, so that it is given again."""
        self._untold.pop(reader, None)
        released = [number for number, holder in self._holders.items() if holder == reader]
        for number in released:
            del self._holders[number]
        if released:
            self.arrived()

    async def _take(self, reader: Hashable, query: Query, *, person: bool) -> Handed:
        async with self._reading:
            if query.message_id is not None:
                return await self._take_one(reader, query)
            with await self._hold():
                rows = await self._mailbox.read(inbox.undelivered) or []
                chosen, more = await self._chosen(rows, query, person=person)
                if chosen:
                    await self._hand_over(reader, chosen)
            await self._tell(reader)  # it asks again, so it has what it was given before
            receipts, cursor = await self._receipts(reader, query)
            return Handed(chosen, receipts, cursor, more)

    async def _take_one(self, reader: Hashable, query: Query) -> Handed:
        rows = (
            await self._mailbox.read(lambda connection: inbox.by_id(connection, query.message_id or "")) or []
        )
        chosen = [row for row in rows if query.sender in {None, row.sender.target}]
        if not chosen:
            raise UnknownTarget(f"no message {query.message_id} came to this session")
        open_ones = [row for row in chosen if row.receipt.state == ACCEPTED]
        if open_ones and query.offset == 0:
            await self._hand_over(reader, open_ones)
        return Handed(chosen, [], await self._mailbox.read(counter.last_cursor) or 0, more=False)

    async def _chosen(
        self, rows: list[Incoming], query: Query, *, person: bool
    ) -> tuple[list[Incoming], bool]:
        chosen: list[Incoming] = []
        size = 0
        for row in rows:
            if (
                not self._is_free(row, person=person)
                or not _asked_for(row, query)
                or not await self._is_allowed(row)
            ):
                continue
            size += len(row.content.encode())
            if chosen and size > READ_BYTES:
                return chosen, True
            chosen.append(row)
        return chosen, False

    async def _is_allowed(self, row: Incoming) -> bool:
        verdict = self._judge(row)
        if isinstance(verdict, Denied):
            now = self._clock.wall_ms()
            refused = await self._mailbox.run(
                lambda connection: inbox.refuse(connection, row.sequence, "ELIGIBILITY_DENIED", now)
            )
            if refused is not None:
                self._changed(refused)
        return not isinstance(verdict, Denied | Unverified)

    def _is_free(self, row: Incoming, *, person: bool) -> bool:
        return row.sequence not in self._holders and (person or row.handovers < HANDOVERS)

    def _may_confirm(self, reader: Hashable | None, row: Incoming) -> bool:
        return row.handovers > 0 and (reader is None or self._holders.get(row.sequence) in {None, reader})

    async def _hand_over(self, reader: Hashable, rows: list[Incoming]) -> None:
        numbers = [row.sequence for row in rows]
        self._step(HANDOVER_BEFORE)
        await self._mailbox.run(lambda connection: inbox.count_handovers(connection, numbers))
        self._holders.update(dict.fromkeys(numbers, reader))
        self._step(HANDOVER_AFTER)

    async def _receipts(self, reader: Hashable, query: Query) -> tuple[list[Outgoing], int]:
        def look(connection: sqlite3.Connection) -> tuple[list[Outgoing], int]:
            after = counter.told(connection) if query.after is None else query.after
            rows = outbox.changed_after(connection, after, _RECEIPTS)
            end = rows[-1].receipt.cursor if len(rows) == _RECEIPTS else counter.last_cursor(connection)
            return [row for row in rows if query.reply_to in {None, row.message_id}], end

        receipts, cursor = await self._mailbox.read(look) or ([], 0)
        if receipts:
            self._untold[reader] = cursor
        return receipts, cursor

    async def _tell(self, reader: Hashable) -> None:
        """Note that the host has the receipts that this reader was given."""
        cursor = self._untold.pop(reader, None)
        if cursor is not None:
            await self._mailbox.run(lambda connection: counter.tell(connection, cursor))


def _asked_for(row: Incoming, query: Query) -> bool:
    return query.sender in {None, row.sender.target} and query.reply_to in {None, row.reply_to}


def shape_message(row: Incoming, offset: int = 0) -> dict[str, Any]:
    """Give a message as `peer_messages` shows it: from the verified sender, the text as it came."""
    role = TERMINAL if row.sender.host == TERMINAL else row.sender.role
    sender = {"target": row.sender.target, "name": row.sender.name or row.sender.host, "role": role}
    optional: dict[str, Any] = {
        "topic": row.topic,
        "reply_to": row.reply_to,
        "again": True if row.handovers > 0 and row.receipt.state == ACCEPTED else None,
        "no_reply_needed": row.no_reply_needed or None,
    }
    text = row.content[offset:].encode()[:READ_BYTES].decode("utf-8", "ignore")
    if offset + len(text) < len(row.content):
        optional["next_offset"] = offset + len(text)
    return {
        "message_id": row.message_id,
        "from": sender,
        "text": text,
        "received_at": shown_time(row.receipt.accepted_at),
        **{name: value for name, value in optional.items() if value is not None},
    }


def shape_receipt(row: Outgoing) -> dict[str, Any]:
    """Give a receipt as `peer_messages` shows it."""
    receipt = row.receipt
    at = receipt.replied_at or receipt.delivered_at or receipt.accepted_at
    optional = {"at": shown_time(at), "outcome": receipt.outcome}
    return {
        "message_id": row.message_id,
        "target": row.recipient,
        "status": receipt.state,
        **{name: value for name, value in optional.items() if value is not None},
    }
