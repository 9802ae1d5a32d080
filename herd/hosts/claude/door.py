"""The private socket on which the hooks of one process of Claude Code find that process's server.

It owns the socket, the token and each exchange from connection to the word that the answer was printed. What
an event means is its handler's matter.
"""

import asyncio
import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from herd.coordinator.standby import Standby
from herd.core.errors import HerdError, LockTimeout
from herd.core.limits import HOOK_S, HOOKS_AT_ONCE
from herd.core.paths import Layout
from herd.hosts.claude import wire
from herd.hosts.claude.flags import Flags
from herd.hosts.claude.wire import Malformed, Told
from herd.rpc.unix import Listener, bound

_log = logging.getLogger("herd.hosts.claude")


class Answer(NamedTuple):
    """What a hook is to print, and who is told whether it did."""

    text: bytes = b""
    printed: Callable[[bool | None], Awaitable[None]] | None = None
    """Called once: True where the hook says that it printed, None where it had ended before the text came,
    False where nobody knows."""


Handler = Callable[[Told, Callable[[], bool]], Awaitable[Answer]]
"""Handles one event; the second argument tells whether the hook has given up meanwhile."""


class Door:
    """The listening socket, and the flags that lead hooks to it.

    Args:
        layout: The folders of this machine.
        pid: The host's process.
        handler: Handles each event.

    Resource handling: after `open`, `close` must be awaited.
    """

    def __init__(self, layout: Layout, pid: int, handler: Handler) -> None:
        self._layout = layout
        self._handler = handler
        self._token = secrets.token_hex(32)
        self._standby = Standby()
        self._listener: Listener | None = None
        self.flags = Flags(layout.hooks, pid)

    async def open(self) -> None:
        """Listen, and let hooks find it.

        Raises:
            LockTimeout: another server of the same process is still there.
            UnsafeEndpoint: the socket or the flag cannot be made.
        """
        listener = await bound(self._layout.run, str(uuid.uuid4()))
        try:
            await listener.start(self._accepted, limit_connections=HOOKS_AT_ONCE)
            self.flags.open(listener.path, self._token)
        except BaseException:
            await listener.close()
            raise
        self._listener = listener

    async def open_when_free(self) -> bool:
        """Open once no other server of the same process is there; tells whether it could be opened."""
        while True:
            try:
                await self.open()
            except LockTimeout:
                # The server before this one is still ending; its hooks are ours as soon as it is gone.
                await self._standby.freed(self.flags.path)
            except HerdError as fault:
                _log.warning("claude.door.failed reason=%s", fault.message)
                return False
            else:
                return True

    async def close(self) -> None:
        """Let hooks find nothing any more, and end what is under way."""
        self.flags.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HOOK_S):
                told = await wire.read_told(reader, self._token)
        except (Malformed, OSError, TimeoutError) as fault:
            _log.warning("claude.hook.refused reason=%s", fault)
            return
        answer = await self._handler(told, reader.at_eof)
        printed: bool | None = None
        try:
            async with asyncio.timeout(HOOK_S):
                writer.write(wire.answer(answer.text))
                await writer.drain()
                printed = False
                printed = await wire.read_printed(reader)
        except (OSError, TimeoutError):
            pass  # the hook had no time left
        finally:
            if answer.printed is not None:
                await answer.printed(printed)
