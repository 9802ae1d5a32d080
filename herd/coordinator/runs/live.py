"""One live run: what corresponds for it, made of the same parts as its session's own, and apart from them.

A run has an inbox, receipts, waits and conversations of its own. Its mail lies in the session's mailbox, and
is carried by the session's coordinator; the run itself holds no key, no socket and no file.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from herd.coordinator.asking import Asking
from herd.coordinator.attention import Attention
from herd.coordinator.delivery import Delivery
from herd.coordinator.holding import News
from herd.coordinator.runs.handing import HandedDown
from herd.coordinator.runs.tree import Run
from herd.coordinator.shapes import shape_status
from herd.coordinator.thread import Thread
from herd.core.clock import first_of
from herd.core.errors import CapabilityDenied
from herd.core.limits import SETTLE_S
from herd.mail.inbox import Incoming
from herd.mail.outbox import Outgoing

if TYPE_CHECKING:
    from herd.coordinator.joining import Joined


class LiveRun:
    """What `session.*` serves for one run; it looks to the adapter API like a coordinator.

    Args:
        run: The run.
        joined: The parts of its session's coordinator.

    Attributes:
        open: Requests of it that have begun and not ended, `most_open` at most.
        over: Set once the run is retired: whatever still waits for it is refused then.
    """

    def __init__(self, run: Run, joined: "Joined") -> None:
        opening = joined.opening
        self.run = run
        self.own = joined.own.with_run(run.peer_id, run.name, run.scope)
        self.tasks = joined.tasks
        self.carrier = joined.carrier
        self.over = asyncio.Event()
        self.open = 0
        self.most_open = opening.limits.pending_requests
        self._idle = asyncio.Event()
        self.undrained_at = joined.undrained_at
        self._clock = opening.clock
        self.thread = Thread(opening.limits.automatic_replies)
        self.delivery = Delivery(
            joined.mailbox,
            joined.health,
            joined.judged,
            News(joined.row_changed, self._waits, self._handed, joined.lapses, joined.uncertain),
            authority=joined.authority,
            clock=opening.clock,
            step=opening.step,
            run=run.peer_id,
        )
        self.handed_down = HandedDown(
            self.delivery.is_held,
            self.delivery.give_back,
            joined.tasks,
            clock=opening.clock,
            most=opening.limits.pending_requests,
        )
        self.attention = Attention(
            joined.mailbox,
            joined.health,
            self.delivery.is_free,
            self.delivery.is_held_back,
            self.thread,
            joined.tasks,
            clock=opening.clock,
            wakes_per_hour=joined.wakes_per_hour,
            deepest=opening.limits.automatic_replies,
            run=run.peer_id,
        )
        self.listing = joined.listing_of(self.own)
        self.sending = joined.sending_of(self.own, self.listing, self.thread, self.delivery.settled)
        self.asking = Asking(
            joined.mailbox,
            joined.carrier,
            joined.routes,
            recorded=joined.learnt,
            clock=opening.clock,
            run=run.peer_id,
        )
        self.retry = joined.retry
        self.journal = joined.journal  # the session's: no run is told of it

    def whoami(self) -> dict[str, Any]:
        """Give this run as it may be shown to itself."""
        return {
            "target": self.own.target,
            "name": self.own.name,
            "role": self.own.role,
            "kind": self.own.kind,
            "run_of": self.own.session_target,
        }

    async def status(self, message_id: str) -> dict[str, Any]:
        """Give what is known of a message this run sent; see `Asking.status`."""
        row, refusal = await self.asking.status(message_id)
        lying = None if row.to_run else self.undrained_at(row.recipient_key, row.receipt.accepted_at or 0)
        return shape_status(row, refusal, lying)

    async def cancel(self, message_id: str) -> Outgoing:
        """Take back a message that no mailbox has; see `Asking.cancel`."""
        return await self.asking.cancel(message_id)

    def require(self, *capabilities: str) -> None:
        """Let pass what this run may do.

        Raises:
            CapabilityDenied: it was bound without one of them.
        """
        for one in capabilities:
            if one not in self.run.capabilities:
                kind = "an external run, which is only shown" if self.run.external else "bound without it"
                raise CapabilityDenied(f"{self.run.peer_id} may not {one}: it is {kind}")

    def begun(self) -> None:
        """Note that a request of this run has begun."""
        self.open += 1
        self._idle.clear()

    def ended(self) -> None:
        """Note that a request of this run has ended."""
        self.open -= 1
        if not self.open:
            self._idle.set()

    async def end(self) -> None:
        """Wake whoever waits, give other requests a moment to finish, and refuse what has not then."""
        self.delivery.end()
        if self.open:
            await first_of(self._idle, self._clock, SETTLE_S)
        self.over.set()

    def _waits(self) -> None:
        self.attention.look()

    def _handed(self, rows: list[Incoming]) -> None:
        self.thread.handed(rows)
        self.handed_down.handed(row.sequence for row in rows)
