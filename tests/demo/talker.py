"""A minimal client of one session's coordinator, as a host's extension is one: JSON-RPC over its stdio."""

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

_BOUND_S = 30


class Talker:
    """One session: its process, and a way to ask it.

    Args:
        host: The host's word.
        session_id: The host's own id of the session.
        name: The name it is listed under.
        cwd: Where it works.
        environment: All that the process sees.
    """

    def __init__(self, host: str, session_id: str, name: str, cwd: Path, environment: dict[str, str]) -> None:
        self.name = name
        command = (sys.executable, "-m", "herd.cli.main", "session")
        words = ("--host", host, "--session", session_id, "--name", name)
        self._process = subprocess.Popen(
            (*command, *words), cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._last_id = 0
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask and give the result; a refusal or silence ends the demo."""
        assert self._process.stdin is not None
        self._last_id += 1
        frame = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        if "error" in answer:
            raise SystemExit(f"{self.name}: {method} was refused: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process as a crash does."""
        self._process.kill()
        self._process.wait(_BOUND_S)

    def end(self) -> None:
        """End the session in order: its input ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_BOUND_S)
        finally:
            self._process.kill()
            self._process.stdout.close()

    def _line(self) -> bytes:
        output = self._process.stdout
        assert output is not None
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([output], [], [], _BOUND_S)
            data = output.read1(65_536) if ready else b""  # type: ignore[attr-defined]
            if not data:
                raise SystemExit(f"{self.name}: no answer")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
