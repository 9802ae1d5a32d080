"""The background work of one coordinator: started here, ended with it, and never able to end it."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_log = logging.getLogger("herd.coordinator")


class Tasks:
    """A task group whose members' faults are logged and stay their own.

    A fault in one route or one peer's connection must not take the session's mail down with it.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[None]] = set()

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a piece of background work."""
        task = self._group.create_task(_guarded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a piece of work to its end even when the caller is cancelled while waiting for it.

        Raises:
            BaseException: whatever the work raised.
        """
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.create_task(_told(work, outcome))
        return await outcome

    async def cancel(self) -> None:
        """Cancel whatever still runs, and wait for its end."""
        while self._running:
            for task in list(self._running):
                task.cancel()
            await asyncio.wait(self._running)


async def _told(work: Coroutine[Any, Any, Result], outcome: "asyncio.Future[Result]") -> None:
    try:
        result = await work
    except BaseException as fault:
        if outcome.done():
            raise
        outcome.set_exception(fault)
        if not isinstance(fault, Exception):
            raise
    else:
        if not outcome.done():
            outcome.set_result(result)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        _log.exception("coordinator.task.failed")
