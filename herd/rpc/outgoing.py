"""The frames that wait to be written on one connection: bounded, in order, one writer.

It owns the queue and its writer, and is ignorant of what a frame holds. A peer that stops reading costs the
frames of this queue and nothing more, since they stay in it until they have left the process, and what waits
behind them is not handed on before.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import islice

from herd.core.errors import QueueFull
from herd.core.limits import RETRY_WHEN_FULL_MS

_TOGETHER_BYTES = 65_536
"""Bytes of waiting frames that are handed to the transport at once, at most, unless one alone is larger."""


class OutgoingFrames:
    """The writing side of a connection.

    Args:
        writer: Where the frames go; nobody else writes to it.
        size: Frames that may wait, the one being written among them.
        lost: Called once, when a write has failed; frames are thrown away from then on.

    A frame that finds nothing before it is handed to the transport at once, and has nearly always left then.
    The writer's task, which costs two turns of the event loop, is for what has not.

    Attributes:
        last_queued: When a frame was last queued, in seconds on the event loop's clock.
    """

    def __init__(self, writer: asyncio.StreamWriter, size: int, lost: Callable[[], None]) -> None:
        self._writer = writer
        self._size = size
        self._tell_lost = lost
        self._lost = False
        self._writing = False
        self._begun = False
        self._frames: deque[bytes] = deque()
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._loop = asyncio.get_running_loop()
        self.last_queued = self._loop.time()
        # At a high-water mark of 0 `drain` returns when the kernel has everything. Otherwise asyncio keeps
        # another 64 KiB of frames, uncounted.
        writer.transport.set_write_buffer_limits(high=0)

    @property
    def waiting(self) -> int:
        """Frames that have not left the process."""
        return len(self._frames)

    def offer(self, frame: bytes) -> None:
        """Queue a frame if there is room.

        Raises:
            QueueFull: there is none; nothing was queued.
        """
        if len(self._frames) >= self._size:
            text = f"{self._size} frames wait already for the other side to read"
            raise QueueFull(text, retry_after_ms=RETRY_WHEN_FULL_MS)
        self.last_queued = self._loop.time()
        if self._writing and not self._frames and not self._lost:
            self._writer.write(frame)
            if self._has_left():
                return
            self._begun = True
        self._frames.append(frame)
        self._filled.set()
        self._empty.clear()

    async def put(self, frame: bytes) -> None:
        """Queue a frame, waiting for room."""
        while len(self._frames) >= self._size:
            self._room.clear()
            await self._room.wait()
        self.offer(frame)

    async def flushed(self) -> None:
        """Wait until every frame has left the process, or the connection is lost."""
        await self._empty.wait()

    async def write(self) -> None:
        """Write frames in the order in which they were queued, until cancelled."""
        self._writing = True
        while True:
            while not self._frames:
                self._filled.clear()
                await self._filled.wait()
            count = self._together()
            await self._write_first(count)
            for _ in range(count):
                self._frames.popleft()
            self._room.set()
            if not self._frames:
                self._empty.set()

    def _has_left(self) -> bool:
        transport = self._writer.transport
        return not (transport.is_closing() or transport.get_write_buffer_size())

    def _together(self) -> int:
        """Count the frames at the front that are written at once: none of them is larger for it."""
        if self._begun:
            return 1
        size = 0
        for count, frame in enumerate(self._frames):
            size += len(frame)
            if size > _TOGETHER_BYTES:
                return max(count, 1)
        return len(self._frames)

    async def _write_first(self, count: int) -> None:
        begun, self._begun = self._begun, False
        if self._lost:
            return
        try:
            if not begun:
                self._writer.write(b"".join(islice(self._frames, count)))
            await self._writer.drain()
        except OSError:
            self._lost = True
            self._tell_lost()
