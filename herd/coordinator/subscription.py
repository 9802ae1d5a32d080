"""`session.subscribe`: one connection that is told whenever mail waits, and of each event if it asks."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herd.coordinator.attention import Arrival
from herd.coordinator.shapes import shape_event
from herd.core.errors import HerdError, InvalidParams
from herd.mail.events import Event
from herd.mail.header import NOTICE
from herd.rpc.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.coordinator.coordinator import Coordinator
    from herd.coordinator.runs.live import LiveRun

PEER_UPDATE = "peer_update"
"""The notification: `unread`, a count, and `wake`, whether an idle session may be woken now by the notice; or
`event`, an entry of the journal, where events were asked for.

A count of the session's own mail that was told while no turn was to begin is told anew, down to 0, when it
falls before the next turn. Where some wait until a person lets them through, `held_back` counts those. Of a
run's mail it has `run`, too: its peer id.
"""


class Subscription:
    """At most one at a time; a new one takes the place of the one before.

    Args:
        run: The run whose mail is told, by its peer id; None for the session's own.
    """

    def __init__(self, run: str | None = None) -> None:
        self._of = {} if run is None else {"run": run}
        self._stops: list[Callable[[], None]] = []

    async def begin(
        self,
        coordinator: "Coordinator | LiveRun",
        connection: Connection | None,
        *,
        events: bool,
        after: int | None,
    ) -> dict[str, Any]:
        """Tell the connection of that session's mail from now on, and of what waits already.

        Args:
            coordinator: Coordinates the session.
            connection: Whom to tell.
            events: Whether it is told each event of the journal, too.
            after: From which cursor on; what happens from now on where None.

        Returns:
            The words by which an idle session is woken, and with `events` the cursor from which it is told.

        Raises:
            InvalidParams: there is nobody to tell, or `after` is past the last event.
        """
        if connection is None:
            raise InvalidParams("a subscription needs a connection that can be notified")
        told_from = await coordinator.journal.cursor(after) if events else None
        self.end()

        async def notify(arrival: Arrival) -> None:
            with suppress(HerdError):  # it has ended, or reads nothing: what waits is told to the next one
                await connection.notify(PEER_UPDATE, {**_told(arrival), **self._of})

        def listener(arrival: Arrival) -> None:
            coordinator.tasks.create_task(notify(arrival))

        async def tell(event: Event) -> None:
            # One after the other, as fast as they are read: a long journal fills the connection's queue.
            await connection.tell(PEER_UPDATE, {"event": shape_event(event)})

        self._stops.append(coordinator.attention.listen(listener))
        if told_from is None:
            return {"notice": NOTICE}
        self._stops.append(coordinator.journal.follow(told_from, tell))
        return {"notice": NOTICE, "cursor": str(told_from)}

    def end(self) -> None:
        """Tell nothing any more."""
        stops, self._stops = self._stops, []
        for stop in stops:
            stop()


def _told(arrival: Arrival) -> dict[str, Any]:
    told = {"unread": arrival.unread, "wake": arrival.wake}
    return {**told, "held_back": arrival.held_back} if arrival.held_back else told
