"""What a route needs of whatever carries its messages, and what it believes of that one's answers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from herd.core.errors import HerdError, InvalidRpc
from herd.mail import outbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import Receipt


class Carried(NamedTuple):
    """What one attempt reached."""

    receipt: Receipt
    running: bool = True
    """Whether the recipient's coordinator took it itself."""


class CarriedTogether(NamedTuple):
    """What one attempt at several messages reached.

    Attributes:
        receipts: Those of the longest accepted beginning, in the order of the messages.
        running: Whether the recipient's coordinator took them itself.
        refusal: Why the next one was refused. None where all were accepted that the attempt was about, which
            may be fewer than were given: those left out come with the next attempt.
    """

    receipts: tuple[Receipt, ...]
    running: bool = True
    refusal: HerdError | None = None


class Carrier(Protocol):
    """Takes messages to their recipient's custody, once."""

    async def carry(self, message: Outgoing) -> Carried:
        """Try once.

        Raises:
            HerdError: a refusal; `may_pass` tells whether the message stays the head of its route.
        """
        ...

    async def carry_together(self, messages: Sequence[Outgoing]) -> CarriedTogether:
        """Try once with the first of these messages of one route, as many as can go at once.

        None is accepted in front of one before it.

        Raises:
            HerdError: the attempt was refused as a whole, or nothing is known of any message in it.
        """
        ...


def believed(messages: Sequence[Outgoing], carried: CarriedTogether) -> CarriedTogether:
    """Give what can be believed of an answer: up to the first receipt that cannot, which counts as a refusal.

    Raises:
        InvalidRpc: it does not say what became of the first messages.
    """
    for number, (message, receipt) in enumerate(zip(messages, carried.receipts, strict=False)):
        try:
            outbox.require_answer(message, receipt)
        except HerdError as refusal:
            return carried._replace(receipts=carried.receipts[:number], refusal=refusal)
    if len(carried.receipts) + (carried.refusal is not None) not in range(1, len(messages) + 1):
        raise InvalidRpc("an attempt at messages was answered for more of them than there are, or for none")
    return carried
