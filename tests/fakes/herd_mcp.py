"""A host's client of a real `herd mcp` process.

It owns starting, asking and ending that process, each within a bound; what it says is `mcp_frames`' matter.
"""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.fakes import mcp_frames
from tests.fakes.herd_session import HERD, WAIT_S, Parent, SessionEndedError, ThisProcess, environment
from tests.fakes.mcp_frames import HANDSHAKE, Era


class HerdMcp:
    """One `herd mcp` process; as a context manager it is killed at the end if it still runs.

    Args:
        home: The data root.
        host: The host's word.
        session_id: What `--session` gives; None starts it without.
        cwd: Where it is started; the data root where it is None.
        name: What `--name` gives.
        era: How this client speaks.
        parent: Who starts it; the test itself where it is None.
        environ: Variables to add, or to put in place of those of `environment`; None takes one away.
        herd: The command `herd`, where it is another one.
        options: More options, such as `--scope`.
    """

    def __init__(
        self,
        home: Path,
        host: str = "claude",
        session_id: str | None = None,
        *,
        cwd: Path | None = None,
        name: str | None = None,
        era: Era = HANDSHAKE,
        parent: Parent | None = None,
        environ: Mapping[str, str | None] | None = None,
        herd: tuple[str, ...] = HERD,
        options: Sequence[str] = (),
    ) -> None:
        words = [*herd, "mcp", "--host", host]
        words += ["--session", session_id] if session_id is not None else []
        words += ["--name", name] if name is not None else []
        words += options
        self.era = era
        self.tools: dict[str, dict[str, Any]] = {}
        """The tools as the server listed them, by name."""
        self.others: list[dict[str, Any]] = []
        """Frames that answer no request, in their order."""
        self.raw = b""
        """Every byte that was read from its standard output."""
        self._told: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self._buffer = b""
        self._last_id = 0
        self._answers: dict[str | int, dict[str, Any]] = {}
        surroundings = {**environment(home), **(environ or {})}
        source, self._stdin = os.pipe()
        self._stdout, sink = os.pipe()
        try:
            self.process = (parent or ThisProcess()).start(
                words,
                stdin=source,
                stdout=sink,
                stderr=self._told.fileno(),
                cwd=str(cwd or home),
                env={name: value for name, value in surroundings.items() if value is not None},
            )
        finally:
            os.close(source)
            os.close(sink)

    @property
    def pid(self) -> int:
        """The pid of the process."""
        return self.process.pid

    @property
    def stderr(self) -> str:
        """What the process wrote to standard error until now."""
        return os.pread(self._told.fileno(), 1 << 20, 0).decode(errors="replace")

    def open(self) -> Self:
        """Open the connection as the era has it, and learn the tools."""
        self.request(*mcp_frames.opening(self.era))
        if not self.era.modern:
            self.notify("notifications/initialized")
        self.tools = {tool["name"]: tool for tool in self.request("tools/list")["tools"]}
        return self

    def call(self, tool: str, /, *, wait_s: float = WAIT_S, **arguments: Any) -> dict[str, Any]:
        """Call a tool and give its structured content.

        Args:
            tool: Its name.
            wait_s: Seconds until a missing answer fails the test.
            arguments: JSON values; `from_` is sent as `from`.

        Raises:
            Refused: a tool error.
        """
        return self.content(self.begin_call(tool, **arguments), tool, wait_s=wait_s)

    def begin_call(self, tool: str, /, **arguments: Any) -> int:
        """Call a tool, and give the id for which `content` waits."""
        named = {name.rstrip("_"): value for name, value in arguments.items()}
        return self.begin("tools/call", {"name": tool, "arguments": named})

    def content(self, request_id: str | int, tool: str, *, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Give the structured content of a call that was begun; see `call`."""
        result = self.result(request_id, wait_s=wait_s)
        return mcp_frames.content_of(result, self.tools[tool]["outputSchema"])

    def request(
        self, method: str, params: dict[str, Any] | None = None, *, wait_s: float = WAIT_S
    ) -> dict[str, Any]:
        """Ask and give the result.

        Raises:
            McpError: a JSON-RPC error.
            SessionEndedError: the process ended first.
            TimeoutError: nothing came in time.
        """
        return self.result(self.begin(method, params), wait_s=wait_s)

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Ask, and give the id for which `result` waits."""
        self._last_id += 1
        self.send(mcp_frames.request(self._last_id, method, params, era=self.era))
        return self._last_id

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send(mcp_frames.notification(method, **params))

    def cancel(self, request_id: str | int) -> None:
        """Take a request back."""
        self.notify(mcp_frames.CANCELLED, requestId=request_id)

    def send(self, frame: Any) -> None:
        """Write any JSON value as a line."""
        self.write(mcp_frames.line(frame))

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        try:
            while data:
                data = data[os.write(self._stdin, data) :]
        except BrokenPipeError:
            raise SessionEndedError(self._end_told()) from None

    def result(self, request_id: str | int, *, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Give the result of a request that was begun; see `request`."""
        deadline = time.monotonic() + wait_s
        while request_id not in self._answers:
            frame = self.frame(wait_s=deadline - time.monotonic())
            if frame.get("id") is None or "method" in frame:
                self.others.append(frame)
            else:
                self._answers[frame["id"]] = frame
        return mcp_frames.result_of(self._answers.pop(request_id), self.era)

    def frame(self, *, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Give the next frame, whatever it is."""
        deadline = time.monotonic() + wait_s
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._stdout], [], [], left)[0]:
                raise TimeoutError(f"nothing in {wait_s:.1f} s; standard error: {self.stderr}")
            if not self._read():
                raise SessionEndedError(self._end_told())
        line, _, self._buffer = self._buffer.partition(b"\n")
        parsed: dict[str, Any] = json.loads(line.decode("utf-8"))
        return parsed

    def close_stdin(self) -> None:
        """Let its input end, which ends the session in order."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def end(self, *, wait_s: float = WAIT_S) -> int:
        """End it in order, read what it still says, and give its exit status."""
        self.close_stdin()
        deadline = time.monotonic() + wait_s
        while (
            select.select([self._stdout], [], [], max(0.0, deadline - time.monotonic()))[0] and self._read()
        ):
            pass
        return self.wait(wait_s=max(0.0, deadline - time.monotonic()))

    def kill(self) -> None:
        """End it with SIGKILL, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self, *, wait_s: float = WAIT_S) -> int:
        """Give its exit status, once it has ended."""
        return self.process.wait(wait_s)

    def close(self) -> None:
        """Kill it if it still runs, and give up the descriptors."""
        self.close_stdin()
        try:
            self.process.wait(0)
        except (TimeoutError, subprocess.TimeoutExpired):
            self.kill()
        if self._stdout >= 0:
            os.close(self._stdout)
            self._stdout = -1
        self._told.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> bool:
        data = os.read(self._stdout, 1 << 16)
        self._buffer += data
        self.raw += data
        return bool(data)

    def _end_told(self) -> str:
        return f"exit status {self.wait()}; standard error: {self.stderr}"
