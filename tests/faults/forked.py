"""Forked coordinators as their hosts see them: asked over a channel, killed, and started again.

It owns the requests of one process and its end. It is ignorant of what ought to be answered.
"""

import asyncio
import itertools
import json
import socket
from contextlib import suppress
from typing import Any, Self

from herd.core.errors import from_wire
from herd.core.identity import SessionName
from herd.core.paths import Layout
from tests.faults.forks import IN_TIME_S, Fork, Forks


class DiedError(Exception):
    """The process ended instead of answering."""


class Process:
    """One life of a coordinator.

    Args:
        fork: The process, which speaks JSON-RPC lines on its socket.
    """

    def __init__(self, fork: Fork) -> None:
        self.fork = fork
        self._socket = fork.socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def started(cls, forks: Forks, layout: Layout, session: SessionName, **given: Any) -> Self:
        """Fork a coordinator of a session; it need not serve yet."""
        named = {"host": session.host, "session_id": session.session_id}
        return cls(await forks.fork("coordinate", root=layout.root, **named, **given))

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Ask and give the result; `from_` is sent as `from`.

        Raises:
            HerdError: the refusal, as its own class.
            DiedError: the process ended first.
            TimeoutError: it did neither in time.
        """
        return await self.begin(method, **params)

    def begin(self, method: str, /, **params: Any) -> "asyncio.Task[dict[str, Any]]":
        """Ask now; the task ends as `ask` does."""
        number = next(self._ids)
        named = {name.rstrip("_"): value for name, value in params.items()}
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": named}
        self._answers[number] = asyncio.get_running_loop().create_future()
        # Straight away, since several requests are to come in the order in which they were begun.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(json.dumps(frame).encode() + b"\n")
        return asyncio.create_task(self._answered(number))

    async def gone(self) -> int:
        """Wait for its end and give its status."""
        async with asyncio.timeout(IN_TIME_S):
            status = await self.fork.ended
            await self._reading
        self._socket.close()
        return status

    async def end(self) -> int:
        """Let its host go away, so that it ends in order; gives its status."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        return await self.gone()

    async def kill(self) -> int:
        """Kill it and wait until it is gone."""
        self.fork.kill()
        return await self.gone()

    async def _answered(self, number: int) -> dict[str, Any]:
        future = self._answers[number]
        if self._reading.done() and not future.done():
            raise DiedError
        try:
            async with asyncio.timeout(IN_TIME_S):
                answer = await future
        finally:
            del self._answers[number]
        if "error" in answer:
            raise from_wire(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    async def _read(self) -> None:
        loop, buffer = asyncio.get_running_loop(), b""
        with suppress(ConnectionResetError):
            while data := await loop.sock_recv(self._socket, 1 << 16):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    frame = json.loads(line)
                    answer = self._answers.get(frame["id"])
                    if answer is not None and not answer.done():
                        answer.set_result(frame)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(DiedError())
                answer.exception()  # retrieved, whoever still waits
