"""Real `herd session` processes, asked as forked coordinators are, and killed from outside."""

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from herd.core.identity import SessionName
from tests.fakes.herd_session import HERD, environment
from tests.faults.forked import Process
from tests.faults.forks import IN_TIME_S, Fork


class Spawned:
    """The processes of one test.

    Args:
        home: Their data root.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._living: dict[int, tuple[subprocess.Popen[bytes], Fork]] = {}

    def start(self, session: SessionName) -> Process:
        """Start `herd session`; its standard input and output are our socket."""
        near, far = socket.socketpair()
        near.setblocking(False)
        words = [*HERD, "session", "--host", session.host, "--session", session.session_id]
        with far:
            process = subprocess.Popen(
                words,
                stdin=far.fileno(),
                stdout=far.fileno(),
                cwd=str(self._home),
                env=environment(self._home),
            )
        loop = asyncio.get_running_loop()
        fork = Fork(process.pid, near, loop.create_future())
        handle = os.pidfd_open(process.pid)
        self._living[handle] = process, fork
        loop.add_reader(handle, self._reap, handle)
        return Process(fork)

    async def end(self) -> None:
        """Kill whatever lives, and wait until it is gone."""
        left = [fork for _, fork in self._living.values()]
        for fork in left:
            fork.kill()
        async with asyncio.timeout(IN_TIME_S):
            for fork in left:
                await fork.ended

    def _reap(self, handle: int) -> None:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
        process, fork = self._living.pop(handle)
        fork.ended.set_result(process.wait())


@asynccontextmanager
async def spawned(home: Path) -> AsyncIterator[Spawned]:
    """Start processes that are gone when the block is over."""
    some = Spawned(home)
    try:
        yield some
    finally:
        await some.end()
