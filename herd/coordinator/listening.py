"""The instance's socket: bound, watched, and bound again when somebody removed its file."""

import asyncio
import os
from collections.abc import Awaitable, Callable

from herd.core.files import private_folder
from herd.core.limits import ACCEPTED_CONNECTIONS_FLOOR, Limits
from herd.core.paths import Layout
from herd.core.watch import FolderWatch
from herd.rpc.accepting import Accepted
from herd.rpc.unix import Listener, bind


class Listening:
    """One instance's way in.

    Args:
        layout: The folders of this machine.
        instance_id: Names the socket.
        limits: The bounds in force.
        accepted: Serves each caller.
    """

    def __init__(self, layout: Layout, instance_id: str, limits: Limits, accepted: Accepted) -> None:
        self._layout = layout
        self._instance_id = instance_id
        self._most = max(ACCEPTED_CONNECTIONS_FLOOR, 4 * limits.connections)
        self._accepted = accepted
        self._listener: Listener | None = None
        self._gone = asyncio.Event()

    async def open(self) -> str:
        """Bind, listen, and connect to oneself; gives the path to publish.

        Raises:
            UnsafeEndpoint: no socket can be made that is private and short enough.
        """
        private_folder(self._layout.run)
        self._listener = await asyncio.to_thread(bind, self._layout.run, self._instance_id)
        await self._listener.start(self._accepted, limit_connections=self._most)
        await asyncio.to_thread(self._listener.self_check)
        return self._listener.path

    async def keep(self, lost: Callable[[], None], found: Callable[[str], Awaitable[None]]) -> None:
        """Watch over the socket's file for as long as the coordinator lives, without polling.

        Args:
            lost: Called when the file is gone, before anything else.
            found: Called with the new path once another one is listening.
        """
        while True:
            await self._until_gone()
            lost()
            await self.close()
            await found(await self.open())

    async def close(self) -> None:
        """Stop listening; the file is removed where it still is ours."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    async def _until_gone(self) -> None:
        assert self._listener is not None, "open() came first"
        path = self._listener.path
        self._gone.clear()
        try:
            watch = FolderWatch(os.path.dirname(path), lambda _: self._look(path))
        except OSError:
            return  # the folder went before it could be watched
        with watch:
            self._look(path)  # it may have gone before the watch began
            await self._gone.wait()

    def _look(self, path: str) -> None:
        if not os.path.lexists(path):
            self._gone.set()
