"""A client of a real `herd session` process, as a host's extension is one.

It owns starting, asking and ending that process, each within a bound. It is ignorant of what is asked.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from herd.core.errors import from_wire

HERD = (sys.executable, "-m", "herd.cli.main")
"""The command `herd`, as a list of arguments."""

ROOT = Path(__file__).parents[2]
"""The folder that holds the packages; `HERD` finds them there."""

WAIT_S = 30.0
"""Seconds within which every answer and every end has to come; two busy cores start a process in three."""


_ATTEMPTS = 8


class SessionEndedError(Exception):
    """The process ended instead of answering; the text holds its status and what it said."""


class Child(Protocol):
    """A process that was started, by this one or by another."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Give its exit status, the negative number of a signal that ended it."""
        ...


class Parent(Protocol):
    """Who starts a process: it becomes the host that command lines find among their ancestors."""

    def start(
        self, arguments: list[str], *, stdin: int, stdout: int, stderr: int, cwd: str, env: dict[str, str]
    ) -> Child:
        """Start a process on these descriptors."""
        ...


class ThisProcess:
    """The test itself as the host: what it runs afterwards counts as run inside the session."""

    def start(
        self, arguments: list[str], *, stdin: int, stdout: int, stderr: int, cwd: str, env: dict[str, str]
    ) -> Child:
        return subprocess.Popen(arguments, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)


def environment(home: Path, **more: str) -> dict[str, str]:
    """Give the variables of a process whose data root is `home`; none of any host stands in it."""
    kept = ("PATH", "HERD_TEST_RUN", "LANG")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(home),
        "HERD_HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "error::ResourceWarning",
        **more,
    }


class HerdSession:
    """One `herd session` process; as a context manager it is killed at the end if it still runs.

    Args:
        home: The data root.
        host: The host's word; None starts it without a session, so that `session.bind` names it.
        session_id: The host's own id of the session.
        cwd: Where it is started; the data root where it is None.
        name: What `--name` gives.
        parent: Who starts it; the test itself where it is None.
        environ: Variables to add, or to put in place of those of `environment`.
        herd: The command `herd`, where it is another copy of the code.
        options: More options, such as `--scope`.
    """

    def __init__(
        self,
        home: Path,
        host: str | None,
        session_id: str = "",
        *,
        cwd: Path | None = None,
        name: str | None = None,
        parent: Parent | None = None,
        environ: Mapping[str, str] | None = None,
        herd: tuple[str, ...] = HERD,
        options: Sequence[str] = (),
    ) -> None:
        words = [*herd, "session"]
        words += ["--host", host, "--session", session_id] if host is not None else []
        words += ["--name", name] if name is not None else []
        words += options
        self._told: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        source, self._stdin = os.pipe()
        self._stdout, sink = os.pipe()
        try:
            self.process = (parent or ThisProcess()).start(
                words,
                stdin=source,
                stdout=sink,
                stderr=self._told.fileno(),
                cwd=str(cwd or home),
                env={**environment(home), **(environ or {})},
            )
        finally:
            os.close(source)
            os.close(sink)
        self._buffer = b""
        self._last_id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.others: list[dict[str, Any]] = []
        """Frames that answer no request, in their order."""

    @property
    def pid(self) -> int:
        """The pid of the process."""
        return self.process.pid

    @property
    def stderr(self) -> str:
        """What the process wrote to standard error until now."""
        return os.pread(self._told.fileno(), 1 << 20, 0).decode(errors="replace")

    def ready(self) -> Self:
        """Wait until the session coordinates."""
        self.request("session.whoami")
        return self

    def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Ask and give the result within `WAIT_S`.

        Args:
            method: Such as `session.list`.
            params: JSON values; `from_` is sent as `from`.

        Raises:
            HerdError: the refusal, as its own class.
            SessionEndedError: the process ended first.
            TimeoutError: nothing came in time.
        """
        return self.result(self.begin(method, **params))

    def send(self, target: str, text: str, **more: Any) -> str:
        """Send as a tool does, wait until a mailbox has the message or has refused it, and give its id."""
        answer = self.request("session.send", target=target, message=text, **more)
        message_id = str(answer["message_id"])
        deadline = time.monotonic() + WAIT_S
        while self.request("session.status", message_id=message_id)["state"] == "pending":
            if time.monotonic() > deadline:
                raise TimeoutError(f"message {message_id} was not accepted within {WAIT_S:.0f} s")
        return message_id

    def send_at_once(self, target: str, text: str) -> dict[str, Any]:
        """Send until an answer comes that tells more than `queued`; for what only a quick answer tells."""
        for _ in range(_ATTEMPTS):
            answer = self.request("session.send", target=target, message=text)
            if answer["status"] != "queued":
                return answer
        raise TimeoutError(f"{_ATTEMPTS} messages were queued, one after the other")

    def until_listed(self, name: str) -> str:
        """List until one peer bears this name, and give its target."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            found = [peer for peer in self.request("session.list")["peers"] if peer.get("name") == name]
            if len(found) == 1:
                return str(found[0]["target"])
        raise TimeoutError(f"{name} was not listed within {WAIT_S:.0f} s")

    def begin(self, method: str, /, **params: Any) -> int:
        """Ask, and give the id for which `result` waits."""
        self._last_id += 1
        named = {name.rstrip("_"): value for name, value in params.items()}
        frame = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": named}
        self.write(json.dumps(frame).encode() + b"\n")
        return self._last_id

    def write(self, line: bytes) -> None:
        """Write bytes as they are."""
        try:
            while line:
                line = line[os.write(self._stdin, line) :]
        except BrokenPipeError:
            raise SessionEndedError(self._end_told()) from None

    def result(self, request_id: int, *, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Give the result of a request that was begun; see `request`."""
        deadline = time.monotonic() + wait_s
        while request_id not in self._answers:
            self._sort(self.line(wait_s=deadline - time.monotonic()))
        answer = self._answers.pop(request_id)
        if "error" in answer:
            raise from_wire(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def line(self, *, wait_s: float = WAIT_S) -> dict[str, Any]:
        """Give the next frame, whatever it is."""
        deadline = time.monotonic() + wait_s
        while b"\n" not in self._buffer:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._stdout], [], [], left)[0]:
                raise TimeoutError(f"nothing in {wait_s:.1f} s; standard error: {self.stderr}")
            data = os.read(self._stdout, 1 << 16)
            if not data:
                raise SessionEndedError(self._end_told())
            self._buffer += data
        frame, _, self._buffer = self._buffer.partition(b"\n")
        parsed: dict[str, Any] = json.loads(frame)
        return parsed

    def close_stdin(self) -> None:
        """Let its input end, which ends the session in order."""
        if self._stdin >= 0:
            os.close(self._stdin)
            self._stdin = -1

    def end(self, *, wait_s: float = WAIT_S) -> int:
        """End it in order and give its exit status."""
        self.close_stdin()
        return self.wait(wait_s=wait_s)

    def terminate(self, *, wait_s: float = WAIT_S) -> int:
        """End it with SIGTERM and give its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(wait_s=wait_s)

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

    def _sort(self, frame: dict[str, Any]) -> None:
        if "method" not in frame and isinstance(frame.get("id"), int):
            self._answers[frame["id"]] = frame
        else:
            self.others.append(frame)

    def _end_told(self) -> str:
        return f"exit status {self.wait()}; standard error: {self.stderr}"
