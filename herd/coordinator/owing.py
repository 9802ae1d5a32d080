"""Receipts that are owed: told to each sender until it has confirmed them.

A change of state is told at once; that a message was accepted the sender heard as the answer to its send, so
it is told again only when the two are in contact anyway. A sender that sleeps is told by a visit.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable

from herd.coordinator.tasks import Tasks
from herd.core.backoff import pause_ms
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError
from herd.core.refusals import refusal_of
from herd.mail import inbox, pushes
from herd.mail.mailbox import Mailbox
from herd.mail.pushes import Owed
from herd.mail.reach import Reach
from herd.mail.receipts import is_told_at_once
from herd.mail.steps import OFFER_AFTER, OFFER_BEFORE, Step, no_step

_TRIED = 3
"""Tries in vain after which an ending session leaves without telling a sender, who may be ending itself."""


class Owing:
    """Tells receipts, one sender at a time and every sender by itself.

    Args:
        mailbox: The session's own.
        reach: Gives the custody of a sender by its session key.
        tasks: Runs the telling.
        clock: Paces what has to be told again.
        waits: Called when a sender has to be tried again.
        jitter: Gives a number in [0, 1) for each pause.
        step: The fault-test seam.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        reach: Callable[[str], Awaitable[Reach]],
        tasks: Tasks,
        *,
        clock: Clock,
        waits: Callable[[], None],
        jitter: Callable[[], float],
        step: Step = no_step,
    ) -> None:
        self._mailbox = mailbox
        self._reach = reach
        self._tasks = tasks
        self._clock = clock
        self._waits = waits
        self._jitter = jitter
        self._step = step
        self._again: dict[str, asyncio.Event] = {}
        self._in_contact: set[str] = set()
        self._pausing: set[str] = set()
        self._moved = asyncio.Event()

    async def start(self) -> None:
        """Tell what is owed since a former instance, or since the mailbox could not be read."""
        try:
            rows = await self._mailbox.read(inbox.owed) or []
        except HerdError:
            return  # once it can be read this is called again
        for key in {row.sender.key for row in rows if is_told_at_once(row.receipt)}:
            self.due(key)

    def contact(self, key: str) -> None:
        """Tell everything owed to a sender whose connection has just been proved."""
        self._in_contact.add(key)
        self.due(key)

    def due(self, key: str) -> None:
        """Tell a sender what it is owed now."""
        again = self._again.get(key)
        if again is None:
            self._again[key] = asyncio.Event()
            self._tasks.create_task(self._tell(key))
        else:
            again.set()

    async def told(self) -> None:
        """Wait until every sender has been told, or at least tried."""
        while set(self._again) - self._pausing:
            self._moved.clear()
            await self._moved.wait()

    def retry(self) -> None:
        """Try every sender again at once."""
        for again in self._again.values():
            again.set()

    async def _tell(self, key: str) -> None:
        again = self._again[key]
        attempt = 0
        try:
            while True:
                again.clear()
                if await self._tell_once(key):
                    attempt = 0
                    if not again.is_set():
                        return
                    continue
                attempt += 1
                if attempt > _TRIED:
                    self._pausing.add(key)
                self._moved.set()
                self._waits()
                await first_of(again, self._clock, pause_ms(attempt, self._jitter()) / 1000)
                self._pausing.discard(key)
        finally:
            del self._again[key]
            self._pausing.discard(key)
            self._moved.set()

    async def _tell_once(self, key: str) -> bool:
        """Tell what is owed; False where it has to be tried again."""
        contact = key in self._in_contact
        self._in_contact.discard(key)
        try:
            all_owed = await self._mailbox.read(lambda connection: pushes.owed(connection, key)) or []
        except HerdError:
            return True  # our own mailbox cannot be read; see `start`
        try:
            due = [owed for owed in all_owed if contact or is_told_at_once(owed.receipt)]
            if due:
                reach = await self._reach(key)
                for owed in due:
                    await self._offer(reach, owed)
        except HerdError as refusal:
            return not refusal.may_pass
        except OSError as fault:
            if refusal_of(fault) is None:
                raise
            return False
        return True

    async def _offer(self, reach: Reach, owed: Owed) -> None:
        self._step(OFFER_BEFORE)
        try:
            await reach.offer(owed.receipt._replace(custody_id=self._mailbox.custody_id), owed.row.digest)
        except HerdError as refusal:
            if refusal.may_pass:
                raise
            # The sender knows no such message, so there is nobody left to confirm it.
        self._step(OFFER_AFTER)

        def work(connection: sqlite3.Connection) -> None:
            pushes.settle(connection, owed)

        await self._mailbox.run(work)
