"""The instance's socket: bound, watched, and bound again when somebody removed its file."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

from herd.coordinator.tasks import in_thread
from herd.core.backoff import pause_ms
from herd.core.clock import Clock
from herd.core.errors import HerdError, UnsafeEndpoint
from herd.core.files import private_folder
from herd.core.limits import (
    ACCEPTED_CONNECTIONS_FLOOR,
    HEALTH_RETRY_MS,
    RETRY_GREATEST_MS,
    Limits,
)
from herd.core.paths import Layout
from herd.core.refusals import refused
from herd.core.watch import FolderWatch
from herd.rpc.accepting import Accepted
from herd.rpc.unix import Listener, bound

Watch = Callable[[str, Callable[[str | None], None]], AbstractContextManager[object]]
"""Watches a folder, as `FolderWatch` does."""

_log = logging.getLogger("herd.coordinator.listening")


class Listening:
    """One instance's way in.

    Args:
        layout: The folders of this machine.
        instance_id: Names the socket.
        limits: The bounds in force.
        accepted: Serves each caller.
        clock: Paces what has to be tried again.
        jitter: Gives a number in [0, 1) for each pause.
        watch: Tells what happens in a folder.
    """

    def __init__(
        self,
        layout: Layout,
        instance_id: str,
        limits: Limits,
        accepted: Accepted,
        *,
        clock: Clock,
        jitter: Callable[[], float],
        watch: Watch = FolderWatch,
    ) -> None:
        self._layout = layout
        self._instance_id = instance_id
        self._most = max(ACCEPTED_CONNECTIONS_FLOOR, 4 * limits.connections)
        self._accepted = accepted
        self._clock = clock
        self._jitter = jitter
        self._watch = watch
        self._listener: Listener | None = None
        self._gone = asyncio.Event()

    def require(self) -> None:
        """Let an instance pass that can be reached.

        Raises:
            UnsafeEndpoint: it has no socket now.
        """
        if self._listener is None:
            raise UnsafeEndpoint("this session's socket is gone and could not be bound again yet")

    async def open(self) -> str:
        """Bind, listen, and connect to oneself; gives the path to publish.

        Raises:
            UnsafeEndpoint: no socket can be made that is private and short enough.
        """
        private_folder(self._layout.run)
        listener = await bound(self._layout.run, self._instance_id)
        try:
            await listener.start(self._accepted, limit_connections=self._most)
            await in_thread(listener.self_check)
        except BaseException:
            await listener.close()
            raise
        self._listener = listener
        return listener.path

    async def keep(
        self,
        lost: Callable[[], None],
        found: Callable[[str], Awaitable[None]],
        failed: Callable[[HerdError], None],
    ) -> None:
        """Watch over the socket's file for as long as the coordinator lives, without polling.

        Args:
            lost: Called when the file is gone, before anything else.
            found: Called with the new path once another one is listening.
            failed: Told why none can be bound; it is tried again until one can.
        """
        while True:
            await self._until_gone()
            lost()
            await self.close()
            await found(await self._opened_again(failed))

    async def close(self) -> None:
        """Stop listening; the file is removed where it still is ours."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    async def _opened_again(self, failed: Callable[[HerdError], None]) -> str:
        attempt = 0
        while True:
            try:
                return await self.open()
            except HerdError as fault:
                failed(fault)
            except OSError as fault:
                failed(refused("this session's socket cannot be bound again", fault, self._layout.run))
            attempt += 1
            pause = pause_ms(attempt, self._jitter(), first_ms=HEALTH_RETRY_MS)
            await self._clock.sleep(pause / 1000)

    async def _until_gone(self) -> None:
        assert self._listener is not None, "open() came first"
        path = self._listener.path
        self._gone.clear()
        while not self._gone.is_set():
            try:
                watch = self._watch(os.path.dirname(path), lambda _: self._look(path))
            except OSError as fault:
                self._look(path)
                if not self._gone.is_set():
                    # Watches are used up. It is looked at now and then, until there are some again.
                    _log.warning("socket.watch.failed", extra={"reason": str(fault)})
                    await self._clock.sleep(RETRY_GREATEST_MS / 1000)
                continue
            with watch:
                self._look(path)  # it may have gone before the watch began
                await self._gone.wait()

    def _look(self, path: str) -> None:
        if not os.path.lexists(path):
            self._gone.set()
