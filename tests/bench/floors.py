"""Floors: the least that the machine needs for what Herd has to do, in bare code and in the same run.

Each is what remains when everything of ours is left out: the disk's own sync, one round trip between two
processes, reading the files themselves, an interpreter that starts and ends. It knows nothing of Herd.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.processes import cpu_until_now

MESSAGE_BYTES = 1_024
"""Bytes of one append and of the text in one frame."""

_ECHO = Path(__file__).with_name("echo.py")


class Appends:
    """Durable appends to one file that stays open.

    Args:
        folder: Where the file is made; on the file system that the mailboxes lie on.
    """

    def __init__(self, folder: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / "appends", flags, 0o600)

    def sample(self) -> float:
        """Append and sync; gives the seconds."""
        began = time.perf_counter()
        self.append()
        return time.perf_counter() - began

    def append(self) -> None:
        """Append one message and wait until the disk has it."""
        os.write(self._file, b"x" * MESSAGE_BYTES)
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Delivery:
    """What no accepted message can do without: two durable appends, and one JSON round trip in between.

    Args:
        folder: Where the files and the socket are made.
    """

    def __init__(self, folder: Path) -> None:
        self.appends = Appends(folder)
        path = str(folder / "echo.sock")
        self._echo = subprocess.Popen(
            [sys.executable, str(_ECHO), path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._echo.stdout is not None, "it was asked for"
        self._echo.stdout.readline()
        self._runner = asyncio.Runner()
        self._reader, self._writer = self._runner.run(_connected(path))

    def sample(self) -> float:
        """Deliver one message; gives the seconds."""
        return self._runner.run(self._deliver())

    def round_trip_sample(self) -> float:
        """Do the round trip alone; gives the seconds."""
        return self._runner.run(self._timed_round_trip())

    def waking_sample(self) -> float:
        """Do one append and three round trips, one after the other; gives the seconds."""
        return self._runner.run(self._wake())

    def cpu(self) -> float:
        """Give the CPU seconds that this process and the other one have used so far."""
        return time.process_time() + cpu_until_now(self._echo.pid)

    async def _deliver(self) -> float:
        began = time.perf_counter()
        self.appends.append()
        await self._round_trip()
        self.appends.append()
        return time.perf_counter() - began

    async def _wake(self) -> float:
        began = time.perf_counter()
        self.appends.append()
        for _ in range(3):
            await self._round_trip()
        return time.perf_counter() - began

    async def _timed_round_trip(self) -> float:
        began = time.perf_counter()
        await self._round_trip()
        return time.perf_counter() - began

    async def _round_trip(self) -> None:
        frame = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"text": "x" * MESSAGE_BYTES}}
        self._writer.write(json.dumps(frame).encode() + b"\n")
        await self._writer.drain()
        json.loads(await self._reader.readline())

    def close(self) -> None:
        """End the other process and close everything."""
        self._writer.close()
        self._runner.run(self._writer.wait_closed())
        self._runner.close()
        self._echo.communicate()
        self.appends.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _connected(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(path)


def parse_all(folder: str) -> None:
    """Read and parse every file of a folder, as barely as Python can."""
    with os.scandir(folder) as entries:
        for entry in entries:
            number = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                json.loads(os.read(number, 1 << 16))
            finally:
                os.close(number)


PASS = (sys.executable, "-c", "pass")
"""An interpreter of the same environment that starts and ends."""

_HOLDS = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("holds", flush=True)
    sys.stdin.read()
"""
_WAITS = """
import fcntl, sys
with open(sys.argv[1], "a") as file:
    print("waits", flush=True)
    fcntl.flock(file, fcntl.LOCK_SH)
    print("has it", flush=True)
"""
_BLOCKED_S = 0.02


def lock_left(path: str) -> float:
    """Kill a process that holds a lock; gives the seconds until one that waits for it has said so."""
    with _program(_HOLDS, path) as holder, _program(_WAITS, path) as waiter:
        time.sleep(_BLOCKED_S)
        began = time.perf_counter()
        holder.kill()
        assert waiter.stdout is not None, "it was asked for"
        waiter.stdout.readline()
        return time.perf_counter() - began


@contextmanager
def _program(source: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-c", source, *arguments]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None, "it was asked for"
            started.stdout.readline()
            yield started
        finally:
            started.kill()
