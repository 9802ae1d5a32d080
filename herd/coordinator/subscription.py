"""`session.subscribe`: one connection that is told whenever mail waits."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herd.coordinator.attention import Arrival
from herd.core.errors import HerdError, InvalidParams
from herd.mail.header import NOTICE
from herd.rpc.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.coordinator.coordinator import Coordinator

PEER_UPDATE = "peer_update"
"""The notification: `unread`, a count, and `wake`, whether an idle session may be woken now by the notice.

Where some wait until a person lets them through, `held_back` counts those.
"""


class Subscription:
    """At most one at a time; a new one takes the place of the one before."""

    def __init__(self) -> None:
        self._stop: Callable[[], None] | None = None

    def begin(self, coordinator: "Coordinator", connection: Connection | None) -> dict[str, Any]:
        """Tell the connection of that session's mail from now on, and of what waits already.

        Returns:
            The words by which an idle session is woken.
        """
        if connection is None:
            raise InvalidParams("a subscription needs a connection that can be notified")
        self.end()

        async def notify(arrival: Arrival) -> None:
            with suppress(HerdError):  # it has ended, or reads nothing: what waits is told to the next one
                await connection.notify(PEER_UPDATE, _told(arrival))

        def listener(arrival: Arrival) -> None:
            coordinator.tasks.create_task(notify(arrival))

        self._stop = coordinator.attention.listen(listener)
        return {"notice": NOTICE}

    def end(self) -> None:
        """Tell nothing any more."""
        if self._stop is not None:
            self._stop()
            self._stop = None


def _told(arrival: Arrival) -> dict[str, Any]:
    told = {"unread": arrival.unread, "wake": arrival.wake}
    return {**told, "held_back": arrival.held_back} if arrival.held_back else told
