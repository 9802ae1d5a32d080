"""A minimal agent's host: it starts `herd mcp` for a session, calls tools and runs shell commands for it."""

import json
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

_BOUND_S = 30
_HERD = (sys.executable, "-m", "herd.cli.main")

# As Claude Code does: its word, and the variable that its shell commands get.
_HOST = "claude"
_VARIABLE = "CLAUDE_CODE_SESSION_ID"


class Talker:
    """One session: its MCP server, and a way to ask it.

    Args:
        session_id: The host's own id of the session.
        name: The name it is listed under.
        cwd: Where it works.
        environment: All that its processes see.
    """

    def __init__(self, session_id: str, name: str, cwd: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._cwd = cwd
        self._environment = {**environment, _VARIABLE: session_id}
        self._process = subprocess.Popen(
            (*_HERD, "mcp", "--host", _HOST, "--session", session_id, "--name", name),
            cwd=cwd,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._last_id = 0
        self._buffer = b""
        client = {"name": "demo", "version": "1"}
        self._request(
            "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool and give its structured content; a refusal or silence ends the demo."""
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        if result["isError"]:
            raise SystemExit(f"{self.name}: {tool} was refused: {result['content'][0]['text']}")
        content: dict[str, Any] = result["structuredContent"]
        return content

    def shell(self, *words: str) -> dict[str, Any]:
        """Run a `herd` command as this session's agent does in its shell, and give its JSON."""
        command = (*_HERD, *words, "--json")
        told = subprocess.run(
            command,
            cwd=self._cwd,
            env=self._environment,
            stdout=subprocess.PIPE,
            check=True,
            timeout=_BOUND_S,
        )
        shape: dict[str, Any] = json.loads(told.stdout)
        return shape

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

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        self._write({"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params})
        answer = json.loads(self._line())
        if "error" in answer:
            raise SystemExit(f"{self.name}: {method} was refused: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _write(self, frame: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(frame).encode() + b"\n")
        self._process.stdin.flush()

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
