"""Messages made whole before they are handed over: all that lies outside their rows is found right first.

A damaged one is told of by its id and wakes nobody. It is looked at again whenever somebody asks for it.
"""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from herd.core.errors import InvalidParams, RecoveryRequired, UnknownTarget
from herd.mail import whole
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.parts import TEXT, Part, Parts
from herd.mail.receipts import ACCEPTED


class Attachment(NamedTuple):
    """One attached file of a message that was handed over, and its text."""

    row: Incoming
    part: Part
    text: str


class Wholeness:
    """Makes the messages of one session whole.

    Args:
        mailbox: The session's own.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._damaged: dict[int, str] = {}

    def is_damaged(self, sequence: int) -> bool:
        """Tell whether a message was found damaged when it was looked at last."""
        return sequence in self._damaged

    @property
    def damaged(self) -> list[str]:
        """The ids of the messages that were found damaged."""
        return list(self._damaged.values())

    async def of(self, row: Incoming) -> Incoming:
        """Give a message with its text.

        Raises:
            RecoveryRequired: it is damaged.
        """
        if row.parts is None:
            return row
        try:
            found = await self._mailbox.run(lambda connection: whole.whole(connection, row))
        except RecoveryRequired:
            self._damaged[row.sequence] = row.message_id
            raise
        self._damaged.pop(row.sequence, None)
        return found

    async def or_none(self, row: Incoming) -> Incoming | None:
        """Give a message with its text, or None where it is damaged or cannot be read now."""
        try:
            return await self.of(row)
        except RecoveryRequired:
            return None

    async def attachment(self, rows: Sequence[Incoming], named: str) -> Attachment:
        """Give an attached file of a message that was handed over before.

        Args:
            rows: The messages that bear the id that was asked for.
            named: The name of the file, or its number from 1 as digits. Digits alone are always a number, so
                a file whose name is digits is found by its number only.

        Raises:
            UnknownTarget: none of them has such a file.
            InvalidParams: the message itself was not read yet.
            RecoveryRequired: the file is damaged.
        """
        for row in rows:
            number = _number(Parts.read(row.parts) or Parts(), named)
            if number is None:
                continue
            if row.receipt.state == ACCEPTED and not row.handovers:
                raise InvalidParams(
                    f"message {row.message_id} was not read yet: read it first, and then its files",
                    field="attachment",
                )
            return await self._mailbox.run(partial(_read, row=row, number=number))
        raise UnknownTarget(
            f"no file {named[:128]!r} came with that message",
            hint="Use a name that stands in the `attachments` of the message, or its number from 1; digits "
            "alone are always the number.",
        )


def _read(connection: sqlite3.Connection, *, row: Incoming, number: int) -> Attachment:
    text = whole.attachment(connection, row, number)
    return Attachment(row, (Parts.read(row.parts) or Parts()).numbered[number], text)


def _number(parts: Parts, named: str) -> int | None:
    if named.isascii() and named.isdigit():
        # Always the position: a sender that calls its second file `1` puts it in front of no other one.
        number = int(named) if len(named) < 4 else TEXT  # noqa: PLR2004 - no message has so many
        return number if number != TEXT and number in parts.numbered else None
    return next((number for number, one in parts.numbered.items() if one.name == named), None)
