"""The tool calls of one connection: begun, cancelled, answered, and what the next one proves about them.

Evidence follows from the order in which frames come: a host that makes its next call has the result of the
one before, unless it took that one back first. This module owns that order; it is ignorant of what a tool
does and of how a frame is written.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from herd.core.errors import QueueFull
from herd.core.limits import RETRY_WHEN_FULL_MS
from herd.hosts.adapter import Companion
from herd.mcp.protocol import ProtocolError
from herd.mcp.tools import Call, Tools, refusal_result

_log = logging.getLogger("herd.mcp")

RequestId = str | int

Answer = Callable[[RequestId, dict[str, Any] | ProtocolError], Awaitable[None]]
"""Writes a result or an error before its first suspension, and then waits for room."""


_BY_HOST = "the host took the call back"


class Calls:
    """What runs and what has been answered without evidence yet.

    `_running` holds a call from `begin` to the end of its task or its cancellation. `_unproved` gets it at
    the instant at which its answer is written, and loses it to the next call, to its own cancellation, or to
    the end. Where the host's own evidence settles a call, the next one leaves it where it is.

    Args:
        tools: Carries the calls out.
        answer: Answers one.
        most: Calls that may run at once.
        companion: Brings the host's own evidence; None where its calls are all there is.
    """

    def __init__(
        self, tools: Tools, answer: Answer, *, most: int, companion: Companion | None = None
    ) -> None:
        self._companion = companion
        self._tools = tools
        self._answer = answer
        self._most = most
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._waiting: set[RequestId] = set()
        self._unproved: dict[RequestId, Call] = {}

    async def begin(self, request_id: RequestId, params: dict[str, Any], group: asyncio.TaskGroup) -> None:
        """Begin a call whose id no running one has; what was answered before it came is proved by it."""
        # Now and not in the task: what comes behind this call, or is answered meanwhile, changes nothing.
        earlier = self._take_proved()
        proving = group.create_task(_prove(earlier)) if earlier else None
        if len(self._running) >= self._most:
            text = f"{self._most} of this session's tool calls are running already"
            refusal = QueueFull(text, retry_after_ms=RETRY_WHEN_FULL_MS)
            await self._answer(request_id, refusal_result(refusal))
            return
        task = self._running[request_id] = group.create_task(self._run(request_id, params, proving))
        if _only_waits(params):
            self._waiting.add(request_id)
        task.add_done_callback(lambda ended: self._ended(request_id, ended))

    def runs(self, request_id: RequestId) -> bool:
        """Tell whether a call with this id is running."""
        return request_id in self._running

    def cancel(self, request_id: RequestId) -> None:
        """Take a call back, running or answered: the host does not have what it carried."""
        running = self._running.pop(request_id, None)
        self._waiting.discard(request_id)
        if running is not None:
            running.cancel(_BY_HOST)  # its id and its place are free at once
        answered = self._unproved.pop(request_id, None)
        if answered is not None:
            answered.take_back(excused=True)

    async def finish(self, patience_s: float) -> None:
        """Let what runs come to its end; whatever only waits for mail, or takes longer, is cancelled.

        Args:
            patience_s: Seconds that it is given.
        """
        for request_id, task in self._running.items():
            if request_id in self._waiting:
                task.cancel()
        if self._running:
            await asyncio.wait(self._running.values(), timeout=patience_s)
        for task in self._running.values():
            task.cancel()

    def give_back(self) -> None:
        """Give back what was answered and never proved, once the connection has ended."""
        for call in self._unproved.values():
            call.take_back()
        self._unproved.clear()

    def _take_proved(self) -> list[Call]:
        """Take out what the call that has just come proves, and keep what it does not."""
        left = {key: call for key, call in self._unproved.items() if not call.settled}
        companion = self._companion
        kept = {} if companion is None else {k: call for k, call in left.items() if companion.proves(call)}
        self._unproved = kept
        return [call for key, call in left.items() if key not in kept]

    def _ended(self, request_id: RequestId, task: "asyncio.Task[None]") -> None:
        if self._running.get(request_id) is task:
            del self._running[request_id]
            self._waiting.discard(request_id)

    async def _run(
        self, request_id: RequestId, params: dict[str, Any], proving: "asyncio.Task[None] | None"
    ) -> None:
        call = Call(self._tools)
        outcome: dict[str, Any] | ProtocolError
        try:
            if proving is not None:
                await asyncio.shield(proving)  # a cancellation of this call takes no evidence of others away
            outcome = await call.run(params)
        except ProtocolError as error:
            outcome = error
        except asyncio.CancelledError as stopped:
            call.take_back(excused=_BY_HOST in stopped.args)
            raise
        self._unproved[request_id] = call
        if self._companion is not None and call.holds:
            self._companion.answered(call.named(params), call)
        await self._answer(request_id, outcome)


def _only_waits(params: dict[str, Any]) -> bool:
    arguments = params.get("arguments")
    return isinstance(arguments, dict) and bool(arguments.get("wait_ms"))


async def _prove(calls: list[Call]) -> None:
    for call in calls:
        try:
            await call.proved()
        except Exception:  # noqa: BLE001 - no fault of one call ends the others
            # The host has it and we cannot write that down: better given again than held by nobody.
            _log.exception("mcp.evidence.failed")
            call.take_back()
