"""The authority lock on the event loop: held shared around a verdict and the commit that rests on it.

Where the disk or the kernel refuses the lock, nothing can be judged, and whoever owns the health is told.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from herd.coordinator.turn import Turn
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.errors import SystemWant
from herd.core.paths import Layout
from herd.presence.scopes import require_mutual
from roles.eligibility import Judge
from roles.model import Party, require

_HOLD = ("hold", "")


class SharedHold:
    """One hold for several who judge in one turn of the event loop; it ends with the last of them.

    Attributes:
        allowed: The session keys that may be written to, as was judged under it.
    """

    def __init__(self, hold: AuthorityHold) -> None:
        self.allowed: set[str] = set()
        self._hold = hold
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
            self._hold.release()


class Share:
    """One user's part of a shared hold: a context manager, or call `release`; again: nothing."""

    def __init__(self, shared: SharedHold) -> None:
        self._shared: SharedHold | None = shared
        self.allowed = shared.allowed

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
        layout: Where the lock lies.
        judge: Turns evidence into a verdict.
        wants: Told, in whatever thread, why the lock cannot be had for want of something.

    Attributes:
        turn: The turn of the event loop in which whoever shares a hold does so.
    """

    def __init__(
        self, layout: Layout, judge: Judge, wants: Callable[[SystemWant], object] = lambda _: None
    ) -> None:
        self._wants = wants
        self._lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
        self.judge = judge
        self.turn = Turn()

    async def hold(self) -> AuthorityHold:
        """Take the lock shared; the caller releases it.

        Taking it costs a few system calls while nobody changes authority, so it is tried on the loop first;
        only a wait for a change goes to a thread.

        Raises:
            LockTimeout: a change holds it for too long.
            SystemWant: the disk or the kernel refuses it for want of something.
        """
        with self._wanting():
            hold = self._lock.try_shared()
            return hold if hold is not None else await self._waited()

    async def _waited(self) -> AuthorityHold:
        waiting = asyncio.ensure_future(asyncio.to_thread(self._lock.shared))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # A thread cannot be called off, and what it gets now would be nobody's.
            waiting.add_done_callback(_given_back)
            raise

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
    def allowed(self, sender: Party, target: Party) -> Iterator[None]:
        """Hold the lock shared while `sender` may write to `target`. Blocks: call it in a thread.

        Raises:
            EligibilityDenied, EligibilityUnverified: by the verdict.
            ScopeDenied: the scopes do not take each other in.
            LockTimeout: a change holds the lock for too long.
            SystemWant: the disk or the kernel refuses it for want of something.
        """
        with self._wanting():
            hold = self._lock.shared()
        with hold:
            self.require(sender, target)
            yield

    def require(self, sender: Party, target: Party) -> None:
        """Let pass what may be written, under the lock that the caller holds; raises as `allowed` does."""
        require(self.judge.verdict(sender, target))
        require_mutual(sender.extent, target.extent)

    def close(self) -> None:
        """Let go of the lock's files; nothing is judged behind it."""
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
