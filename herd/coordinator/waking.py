"""When mail may wake an idle session: pure, from what waits and what the host has reported.

One wake at a time, none without something new, a bounded number in an hour. That an idle session is woken at
all is the person's setting.
"""

from typing import NamedTuple

from herd.core.limits import WAKE_OPEN_S, WAKES_COUNTED_S

IDLE = "idle"
WORKING = "working"


class Waking(NamedTuple):
    """What is remembered of earlier wakes.

    Attributes:
        newest: The newest row there was at the last wake; an older one wakes nobody again.
        opened: When the wake was told whose turn has not begun, in seconds; None where none is open.
        told: When each wake of the last hour was told, in seconds.
    """

    newest: int = 0
    opened: float | None = None
    told: tuple[float, ...] = ()


class Waiting(NamedTuple):
    """What waits to be handed over: how many, and the newest row of those that may wake."""

    unread: int
    newest_waking: int


def may_wake(state: Waking, waiting: Waiting, *, activity: str | None, now: float, per_hour: int) -> bool:
    """Tell whether the session may be woken now.

    Args:
        state: Earlier wakes.
        waiting: What waits.
        activity: What the host reported last; None where it reports nothing.
        now: Seconds on the clock that `state` was written by.
        per_hour: Wakes allowed in an hour; 0 where the person wants none.
    """
    if activity not in {None, IDLE}:
        return False
    if state.opened is not None:
        # A wake whose turn never began has failed: what it was for still waits.
        return (
            waiting.newest_waking > 0 and now - state.opened >= WAKE_OPEN_S and _allowed(state, now, per_hour)
        )
    return waiting.newest_waking > state.newest and _allowed(state, now, per_hour)


def woken(state: Waking, waiting: Waiting, now: float) -> Waking:
    """Give what is remembered once a wake has been told."""
    recent = tuple(moment for moment in state.told if now - moment < WAKES_COUNTED_S)
    return Waking(waiting.newest_waking, now, (*recent, now))


def begun(state: Waking) -> Waking:
    """Give what is remembered once the woken turn, or any other, has begun."""
    return state._replace(opened=None)


def _allowed(state: Waking, now: float, per_hour: int) -> bool:
    return sum(1 for moment in state.told if now - moment < WAKES_COUNTED_S) < per_hour
