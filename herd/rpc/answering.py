"""The answering side of one connection: what the other side asks, each request in a task of its own.

It owns their number, their order and what a refusal or a fault looks like on the wire; here alone an
exception becomes a reply. It is ignorant of methods, of reading and of our own requests.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from herd.core.errors import FrameTooLarge, HerdError, InvalidRpc, QueueFull
from herd.core.limits import RETRY_WHEN_FULL_MS
from herd.core.refusals import refusal_of
from herd.rpc import messages
from herd.rpc.frames import encode
from herd.rpc.messages import Notification, Request

if TYPE_CHECKING:
    from herd.rpc.connection import Connection
    from herd.rpc.outgoing import OutgoingFrames

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """What answers the other side."""

    async def request(self, connection: "Connection", method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request, in a task of its own.

        Raises:
            HerdError: a refusal, which the caller is told.
            OSError: what the disk or the kernel refused of a file; the caller is told the refusal that it is.
            Exception: any other is logged under an id, and the caller is told that id alone.
        """

    def notification(self, connection: "Connection", method: str, params: dict[str, Any]) -> None:
        """Take a notification; the other side learns nothing of what becomes of it."""

    async def unsent(
        self, connection: "Connection", method: str, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        """Take back what a request gave: its result fits into no frame, so the caller never has it."""


class Bounds(NamedTuple):
    """What the other side may cost."""

    requests: int
    """Requests answered at once."""
    frame_bytes: int
    """Bytes of one reply without its newline."""
    patience_s: float
    """Seconds that the other side has to make room for a refusal, or that requests have to end."""


class Answering:
    """Begins requests in the order of their arrival, answers them, and ends.

    Args:
        connection: What the handler is told it was asked on.
        handler: Who answers.
        outgoing: Where replies go.
        bounds: What the other side may cost.
        cut_off: Called when the other side can be told nothing more.

    Attributes:
        deaf: Whether what has not begun yet is left out.
    """

    def __init__(
        self,
        connection: "Connection",
        handler: Handler,
        outgoing: "OutgoingFrames",
        bounds: Bounds,
        *,
        cut_off: Callable[[], None],
    ) -> None:
        self.deaf = False
        self._connection = connection
        self._handler = handler
        self._outgoing = outgoing
        self._bounds = bounds
        self._cut_off = cut_off
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def room(self) -> int:
        """How many requests more may be begun now."""
        return self._bounds.requests - len(self._tasks)

    def begin(self, request: Request, tasks: asyncio.TaskGroup) -> None:
        """Begin a request for which there is room."""
        task = tasks.create_task(self._answer(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def refuse(self, request: Request) -> None:
        """Refuse a request for which there is no room."""
        text = f"{self._bounds.requests} of your requests are being answered already"
        refusal = QueueFull(text, retry_after_ms=RETRY_WHEN_FULL_MS)
        try:
            # Nothing is read meanwhile: who asks this much and reads no answers is slowed down, then cut off.
            async with asyncio.timeout(self._bounds.patience_s):
                await self._reply(request, refusal)
        except TimeoutError:
            self._cut_off()

    def take(self, notification: Notification) -> None:
        """Hand a notification on, once the requests that arrived before it have begun."""
        # A new task begins by the same queue of the event loop, so neither overtakes the other.
        asyncio.get_running_loop().call_soon(self._take, notification)

    def cancel(self) -> None:
        """Cancel every request that is being answered."""
        for task in self._tasks:
            task.cancel()

    async def end(self) -> None:
        """Wait until every request has ended; those that have not in time are cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._bounds.patience_s)
        self.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _take(self, notification: Notification) -> None:
        if self.deaf:
            return
        try:
            self._handler.notification(self._connection, notification.method, notification.params)
        except Exception:  # noqa: BLE001 - a notification is owed no answer, and must end nothing
            _log.exception("rpc.notification.failed method=%r", notification.method)

    async def _answer(self, request: Request) -> None:
        if self.deaf:
            return
        outcome = await self._outcome(request)
        if isinstance(outcome, HerdError):
            await self._reply(request, outcome)
            return
        try:
            frame = encode(messages.success(request.id, outcome), self._bounds.frame_bytes)
        except HerdError as fault:
            refusal = fault if isinstance(fault, FrameTooLarge) else _fault(request)
            # Before the refusal leaves: whoever asks again after it finds what was taken back.
            await self._take_back(request, outcome)
            await self._reply(request, refusal)
        else:
            await self._outgoing.put(frame)

    async def _take_back(self, request: Request, result: dict[str, Any]) -> None:
        try:
            await self._handler.unsent(self._connection, request.method, request.params, result)
        except Exception:  # noqa: BLE001 - the caller is owed its refusal all the same
            _log.exception("rpc.request.not_taken_back method=%r", request.method)

    async def _outcome(self, request: Request) -> dict[str, Any] | HerdError:
        try:
            return await self._handler.request(self._connection, request.method, request.params)
        except HerdError as refusal:
            return refusal
        except OSError as fault:
            return _told(request, fault) or _fault(request)
        except asyncio.CancelledError:
            # Passed on if this task was cancelled. Otherwise something that the handler waited for was, and
            # the caller is owed an answer.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return _fault(request)
        except Exception:  # noqa: BLE001 - `_fault` logs it, and the wire does not tell it
            return _fault(request)

    async def _reply(self, request: Request, refusal: HerdError) -> None:
        try:
            frame = self._encoded(request, refusal)
        except FrameTooLarge:
            self._cut_off()  # not even a refusal fits, so `frame_bytes` is tiny
            return
        await self._outgoing.put(frame)

    def _encoded(self, request: Request, refusal: HerdError) -> bytes:
        try:
            return encode(messages.failure(request.id, refusal), self._bounds.frame_bytes)
        except HerdError:
            bare = type(refusal)("the reason does not fit into a frame")
            return encode(messages.failure(request.id, bare), self._bounds.frame_bytes)


def _told(request: Request, fault: OSError) -> HerdError | None:
    """Give what the disk or the kernel refused, which is no fault of ours; None where it tells of no file."""
    refusal = refusal_of(fault)
    if refusal is not None:
        _log.warning("rpc.request.refused method=%r reason=%s", request.method, refusal.message)
    return refusal


def _fault(request: Request) -> InvalidRpc:
    """Log the exception being handled, and give what the caller is told of it."""
    fault = secrets.token_hex(4)
    _log.exception("rpc.request.failed fault=%s method=%r", fault, request.method)
    return InvalidRpc(f"internal fault {fault}")
