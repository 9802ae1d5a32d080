"""The authority lock on the event loop: held shared around a verdict and the commit that rests on it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.paths import Layout
from roles.eligibility import Judge
from roles.model import Party, require


class Authority:
    """Asks the judge under the lock.

    Args:
        layout: Where the lock lies.
        judge: Turns evidence into a verdict.
    """

    def __init__(self, layout: Layout, judge: Judge) -> None:
        self._lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
        self.judge = judge

    async def hold(self) -> AuthorityHold:
        """Take the lock shared; the caller releases it.

        Taking it costs a few system calls while nobody changes authority, so it is tried on the loop first;
        only a wait for a change goes to a thread.

        Raises:
            LockTimeout: a change holds it for too long.
        """
        hold = self._lock.try_shared()
        if hold is not None:
            return hold
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
        """
        with self._lock.shared():
            require(self.judge.verdict(sender, target))
            yield


def _given_back(waiting: "asyncio.Future[AuthorityHold]") -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        waiting.result().release()
