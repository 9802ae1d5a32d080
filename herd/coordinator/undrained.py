"""Mail that its host leaves lying: after a while the session is shown as undrained, until it takes some.

One timer, and only while something waits that was never handed over.
"""

import asyncio
from collections.abc import Callable

from herd.coordinator.tasks import Tasks
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError
from herd.core.limits import UNDRAINED_S
from herd.mail import inbox
from herd.mail.inbox import Lying
from herd.mail.mailbox import Mailbox


class Undrained:
    """Watches the age of the oldest message that was never handed over.

    Args:
        mailbox: The session's own.
        waits_for_a_person: Tells by its number and its hand-overs whether a message was given up on.
        tasks: Runs the watching.
        clock: Says when.
        show: Told since when, in milliseconds since the epoch; None once that is over.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        waits_for_a_person: Callable[[int, int], bool],
        tasks: Tasks,
        *,
        clock: Clock,
        show: Callable[[int | None], None],
    ) -> None:
        self._mailbox = mailbox
        self._waits_for_a_person = waits_for_a_person
        self._tasks = tasks
        self._clock = clock
        self._show = show
        self._shown: int | None = None
        self._handed = asyncio.Event()
        self._watching = False

    def waits(self) -> None:
        """Take note that something waits; a host of a new instance gets its time as well."""
        if not self._watching:
            self._watching = True
            self._tasks.create_task(self._watch())

    def handed(self) -> None:
        """Take note that something was handed over."""
        self._handed.set()

    async def _watch(self) -> None:
        """Look when the oldest is due and whenever something was taken, until nothing waits any more."""
        left: float | None = UNDRAINED_S
        try:
            while left is not None:
                self._handed.clear()
                await first_of(self._handed, self._clock, left)
                left = await self._look()
        finally:
            self._watching = False

    async def _look(self) -> float | None:
        """Show what is so now; gives the seconds until it may change by itself, None where nothing waits."""
        try:
            rows = await self._mailbox.read(inbox.lying) or []
        except HerdError:
            return None  # unhealthy, and so not shown at all
        waiting = [row.accepted_at for row in rows if self._lies(row)]
        if not waiting:
            self._shows(None)
            return None
        age = max(0, self._clock.wall_ms() - min(waiting)) / 1000
        late = age >= UNDRAINED_S
        self._shows(min(waiting) if late else None)
        return UNDRAINED_S if late else UNDRAINED_S - age

    def _shows(self, since: int | None) -> None:
        if since != self._shown:
            self._shown = since
            self._show(since)

    def _lies(self, row: Lying) -> bool:
        return row.handovers == 0 or self._waits_for_a_person(row.sequence, row.handovers)
