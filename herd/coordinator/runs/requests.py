"""What each request for a run needs of what was delegated to it."""

from typing import TYPE_CHECKING

from herd.coordinator.adapter_params import ForRun, ReadParams
from herd.core.errors import CapabilityDenied
from herd.presence.record import RECEIVE, SEND, WAIT

if TYPE_CHECKING:
    from herd.coordinator.runs.live import LiveRun

_NEEDS = {
    "session.send": SEND,
    "session.status": SEND,
    "session.cancel": SEND,
    "session.read": RECEIVE,
    "session.waiting": RECEIVE,
    "session.drain": RECEIVE,
    "session.confirm": RECEIVE,
    "session.release": RECEIVE,
    "session.subscribe": RECEIVE,
}

_HANDING = frozenset({"session.read", "session.drain"})


def require_delegated(live: "LiveRun", method: str, params: ForRun) -> None:
    """Let pass what a run may ask.

    Raises:
        CapabilityDenied: what it was bound with does not cover it; an external run may ask nothing.
        QueueFull: too much that was handed down to it is unconfirmed to hand down more.
    """
    if live.run.external:
        raise CapabilityDenied(f"{live.run.peer_id} is an external run, which is only shown")
    if method in _NEEDS:
        live.require(_NEEDS[method])
    if isinstance(params, ReadParams) and params.wait_ms:
        live.require(WAIT)
    if method in _HANDING:
        live.handed_down.require_room()
