"""The authority lock on the event loop: held shared around a verdict and the commit that rests on it.

Whoever holds it has the evidence that counts for as long: the scan of the assignment records, and the
worktree groups as they were read before. Where the disk or the kernel refuses the lock, nothing can be
judged, and whoever owns the health is told.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from assignments.evidence import Scan
from assignments.scan import Scans
from assignments.worktrees.groups import Groups
from herd.coordinator.evidence import Evidence, Gathering, Ruling
from herd.coordinator.topologies import NO_GROUPS, NotFresh, Topologies
from herd.coordinator.turn import Turn
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.clock import Clock, SystemClock
from herd.core.errors import SystemWant
from herd.core.paths import Layout
from herd.mail.received import Admitted
from roles.eligibility import Judge
from roles.model import Party

_HOLD = ("hold", "")

Result = TypeVar("Result")


class SharedHold:
    """One hold for several who judge in one turn of the event loop; it ends with the last of them.

    Attributes:
        ruling: The hold itself.
        allowed: The session keys that may be written to, as was judged under it, and whether as a reply.
    """

    def __init__(self, ruling: Ruling) -> None:
        self.allowed: set[tuple[str, bool]] = set()
        self.ruling = ruling
        self._shares = 0

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return not self._shares

    def share(self) -> "Share":
        """Give one more share, before it has ended."""
        self._shares += 1
        return Share(self)

    def left(self) -> None:
        """Take a share back."""
        self._shares -= 1
        if not self._shares:
            self.ruling.release()


class Share:
    """One user's part of a shared hold: a context manager, or call `release`; again: nothing."""

    def __init__(self, shared: SharedHold) -> None:
        self._shared: SharedHold | None = shared
        self.allowed = shared.allowed
        self.ruling = shared.ruling

    def release(self) -> None:
        """Give it back."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.left()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Authority:
    """Asks the judge, and the scopes of both sides, under the lock.

    Args:
        layout: Where the lock and the assignment records lie.
        judge: Turns evidence into a verdict.
        groups: Tells the worktree groups.
        wants: Told, in whatever thread, why the lock cannot be had for want of something.
        clock: Judges how old what was read of a group is.

    Attributes:
        turn: The turn of the event loop in which whoever shares a hold does so.
    """

    def __init__(
        self,
        layout: Layout,
        judge: Judge,
        groups: Groups = NO_GROUPS,
        wants: Callable[[SystemWant], object] = lambda _: None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._wants = wants
        self._lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
        self._judge = judge
        self._scans = Scans(layout, self._lock)
        self._topologies = Topologies(groups, clock or SystemClock())
        self.turn = Turn()

    async def hold(self) -> Ruling:
        """Take the lock shared; the caller releases it.

        Taking it costs a few system calls while nobody changes authority, so it is tried on the loop first;
        only a wait for a change, and reading what was changed, go to a thread.

        Raises:
            LockTimeout: a change holds it for too long.
            SystemWant: the disk or the kernel refuses it for want of something.
        """
        with self._wanting():
            hold = self._lock.try_shared()
            if hold is None:
                hold = await self._waited()
        try:
            scan = self._scans.current(hold)
            if scan is None:
                with self._wanting():
                    scan = await self._scanned(hold)
        except BaseException:
            hold.release()
            raise
        return Ruling(hold, self._judge, scan, self._topologies)

    async def _waited(self) -> AuthorityHold:
        waiting = asyncio.ensure_future(asyncio.to_thread(self._lock.shared))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # A thread cannot be called off, and what it gets now would be nobody's.
            waiting.add_done_callback(_given_back)
            raise

    async def _scanned(self, hold: AuthorityHold) -> Scan:
        return await asyncio.to_thread(self._scans.scan, hold)

    async def share(self) -> Share:
        """Take the lock shared as `hold` does, together with all who do so in the same turn of the loop.

        Never with those of an earlier turn: a change that waits for the lock would wait for all who come.

        Raises:
            LockTimeout: a change holds it for too long.
        """
        found = self.turn.found()
        shared: SharedHold | None = found.get(_HOLD)
        if shared is None or shared.over:
            shared = found[_HOLD] = SharedHold(await self.hold())
        return shared.share()

    @contextmanager
    def allowed(self, sender: Party, target: Party) -> Iterator[Admitted]:
        """Hold the lock shared while `sender` may write to `target`. Blocks: call it in a thread.

        Raises:
            EligibilityDenied, EligibilityUnverified: by the verdict.
            ScopeDenied: the scopes do not take each other in.
            NotFresh: worktree groups have to be looked up first; see `fresh`.
            LockTimeout: a change holds the lock for too long.
            SystemWant: the disk or the kernel refuses it for want of something.
        """
        with self._wanting():
            hold = self._lock.shared()
        with hold:
            with self._wanting():
                scan = self._scans.scan(hold)
            evidence = Evidence(self._judge, scan, self._topologies)
            yield evidence.admitted(sender, target)

    async def fresh(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Try something that judges; where it needs worktree groups, look them up and try once more.

        Where this machine is so slow that what was looked up is too old again by then, it counts as unproven:
        one message that cannot be judged then is put off, and keeps no other waiting.

        The attempt holds the lock no more when it raises `NotFresh`.
        """
        try:
            return await attempt()
        except NotFresh as lacking:
            folders = lacking.folders
        await self._topologies.refresh(folders)
        try:
            return await attempt()
        except NotFresh:
            with self._topologies.resigned():
                return await attempt()

    async def gathered(self, judge: Callable[[Gathering], Result]) -> Result:
        """Judge many under one hold; once more, where worktree groups had to be looked up first."""
        with await self.hold() as ruling:
            gathering = Gathering(ruling)
            found = judge(gathering)
        if not gathering.lacking:
            return found
        await self._topologies.refresh(gathering.lacking)
        with await self.hold() as ruling:
            return judge(Gathering(ruling))

    async def close(self) -> None:
        """End what is being looked up, and let go of the lock's files; nothing is judged behind it."""
        try:
            await self._topologies.close()
        finally:
            self._lock.close()

    @contextmanager
    def _wanting(self) -> Iterator[None]:
        try:
            yield
        except SystemWant as fault:
            self._wants(fault)
            raise


def _given_back(waiting: "asyncio.Future[AuthorityHold]") -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        waiting.result().release()
