"""The sender's side at work: for each recipient the pending messages, head first, until each is settled.

A route is one exact recipient. Its head is carried, and with it those behind it that wait already; what may
pass keeps it the head and makes it wait with backoff, a definitive refusal rejects it and the next one goes.
No route waits for another. The row was committed before, and what a carrier answers is told to whoever waits
before it is written down: a crash in between loses nothing, since the receipt stays owed on the other side.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import islice, takewhile
from typing import NamedTuple

from herd.core.backoff import pause_ms
from herd.core.clock import Clock, first_of, shown_time
from herd.core.errors import HerdError, InvalidRpc, RateLimited
from herd.core.limits import SENT_TOGETHER
from herd.core.refusals import refusal_of
from herd.mail.carrying import Carried, CarriedTogether, Carrier, believed
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import REJECTED, Receipt, merged
from herd.mail.settling import Settled, Settling, Spawner
from herd.mail.steps import (
    SEND_AFTER,
    SEND_BEFORE,
    SEVERAL_SENT_AFTER,
    SEVERAL_SENT_BEFORE,
    Step,
    no_step,
)

__all__ = ["Carried", "CarriedTogether", "Carrier", "Progress", "Routes"]

_log = logging.getLogger("herd.mail.routes")


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
        self.alone = 1
        """How many go one by one before several go together again: the first one of a route, which waits for
        no company; one that is tried again; and all of an attempt that failed as a whole, since one of them
        may be the reason."""

    def next(self) -> list[Outgoing]:
        """Give what the next attempt is about: the head, or several of one session from it on."""
        head = self.waiting[0]
        first = islice(self.waiting, 1 if self.alone else SENT_TOGETHER)
        return list(takewhile(lambda one: one.recipient_key == head.recipient_key, first))

    def take(self, message: Outgoing) -> bool:
        """Take the head out, if it is that message still: otherwise something else has settled that."""
        if not self.waiting or self.waiting[0] is not message:
            return False
        self.waiting.popleft()
        self.attempt, self.refusal = 0, None
        self.alone = max(self.alone - 1, 0)
        return True


class _Attempt(NamedTuple):
    """What an attempt reached, and how many messages have to go one by one where it is made again."""

    carried: CarriedTogether
    alone: int = 1


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
                messages = route.next()
                attempt = await self._attempt(messages)
                passing = self._taken(route, messages, attempt)
            if passing is not None:
                await self._pause(route, passing)
        del self._routes[name]

    async def _attempt(self, messages: Sequence[Outgoing]) -> _Attempt:
        try:
            carried = await (self._carry(messages[0]) if len(messages) == 1 else self._carry_all(messages))
            return _Attempt(believed(messages, carried))
        except HerdError as refusal:
            return _Attempt(CarriedTogether((), refusal=refusal), alone=len(messages))
        except Exception as fault:  # noqa: BLE001 - logged; the message stays the head of its route and is tried again
            told = refusal_of(fault) if isinstance(fault, OSError) else None
            if told is not None and told.may_pass:
                return _Attempt(CarriedTogether((), refusal=told), alone=len(messages))
            _log.exception("message.carry.failed")
            fault = InvalidRpc("carrying the message failed inside Herd")
            return _Attempt(CarriedTogether((), refusal=fault), alone=len(messages))

    async def _carry(self, message: Outgoing) -> CarriedTogether:
        self._step(SEND_BEFORE)
        carried = await self._carrier.carry(message)
        self._step(SEND_AFTER)
        return CarriedTogether((carried.receipt,), carried.running)

    async def _carry_all(self, messages: Sequence[Outgoing]) -> CarriedTogether:
        self._step(SEVERAL_SENT_BEFORE)
        carried = await self._carrier.carry_together(messages)
        self._step(SEVERAL_SENT_AFTER)
        return carried

    def _taken(self, route: _Route, messages: Sequence[Outgoing], attempt: _Attempt) -> HerdError | None:
        """Settle what an attempt has settled; gives the refusal for which the head has to wait.

        What something else has settled meanwhile is left alone: more is known of it than the attempt can say.
        """
        receipts, running, refusal = attempt.carried
        for message, receipt in zip(messages, receipts, strict=False):
            if route.take(message):
                self._settle(message, Carried(receipt, running), more=bool(route.waiting))
        if refusal is None:
            return None
        refused = messages[len(receipts)]
        if not refusal.may_pass:
            if route.take(refused):
                self._settle(refused, refusal, more=bool(route.waiting))
            return None
        if not route.waiting or route.waiting[0] is not refused:
            return None
        route.alone = max(route.alone, attempt.alone)
        return refusal

    async def _pause(self, route: _Route, refusal: HerdError) -> None:
        route.attempt += 1
        route.refusal = refusal
        _log.info("route.wait", extra={"code": refusal.code, "attempt": route.attempt})
        told = int(refusal.details.get("retry_after_ms", 0))  # believed up to a bound where it was read
        pause = pause_ms(route.attempt, self._jitter(), at_least_ms=told)
        if isinstance(refusal, RateLimited):
            route.refusal = refusal.until(shown_time(self._clock.wall_ms() + pause) or "")
        if told and await first_of(route.settled, self._clock, told / 1000):
            return
        wanted = pause - told
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
