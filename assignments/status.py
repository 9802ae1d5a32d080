"""What an assignment's status is: one pure function of what is seen just now, whose result nobody stores."""

from collections.abc import Sequence
from typing import NamedTuple

from assignments.record import Assignment

ACTIVE = "active"
PAUSED = "paused"
CONFLICT = "conflict"


class Worker(NamedTuple):
    """One Lead that runs now, as its presence shows it."""

    key: str
    """The session key."""
    socket: str
    """The Herdr socket it is on, or `none`."""
    place: str | None
    """Where it works: what `Surroundings.place` names, or None where that is not known."""


class Surroundings(NamedTuple):
    """What is seen around one assignment."""

    workers: Sequence[Worker]
    """Every Lead that runs on this machine."""
    place: str | None = None
    """The open workspace, or the checkout, of the branch; None where there is none, or it is not known."""
    worktrees: int | None = None
    """How many worktrees have the branch checked out; None where that is not known."""


def status_of(assignment: Assignment, seen: Surroundings) -> str:
    """Give `active`, `paused` or `conflict`.

    It is a conflict where the branch has several worktrees, its session runs more than once, on another
    socket or outside the branch's place, or another Lead works in that place. Else it is active while its
    session runs, and paused while it does not.
    """
    own = [one for one in seen.workers if one.key == assignment.session.key]
    others = [one for one in seen.workers if one.key != assignment.session.key]
    crowded = (seen.worktrees or 0) > 1 or len(own) > 1
    astray = any(one.socket != assignment.socket or _is_elsewhere(one, seen) for one in own)
    intruded = seen.place is not None and any(
        one.socket == assignment.socket and one.place == seen.place for one in others
    )
    if crowded or astray or intruded:
        return CONFLICT
    return ACTIVE if own else PAUSED


def _is_elsewhere(worker: Worker, seen: Surroundings) -> bool:
    return seen.place is not None and worker.place is not None and worker.place != seen.place
