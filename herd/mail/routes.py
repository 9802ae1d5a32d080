"""The sender's side at work: for each recipient the pending messages, head first, until each is settled.

A route is one exact recipient. Its head is carried, and whatever may pass keeps it the head and makes it
wait with backoff; a definitive refusal rejects it and the next one goes. No route waits for another. The
outbox row was committed before a message comes here, and what a carrier answers is told to whoever waits
before it is written down: a crash in between loses nothing, since the receipt stays owed on the other side.
"""

import asyncio
import logging
import random
import sqlite3
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from herd.core.backoff import pause_ms
from herd.core.clock import Clock
from herd.core.errors import HerdError, InvalidRpc
from herd.mail import outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import PENDING, REJECTED, Receipt, merged
from herd.mail.steps import RECEIPT_AFTER, RECEIPT_BEFORE, SEND_AFTER, SEND_BEFORE, Step, no_step

_log = logging.getLogger("herd.mail.routes")


class Carried(NamedTuple):
    """What one attempt reached."""

    receipt: Receipt
    running: bool = True
    """Whether the recipient's coordinator took it itself."""


class Carrier(Protocol):
    """Takes one message to its recipient's custody, once."""

    async def carry(self, message: Outgoing) -> Carried:
        """Try once.

        Raises:
            HerdError: a refusal; `may_pass` tells whether the message stays the head of its route.
        """
        ...


class Progress(NamedTuple):
    """What is known of a message in this process: its receipt, whether its recipient runs, the last refusal."""

    receipt: Receipt
    running: bool = True
    refusal: HerdError | None = None


class _Route:
    def __init__(self) -> None:
        self.waiting: deque[Outgoing] = deque()
        self.retry = asyncio.Event()
        self.attempt = 0
        self.refusal: HerdError | None = None
        self.carrying = False
        self.task: asyncio.Task[None] | None = None


class Routes:
    """Every route of one session's outbox.

    Args:
        mailbox: The session's own.
        carrier: What takes messages away.
        tasks: Runs the routes, and ends them with the coordinator.
        clock: Paces the retries.
        changed: Told each message's progress once it is more than pending.
        jitter: Gives a number in [0, 1) for each pause.
        step: The fault-test seam.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        carrier: Carrier,
        tasks: asyncio.TaskGroup,
        *,
        clock: Clock,
        changed: Callable[[Progress], None],
        jitter: Callable[[], float] = random.random,
        step: Step = no_step,
    ) -> None:
        self._mailbox = mailbox
        self._carrier = carrier
        self._tasks = tasks
        self._clock = clock
        self._changed = changed
        self._jitter = jitter
        self._step = step
        self._routes: dict[str, _Route] = {}

    @property
    def blocked(self) -> bool:
        """Whether any head waits to be tried again."""
        return any(route.refusal is not None for route in self._routes.values())

    def add(self, message: Outgoing) -> None:
        """Queue a committed message behind those of its route; call it in the order of the commits."""
        route = self._routes.setdefault(message.route, _Route())
        route.waiting.append(message)
        if route.task is None:
            route.task = self._tasks.create_task(self._serve(message.route, route))

    def retry(self) -> None:
        """Try every waiting head at once, except one that was told how long to wait."""
        for route in self._routes.values():
            route.retry.set()

    def refusal(self, message_id: str) -> HerdError | None:
        """Give why a message is still pending, where it is the head of its route and was refused."""
        for route in self._routes.values():
            if route.waiting and route.waiting[0].message_id == message_id:
                return route.refusal
        return None

    def settled_elsewhere(self, message_id: str) -> None:
        """Drop a message that a pushed receipt has settled while it waits to be tried again."""
        for route in self._routes.values():
            if route.waiting and not route.carrying and route.waiting[0].message_id == message_id:
                route.attempt = 0
                route.refusal = None
                route.waiting.popleft()
                route.retry.set()

    async def _serve(self, name: str, route: _Route) -> None:
        while route.waiting:
            message = route.waiting[0]
            route.retry.clear()
            outcome = await self._attempt(route, message)
            if isinstance(outcome, HerdError) and outcome.may_pass:
                await self._pause(route, outcome)
                continue
            route.waiting.popleft()
            route.attempt, route.refusal = 0, None
            await self._settle(message, outcome)
        del self._routes[name]

    async def _attempt(self, route: _Route, message: Outgoing) -> Carried | HerdError:
        route.carrying = True
        try:
            self._step(SEND_BEFORE)
            carried = await self._carrier.carry(message)
            self._step(SEND_AFTER)
        except HerdError as refusal:
            return refusal
        except OSError as fault:
            return InvalidRpc(f"carrying failed: {fault}")
        finally:
            route.carrying = False
        return carried

    async def _pause(self, route: _Route, refusal: HerdError) -> None:
        route.attempt += 1
        route.refusal = refusal
        _log.info("route.wait", extra={"code": refusal.code, "attempt": route.attempt})
        told = int(refusal.details.get("retry_after_ms", 0))
        if told:
            await self._clock.sleep(told / 1000)
        wanted = pause_ms(route.attempt, self._jitter(), at_least_ms=told) - told
        if wanted > 0:
            await self._first_of(route.retry, wanted)

    async def _first_of(self, event: asyncio.Event, milliseconds: int) -> None:
        sleeping = asyncio.ensure_future(self._clock.sleep(milliseconds / 1000))
        woken = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({sleeping, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in (sleeping, woken):
                future.cancel()
            await asyncio.gather(sleeping, woken, return_exceptions=True)

    async def _settle(self, message: Outgoing, outcome: Carried | HerdError) -> None:
        if isinstance(outcome, HerdError):
            receipt = message.receipt._replace(state=REJECTED, outcome=outcome.code)
            self._changed(Progress(receipt, refusal=outcome))
        else:
            receipt = merged(message.receipt, outcome.receipt)
            self._changed(Progress(receipt, outcome.running))
        self._tasks.create_task(self._write_down(message, outcome))

    async def _write_down(self, message: Outgoing, outcome: Carried | HerdError) -> None:
        """Record what the carrier said, after it was told; a failed write is made good by the owed receipt."""

        def work(connection: sqlite3.Connection) -> Outgoing:
            if isinstance(outcome, HerdError):
                return outbox.reject(connection, message.message_id, outcome.code, self._clock.wall_ms())
            return outbox.record_receipt(connection, outcome.receipt, message.recipient_key)

        self._step(RECEIPT_BEFORE)
        try:
            await self._mailbox.run(work)
        except HerdError as refusal:
            _log.warning("receipt.persist.failed", extra={"code": refusal.code})
        self._step(RECEIPT_AFTER)


def is_pending(receipt: Receipt) -> bool:
    """Tell whether a message still waits in its sender's outbox."""
    return receipt.state == PENDING
