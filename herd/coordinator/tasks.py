"""The background work of one coordinator: started here, ended with it, and never able to end it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from herd.core.errors import PeerOffline

Result = TypeVar("Result")

_log = logging.getLogger("herd.coordinator")


class Tasks:
    """A task group whose members' faults are logged and stay their own.

    A fault in one route or one peer's connection must not take the session's mail down with it.

    Resource handling: a context manager. At its end whatever still runs is cancelled and has ended; what its
    body raised is passed on as it is.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()
        # The group would wrap the body's refusal into a group of exceptions, which no caller looks into.
        await self._group.__aexit__(None, None, None)

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a piece of background work.

        Raises:
            PeerOffline: the coordinator has ended; nothing is begun.
        """
        return self._begin(_guarded(work), work, lambda: None)

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a piece of work to its end even when the caller is cancelled while waiting for it.

        Raises:
            PeerOffline: the coordinator has ended; nothing is begun.
            BaseException: whatever the work raised.
        """
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._begin(_told(work, outcome), work, outcome.cancel)
        return await outcome

    async def cancel(self) -> None:
        """Cancel whatever still runs, and wait for its end."""
        while self._running:
            for task in list(self._running):
                task.cancel()
            await asyncio.wait(self._running)

    def _begin(
        self, run: Coroutine[Any, Any, None], work: Coroutine[Any, Any, Any], over: Callable[[], object]
    ) -> asyncio.Task[None]:
        try:
            task = self._group.create_task(run)
        except RuntimeError:
            run.close()
            work.close()
            raise PeerOffline("this session's coordinator has ended") from None
        self._running.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._running.discard(task)
            work.close()  # it has not begun if it was cancelled at once
            over()

        task.add_done_callback(ended)
        return task


async def in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run something that blocks in a thread, and leave only when that has ended.

    A thread cannot be called off: what it took or made after its caller had gone would be nobody's.

    Raises:
        BaseException: whatever the work raised.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


async def _told(work: Coroutine[Any, Any, Result], outcome: "asyncio.Future[Result]") -> None:
    try:
        result = await work
    except Exception as fault:  # noqa: BLE001 - whoever waits is given it, and otherwise it is logged
        if outcome.done():
            _log.exception("coordinator.task.failed")  # whoever asked for it has gone
        else:
            outcome.set_exception(fault)
    else:
        if not outcome.done():
            outcome.set_result(result)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # noqa: BLE001 - it is logged, and must end nothing else
        _log.exception("coordinator.task.failed")
