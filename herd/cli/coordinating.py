"""The terminal session's coordinator inside a command: on an event loop in a thread of its own.

The command's thread stays free for what blocks: standard input, a full pipe, a person who interrupts.
"""

import asyncio
import logging
import signal
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any

from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.coordinator import coordinate
from herd.coordinator.opening import Opening
from herd.core.build import seal


class OwnCoordinator:
    """A coordinator for as long as the command needs it.

    Args:
        opening: What it is opened with.

    Raises:
        SessionHeld: another process coordinates the session.
        HerdError: it cannot be opened.
    """

    def __init__(self, opening: Opening) -> None:
        seal()
        _log_faults_alone()
        self._opening = opening
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        self._api: AdapterApi
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="coordinator", daemon=True)
        _start_without_interrupts(self._thread)
        try:
            self._ready.wait()
        except BaseException:  # a person interrupted: what has begun is ended in order
            self.close()
            raise
        self._tell_fault()

    def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        wait_s: float,  # noqa: ARG002 - what it waits for is inside this process
    ) -> dict[str, Any]:
        """Ask and give the result.

        Raises:
            HerdError: the refusal.
        """
        future = asyncio.run_coroutine_threadsafe(self._api.request(None, method, params), self._loop)
        try:
            return future.result()
        except CancelledError:
            self._tell_fault()
            raise

    def close(self) -> None:
        """End it in order: withdrawn, settled, everything released."""
        with suppress(RuntimeError):  # the loop is closed: it has ended by itself
            self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self._tell_fault()

    def _tell_fault(self) -> None:
        if self._fault is not None:
            self._thread.join()
            raise self._fault

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._coordinate())
        except BaseException as fault:  # noqa: BLE001 - handed to the command's thread
            self._fault = _only(fault)
        finally:
            self._ready.set()

    async def _coordinate(self) -> None:
        async with coordinate(self._opening) as coordinator:
            self._api = AdapterApi(Settled(coordinator), command=True)
            self._ready.set()
            await self._done.wait()
            self._api.ended()


def _log_faults_alone() -> None:
    """Keep a person's terminal, and the JSON of a refusal, free of what the command will say by itself."""
    log = logging.getLogger("herd")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setLevel(logging.ERROR)
        log.addHandler(handler)


def _start_without_interrupts(thread: threading.Thread) -> None:
    """Start a thread, and with it all that it starts, to which the kernel gives no interrupt.

    One that another thread got would not wake the command's own, which raises it: Ctrl-C were lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _only(fault: BaseException) -> BaseException:
    return _only(fault.exceptions[0]) if isinstance(fault, BaseExceptionGroup) else fault
