"""Which session a process serves: one at a time, named by whoever knows best, and named anew when it changes.

A process may start before its session is known and outlive it. `bind` ends the session before in order and
opens the next. A session that another process holds puts this one on standby: it takes over as soon as the
kernel gives the lock, and until then sleeps in one blocking call.
"""

import asyncio
import logging
import threading

from herd.coordinator.coordinator import Coordinator, coordinate
from herd.coordinator.opening import Opening
from herd.core.errors import HerdError, NoSession, SessionHeld
from herd.core.locks import wait_until_free

_log = logging.getLogger("herd.coordinator.binding")


class Binding:
    """The session of this process, if any.

    Resource handling: `close` must be awaited; it ends the session in order.
    """

    def __init__(self) -> None:
        self._tenure: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._coordinator: Coordinator | None = None
        self._refusal: HerdError = NoSession(
            "this process is not bound to a session yet",
            hint="Its host has not named its session yet.",
        )
        self._changing = asyncio.Lock()

    def current(self) -> Coordinator:
        """Give the coordinator of the session served now.

        Raises:
            NoSession: no session has been named yet.
            SessionHeld: another process holds the session, and this one is on standby.
            HerdError: why the session named last could not be opened.
        """
        if self._coordinator is None:
            raise self._refusal
        return self._coordinator

    async def bind(self, opening: Opening) -> Coordinator:
        """Serve a session from now on, and end the one before in order; the same one again changes nothing.

        Raises:
            SessionHeld: another process holds it; this one is on standby and takes over by itself.
            HerdError: it could not be opened.
        """
        async with self._changing:
            served = self._coordinator
            if served is not None and served.own.session == opening.session:
                return served
            await self._leave()
            opened: asyncio.Future[Coordinator] = asyncio.get_running_loop().create_future()
            self._end = asyncio.Event()
            self._tenure = asyncio.get_running_loop().create_task(self._serve(opening, opened, self._end))
            return await opened

    def refused(self, refusal: HerdError) -> None:
        """Note why the session could not even be named; every call is refused with it."""
        self._refusal = refusal

    async def close(self) -> None:
        """End the session served, in order."""
        async with self._changing:
            await self._leave()

    async def _leave(self) -> None:
        self._coordinator = None
        if self._tenure is not None:
            self._end.set()
            await self._tenure
            self._tenure = None

    async def _serve(
        self, opening: Opening, opened: "asyncio.Future[Coordinator]", end: asyncio.Event
    ) -> None:
        while not end.is_set():
            refusal = await self._tenured(opening, opened, end)
            if refusal is None:
                return
            self._refusal = refusal
            _fail(opened, refusal)
            if not isinstance(refusal, SessionHeld):
                return
            await self._freed(opening, end)

    async def _tenured(
        self, opening: Opening, opened: "asyncio.Future[Coordinator]", end: asyncio.Event
    ) -> HerdError | None:
        """Coordinate the session until its end is wanted; gives what kept it from being opened."""
        try:
            async with coordinate(opening) as coordinator:
                self._coordinator = coordinator
                _settle(opened, coordinator)
                await end.wait()
                self._coordinator = None
        except HerdError as refusal:
            return refusal
        except BaseExceptionGroup as faults:
            refused, others = faults.split(HerdError)
            if others is not None or refused is None:
                raise
            return _only(refused)
        return None

    async def _freed(self, opening: Opening, end: asyncio.Event) -> None:
        """Wait without waking up until the holder's lock is free, or the standby is over.

        The waiting thread cannot be called off, so it is a daemon; it takes the lock shared for an instant
        when it gets it, which every taker allows for.
        """
        loop = asyncio.get_running_loop()
        freed = asyncio.Event()

        def wait() -> None:
            try:
                wait_until_free(opening.layout.session_lock(opening.session.key))
            except (HerdError, OSError):
                _log.exception("standby.wait.failed")
            try:
                loop.call_soon_threadsafe(freed.set)
            except RuntimeError:
                return  # the process is ending

        threading.Thread(target=wait, name="standby", daemon=True).start()
        waits = {asyncio.ensure_future(freed.wait()), asyncio.ensure_future(end.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _only(faults: BaseExceptionGroup[HerdError]) -> HerdError:
    first = faults.exceptions[0]
    return _only(first) if isinstance(first, BaseExceptionGroup) else first


def _settle(opened: "asyncio.Future[Coordinator]", coordinator: Coordinator) -> None:
    if not opened.done():
        opened.set_result(coordinator)


def _fail(opened: "asyncio.Future[Coordinator]", refusal: HerdError) -> None:
    if not opened.done():
        opened.set_exception(refusal)
