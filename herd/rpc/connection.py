"""One connection in both directions: requests and replies over a pair of streams.

It owns reading, the pairing of replies with our requests, and the orderly end. It is ignorant of methods, of
sockets and of who may call what: a handler decides, and whoever did the handshake notes in `principal` who
the other end proved to be.
"""

import asyncio
import itertools
from contextlib import suppress
from typing import Any

from herd.core.errors import DeliveryUnknown, FrameTooLarge, HerdError, InvalidRpc, QueueFull, from_wire
from herd.core.limits import DEFAULT_LIMITS, QUEUED_WRITES_FACTOR, RETRY_WHEN_FULL_MS, Limits
from herd.rpc import messages
from herd.rpc.answering import Answering, Bounds, Handler
from herd.rpc.frames import FrameDecoder, encode
from herd.rpc.messages import Failure, Message, Notification, Request, RpcId, Success
from herd.rpc.outgoing import OutgoingFrames
from herd.rpc.streams import PromptReader

__all__ = ["Connection", "Handler"]

_READ_BYTES = 65_536
"""Bytes taken from the stream at once."""


class Connection:
    """One connection; `run` must run for as long as it is used.

    Requests of the other side are begun in the order of their arrival, each in a task of its own, so that a
    slow one delays no reply to ours. Ours are answered, refused or of unknown outcome; none waits forever.

    Args:
        reader: Where the other side's frames come from.
        writer: Where ours go; the connection closes it.
        handler: Answers the other side.
        limits: The bounds in force.
        frame_bytes: Bytes of one frame without its newline, both directions, where they differ from `limits`.

    Attributes:
        principal: Who the other end proved to be, None until it did.
        fault: What was wrong with the frame that ended it, None where none was.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: Handler,
        *,
        limits: Limits = DEFAULT_LIMITS,
        frame_bytes: int | None = None,
    ) -> None:
        self.principal: Any = None
        self.fault: HerdError | None = None
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._sent_bytes = frame_bytes or limits.sent_frame_bytes
        self._patience_s = limits.acknowledgement_ms / 1_000
        self._decoder = FrameDecoder(frame_bytes or limits.frame_bytes)
        self._outgoing = OutgoingFrames(writer, QUEUED_WRITES_FACTOR * limits.pending_requests, self._end)
        bounds = Bounds(limits.pending_requests, self._sent_bytes, self._patience_s)
        self._answering = Answering(self, handler, self._outgoing, bounds, cut_off=self._end)
        self._ids = itertools.count(1)
        self._pending: dict[RpcId, asyncio.Future[Success | Failure | None]] = {}
        self._loop = asyncio.get_running_loop()
        self._last_came = self._loop.time()
        self._reading: asyncio.Task[None] | None = None
        self._waits_for_data = False
        self._found: HerdError | None = None
        self._ending = asyncio.Event()
        self._closed = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether the connection has ended or is ending, so that no request can be made on it."""
        return self._ending.is_set()

    @property
    def idle(self) -> bool:
        """Whether nothing is in progress in either direction."""
        return not (self._pending or self._answering or self._outgoing.waiting)

    @property
    def last_used(self) -> float:
        """When the last message came or was sent, in seconds on the event loop's clock."""
        return max(self._last_came, self._outgoing.last_queued)

    async def run(self) -> None:
        """Serve until either side ends it; the streams are closed then and every request of ours is settled.

        When the other side has ended, or sent a bad frame, what it asked before gets `acknowledgement_ms` to
        be answered: a side that only finished sending still reads.
        """
        if self._closed.is_set():
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._outgoing.write())
                self._reading = tasks.create_task(self._read(tasks))
                try:
                    await self._ending.wait()
                finally:
                    # Where this is cancelled, what comes now must not be begun among tasks that are ended.
                    self._end()
                await self._answering.end()
                await self._take_leave(self._reading)
                self._reading.cancel()
                writing.cancel()
        finally:
            await self._hang_up()

    async def request(
        self, method: str, params: dict[str, Any], *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """Ask the other side and give its result.

        Args:
            method: 1 to 128 characters.
            params: JSON values.
            timeout_ms: Milliseconds until it counts as unanswered; `acknowledgement_ms` where None.

        Raises:
            DeliveryUnknown: it was not answered in time, or the connection ended; it may have been done.
            QueueFull: too many requests or frames wait already; nothing was sent.
            FrameTooLarge: it does not fit into a frame; nothing was sent.
            HerdError: the other side's refusal, as its own class.
        """
        if len(self._pending) >= self._limits.pending_requests:
            text = f"{len(self._pending)} requests wait already for the other side"
            raise QueueFull(text, retry_after_ms=RETRY_WHEN_FULL_MS)
        request_id = next(self._ids)
        self._send(messages.request(request_id, method, params))
        answer = self._pending[request_id] = self._loop.create_future()
        bound_ms = self._limits.acknowledgement_ms if timeout_ms is None else timeout_ms
        # A timer that settles the answer, as the end of the connection does: `asyncio.timeout` would cancel
        # the caller, at three times the cost.
        bound = self._loop.call_later(bound_ms / 1_000, _expire, answer)
        try:
            return _result(method, await answer)
        except TimeoutError:
            raise DeliveryUnknown(f"{method} was not answered within {bound_ms} ms") from None
        finally:
            bound.cancel()
            del self._pending[request_id]

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Tell the other side what it owes no answer to; fails as `request` does before it sends."""
        self._send(messages.notification(method, params))

    async def tell(self, method: str, params: dict[str, Any]) -> None:
        """Notify as `notify` does, and wait for room where the other side has not read what was sent before.

        Raises:
            DeliveryUnknown: the connection has ended.
            FrameTooLarge: it does not fit into a frame.
        """
        try:
            self._send(messages.notification(method, params))
        except QueueFull:
            await self._put(encode(messages.notification(method, params), self._sent_bytes))

    async def _put(self, frame: bytes) -> None:
        putting = asyncio.ensure_future(self._outgoing.put(frame))
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait({putting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not putting.done():
                raise DeliveryUnknown("the connection has ended")
            putting.result()
        finally:
            putting.cancel()
            ending.cancel()

    def finish(self) -> None:
        """End the connection once the requests that have begun are answered; nothing more is listened to.

        A handler calls it before it refuses a caller that must not go on: the refusal still leaves.
        """
        self._answering.deaf = True
        self._end()

    def shut_out(self) -> None:
        """End the connection of somebody who took too long; a frame left unfinished is told as at the end."""
        self._tell(self._decoder.end())
        self.finish()

    async def close(self) -> None:
        """End the connection now, and wait until it has ended.

        What is queued is written, for `acknowledgement_ms` at most. Requests of the other side that are still
        being answered are cancelled; a handler that calls this is one of them.
        """
        self.finish()
        self._answering.cancel()
        if self._reading is None:
            await self._hang_up()
        else:
            self._reading.cancel()
        await self.wait_closed()

    async def ending(self) -> None:
        """Wait until the connection ends or begins to: the other side has finished sending, or is cut off."""
        await self._ending.wait()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and its streams are closed."""
        await self._closed.wait()

    def _send(self, frame: dict[str, Any]) -> None:
        if self._ending.is_set():
            raise DeliveryUnknown("the connection has ended")
        self._outgoing.offer(encode(frame, self._sent_bytes))

    async def _read(self, tasks: asyncio.TaskGroup) -> None:
        with suppress(OSError):  # the other side is gone: there is nobody to tell
            self.fault = await self._take_frames(tasks)
        self._tell(self.fault)
        self._end()
        with suppress(OSError):
            while await self._reader.read(_READ_BYTES):
                pass  # unread: see `_take_leave`

    def _tell(self, fault: HerdError | None) -> None:
        """Send the one last error about a frame; not while it ends, when our side may be closed already."""
        if fault is not None and not self._ending.is_set():
            with suppress(QueueFull, FrameTooLarge):
                self._outgoing.offer(encode(messages.failure(None, fault), self._sent_bytes))

    async def _take_frames(self, tasks: asyncio.TaskGroup) -> HerdError | None:
        """Take frames until the stream ends or one is bad, and give what is wrong with it."""
        if isinstance(self._reader, PromptReader):
            self._reader.taker = lambda data: self._takes_at_once(data, tasks)
        while self._decoder.fault is None:
            self._waits_for_data = True
            data = await self._reader.read(_READ_BYTES)
            self._waits_for_data = False
            if not data or self._found is not None:
                break
            for frame in self._decoder.feed(data):
                if self._ending.is_set():
                    return None
                try:
                    message = messages.parse(frame)
                except InvalidRpc as fault:
                    return fault
                if isinstance(message, Request) and not self._answering.room:
                    await self._answering.refuse(message)
                else:
                    self._take(message, tasks)
        return self._found or self._decoder.end()

    def _takes_at_once(self, data: bytes, tasks: asyncio.TaskGroup) -> bool:
        """Take what has just come, if nothing before it waits and there is room for every request in it.

        A bad frame is left to the reading task, which ends the connection; what came before it is taken.
        """
        if not self._waits_for_data or self._ending.is_set() or data.count(b"\n") > self._answering.room:
            self._waits_for_data = False  # from here on everything goes through the reader, until it is empty
            return False
        try:
            for frame in self._decoder.feed(data):
                self._take(messages.parse(frame), tasks)
        except InvalidRpc as fault:
            self._found = fault
        self._found = self._found or self._decoder.fault
        self._waits_for_data = self._found is None
        return self._waits_for_data

    def _take(self, message: Message, tasks: asyncio.TaskGroup) -> None:
        self._last_came = self._loop.time()
        match message:
            case Request():
                self._answering.begin(message, tasks)
            case Notification():
                self._answering.take(message)
            case Success() | Failure():
                answer = self._pending.get(message.id)
                if answer is not None and not answer.done():
                    answer.set_result(message)

    def _end(self) -> None:
        self._ending.set()
        for answer in self._pending.values():
            if not answer.done():
                answer.set_result(None)

    async def _take_leave(self, reading: asyncio.Task[None]) -> None:
        """Write what is queued, and give the other side time to read it; both are bounded."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._outgoing.flushed()
        if not self._outgoing.waiting and self._writer.can_write_eof():
            # Closing a socket with bytes unread breaks the other side's write, and with it goes the refusal
            # that it has not read yet. So it is told the end first, and may finish what it is sending.
            with suppress(OSError):
                self._writer.write_eof()
            await asyncio.wait([reading], timeout=self._patience_s)

    async def _hang_up(self) -> None:
        self._end()
        if self._outgoing.waiting:
            self._writer.transport.abort()  # close() would wait for a side that does not read
        self._writer.close()
        try:
            with suppress(OSError):
                await self._writer.wait_closed()
        finally:
            self._closed.set()


def _expire(answer: "asyncio.Future[Success | Failure | None]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _result(method: str, answer: Success | Failure | None) -> dict[str, Any]:
    match answer:
        case None:
            raise DeliveryUnknown(f"the connection ended before {method} was answered")
        case Failure():
            raise from_wire(answer.error)
        case Success() if isinstance(answer.result, dict):
            return answer.result
    raise InvalidRpc(f"{method} was answered with no object")
