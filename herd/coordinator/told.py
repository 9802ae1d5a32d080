"""Changed receipts for the session's host: given until there is evidence that it has them.

Giving one twice does no harm, losing one does. So what a reader was given counts as told when it confirms
something or asks again, and as never given where it ends before.
"""

import sqlite3
from collections.abc import Hashable
from typing import NamedTuple

from herd.core.limits import RECEIPTS_IN_ONE_READ, RECEIPTS_SEEN
from herd.mail import counter, events, outbox
from herd.mail.events import Event
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing


class Changed(NamedTuple):
    """Some receipts in the order of their changes, the cursor behind them, and whether there are more.

    `expired` are messages that came here and ended undelivered.
    """

    receipts: list[Outgoing]
    cursor: int
    more: bool
    expired: tuple[Event, ...] = ()


class Told:
    """What the readers of one session have been told.

    Args:
        mailbox: The session's own; it remembers what was told.
        run: Whose receipts: a run's, of which nothing need outlive the process; None for the session's own.
    """

    def __init__(self, mailbox: Mailbox, run: str | None = None) -> None:
        self._mailbox = mailbox
        self._run = run
        self._told_run = 0
        self._given: dict[Hashable, int] = {}
        self._seen: dict[str, int] = {}

    async def changed(
        self, reader: Hashable, after: int | None, *, message_id: str | None, target: str | None
    ) -> Changed:
        """Give the receipts that have changed.

        Args:
            reader: Who is given them.
            after: Only those behind this cursor; None for those not told yet.
            message_id: Only those of this message; then nothing counts as told, since others may be left out.
            target: Only those of messages to this target; the same holds.

        Raises:
            InvalidParams: `after` is past the last event.
        """
        narrowed = (message_id, target) != (None, None)
        await self.told(reader)  # it asks again, so it has what it was given before

        def look(connection: sqlite3.Connection) -> Changed:
            start = self._told(connection) if after is None else events.require_cursor(connection, after)
            rows = outbox.changed_after(connection, start, RECEIPTS_IN_ONE_READ, self._run)
            over = (
                [] if narrowed else events.expired_after(connection, start, RECEIPTS_IN_ONE_READ, self._run)
            )
            more = RECEIPTS_IN_ONE_READ in {len(rows), len(over)}
            ends = [rows[-1].receipt.cursor] if len(rows) == RECEIPTS_IN_ONE_READ else []
            ends += [over[-1].cursor] if len(over) == RECEIPTS_IN_ONE_READ else []
            cursor = min(ends, default=counter.last_cursor(connection))
            wanted = [
                row
                for row in rows
                if message_id in {None, row.message_id} and target in {None, row.recipient}
                if row.receipt.cursor <= cursor
            ]
            return Changed(wanted, cursor, more, tuple(one for one in over if one.cursor <= cursor))

        changed = await self._mailbox.read(look)
        if changed is None:
            if after:
                raise events.past_the_last(after, 0)
            changed = Changed([], 0, more=False)
        if narrowed:
            return changed if after is not None else self._not_yet_seen(changed)
        if changed.receipts or changed.expired:
            self._given[reader] = changed.cursor
        return changed

    def _not_yet_seen(self, changed: Changed) -> Changed:
        """Leave out what a narrowed read was given before, or a wait for one answer would never wait."""
        new = [row for row in changed.receipts if self._seen.get(row.message_id, 0) < row.receipt.cursor]
        for row in new:
            self._seen.pop(row.message_id, None)
            self._seen[row.message_id] = row.receipt.cursor
        while len(self._seen) > RECEIPTS_SEEN:
            del self._seen[next(iter(self._seen))]
        return changed._replace(receipts=new)

    async def cursor(self) -> int:
        """Give the cursor up to which receipts were told."""
        return await self._mailbox.read(self._told) or 0

    async def told(self, reader: Hashable) -> None:
        """Note that the host has the receipts that this reader was given."""
        cursor = self._given.pop(reader, None)
        if self._run is not None:
            self._told_run = max(self._told_run, cursor or 0)
        elif cursor is not None:
            await self._mailbox.run(lambda connection: counter.tell(connection, cursor))

    def _told(self, connection: sqlite3.Connection) -> int:
        return counter.told(connection) if self._run is None else self._told_run

    def forget(self, reader: Hashable) -> None:
        """Note that a reader has ended: nobody knows whether what it was given has arrived."""
        self._given.pop(reader, None)
