"""A Herdr that answers from memory, over a real Unix socket and in Herdr's own shapes.

It owns the wire: one request a connection, one line back, then the end. No real Herdr was there to compare it
with; an independent client checks its shapes in our tests.
"""

import asyncio
import json
import os
from contextlib import suppress
from typing import Any, Self

from assignments.worktrees.herdr_fake_world import HerdrWorld, RequestRefused
from herd.core.limits import TOPOLOGY_BYTES

_LINE_S = 5.0
"""Seconds in which Herdr wants the request's line."""


class FakeHerdr:
    """One Herdr server.

    Args:
        path: Its socket, made with mode 0600.
        world: What it knows; it may be replaced while it serves.

    Attributes:
        asked: Method and parameters of each request, in order.
        mute: Methods on which it hangs: it takes the request and never answers.
        answers: The exact bytes it sends for a method, in place of its own answer.
        errors: The error code with which it refuses a method.

    *Resource handling*: an asynchronous context manager; the socket is gone after it.
    """

    def __init__(self, path: str, world: HerdrWorld) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.mute: set[str] = set()
        self.answers: dict[str, bytes] = {}
        self.errors: dict[str, str] = {}
        self.world = world
        self._path = path
        self._served: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accepted, self._path, limit=TOPOLOGY_BYTES)
        await asyncio.to_thread(os.chmod, self._path, 0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for one in self._served:
            one.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)
        with suppress(FileNotFoundError):
            await asyncio.to_thread(os.unlink, self._path)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Ours, and not the server's: it would report one that is called off.
        serving = asyncio.ensure_future(self._serve(reader, writer))
        self._served.add(serving)
        serving.add_done_callback(self._served.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_LINE_S):
                line = await reader.readline()
            if line.strip():
                writer.write(await self._answer(line))
                await writer.drain()
        except (TimeoutError, ValueError, OSError):
            pass  # a line that is too long or too late gets no answer
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        request = _request(line)
        if request is None:
            return _line({"id": "", "error": _error("invalid_request", "invalid request: malformed")})
        method, params = request["method"], request["params"]
        self.asked.append((method, params))
        if method in self.mute:
            await asyncio.Event().wait()
        if method in self.answers:
            return self.answers[method]
        if not self.world.knows(method):
            return _line({"id": "", "error": _error("invalid_request", f"invalid request: {method}")})
        try:
            if method in self.errors:
                raise RequestRefused(self.errors[method], "as a test wants it")
            result = await asyncio.to_thread(self.world.result, method, params)
        except RequestRefused as error:
            return _line({"id": request["id"], "error": _error(error.code, str(error))})
        return _line({"id": request["id"], "result": result})


def _request(line: bytes) -> dict[str, Any] | None:
    try:
        request = json.loads(line)
    except ValueError:
        return None
    shapes = {"id": str, "method": str, "params": dict}
    whole = isinstance(request, dict) and all(
        isinstance(request.get(name), kind) for name, kind in shapes.items()
    )
    return request if whole else None


def _error(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message}


def _line(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame).encode() + b"\n"
