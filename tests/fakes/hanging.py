"""A git that hangs.

It owns being in the way, and knowing whether it and its child have ended. It is ignorant of who asks it.
"""

import asyncio
import os
import select
from pathlib import Path


class Hanging:
    """A program named git that tells its pid through a FIFO, starts a child, and never ends.

    Args:
        folder: Where it is made.

    Attributes:
        path: A search path on which it is found first.
    """

    def __init__(self, folder: Path) -> None:
        self.path = f"{folder}:/usr/bin:/bin"
        os.mkfifo(folder / "told")
        program = folder / "git"
        program.write_text(f"#!/bin/sh\nsleep 600 & echo $$ $! > {folder}/told\nwait\n", encoding="utf-8")
        program.chmod(0o755)
        self._told = os.open(folder / "told", os.O_RDWR)
        self._pids: list[int] = []

    async def begun(self) -> None:
        """Wait until it runs."""
        await asyncio.to_thread(self._read)

    def ended(self) -> bool:
        """Tell whether it and its child have ended, or do within some seconds."""
        if not self._pids and select.select([self._told], [], [], 0)[0]:
            self._read()  # else it was ended before it could tell
        return all(not Path(f"/proc/{pid}/cmdline").exists() or self._is_gone(pid) for pid in self._pids)

    def close(self) -> None:
        """Let the FIFO go."""
        os.close(self._told)

    def _read(self) -> None:
        self._pids = [int(word) for word in os.read(self._told, 100).split()]

    def _is_gone(self, pid: int) -> bool:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(watched)
            return bool(poll.poll(20_000))
        finally:
            os.close(watched)
