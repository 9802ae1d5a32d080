"""The journal of events as adapters follow it: from a cursor on, in order, each event once.

What an adapter is told was committed before, so a signal says only that there may be more. Whoever is cut
off reads on from the last cursor it was told, in this life of the coordinator or in a later one.
"""

import asyncio
from collections.abc import Awaitable, Callable

from herd.coordinator.tasks import Tasks
from herd.core.errors import HerdError
from herd.core.limits import EVENTS_IN_ONE_LOOK
from herd.mail import counter, events
from herd.mail.events import Event
from herd.mail.mailbox import Mailbox

Tell = Callable[[Event], Awaitable[None]]


class Journal:
    """One session's journal.

    Args:
        mailbox: The session's own.
        tasks: Runs the telling.
    """

    def __init__(self, mailbox: Mailbox, tasks: Tasks) -> None:
        self._mailbox = mailbox
        self._tasks = tasks
        self._happened = asyncio.Event()

    def happened(self) -> None:
        """Take note that there may be a new event."""
        self._happened.set()
        self._happened = asyncio.Event()

    async def cursor(self, after: int | None) -> int:
        """Give from where somebody reads on: the last event where `after` is None.

        Raises:
            InvalidParams: `after` is past the last event.
        """
        if after is None:
            return await self._mailbox.read(counter.last_cursor) or 0
        found = await self._mailbox.read(lambda connection: events.require_cursor(connection, after))
        if found is None and after:
            raise events.past_the_last(after, 0)
        return after

    def follow(self, cursor: int, tell: Tell) -> Callable[[], None]:
        """Tell every event behind a cursor, until `tell` refuses; gives what ends that."""
        task = self._tasks.create_task(self._follow(cursor, tell))

        def stop() -> None:
            task.cancel()

        return stop

    async def _after(self, cursor: int) -> list[Event] | None:
        return await self._mailbox.read(
            lambda connection: events.after(connection, cursor, EVENTS_IN_ONE_LOOK)
        )

    async def _follow(self, cursor: int, tell: Tell) -> None:
        while True:
            happened = self._happened  # before looking, so that nothing committed in between is missed
            try:
                found = await self._after(cursor)
            except HerdError:
                found = None  # it is read again once it can be
            for event in found or []:
                try:
                    await tell(event)
                except HerdError:
                    return  # the adapter reads on from the last cursor that it was told
                cursor = event.cursor
            if not found:
                await happened.wait()
