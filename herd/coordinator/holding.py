"""What readers hold without evidence, and what becomes of it: delivered, given again, or never handed over.

Handing over proves nothing. While a reader still holds a message nobody else is given it.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import NamedTuple

from herd.coordinator.told import Told
from herd.coordinator.wholeness import Wholeness
from herd.core.clock import Clock
from herd.core.limits import HANDOVERS
from herd.core.moments import Moment
from herd.mail import inbox
from herd.mail.inbox import Incoming
from herd.mail.lifetimes import left_ms
from herd.mail.mailbox import Mailbox
from herd.mail.steps import EVIDENCE_AFTER, EVIDENCE_BEFORE, HANDOVER_AFTER, HANDOVER_BEFORE, Step


class News(NamedTuple):
    """Who is told what happens to received messages."""

    changed: Callable[[Incoming], None]
    """A row whose receipt changed, so that its sender is told."""
    waits: Callable[[], None]
    """Something waits to be handed over that did not before."""
    handed: Callable[[list[Incoming]], None]
    """These rows have just been handed over."""
    lapses: Callable[[], None]
    """A lifetime is over, or may be."""
    uncertain: Callable[[], None] = lambda: None
    """Something waits whose verdict is not certain now."""


class Holding:
    """Who holds which message.

    Args:
        mailbox: The session's own.
        news: Who is told.
        clock: Says when.
        step: The fault-test seam.
        run: Whose messages: a run's; None for the session's own.
    """

    def __init__(
        self, mailbox: Mailbox, news: News, *, clock: Clock, step: Step, run: str | None = None
    ) -> None:
        self._mailbox = mailbox
        self._news = news
        self._clock = clock
        self._step = step
        self._run = run
        self._told = Told(mailbox, run)
        self._wholeness = Wholeness(mailbox)
        self._holders: dict[int, Hashable] = {}
        self._ids: dict[int, str] = {}
        self._review_to = 0
        self._reading = asyncio.Lock()
        self._lapsed = False
        """Whether a reader held something whose lifetime was over at the last look."""
        self._excused: set[int] = set()
        """Rows whose last counted hand-over stands for the next one too, since the host gave that back."""

    def hold_back(self, up_to: int) -> None:
        """Hand over none of what came before a row, and not that one, until a person lets it through."""
        self._review_to = up_to

    def is_held_back(self, sequence: int) -> bool:
        """Tell whether a message waits for a person to let it through."""
        return sequence <= self._review_to

    def let_through(self) -> None:
        """Hand over what was held back like any other mail: a person has said so."""
        self._review_to = 0
        self.waits()

    async def confirm(self, reader: Hashable | None, message_ids: Sequence[str], evidence: str) -> None:
        """Record evidence that the host has these messages; unknown or settled ones change nothing.

        Args:
            reader: Confirm only what this reader holds, where several messages bear one id; None for all.
            message_ids: The messages.
            evidence: What proves it, in a word or two.
        """

        def chosen(connection: sqlite3.Connection) -> list[int]:
            rows = [row for one in message_ids for row in inbox.by_id(connection, one, self._run)]
            return [row.sequence for row in rows if self._may_confirm(reader, row)]

        await self._confirm(chosen, evidence)
        if reader is not None:
            await self._told.told(reader)

    async def confirm_held(self, reader: Hashable, evidence: str) -> None:
        """Record evidence that the host has everything that a reader still holds."""
        held = self._held_by(reader)
        if held:
            await self._confirm(lambda _: held, evidence)
        await self._told.told(reader)

    def settled(self, rows: Iterable[Incoming]) -> None:
        """Take note of rows that have just become delivered, however the evidence came."""
        for row in rows:
            self._settle(row.sequence)
            self._news.changed(row)

    def release(
        self, reader: Hashable, message_ids: Collection[str] | None = None, *, excused: bool = False
    ) -> None:
        """Take back what a reader holds without evidence, so that it is given again, marked so.

        Args:
            reader: Who held it.
            message_ids: Only these; everything, receipts too, where None, as when the reader has ended.
            excused: The host itself said that it does not have them. Then this hand-over is none of those in
                vain after which a message waits for a person: however often a person cuts a turn off, what
                it carried comes again.
        """
        if message_ids is None:
            self._told.forget(reader)
        held = self._held_by(reader, message_ids)
        if excused:
            self._excused.update(held)
        else:
            self._excused.difference_update(held)
        self._let_go(held)

    async def put_back(self, reader: Hashable, message_ids: Collection[str] | None = None) -> None:
        """Take back what a reader holds as if it had never been handed over: it did not reach the session."""
        held = self._held_by(reader, message_ids)
        counted = [number for number in held if number not in self._excused]
        if counted:
            await self._mailbox.run(lambda connection: inbox.uncount_handovers(connection, counted))
        self._let_go(held)

    async def end_lapsed(self, now: Moment) -> int | None:
        """End what came here and is over, unless a reader holds it: its host may have it and yet say so.

        Returns:
            Milliseconds until the next one is due; None where nothing is.
        """
        async with self._reading:  # between the choice of a message and its hand-over it has no holder yet
            held = set(self._holders)

            def work(connection: sqlite3.Connection) -> tuple[list[Incoming], list[Incoming]]:
                rows = inbox.mortal(connection, self._run)
                free = [row for row in rows if row.sequence not in held and (left_ms(row, now) or 0) <= 0]
                ended = [inbox.expire(connection, row.sequence, now.wall_ms) for row in free]
                return rows, [row for row in ended if row is not None]

            rows, ended = await self._mailbox.read(work) or ([], [])
        left = [left_ms(row, now) or 0 for row in rows]
        self._lapsed = any(row.sequence in held and one <= 0 for row, one in zip(rows, left, strict=True))
        for row in ended:
            self._settle(row.sequence)
            self._news.changed(row)
        return min((one for one in left if one > 0), default=None)

    def is_free(self, sequence: int, handovers: int) -> bool:
        """Tell whether a message may be handed over without a person asking."""
        if sequence in self._holders or self.is_held_back(sequence) or self._wholeness.is_damaged(sequence):
            return False
        return handovers < HANDOVERS or sequence in self._excused

    def is_held(self, sequence: int) -> bool:
        """Tell whether a reader has a message and has not said yet that its host has it."""
        return sequence in self._holders

    def waits_for_a_person(self, sequence: int, handovers: int) -> bool:
        """Tell whether a message was handed over too often in vain, or is damaged where it is stored."""
        given = sequence in self._holders or self.is_held_back(sequence)
        return not given and not self.is_free(sequence, handovers)

    @property
    def damaged(self) -> list[str]:
        """The ids of messages that wait and cannot be shown, since they are damaged where they are stored."""
        return self._wholeness.damaged

    def give_back(self, sequences: Iterable[int]) -> None:
        """Take back messages whose evidence is overdue; they are given again, marked so."""
        overdue = [number for number in sequences if number in self._holders]
        self._excused.difference_update(overdue)
        self._let_go(overdue)

    def holds(self, reader: Hashable) -> bool:
        """Tell whether a reader holds anything without evidence."""
        return any(holder == reader for holder in self._holders.values())

    def waits(self) -> None:
        """Take note that something waits to be handed over that did not before."""
        self._news.waits()

    def _held_by(self, reader: Hashable, message_ids: Collection[str] | None = None) -> list[int]:
        return [
            number
            for number, holder in self._holders.items()
            if holder == reader and (message_ids is None or self._ids[number] in message_ids)
        ]

    def _let_go(self, numbers: list[int]) -> None:
        for number in numbers:
            self._forget(number)
        if numbers:
            self.waits()
        if numbers and self._lapsed:
            self._news.lapses()

    def _forget(self, number: int) -> None:
        self._holders.pop(number, None)
        self._ids.pop(number, None)

    def _settle(self, number: int) -> None:
        self._forget(number)
        self._excused.discard(number)

    def _may_confirm(self, reader: Hashable | None, row: Incoming) -> bool:
        return row.handovers > 0 and (reader is None or self._holders.get(row.sequence) in {None, reader})

    async def _confirm(self, chosen: Callable[[sqlite3.Connection], list[int]], evidence: str) -> None:
        now = self._clock.wall_ms()

        def work(connection: sqlite3.Connection) -> list[Incoming]:
            return inbox.confirm(connection, chosen(connection), evidence, now)

        self._step(EVIDENCE_BEFORE)
        rows = await self._mailbox.read(work) or []
        self._step(EVIDENCE_AFTER)
        self.settled(rows)

    async def _hand_over(self, reader: Hashable, rows: list[Incoming]) -> None:
        if not rows:
            return
        numbers = [row.sequence for row in rows]
        self._step(HANDOVER_BEFORE)
        counted = [number for number in numbers if number not in self._excused]
        now = self._clock.wall_ms()
        await self._mailbox.run(lambda connection: inbox.count_handovers(connection, counted, now))
        self._holders.update(dict.fromkeys(numbers, reader))
        self._ids.update({row.sequence: row.message_id for row in rows})
        self._step(HANDOVER_AFTER)
        self._news.handed(rows)
