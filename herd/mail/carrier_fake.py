"""A carrier that takes messages nowhere; it ships beside the seam, for whatever tests what stands above it.

It answers as one custody for each recipient would: a message accepted once gets the same receipt again. What
it is told to answer instead, and when, a test says beforehand. It is ignorant of mailboxes and connections.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

from herd.core.clock import Clock
from herd.core.errors import DeliveryUnknown, HerdError
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, Receipt
from herd.mail.routes import Carried, CarriedTogether

FAKE_CUSTODY = "fake-custody"
"""The custody id in every receipt that a test did not give itself."""


class FakeCarrier:
    """Accepts every message, unless it was told to do something else with it.

    Args:
        clock: Says when a message was accepted.

    Attributes:
        attempts: The ids of the messages in the order in which attempts at them began, repeated ones too.
        requests: How many messages each attempt was about, in that order.
        room: How many messages go at once.
        accepted: The first receipt of each accepted message, by its id, in the order of acceptance.
    """

    def __init__(self, clock: Clock) -> None:
        self.attempts: list[str] = []
        self.requests: list[int] = []
        self.room = 1_000
        self.accepted: dict[str, Receipt] = {}
        self._clock = clock
        self._answers: dict[str, deque[Carried | BaseException]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._begun = asyncio.Event()

    async def carry(self, message: Outgoing) -> Carried:
        """See `Carrier.carry`."""
        await self._begin([message])
        return self._answered(message)

    async def carry_together(self, messages: Sequence[Outgoing]) -> CarriedTogether:
        """See `Carrier.carry_together`; each message takes one of the answers that were given beforehand.

        A refusal is that of its message, but a lost answer and a fault are the whole attempt's.
        """
        together = messages[: self.room]
        await self._begin(together)
        receipts: list[Receipt] = []
        running = True
        for message in together:
            try:
                receipt, running = self._answered(message)
            except DeliveryUnknown:
                raise
            except HerdError as refusal:
                return CarriedTogether(tuple(receipts), running, refusal)
            receipts.append(receipt)
        return CarriedTogether(tuple(receipts), running)

    async def _begin(self, messages: Sequence[Outgoing]) -> None:
        self.attempts += [message.message_id for message in messages]
        self.requests.append(len(messages))
        self._begun.set()
        gate = self._gates.get(messages[0].route)
        if gate is not None:
            await gate.wait()

    def _answered(self, message: Outgoing) -> Carried:
        answers = self._answers.get(message.route)
        if not answers:
            return Carried(self._accept(message))
        answer = answers.popleft()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def answer(self, route: str, *answers: Carried | BaseException) -> None:
        """Give the next attempts on a route these answers, one each; an exception is raised."""
        self._answers.setdefault(route, deque()).extend(answers)

    def hold(self, route: str) -> None:
        """Let attempts on a route begin and not end, until `release`."""
        self._gates[route] = asyncio.Event()

    def release(self, route: str) -> None:
        """End the attempts that are held on a route, and hold no more."""
        self._gates.pop(route).set()

    async def begun(self, count: int) -> None:
        """Wait until at least so many attempts have begun, on all routes together."""
        while len(self.attempts) < count:
            self._begun.clear()
            await self._begun.wait()

    def _accept(self, message: Outgoing) -> Receipt:
        custody_id = message.custody_id or FAKE_CUSTODY
        cursor, now_ms = len(self.accepted) + 1, self._clock.wall_ms()
        receipt = Receipt(
            message.message_id, message.recipient, custody_id, ACCEPTED, cursor, accepted_at=now_ms
        )
        return self.accepted.setdefault(message.message_id, receipt)
