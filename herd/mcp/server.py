"""The MCP server on stdio once the process is loaded: requests to answers, cancellations, streams of changes.

Each call of a tool is a task. Evidence follows from order: a host that makes its next tool call has the
result of the one before, unless it took that one back first.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from herd.mcp import protocol
from herd.mcp.lines import BadLine, Lines, encoded, parsed
from herd.mcp.prompts import PROMPTS, prompt_text
from herd.mcp.protocol import ProtocolError
from herd.mcp.tools import TOOLS, Call, Tools

_READ_BYTES = 65_536

_log = logging.getLogger("herd.mcp")

RequestId = str | int


class Server:
    """One client on one pair of streams.

    Args:
        reader: Where its requests come from.
        writer: Where the answers go; the server closes it.
        tools: Carries out tool calls.
        modern: The era, where a request has decided it already.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tools: Tools, *, modern: bool | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._tools = tools
        self._modern = modern
        self._writing = asyncio.Lock()
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._unproved: dict[RequestId, Call] = {}
        self._streams: dict[RequestId, list[str]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self, left: bytes = b"") -> None:
        """Serve until the input ends.

        Args:
            left: What was read before and is to be looked at first.
        """
        lines = Lines()
        async with asyncio.TaskGroup() as self._tasks:
            data = left
            while True:
                for line in lines.feed(data):
                    await self._take(line)
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    break
            for task in self._running.values():
                task.cancel()
        for call in self._unproved.values():
            call.take_back()
        self._writer.close()

    async def changed(self, kind: str) -> None:
        """Tell a client that the list of `tools` or `prompts` has changed, as its era has it."""
        method = f"notifications/{kind}/list_changed"
        if not self._modern:
            await self._write({"jsonrpc": "2.0", "method": method})
            return
        for stream, kinds in list(self._streams.items()):
            if f"{kind}ListChanged" in kinds:
                params = {"_meta": {protocol.SUBSCRIPTION_KEY: stream}}
                await self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def _take(self, line: bytes | None) -> None:
        request_id: RequestId | None = None
        try:
            frame = parsed(line)
            if not isinstance(frame, dict) or frame.get("jsonrpc") != "2.0":
                raise ProtocolError(protocol.INVALID_REQUEST, "not a JSON-RPC 2.0 object")
            if "method" not in frame:
                return  # an answer to a request that this server never makes
            request_id = frame["id"] if protocol.is_id(frame.get("id")) else None
            await self._dispatch(frame, request_id)
        except BadLine as fault:
            await self._write(protocol.failure(None, ProtocolError(protocol.PARSE_ERROR, str(fault))))
        except ProtocolError as error:
            await self._write(protocol.failure(request_id, error))

    async def _dispatch(self, frame: dict[str, Any], request_id: RequestId | None) -> None:
        method, params = frame["method"], frame.get("params", {})
        if not isinstance(method, str) or not isinstance(params, dict):
            raise ProtocolError(protocol.INVALID_REQUEST, "method is a text and params an object")
        if request_id is None:
            if "id" in frame:
                raise ProtocolError(protocol.INVALID_REQUEST, "id is a text or an integer")
            if method == "notifications/cancelled":
                await self._cancel(params.get("requestId"))
            return
        if self._modern is None:
            self._modern = protocol.is_modern(method, params)
        if method == "initialize" and self._modern:
            raise protocol.unsupported(params.get("protocolVersion"))
        protocol.check_envelope(params, modern=self._modern)
        await self._answer(method, params, request_id)

    async def _answer(self, method: str, params: dict[str, Any], request_id: RequestId) -> None:
        if method == "tools/call":
            self._start(request_id, self._call(request_id, params))
        elif method == "subscriptions/listen" and self._modern:
            await self._listen(request_id, params)
        else:
            result = self._at_once(method, params)
            await self._succeed(request_id, method, result)

    def _at_once(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            return {"tools": TOOLS}
        if method == "prompts/list":
            return {"prompts": PROMPTS}
        if method == "prompts/get":
            return prompt_text(params)
        if self._modern and method == "server/discover":
            return protocol.discover_result()
        if not self._modern and method == "initialize":
            return protocol.initialize_result(params)
        if not self._modern and method == "ping":
            return {}
        raise ProtocolError(protocol.METHOD_NOT_FOUND, f"there is no method {method[:128]}")

    def _start(self, request_id: RequestId, work: Coroutine[Any, Any, None]) -> None:
        if request_id in self._running:
            work.close()
            raise ProtocolError(protocol.INVALID_REQUEST, "a request with this id is being answered")
        assert self._tasks is not None, "run() came first"
        task = self._running[request_id] = self._tasks.create_task(work)
        task.add_done_callback(lambda _: self._running.pop(request_id, None))

    async def _call(self, request_id: RequestId, params: dict[str, Any]) -> None:
        # The results answered before this call have reached the host, or it would have taken them back.
        earlier, self._unproved = self._unproved, {}
        call = Call(self._tools)
        try:
            for proved in earlier.values():
                await proved.proved()
            result = await call.run(params)
        except ProtocolError as error:
            await self._write(protocol.failure(request_id, error))
            return
        except asyncio.CancelledError:
            call.take_back()
            raise
        self._unproved[request_id] = call
        await self._succeed(request_id, "tools/call", result)

    async def _cancel(self, request_id: Any) -> None:
        if not protocol.is_id(request_id):
            return
        running = self._running.get(request_id)
        if running is not None:
            running.cancel()
        answered = self._unproved.pop(request_id, None)
        if answered is not None:
            answered.take_back()
        if self._streams.pop(request_id, None) is not None:
            meta = {"_meta": {protocol.SUBSCRIPTION_KEY: request_id}}
            await self._succeed(request_id, "subscriptions/listen", meta)

    async def _listen(self, request_id: RequestId, params: dict[str, Any]) -> None:
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise ProtocolError(protocol.INVALID_PARAMS, "notifications is an object")
        served = [kind for kind in ("toolsListChanged", "promptsListChanged") if wanted.get(kind) is True]
        self._streams[request_id] = served
        await self._write(
            {
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "notifications": dict.fromkeys(served, True),
                    "_meta": {protocol.SUBSCRIPTION_KEY: request_id},
                },
            }
        )

    async def _succeed(self, request_id: RequestId, method: str, result: dict[str, Any]) -> None:
        shaped = protocol.shaped(method, result, modern=bool(self._modern))
        await self._write(protocol.success(request_id, shaped))

    async def _write(self, frame: dict[str, Any]) -> None:
        async with self._writing:
            try:
                self._writer.write(encoded(frame))
                await self._writer.drain()
            except OSError:
                _log.warning("mcp.write.failed")  # the host is gone; its end of input follows
