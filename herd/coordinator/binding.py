"""Which session a process serves: one at a time, named by whoever knows best, and named anew when it changes.

A process may start before its session is known and outlive it. `bind` ends the session before in order and
opens the next. A session that another process holds puts this one on standby: it takes over as soon as the
kernel gives the lock, and until then sleeps in one blocking call.
"""

import asyncio
import logging
from collections.abc import Callable

from herd.coordinator.coordinator import Coordinator, coordinate
from herd.coordinator.opening import Opening
from herd.coordinator.standby import Standby
from herd.core.errors import (
    CapabilityDenied,
    HerdError,
    InvalidRpc,
    NoSession,
    RecoveryRequired,
    SessionHeld,
)
from herd.core.identity import TERMINAL, SessionName
from herd.core.refusals import refusal_of

_log = logging.getLogger("herd.coordinator.binding")


_STANDBY = "This process takes over by itself when that one ends; call again then, or use that one."


Changed = Callable[[Coordinator | None], None]
"""Told each coordinator as soon as it serves, also one that took over from standby, and None once it ends."""


class Binding:
    """The session of this process, if any.

    Resource handling: `close` must be awaited; it ends the session in order.

    Args:
        changed: Told which coordinator serves.
    """

    def __init__(self, changed: Changed = lambda _: None) -> None:
        self._changed = changed
        self._tenure: _Tenure | None = None
        self._standby = Standby()
        self._changing = asyncio.Lock()
        self._refusal: HerdError = NoSession(
            "this process is not bound to a session yet",
            hint="Its host names it; where a host cannot, start the process with --session.",
        )

    def current(self) -> Coordinator:
        """Give the coordinator of the session served now.

        Raises:
            NoSession: no session has been named yet, or the process is changing to another.
            SessionHeld: another process holds the session, and this one is on standby.
            HerdError: why the session named last could not be opened or has ended.
        """
        if self._tenure is None:
            raise self._refusal
        return self._tenure.current()

    async def bind(self, opening: Opening) -> Coordinator:
        """Serve a session from now on, and end the one before in order; the same one again changes nothing.

        Raises:
            SessionHeld: another process holds it; this one is on standby and takes over by itself.
            CapabilityDenied: it is a terminal session, which no host has.
            HerdError: it could not be opened.
        """
        _require_hosted(opening.session)
        async with self._changing:
            if self._tenure is None or not self._tenure.serves(opening.session):
                await self._leave()
                self._tenure = _Tenure(opening, self._standby, self._changed)
            return await self._tenure.opened()

    def refused(self, fault: Exception) -> None:
        """Note why the session could not even be named; every call is refused with it until one is bound."""
        self._refusal = _as_refusal(fault)

    async def close(self) -> None:
        """End the session served, in order."""
        async with self._changing:
            await self._leave()

    async def _leave(self) -> None:
        if self._tenure is not None:
            await self._tenure.end()
            self._tenure = None


class _Tenure:
    """The time for which a process is to serve one session, on standby or coordinating.

    Args:
        opening: What the session is opened with.
        standby: Waits for a session that is held elsewhere.
        changed: Told which coordinator serves.
    """

    def __init__(self, opening: Opening, standby: Standby, changed: Changed) -> None:
        self._changed = changed
        self._opening = opening
        self._standby = standby
        self._end = asyncio.Event()
        self._tried = asyncio.Event()
        self._coordinator: Coordinator | None = None
        self._refusal: HerdError = NoSession(
            "this process is changing its session", hint="Call again in a moment."
        )
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def current(self) -> Coordinator:
        if self._coordinator is None:
            raise self._refusal
        return self._coordinator

    def serves(self, session: SessionName) -> bool:
        """Tell whether this is the session's tenure and not over."""
        return self._opening.session == session and not self._task.done()

    async def opened(self) -> Coordinator:
        """Wait for the first try, and give what it led to as `current` does."""
        await self._tried.wait()
        return self.current()

    async def end(self) -> None:
        """End it in order; whoever stops waiting for that changes nothing about it."""
        self._end.set()
        await asyncio.shield(self._task)

    async def _serve(self) -> None:
        try:
            while not self._end.is_set():
                refusal = await self._coordinate()
                if refusal is None:
                    return
                self._refusal = refusal
                self._tried.set()
                if not isinstance(refusal, SessionHeld):
                    return
                self._refusal = SessionHeld(refusal.message, hint=_STANDBY, **refusal.details)
                await self._wait()
        except HerdError as fault:
            self._refusal = fault  # standing by is not possible, so this is over
        finally:
            self._tried.set()

    async def _coordinate(self) -> HerdError | None:
        """Coordinate until the end is wanted; gives what kept the session from being opened or going on."""
        try:
            async with coordinate(self._opening) as coordinator:
                self._coordinator = coordinator
                self._changed(coordinator)
                self._tried.set()
                await self._end.wait()
                self._coordinator = None
                self._changed(None)  # while it can still be asked to let go what is held
        except Exception as fault:  # noqa: BLE001 - whatever it was, the tools have to tell it
            return _as_refusal(fault)
        finally:
            self._coordinator = None
        return None

    async def _wait(self) -> None:
        """Wait until the holder's lock is free, or the end is wanted.

        Raises:
            HerdError: it cannot be waited for.
        """
        path = self._opening.layout.session_lock(self._opening.session.key)
        freed = asyncio.ensure_future(self._standby.freed(path))
        end = asyncio.ensure_future(self._end.wait())
        try:
            await asyncio.wait({freed, end}, return_when=asyncio.FIRST_COMPLETED)
            if freed.done():
                freed.result()
        finally:
            freed.cancel()
            end.cancel()
            await asyncio.gather(freed, end, return_exceptions=True)


def _require_hosted(session: SessionName) -> None:
    if session.host == TERMINAL:
        # Or whatever an agent starts could write as a terminal session, which may write to everybody.
        raise CapabilityDenied(
            "no host coordinates a terminal session",
            hint="Commands do it by themselves; name another than the default one with `--as NAME`.",
        )


def _as_refusal(fault: BaseException) -> HerdError:
    while isinstance(fault, BaseExceptionGroup):  # a task group wraps whatever ended it
        fault = fault.exceptions[0]
    if isinstance(fault, HerdError):
        return fault
    known = refusal_of(fault) if isinstance(fault, OSError) else None
    if known is None:
        _log.error("session.failed", exc_info=fault)
    if isinstance(fault, OSError):
        where = f"{fault.filename}: " if fault.filename is not None else ""
        hint = known.next_step if known else None
        text = f"the session cannot be opened now: {where}{fault.strerror or fault}"
        return RecoveryRequired(text, hint=hint)
    return InvalidRpc("the session ended by a fault inside Herd")
