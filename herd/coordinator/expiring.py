"""Lifetimes that run out: a message that is over is ended when it is due, on the side that answers for it.

One look at both boxes ends what is over and tells when the next one is due; nothing is looked at in between,
and nothing at all while every message is good for ever. What may lie in the recipient's mailbox is asked for
first, and what a reader of ours holds is left to it: its host may be reading that very message.
"""

import asyncio
from collections.abc import Awaitable, Callable

from herd.coordinator.tasks import Tasks
from herd.core.backoff import pause_ms
from herd.core.clock import Clock, first_of
from herd.core.errors import HerdError
from herd.core.limits import LIFETIME_LOOK_S
from herd.core.moments import Moment
from herd.mail import outbox
from herd.mail.lifetimes import is_over, left_ms
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing


class Expiring:
    """The lifetimes of one session's mail.

    Args:
        mailbox: The session's own.
        end_received: Ends what has come here and is over; gives the milliseconds until the next is due.
        end_sent: Ends a pending message that is over; False where its recipient has to be asked and cannot.
        tasks: Runs the looking.
        clock: Says when, and what has passed.
        waits: Called when a recipient has to be asked again.
        jitter: Gives a number in [0, 1) for each pause.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        end_received: Callable[[Moment], Awaitable[int | None]],
        end_sent: Callable[[Outgoing], Awaitable[bool]],
        tasks: Tasks,
        *,
        clock: Clock,
        waits: Callable[[], None],
        jitter: Callable[[], float],
    ) -> None:
        self._mailbox = mailbox
        self._end_received = end_received
        self._end_sent = end_sent
        self._tasks = tasks
        self._clock = clock
        self._waits = waits
        self._jitter = jitter
        self._running = False
        self._news = asyncio.Event()
        self._attempt = 0

    def look(self) -> None:
        """Look now: a message with a lifetime is new, or one that is over may be ended by now."""
        self._news.set()
        if not self._running:
            self._running = True
            self._tasks.create_task(self._run())

    def retry(self) -> None:
        """Ask again at once whoever could not be asked."""
        if self._running:
            self._news.set()

    async def _run(self) -> None:
        try:
            while True:
                self._news.clear()
                pause_s = await self._looked()
                if pause_s is not None:
                    await first_of(self._news, self._clock, pause_s)
                elif not self._news.is_set():
                    return
        except HerdError:
            return  # our own mailbox cannot be read; this is called again once it can
        finally:
            self._running = False

    async def _looked(self) -> float | None:
        """End what is over; gives the seconds until the next look, None where nothing has a lifetime."""
        now = Moment.now(self._clock)
        due = await self._end_received(now)
        rows = await self._mailbox.read(outbox.mortal) or []
        over = [row for row in rows if is_over(row, now)]
        left = [one for row in rows if (one := left_ms(row, now)) is not None and one > 0]
        due = min([*left, *([] if due is None else [due])], default=None)
        # At once, since one recipient that answers nothing must not keep the others' senders waiting.
        in_vain = not all(await asyncio.gather(*(self._end_sent(row) for row in over)))
        self._attempt = self._attempt + 1 if in_vain else 0
        if in_vain:
            self._waits()
            again = pause_ms(self._attempt, self._jitter())
            due = again if due is None else min(due, again)
        if due is None:
            return None
        left_s = max(due - Moment.now(self._clock).since(now), 0) / 1000  # what was asked took its time
        # A sleep stands still while the machine is suspended, and lifetimes do not.
        return min(left_s, LIFETIME_LOOK_S)
