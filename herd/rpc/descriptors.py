"""A transport over two blocking descriptors, each waited on by a thread.

It owns the descriptors, the two threads and the backpressure between them and the event loop. asyncio's own
pipe transports refuse regular files, and make what they take non-blocking for every process that shares it.
"""

import asyncio
import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_READ_BYTES = 65_536
"""Bytes read at once; one such piece is under way at a time."""

_HIGH_WATER_BYTES = 65_536
"""Bytes waiting to be written beyond which a writer that drains waits, unless set otherwise."""


SOURCE = "source"
"""The extra information of the transport that is the descriptor it reads."""


def hung_up(source: int) -> bool:
    """Tell whether whoever writes to a descriptor has closed it, whether or not everything was read."""
    poll = select.poll()
    poll.register(source, 0)  # what is reported without being asked for: a hang-up, an error, a closed one
    return bool(poll.poll(0))


class DescriptorTransport(asyncio.Transport):
    """Reads one descriptor and writes another; closes both.

    What the threads share with the event loop: `_may_read` and `_to_write`, which are made for it, and the
    flags `_closing` and `_dropping`, which only the loop sets and only ever to True. All else belongs to the
    loop; the threads reach it through `_tell` alone.

    The threads are daemons. One that waits for a terminal or a pipe cannot be woken, and must not keep the
    process alive; it closes its descriptor when it wakes.

    Args:
        loop: The running event loop.
        protocol: Fed with what is read.
        source: Descriptor to read, owned by the transport from now on.
        sink: Descriptor to write, owned by the transport from now on.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: asyncio.StreamReaderProtocol, source: int, sink: int
    ) -> None:
        super().__init__(extra={SOURCE: source})
        self._loop = loop
        self._protocol = protocol
        self._source = source
        self._sink = sink
        self._may_read = threading.Event()
        self._to_write: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._paused = False
        self._closing = False
        self._dropping = False
        self._lost = False
        self._unwritten = 0
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4
        self._held_up = False
        protocol.connection_made(self)
        self._may_read.set()
        for name, work in (("read", self._read_all), ("write", self._write_all)):
            threading.Thread(target=work, name=f"herd-stdio-{name}", daemon=True).start()

    def is_reading(self) -> bool:
        """Whether more is read."""
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        """Read nothing after the piece being handed over."""
        self._paused = True
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Read on."""
        self._paused = False
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many waiting bytes hold a writer up, and how many let it go on."""
        self._high = _HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Give the bytes that have not been written."""
        return self._unwritten

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have bytes written after those before them; after `close` they are dropped."""
        if self._closing or not data:
            return
        self._to_write.put(bytes(data))
        self._unwritten += len(data)
        if self._unwritten > self._high and not self._held_up:
            self._held_up = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Whether one direction can be ended alone: no."""
        return False

    def is_closing(self) -> bool:
        """Whether it has ended or is ending."""
        return self._closing

    def close(self) -> None:
        """Stop reading, write what waits, then close."""
        if not self._closing:
            self._closing = True
            self._may_read.set()
            self._to_write.put(None)

    def abort(self) -> None:
        """Close without writing what waits."""
        self._dropping = True
        self.close()
        self._loop.call_soon(self._lose, None)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Give the protocol that is fed."""
        return self._protocol

    def _received(self, data: bytes) -> None:
        if self._closing:
            return
        if not data:
            self._protocol.eof_received()
            return
        self._protocol.data_received(data)
        if not self._paused:
            self._may_read.set()

    def _wrote(self, size: int) -> None:
        self._unwritten -= size
        if self._held_up and self._unwritten <= self._low:
            self._held_up = False
            self._protocol.resume_writing()

    def _lose(self, error: OSError | None) -> None:
        self._closing = True
        self._may_read.set()
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)

    def _tell(self, function: Callable[..., None], *args: Any) -> None:
        # Raised when the loop was closed meanwhile: nobody is left to be told.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _read_all(self) -> None:
        data = b"-"
        while data and self._may_read.wait() and not self._closing:
            data = _read_some(self._source)
            # Cleared here and set by the loop, so that a slow loop has one piece waiting and never two.
            self._may_read.clear()
            self._tell(self._received, data)
        os.close(self._source)

    def _write_all(self) -> None:
        error = None
        try:
            while (data := self._to_write.get()) is not None and not self._dropping:
                _write_whole(self._sink, data)
                self._tell(self._wrote, len(data))
        except OSError as broken:
            error = broken
        os.close(self._sink)
        self._tell(self._lose, error)


def _read_some(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            _wait(descriptor, select.POLLIN)  # whoever shares it made it non-blocking
        except OSError:
            return b""  # a terminal that is gone


def _write_whole(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            _wait(descriptor, select.POLLOUT)


def _wait(descriptor: int, event: int) -> None:
    waiting = select.poll()
    waiting.register(descriptor, event)
    waiting.poll()
