"""The MCP server on stdio once the process is loaded: lines to requests, requests to answers.

It owns reading, the era of the connection and writing. Tool calls and their evidence are `herd.mcp.calls`'
matter, what a tool does `herd.mcp.tools`'.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from herd.core.limits import DEFAULT_LIMITS, SETTLE_S
from herd.hosts.adapter import Companion
from herd.mcp import protocol
from herd.mcp.calls import Calls, RequestId
from herd.mcp.lines import BadLine, Lines, encoded, parsed
from herd.mcp.prompts import PROMPTS, prompt_text
from herd.mcp.protocol import ProtocolError
from herd.mcp.subscriptions import Subscriptions
from herd.mcp.tools import Tools

_READ_BYTES = 65_536


class Server:
    """One client on one pair of streams.

    Args:
        reader: Where its requests come from.
        writer: Where the answers go; the server closes it.
        tools: Carries out tool calls.
        modern: The era, where a request has decided it already.
        requests: Tool calls that may run at once, and streams that may be open.
        has_left: Tells whether the client has closed its end, read or not.
        companion: Brings the host's own evidence.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tools: Tools,
        *,
        modern: bool | None,
        requests: int = DEFAULT_LIMITS.pending_requests,
        companion: Companion | None = None,
        has_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._has_left = has_left
        self._reader = reader
        self._writer = writer
        self._modern = modern
        self._tools = tools
        self._calls = Calls(tools, self._answered, most=requests, companion=companion)
        self._subscriptions = Subscriptions(most=requests)

    async def run(self, left: bytes = b"") -> None:
        """Serve until the input ends.

        Args:
            left: What was read before and is to be looked at first.
        """
        lines = Lines()
        data = left
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    for line in lines.feed(data):
                        await self._take(line, group)
                    data = await self._more()
                    if not data:
                        break
                await self._calls.finish(SETTLE_S)
            await self._end_streams()
        finally:
            self._calls.give_back()
            self._writer.close()
        with suppress(OSError, TimeoutError):  # the host may be gone, or alive and reading nothing
            async with asyncio.timeout(SETTLE_S):
                await self._writer.wait_closed()

    async def changed(self, kind: str) -> None:
        """Tell a client that the list of `tools` or `prompts` has changed, as its era has it."""
        if self._modern is False:
            await self._write({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})
        for frame in self._subscriptions.changed(kind):
            await self._write(frame)

    async def _more(self) -> bytes:
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:
            return b""  # the host went while answers were being written to it

    async def _take(self, line: bytes | None, group: asyncio.TaskGroup) -> None:
        request_id: RequestId | None = None
        try:
            frame = parsed(line)
            if not isinstance(frame, dict):
                raise ProtocolError(protocol.INVALID_REQUEST, "not a JSON-RPC 2.0 object")
            if "method" not in frame:
                return  # an answer to a request that this server never makes
            request_id = frame["id"] if protocol.is_id(frame.get("id")) else None
            if request_id is not None and not self._is_new(request_id):
                request_id = None  # an error under this id would be taken for the other request's answer
                raise ProtocolError(protocol.INVALID_REQUEST, "a request with this id is being answered")
            await self._dispatch(frame, request_id, group)
        except BadLine as fault:
            await self._write(protocol.failure(None, ProtocolError(protocol.PARSE_ERROR, str(fault))))
        except ProtocolError as error:
            await self._write(protocol.failure(request_id, error))

    async def _dispatch(
        self, frame: dict[str, Any], request_id: RequestId | None, group: asyncio.TaskGroup
    ) -> None:
        method, params = frame["method"], frame.get("params", {})
        if frame.get("jsonrpc") != "2.0":
            raise ProtocolError(protocol.INVALID_REQUEST, "not a JSON-RPC 2.0 object")
        if not isinstance(method, str) or not isinstance(params, dict):
            raise ProtocolError(protocol.INVALID_REQUEST, "method is a text and params an object")
        if request_id is not None:
            self._settle_era(method, params)
            await self._answer(method, params, request_id, group)
        elif "id" in frame:
            raise ProtocolError(protocol.INVALID_REQUEST, "id is a text or an integer")
        elif method == "notifications/cancelled" and protocol.is_id(params.get("requestId")):
            self._calls.cancel(params["requestId"])
            self._subscriptions.close(params["requestId"])

    def _is_new(self, request_id: RequestId) -> bool:
        return not self._calls.runs(request_id) and not self._subscriptions.is_open(request_id)

    def _settle_era(self, method: str, params: dict[str, Any]) -> None:
        """Let the first request decide the era unless it is refused, and hold the later ones to it."""
        modern = protocol.is_modern(method, params) if self._modern is None else self._modern
        if method != "initialize":
            protocol.check_envelope(params, modern=modern)
        elif modern:
            raise protocol.unsupported(params.get("protocolVersion"))
        self._modern = modern

    async def _answer(
        self, method: str, params: dict[str, Any], request_id: RequestId, group: asyncio.TaskGroup
    ) -> None:
        if method == "tools/call":
            await self._calls.begin(request_id, params, group)
        elif method == "subscriptions/listen" and self._modern:
            await self._write(self._subscriptions.open(request_id, params))
        else:
            await self._succeed(request_id, method, self._at_once(method, params))

    def _at_once(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            return {"tools": self._tools.listed(params)}
        if method == "prompts/list":
            return {"prompts": PROMPTS if self._tools.offered() else []}
        if method == "prompts/get":
            return prompt_text(params)
        if self._modern and method == "server/discover":
            return protocol.discover_result()
        if not self._modern and method == "initialize":
            return protocol.initialize_result(params)
        if not self._modern and method == "ping":
            return {}
        raise ProtocolError(protocol.METHOD_NOT_FOUND, f"there is no method {method[:128]}")

    async def _answered(self, request_id: RequestId, outcome: dict[str, Any] | ProtocolError) -> None:
        if isinstance(outcome, ProtocolError):
            await self._write(protocol.failure(request_id, outcome))
        else:
            await self._succeed(request_id, "tools/call", outcome)

    async def _end_streams(self) -> None:
        for request_id in self._subscriptions.close_all():
            await self._succeed(request_id, "subscriptions/listen", self._subscriptions.mark(request_id))

    async def _succeed(self, request_id: RequestId, method: str, result: dict[str, Any]) -> None:
        shaped = protocol.shaped(method, result, modern=bool(self._modern))
        await self._write(protocol.success(request_id, shaped))

    async def _write(self, frame: dict[str, Any]) -> None:
        # Written whole before anything else can run; only the wait for room is a suspension.
        self._writer.write(encoded(frame))
        with suppress(OSError):  # the host is gone; its end of input follows
            await self._room()

    async def _room(self) -> None:
        """Wait until the host has read enough; not for one that has left without reading."""
        while True:
            try:
                async with asyncio.timeout(SETTLE_S):
                    return await self._writer.drain()
            except TimeoutError:
                # It may stand still and go on later. The end of its input, which stands behind what was not
                # read for want of room, would tell that it does not.
                if self._has_left():
                    self._writer.transport.abort()
