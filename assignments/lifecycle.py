"""An assignment's life: made, gone on with, taken over by a person, retired; and nothing else ends one.

Each change holds the assignment's own lock, and inside it, for the change alone, the authority lock. That
order is the only one. What has to be asked of git or Herdr is asked while neither or only the first is held.
Where a lock is not free in time, nothing has changed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

from assignments import store
from assignments.record import Assignment, Place, encode
from assignments.retiring import kept_by
from assignments.scan import Scans
from assignments.steps import Step, no_step
from assignments.worktrees.inventory import Inventories
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.errors import AssignmentConflict, RecoveryRequired, UnknownTarget
from herd.core.limits import ASSIGNMENT_LOCK_WAIT_MS, AUTHORITY_WAIT_S
from herd.core.locks import HeldLock
from herd.core.paths import Layout

_Got = TypeVar("_Got")


class Retired(NamedTuple):
    """The checkout is proven to be gone, and so is the record."""

    assignment: Assignment


class Kept(NamedTuple):
    """The record stays as it is."""

    reason: str


class Assignments:
    """The assignments of one data root; one object may be used from every thread.

    Args:
        layout: The folders of this machine.
        lock: The authority lock.
        scans: The records as they were read before.
        lock_wait_ms: Milliseconds to wait for an assignment's own lock.
        authority_wait_s: Seconds to wait for the authority lock.
        step: Called at each of `ASSIGNMENT_STEPS`, and within a write at those of a file's replacement.
    """

    def __init__(
        self,
        layout: Layout,
        lock: AuthorityLock,
        scans: Scans | None = None,
        *,
        lock_wait_ms: int = ASSIGNMENT_LOCK_WAIT_MS,
        authority_wait_s: float = AUTHORITY_WAIT_S,
        step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._scans = scans or Scans(layout, lock)
        self._lock_wait_ms = lock_wait_ms
        self._authority_wait_s = authority_wait_s
        self._step = step

    def create(self, assignment: Assignment) -> None:
        """Give a branch to a session. Blocks: call it in a thread.

        Raises:
            InvalidParams: the record would be beyond a bound, or is none; nothing was written.
            AssignmentConflict: the branch has an assignment, or the session has another one.
            RecoveryRequired: the records as they are prove nothing; the message names the one that is wrong.
            LockTimeout: a lock was not free in time.
        """
        encode(assignment)  # what is refused anyway keeps nobody waiting
        with self._locked(assignment.place):
            with self._lock.shared(self._authority_wait_s) as hold:
                self._scans.scan(hold)  # so that little is left to be read while everybody waits
            with self._alone() as hold:
                self._require_free(hold, assignment)
                store.write(self._layout, hold, assignment, self._step)

    @contextmanager
    def kept(self, place: Place) -> Iterator[Assignment]:
        """Hold an assignment as it is, to resume it or to stop its session: nobody ends it meanwhile.

        Neither changes anything of it. Blocks: call it in a thread.

        Raises:
            UnknownTarget: there is none.
            RecoveryRequired: its record proves nothing.
            LockTimeout: its lock was not free in time.
        """
        with self._locked(place):
            yield self._read(place)

    def take_over(self, place: Place, confirmed: Callable[[Assignment], bool]) -> Assignment:
        """End an assignment on a person's word, and touch nothing else. Blocks: call it in a thread.

        Args:
            place: Which.
            confirmed: Asks the person about exactly this assignment, and gives the answer; no lock is held
                while it asks.

        Returns:
            What has ended.

        Raises:
            AssignmentConflict: the person said no, or the assignment changed while they were asked.
            UnknownTarget: there is none.
            RecoveryRequired: its record proves nothing.
            LockTimeout: a lock was not free in time.
        """
        assignment = self._read(place)
        if not confirmed(assignment):
            raise AssignmentConflict(f"nobody confirmed that the assignment of {assignment.branch} ends")
        with self._locked(place):
            self._remove(assignment)
        return assignment

    async def retire(self, place: Place, inventories: Inventories) -> Retired | Kept:
        """End an assignment whose checkout is proven to be gone, twice and by complete inventories.

        Raises:
            UnknownTarget: there is none.
            RecoveryRequired: its record proves nothing.
            LockTimeout: a lock was not free in time.
        """
        assignment = await _whole(partial(self._read, place))
        reason = kept_by(assignment, await inventories.inventory(assignment.repo))
        if reason is not None:
            return Kept(reason)
        async with self._locked_meanwhile(place):
            if await _whole(partial(self._read, place)) != assignment:
                return Kept("another assignment took its place meanwhile")
            reason = kept_by(assignment, await inventories.inventory(assignment.repo))
            if reason is not None:
                return Kept(reason)
            await _whole(partial(self._remove, assignment))
        return Retired(assignment)

    def set_aside(self, place: Place) -> str:
        """Set a corrupt record aside, its bytes unchanged, on a person's word. Blocks: call it in a thread.

        Returns:
            The path under which it lies from then on.

        Raises:
            AssignmentConflict: it is sound, or not there, or something else than its content is wrong.
            LockTimeout: a lock was not free in time.
        """
        with self._locked(place), self._alone() as hold:
            return store.set_aside(self._layout, hold, place, self._step)

    def _require_free(self, hold: AuthorityHold, assignment: Assignment) -> None:
        if store.read(self._layout, assignment.place) is not None:
            raise AssignmentConflict(f"{assignment.branch} has an assignment already")
        found = self._scans.scan(hold)
        if found.lacking is not None:
            raise RecoveryRequired(f"{found.lacking.path} {found.lacking.reason}", path=found.lacking.path)
        for held in found.held.get(assignment.session.key, ()):
            raise AssignmentConflict(f"the session carries {held.branch} of {held.repo} already")

    def _remove(self, assignment: Assignment) -> None:
        with self._alone() as hold:
            store.remove(self._layout, hold, assignment, self._step)

    def _read(self, place: Place) -> Assignment:
        found = store.read(self._layout, place)
        if found is None:
            raise UnknownTarget(
                "there is no such assignment", hint="`herd assignments` shows those that there are."
            )
        return found

    def _alone(self) -> AuthorityHold:
        return self._lock.exclusive(self._authority_wait_s)

    def _locked(self, place: Place) -> HeldLock:
        return HeldLock.acquire(self._layout.assignment_lock(*place), wait_ms=self._lock_wait_ms)

    @asynccontextmanager
    async def _locked_meanwhile(self, place: Place) -> AsyncIterator[None]:
        waiting = asyncio.ensure_future(asyncio.to_thread(self._locked, place))
        try:
            lock = await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # A thread cannot be called off, and what it gets now would be nobody's.
            waiting.add_done_callback(_given_back)
            raise
        try:
            yield
        finally:
            lock.release()


async def _whole(work: Callable[[], _Got]) -> _Got:
    """Do something in a thread, and be called off no sooner than it is done: locks are held around it."""
    doing = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise


def _given_back(waiting: "asyncio.Future[HeldLock]") -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        waiting.result().release()
