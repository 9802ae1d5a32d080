"""How much one hand-over carries: the answer of a read, or a text put into a running turn.

Each room is asked row by row, in order, and the first row that finds no place ends the hand-over: what comes
behind it waits with it, so that no message overtakes another.
"""

from collections.abc import Container
from typing import NamedTuple, Protocol

from herd.coordinator.shapes import UTF8_BYTES, shape_message, size_of
from herd.core.limits import DRAIN_BYTES, READ_BYTES
from herd.mail.header import shown_to_model, waiting_line
from herd.mail.inbox import Incoming

_BETWEEN = "\n\n"


class Room(Protocol):
    """What one hand-over has place for."""

    def takes(self, row: Incoming) -> bool:
        """Take a row, or tell that it has no place; nothing is asked after that."""
        ...


class AnswerRoom:
    """The answer of a read, as values and as the text that a model is shown: `READ_BYTES` of each.

    Its first row always has a place, since a long text is shown in parts.
    """

    def __init__(self) -> None:
        self._shown = self._values = 0
        self._empty = True

    def takes(self, row: Incoming) -> bool:
        """See `Room.takes`."""
        shape = shape_message(row)
        values = size_of(shape)
        self._values += values
        # Below each message stands, as JSON, what there is of it beside the text.
        self._shown += len(shown_to_model(shape).encode()) + values - size_of({"text": shape["text"]})
        fits = self._empty or max(self._values, self._shown) <= READ_BYTES
        self._empty = False
        return fits


class Drained(NamedTuple):
    """What was handed over as one text for a model.

    Attributes:
        text: Each message under its header, an empty line between two; empty where there is nothing to say.
        message_ids: The messages handed over with it.
        more: Whether something still waits.
    """

    text: str
    message_ids: list[str]
    more: bool


class TextRoom:
    """A text of bounded length that one frame holds.

    Of a message that alone is longer it says, once, that it waits.

    Args:
        most: Characters of the text.
        announced: The rows of which that was said before.

    Attributes:
        announces: The row of which this text says so.
    """

    def __init__(self, most: int, announced: Container[int]) -> None:
        self._most = most
        self._announced = announced
        self._parts: list[str] = []
        self.announces: int | None = None

    def takes(self, row: Incoming) -> bool:
        """See `Room.takes`."""
        shape = shape_message(row)
        part = shown_to_model(shape)
        if "next_offset" in shape or len(part) > self._most:
            line = waiting_line(shape)
            if row.sequence not in self._announced and self._adds(line):
                self.announces = row.sequence
            return False
        return self._adds(part)

    def text(self) -> str:
        """Give the text of what was taken."""
        return _BETWEEN.join(self._parts)

    def _adds(self, part: str) -> bool:
        text = _BETWEEN.join([*self._parts, part])
        fits = len(text) <= self._most and (
            len(text) * UTF8_BYTES < DRAIN_BYTES or size_of(text) <= DRAIN_BYTES
        )
        if fits:
            self._parts.append(part)
        return fits
