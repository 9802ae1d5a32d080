"""The sender's side at work: for each recipient the pending messages, head first, until each is settled.

A route is one exact recipient. Its head is carried; what may pass keeps it the head and makes it wait with
backoff, a definitive refusal rejects it and the next one goes. No route waits for another. The row was
committed before, and what a carrier answers is told to whoever waits before it is written down: a crash in
between loses nothing, since the receipt stays owed on the other side.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import NamedTuple, Protocol

from herd.core.backoff import pause_ms
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError, InvalidRpc
from herd.core.refusals import refusal_of
from herd.mail import outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import REJECTED, Receipt, merged
from herd.mail.settling import Settled, Settling, Spawner
from herd.mail.steps import SEND_AFTER, SEND_BEFORE, Step, no_step

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
    """What this process knows of a message: its receipt, whether its recipient runs, the last refusal."""

    receipt: Receipt
    running: bool = True
    refusal: HerdError | None = None


class _Route:
    def __init__(self) -> None:
        self.waiting: deque[Outgoing] = deque()
        self.retry = asyncio.Event()
        self.settled = asyncio.Event()
        self.attempt = 0
        self.refusal: HerdError | None = None
        self.quiet = asyncio.Lock()


class Routes:
    """Every route of one session's outbox.

    Args:
        mailbox: The session's own.
        carrier: What takes messages away.
        tasks: Runs the routes, and ends them with the coordinator.
        clock: Paces the retries.
        changed: Told each message's progress once it is more than pending, before it is written down.
        recorded: Told each row once what became of it is written down.
        waits: Called when a head begins to wait for its next try.
        jitter: Gives a number in [0, 1) for each pause.
        step: The fault-test seam.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        carrier: Carrier,
        tasks: Spawner,
        *,
        clock: Clock,
        changed: Callable[[Progress], None],
        recorded: Callable[[Outgoing], None],
        waits: Callable[[], None] = lambda: None,
        jitter: Callable[[], float] = random.random,
        step: Step = no_step,
    ) -> None:
        self._carrier = carrier
        self._tasks = tasks
        self._clock = clock
        self._changed = changed
        self._settling = Settling(mailbox, tasks, clock=clock, recorded=recorded, step=step)
        self._waits = waits
        self._jitter = jitter
        self._step = step
        self._routes: dict[str, _Route] = {}

    def add(self, message: Outgoing) -> None:
        """Queue a committed message behind those of its route; call it in the order of the commits."""
        route = self._routes.get(message.route)
        if route is None:
            route = self._routes[message.route] = _Route()
            self._tasks.create_task(self._serve(message.route, route))
        route.waiting.append(message)

    def has(self, message: Outgoing) -> bool:
        """Tell whether a message is queued here."""
        route = self._routes.get(message.route)
        return route is not None and any(one.message_id == message.message_id for one in route.waiting)

    @asynccontextmanager
    async def held(self, message: Outgoing) -> AsyncIterator[None]:
        """Keep a message's route from carrying anything meanwhile."""
        route = self._routes.get(message.route)
        async with route.quiet if route else nullcontext():
            yield

    async def written(self) -> None:
        """Wait until what became of every message so far is written down."""
        await self._settling.written()

    def retry(self) -> None:
        """Try every waiting head at once, except one that was told how long; write down what could not be."""
        for route in self._routes.values():
            route.retry.set()
        self._settling.retry()

    def refusal(self, message: Outgoing) -> HerdError | None:
        """Give why a message is still pending, where it is the head of its route and was refused."""
        route = self._routes.get(message.route)
        is_head = route and route.waiting and route.waiting[0].message_id == message.message_id
        return route.refusal if route and is_head else None

    def settled_elsewhere(self, message: Outgoing) -> None:
        """Drop a message that something else has settled: a pushed receipt, or its sender."""
        route = self._routes.get(message.route)
        if route is None:
            return
        head = route.waiting[0] if route.waiting else None
        route.waiting = deque(one for one in route.waiting if one.message_id != message.message_id)
        if head is not None and head.message_id == message.message_id:
            route.attempt, route.refusal = 0, None
            route.settled.set()
            route.retry.set()

    async def _serve(self, name: str, route: _Route) -> None:
        while route.waiting:
            if route.refusal is not None:
                self._waits()  # before looking, so that whoever comes back meanwhile is noticed
            async with route.quiet:
                if not route.waiting:
                    break
                route.retry.clear()
                route.settled.clear()
                message = route.waiting[0]
                outcome = await self._attempt(message)
                if not route.waiting or route.waiting[0] is not message:
                    continue  # settled elsewhere meanwhile, and more is known of it than this attempt can say
                passing = outcome if isinstance(outcome, HerdError) and outcome.may_pass else None
                if passing is None:
                    route.waiting.popleft()
            if passing is not None:
                await self._pause(route, passing)
            else:
                route.attempt, route.refusal = 0, None
                self._settle(message, outcome, more=bool(route.waiting))
        del self._routes[name]

    async def _attempt(self, message: Outgoing) -> Carried | HerdError:
        try:
            self._step(SEND_BEFORE)
            carried = await self._carrier.carry(message)
            self._step(SEND_AFTER)
            outbox.require_answer(message, carried.receipt)
        except HerdError as refusal:
            return refusal
        except Exception as fault:  # noqa: BLE001 - logged; the message stays the head of its route and is tried again
            told = refusal_of(fault) if isinstance(fault, OSError) else None
            if told is not None and told.may_pass:
                return told
            _log.exception("message.carry.failed")
            return InvalidRpc("carrying the message failed inside Herd")
        return carried

    async def _pause(self, route: _Route, refusal: HerdError) -> None:
        route.attempt += 1
        route.refusal = refusal
        _log.info("route.wait", extra={"code": refusal.code, "attempt": route.attempt})
        told = int(refusal.details.get("retry_after_ms", 0))  # believed up to a bound where it was read
        if told and await first_of(route.settled, self._clock, told / 1000):
            return
        wanted = pause_ms(route.attempt, self._jitter(), at_least_ms=told) - told
        if wanted > 0:
            self._waits()
            if await first_of(route.retry, self._clock, wanted / 1000):
                route.attempt = 0  # things have changed, so the pauses grow from the start again

    def _settle(self, message: Outgoing, outcome: Carried | HerdError, *, more: bool) -> None:
        if isinstance(outcome, HerdError):
            rejected = message.receipt._replace(state=REJECTED, outcome=outcome.code)
            self._changed(Progress(rejected, refusal=outcome))
            self._settling.add(Settled(message, outcome), more=more)
        else:
            self._changed(Progress(merged(message.receipt, outcome.receipt), outcome.running))
            self._settling.add(Settled(message, outcome.receipt), more=more)
