"""The acceptance of connections on one listening socket.

It owns the decision who is let in, before a byte is read: first whose process it is, then how many there are.
It is ignorant of the socket's file and of what is said.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from herd.core.errors import HerdError
from herd.core.limits import ACCEPT_PAUSE_MS
from herd.rpc.streams import streams_of

Accepted: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection; the connection is closed when it returns."""

Credentials: TypeAlias = Callable[[socket.socket], tuple[int, int, int]]
"""Gives pid, uid and gid of the process at the other end."""

_AT_ONCE = 64
"""Connections accepted before the event loop turns to other work."""

_log = logging.getLogger(__name__)


class Accepting:
    """Accepts until it is stopped; each connection is served in a task of its own.

    Args:
        sock: Listens, and does not block; who made it closes it.
        accepted: Serves one connection.
        credentials: Who is at the other end.
        limit_connections: Connections open at once; those above it are closed unread.
    """

    def __init__(
        self, sock: socket.socket, accepted: Accepted, credentials: Credentials, limit_connections: int
    ) -> None:
        self._sock = sock
        self._accepted = accepted
        self._credentials = credentials
        self._limit = limit_connections
        self._loop = asyncio.get_running_loop()
        self._begun = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._serving: asyncio.Task[None] | None = None
        self._resuming: asyncio.TimerHandle | None = None
        self._open = 0

    async def start(self) -> None:
        """Begin to accept."""
        self._serving = asyncio.create_task(self._serve())
        await self._begun.wait()

    def stop(self) -> None:
        """Accept no more; what was accepted goes on."""
        self._loop.remove_reader(self._sock)
        if self._resuming is not None:
            self._resuming.cancel()

    async def end(self) -> None:
        """Cancel what was accepted and wait until it has ended."""
        self.stop()
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._loop.add_reader(self._sock, self._take_callers)
            self._begun.set()
            await self._loop.create_future()  # until cancelled

    def _take_callers(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of descriptors or memory. The caller stays in the queue, so the loop would be told at
                # once that it can accept, and spin.
                _log.warning("rpc.accept.failed errno=%s", error.errno)
                self._loop.remove_reader(self._sock)
                self._resuming = self._loop.call_later(ACCEPT_PAUSE_MS / 1_000, self._resume)
                return
            sock.setblocking(False)
            if self._admits(sock):
                self._begin(sock)
            else:
                sock.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._sock, self._take_callers)

    def _admits(self, sock: socket.socket) -> bool:
        try:
            pid, uid, _ = self._credentials(sock)
        except (OSError, HerdError):
            return False  # nobody can say who it is
        if uid != os.geteuid():
            _log.warning("rpc.accept.refused pid=%s uid=%s", pid, uid)
            return False
        return self._open < self._limit

    def _begin(self, sock: socket.socket) -> None:
        assert self._tasks is not None, "callers are taken while the group is open"
        self._open += 1
        self._tasks.create_task(self._serve_one(sock)).add_done_callback(self._count_down)

    def _count_down(self, _: asyncio.Task[None]) -> None:
        self._open -= 1

    async def _serve_one(self, sock: socket.socket) -> None:
        try:
            reader, writer = await streams_of(sock)
        except OSError:
            sock.close()
            return
        try:
            await self._accepted(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        except Exception:  # noqa: BLE001 - one connection must not end the others
            _log.exception("rpc.connection.failed")
        finally:
            writer.close()
