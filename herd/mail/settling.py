"""What became of sent messages, written down: together where there are many, at once where one is alone.

A receipt may wait a little, since whoever sent the message has been told already, and a crash in between
loses nothing: the receipt stays owed on the other side. It knows nothing of routes and of who carried what.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from herd.core.clock import Clock
from herd.core.errors import HerdError, PeerOffline
from herd.core.limits import SETTLED_TOGETHER_MS
from herd.mail import outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import Receipt
from herd.mail.steps import RECEIPT_AFTER, RECEIPT_BEFORE, Step, no_step

_log = logging.getLogger("herd.mail.routes")


class Spawner(Protocol):
    """Runs background work and ends it with its owner."""

    def create_task(self, work: Coroutine[Any, Any, None]) -> object:
        """Start a piece of work."""
        ...


class Settled(NamedTuple):
    """A message, and what became of it: a receipt, or a refusal for good."""

    message: Outgoing
    outcome: Receipt | HerdError


class Settling:
    """Writes down what became of one session's messages.

    Args:
        mailbox: The session's own.
        tasks: Runs the writing.
        clock: Says when a refusal came.
        recorded: Told each row once what became of it is written down.
        step: The fault-test seam.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        tasks: Spawner,
        *,
        clock: Clock,
        recorded: Callable[[Outgoing], None],
        step: Step = no_step,
    ) -> None:
        self._mailbox = mailbox
        self._tasks = tasks
        self._clock = clock
        self._recorded = recorded
        self._step = step
        self._waiting: list[Settled] = []
        self._failed: list[Settled] = []
        self._writing = 0
        self._moved = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, settled: Settled, *, more: bool) -> None:
        """Write down what became of a message.

        Args:
            settled: The message and its outcome.
            more: Whether others are under way behind it, with whose outcomes it may share a commit.
        """
        self._waiting.append(settled)
        if not more:
            self.write()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(SETTLED_TOGETHER_MS / 1_000, self._in_time)

    def write(self) -> None:
        """Write down at once whatever waits for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._writing += 1
            self._tasks.create_task(self._write_down(waiting))

    def retry(self) -> None:
        """Write down what could not be written before."""
        if self._failed:
            self._waiting += self._failed
            self._failed = []
            self.write()

    async def written(self) -> None:
        """Wait until what became of every message so far is written down, or could not be."""
        self.write()
        while self._writing:
            self._moved.clear()
            await self._moved.wait()

    def _in_time(self) -> None:
        with suppress(PeerOffline):  # this coordinator has ended; the next one hears of it again
            self.write()

    async def _write_down(self, all_of_them: list[Settled]) -> None:
        try:
            self._step(RECEIPT_BEFORE)
            outcomes = await self._mailbox.run(lambda connection: self._stored(connection, all_of_them))
            self._step(RECEIPT_AFTER)
        except HerdError as refusal:
            outcomes = [refusal] * len(all_of_them)
        finally:
            self._writing -= 1
            self._moved.set()
        for settled, outcome in zip(all_of_them, outcomes, strict=True):
            if isinstance(outcome, Outgoing):
                self._recorded(outcome)
                continue
            _log.warning("receipt.persist.failed", extra={"code": outcome.code})
            if outcome.may_pass:
                self._failed.append(settled)  # for `retry`

    def _stored(
        self, connection: sqlite3.Connection, all_of_them: list[Settled]
    ) -> list[Outgoing | HerdError]:
        """Store each outcome, or give why it cannot be: then nothing of that one is stored."""
        outcomes: list[Outgoing | HerdError] = []
        for settled in all_of_them:
            try:
                outcomes.append(self._one_stored(connection, settled))
            except HerdError as refusal:
                outcomes.append(refusal)
        return outcomes

    def _one_stored(self, connection: sqlite3.Connection, settled: Settled) -> Outgoing:
        message, outcome = settled
        if isinstance(outcome, HerdError):
            return outbox.reject(connection, message.message_id, outcome.code, self._clock.wall_ms())
        now = self._clock.wall_ms()
        return outbox.record_receipt(connection, outcome, message.recipient_key, now_ms=now)
