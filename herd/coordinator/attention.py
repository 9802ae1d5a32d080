"""Getting the host's attention: whoever carries mail to the host is told when something waits for it.

What is done about it is the adapter's matter: it wakes an idle session by the fixed notice where it may, and
hands over at the next safe boundary of a busy one.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from herd.coordinator import waking
from herd.coordinator.health import Health
from herd.coordinator.tasks import Tasks
from herd.coordinator.thread import Thread
from herd.coordinator.waking import IDLE, WORKING, Waiting, Waking
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError
from herd.core.limits import WAKE_OPEN_S
from herd.mail import inbox
from herd.mail.inbox import Lying
from herd.mail.mailbox import Mailbox


class Arrival(NamedTuple):
    """What an adapter is told: how many messages wait, and whether an idle session may be woken for them.

    `held_back` counts those that are not handed over before a person has let them through.
    """

    unread: int
    wake: bool
    held_back: int = 0


Listener = Callable[[Arrival], None]


class Attention:
    """One session's waiting mail, as its adapters are told of it.

    Args:
        mailbox: The session's own.
        health: Nobody is told anything while the session is unhealthy, since nothing would be handed over.
        is_free: Tells by its number and its hand-overs whether a message may be handed over.
        is_held_back: Tells by its number whether a message waits for a person to let it through.
        thread: Told that mail can make this session act.
        tasks: Runs the looks into the mailbox.
        clock: Says when.
        wakes_per_hour: Wakes allowed in an hour; 0 where the person wants none.
        deepest: Greatest depth of a message that may wake.
        run: Whose mail: a run's; None for the session's own.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        health: Health,
        is_free: Callable[[int, int], bool],
        is_held_back: Callable[[int], bool],
        thread: Thread,
        tasks: Tasks,
        *,
        clock: Clock,
        wakes_per_hour: int,
        deepest: int,
        run: str | None = None,
    ) -> None:
        self._run = run
        self._mailbox = mailbox
        self._health = health
        self._is_free = is_free
        self._is_held_back = is_held_back
        self._thread = thread
        self._tasks = tasks
        self._clock = clock
        self._per_hour = wakes_per_hour
        self._deepest = deepest
        self._listeners: list[Listener] = []
        self._waking = Waking()
        self._activity: str | None = None
        self._counted = False
        self._looking = self._again = False
        self._has_begun = asyncio.Event()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell of everything that waits from now on, and of what waits already; gives what ends that."""
        self._listeners.append(listener)
        self._thread.driven = True
        self.look()

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
            # Nobody tells of a person's prompt now, so none could begin afresh.
            self._thread.driven = bool(self._listeners)

        return stop

    def reported(self, activity: str) -> None:
        """Take what the host says of its session; an idle one may be woken for what came meanwhile."""
        self._activity = activity
        if activity == WORKING:
            self._counted = False
            self._begun()
        elif activity == IDLE:
            self.look()

    def turn_ended(self) -> None:
        """Take note that a turn has ended, however it went; what came meanwhile may wake now."""
        self._begun()
        self.look()

    def look(self) -> None:
        """Look what waits and tell the listeners, if there are any."""
        if not self._listeners:
            return
        self._again = True
        if not self._looking:
            self._looking = True
            self._tasks.create_task(self._look())

    def fewer(self) -> None:
        """Take note that less may wait than before; whoever shows a person the count is told the new one."""
        if self._counted:
            self.look()

    async def waits(self) -> Waiting:
        """Give what waits to be handed over now.

        Raises:
            HerdError: the mailbox cannot be read.
        """
        return self._waiting(await self._lying())

    async def _look(self) -> None:
        try:
            while self._again:
                self._again = False
                try:
                    self._health.require()
                    rows = await self._lying()
                except HerdError:
                    return  # what waits is told once health is back
                self._tell(self._waiting(rows), sum(self._is_held_back(row.sequence) for row in rows))
        finally:
            self._looking = False

    async def _lying(self) -> list[Lying]:
        return await self._mailbox.read(lambda connection: inbox.lying(connection, self._run)) or []

    def _waiting(self, rows: list[Lying]) -> Waiting:
        free = [row for row in rows if self._is_free(row.sequence, row.handovers)]
        may = [row.sequence for row in free if not row.no_reply_needed and row.depth <= self._deepest]
        return Waiting(len(free), max(may, default=0))

    def _tell(self, waiting: Waiting, held_back: int) -> None:
        waits = bool(waiting.unread or held_back)
        if not (waits or self._counted) or not self._listeners:  # a wake nobody hears of is not spent
            return
        now = self._clock.elapsed()
        wake = waking.may_wake(
            self._waking, waiting, activity=self._activity, now=now, per_hour=self._per_hour
        )
        if wake:
            self._waking = waking.woken(self._waking, waiting, now)
            self._has_begun = asyncio.Event()
            self._tasks.create_task(self._wake_again(self._has_begun))
        # What begins no turn stands before a person until they are told otherwise; a turn takes it by itself.
        self._counted = waits and self._waking.opened is None and self._activity != WORKING
        for listener in list(self._listeners):
            listener(Arrival(waiting.unread, wake, held_back))

    def _begun(self) -> None:
        self._waking = waking.begun(self._waking)
        self._has_begun.set()

    async def _wake_again(self, begun: asyncio.Event) -> None:
        """Look again where a wake was lost on its way: no turn has begun in the time that one may take."""
        await first_of(begun, self._clock, WAKE_OPEN_S)
        if not begun.is_set():
            self.look()
