"""A client of an MCP server that runs in the test's own process, over a pair of sockets.

It owns the pair and the order of what comes; what is said is `mcp_frames`' matter.
"""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from herd.mcp.server import Server
from herd.mcp.tools import TOOLS, Tools
from tests.fakes import mcp_frames
from tests.fakes.herd_session import WAIT_S
from tests.fakes.mcp_frames import HANDSHAKE, Era

SCHEMAS = {tool["name"]: tool["outputSchema"] for tool in TOOLS}


class McpStreams:
    """One client; `served` makes it together with its server.

    Attributes:
        server: The other end.
        others: Frames that answer no request, in their order.
    """

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, era: Era
    ) -> None:
        self.server = server
        self.others: list[dict[str, Any]] = []
        self._reader = reader
        self._writer = writer
        self._era = era
        self._last_id = 0
        self._answers: dict[str | int, dict[str, Any]] = {}

    async def open(self) -> Self:
        """Open the connection as the era has it."""
        await self.request(*mcp_frames.opening(self._era))
        if not self._era.modern:
            self.send(mcp_frames.notification("notifications/initialized"))
        return self

    def begin_call(self, tool: str, /, *, request_id: str | int | None = None, **arguments: Any) -> str | int:
        """Call a tool, and give the id for which `content` waits; `from_` is sent as `from`."""
        named = {name.rstrip("_"): value for name, value in arguments.items()}
        return self.begin("tools/call", {"name": tool, "arguments": named}, request_id=request_id)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and give its structured content, which fits its schema and its text.

        Raises:
            Refused: a tool error.
        """
        return await self.content(self.begin_call(tool, **arguments), tool)

    async def content(self, request_id: str | int, tool: str) -> dict[str, Any]:
        """Give the structured content of a call that was begun; see `call`."""
        return mcp_frames.content_of(await self.result(request_id), SCHEMAS[tool])

    async def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask and give the result.

        Raises:
            McpError: a JSON-RPC error.
        """
        return await self.result(self.begin(method, params))

    def begin(
        self, method: str, params: dict[str, Any] | None = None, *, request_id: str | int | None = None
    ) -> str | int:
        """Ask, and give the id for which `result` waits."""
        self._last_id += 1
        chosen = self._last_id if request_id is None else request_id
        self.send(mcp_frames.request(chosen, method, params, era=self._era))
        return chosen

    def cancel(self, request_id: str | int) -> None:
        """Take a request back."""
        self.send(mcp_frames.notification(mcp_frames.CANCELLED, requestId=request_id))

    def send(self, *frames: Any) -> None:
        """Write JSON values as lines, all at once."""
        self.write(b"".join(map(mcp_frames.line, frames)))

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(data)

    async def result(self, request_id: str | int) -> dict[str, Any]:
        """Give the result of a request that was begun; see `request`."""
        while request_id not in self._answers:
            frame = await self.frame()
            if frame.get("id") is None or "method" in frame:
                self.others.append(frame)
            else:
                self._answers[frame["id"]] = frame
        return mcp_frames.result_of(self._answers.pop(request_id), self._era)

    def has_answer(self, request_id: str | int) -> bool:
        """Tell whether an answer was read already; it waits for nothing."""
        return request_id in self._answers

    async def frame(self) -> dict[str, Any]:
        """Give the next frame, whatever it is.

        Raises:
            EOFError: the server has ended.
        """
        async with asyncio.timeout(WAIT_S):
            line = await self._reader.readline()
        if not line:
            raise EOFError
        parsed: dict[str, Any] = json.loads(line.decode("utf-8"))
        return parsed

    async def answered_so_far(self) -> None:
        """Wait until the server has looked at everything that was sent, and keep what it said."""
        await self.request("prompts/list")

    async def end(self) -> list[dict[str, Any]]:
        """End the input, and give the frames that still come."""
        self._writer.write_eof()
        frames = []
        try:
            while True:
                frames.append(await self.frame())
        except EOFError:
            return frames

    def close(self) -> None:
        """Drop the connection."""
        self._writer.close()


@asynccontextmanager
async def served(
    tools: Tools, *, era: Era = HANDSHAKE, requests: int = 32, left: bytes = b""
) -> AsyncIterator[McpStreams]:
    """Serve one client until the block ends.

    Args:
        tools: What the server offers.
        era: How the client speaks.
        requests: See `Server`.
        left: See `Server.run`.
    """
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs, limit=1 << 24)
    server = Server(*await asyncio.open_connection(sock=ours), tools, modern=None, requests=requests)
    async with asyncio.timeout(2 * WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(server.run(left))
        client = McpStreams(server, reader, writer, era)
        try:
            yield client
        finally:
            client.close()
