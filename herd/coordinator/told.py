"""Changed receipts for the session's host: given until there is evidence that it has them.

Giving one twice does no harm, losing one does. So what a reader was given counts as told when it confirms
something or asks again, and as never given where it ends before.
"""

import sqlite3
from collections.abc import Hashable
from typing import NamedTuple

from herd.core.limits import RECEIPTS_IN_ONE_READ
from herd.mail import counter, outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing


class Changed(NamedTuple):
    """Some receipts in the order of their changes, the cursor behind them, and whether there are more."""

    receipts: list[Outgoing]
    cursor: int
    more: bool


class Told:
    """What the readers of one session have been told.

    Args:
        mailbox: The session's own; it remembers what was told.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._given: dict[Hashable, int] = {}

    async def changed(self, reader: Hashable, after: int | None, message_id: str | None) -> Changed:
        """Give the receipts that have changed.

        Args:
            reader: Who is given them.
            after: Only those behind this cursor; None for those not told yet.
            message_id: Only those of this message; then nothing counts as told, since others may be left out.
        """
        await self.told(reader)  # it asks again, so it has what it was given before

        def look(connection: sqlite3.Connection) -> Changed:
            start = counter.told(connection) if after is None else after
            rows = outbox.changed_after(connection, start, RECEIPTS_IN_ONE_READ)
            more = len(rows) == RECEIPTS_IN_ONE_READ
            cursor = rows[-1].receipt.cursor if more else counter.last_cursor(connection)
            return Changed([row for row in rows if message_id in {None, row.message_id}], cursor, more)

        changed = await self._mailbox.read(look) or Changed([], 0, more=False)
        if changed.receipts and message_id is None:
            self._given[reader] = changed.cursor
        return changed

    async def cursor(self) -> int:
        """Give the cursor up to which receipts were told."""
        return await self._mailbox.read(counter.told) or 0

    async def told(self, reader: Hashable) -> None:
        """Note that the host has the receipts that this reader was given."""
        cursor = self._given.pop(reader, None)
        if cursor is not None:
            await self._mailbox.run(lambda connection: counter.tell(connection, cursor))

    def forget(self, reader: Hashable) -> None:
        """Note that a reader has ended: nobody knows whether what it was given has arrived."""
        self._given.pop(reader, None)
