"""Retention at work: resolved mail loses its text in time, while its session runs.

One timer, and only while there is something that will have to go.
"""

import sqlite3

from herd.coordinator.tasks import Tasks
from herd.core.clock import Clock
from herd.core.errors import HerdError
from herd.core.limits import KEPT_AT_ONCE, SWEEP_MS
from herd.core.moments import Moment
from herd.mail.mailbox import Mailbox
from herd.mail.retention import forget, holds_resolved, note_resolved, strip


class Keeping:
    """Sweeps one session's mailbox.

    Args:
        mailbox: The session's own.
        tasks: Runs the sweeping.
        clock: Says when.
        retention_ms: Milliseconds for which resolved mail is kept.
    """

    def __init__(self, mailbox: Mailbox, tasks: Tasks, *, clock: Clock, retention_ms: int) -> None:
        self._mailbox = mailbox
        self._tasks = tasks
        self._clock = clock
        self._retention_ms = retention_ms
        self._sweeping = False

    def look(self) -> None:
        """Take note that something may have been resolved."""
        if not self._sweeping:
            self._sweeping = True
            self._tasks.create_task(self._sweep())

    async def _sweep(self) -> None:
        try:
            while await self._once():
                await self._clock.sleep(min(self._retention_ms, SWEEP_MS) / 1000)
        except HerdError:
            return  # the mailbox cannot be used now; what is resolved next is a new occasion
        finally:
            self._sweeping = False

    async def _once(self) -> bool:
        """Remove what is due; tells whether anything is left that will be due."""
        while True:
            now = Moment.now(self._clock)

            def work(connection: sqlite3.Connection, now: Moment = now) -> tuple[int, bool]:
                note_resolved(connection, now)
                removed = strip(connection, now, self._retention_ms) + forget(connection, now)
                return removed, holds_resolved(connection)

            found = await self._mailbox.read(work)
            if found is None or found[0] < KEPT_AT_ONCE:
                return found is not None and found[1]
