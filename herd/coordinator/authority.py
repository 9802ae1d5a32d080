"""The authority lock on the event loop: held shared around a verdict and the commit that rests on it.

Where the disk or the kernel refuses the lock, nothing can be judged, and whoever owns the health is told.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.errors import SystemWant
from herd.core.paths import Layout
from roles.eligibility import Judge
from roles.model import Party, require


class Authority:
    """Asks the judge under the lock.

    Args:
        layout: Where the lock lies.
        judge: Turns evidence into a verdict.
        wants: Told, in whatever thread, why the lock cannot be had for want of something.
    """

    def __init__(
        self, layout: Layout, judge: Judge, wants: Callable[[SystemWant], object] = lambda _: None
    ) -> None:
        self._wants = wants
        self._lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
        self.judge = judge

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

    @contextmanager
    def allowed(self, sender: Party, target: Party) -> Iterator[None]:
        """Hold the lock shared while `sender` may write to `target`. Blocks: call it in a thread.

        Raises:
            EligibilityDenied, EligibilityUnverified: by the verdict.
            LockTimeout: a change holds the lock for too long.
            SystemWant: the disk or the kernel refuses it for want of something.
        """
        with self._wanting():
            hold = self._lock.shared()
        with hold:
            require(self.judge.verdict(sender, target))
            yield

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
