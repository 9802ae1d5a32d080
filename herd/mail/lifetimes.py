"""How long a message is still good for: what was left at a moment, and what has passed since then.

Pure. Each mailbox counts by its own machine's moments and is told what was left, never a time of day: the
sender counts until it transmits, the receiver from the acceptance on. So no clock has to agree with another.
"""

from contextlib import suppress
from typing import Protocol

from herd.core.moments import Moment


class Lived(Protocol):
    """A stored message: the milliseconds it had left at a moment, None where it is good for ever."""

    @property
    def lifetime_ms(self) -> int | None:
        """What was left at `since`."""

    @property
    def since(self) -> str | None:
        """The moment, as it is stored."""


def left_ms(message: Lived, now: Moment) -> int | None:
    """Give the milliseconds a message has left, zero or less once it is over; None where it is good for ever.

    A moment that cannot be read counts as the present one: nothing is dropped for it.
    """
    if message.lifetime_ms is None:
        return None
    passed = 0
    with suppress(ValueError):
        passed = now.since(Moment.read(message.since or ""))
    return message.lifetime_ms - passed


def is_over(message: Lived, now: Moment) -> bool:
    """Tell whether a message's lifetime has run out."""
    left = left_ms(message, now)
    return left is not None and left <= 0
