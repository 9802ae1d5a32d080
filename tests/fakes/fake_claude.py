"""The test itself in the part of Claude Code: it starts the server, writes the state file, runs the hooks.

The server's parent and the hooks' parent are this process, as they are one process in Claude Code. Nothing of
Claude Code's own behaviour is imitated but what the real one was seen to do.
"""

import json
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from herd.core.processes import start_token
from herd.hosts.claude import guard
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.patient_hook import patient_hook

WAIT_S = 20.0
TOKEN = "token of the inbox"


class FakeClaude:
    """One process of Claude Code: this one.

    Args:
        home: The data root of Herd, and the home of everybody.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.session_id = ""
        self.pushed: queue.Queue[list[dict[str, Any]]] = queue.Queue()
        """What came into the inbox, one list of frames a connection."""
        self.program = patient_hook()
        """The hook's program; a test that is about the hook's own time puts the hook itself here."""
        self.took_s = 0.0
        """Seconds that the last hook took."""
        self._sessions = home / ".claude" / "sessions"
        self._sessions.mkdir(parents=True)
        self._folder = tempfile.TemporaryDirectory(prefix="cc-", dir="/tmp")
        self.inbox = os.path.join(self._folder.name, "inbox")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.inbox)
        self._listening.listen()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(WAIT_S)
        self._listening.close()
        self._folder.cleanup()

    def server(self, **environ: str | None) -> HerdMcp:
        """Start the server as Claude Code does."""
        told = {"CLAUDE_CODE_MESSAGING_SOCKET": self.inbox, "CLAUDE_CODE_MESSAGING_TOKEN": TOKEN}
        return HerdMcp(self.home, "claude", environ={**told, **environ})

    def says(self, session_id: str, status: str = "idle", **changes: Any) -> None:
        """Write the state file in place."""
        self.session_id = session_id
        state = {
            "pid": os.getpid(),
            "sessionId": session_id,
            "cwd": str(self.home),
            "procStart": (start_token(os.getpid()) or "").rpartition(":")[2],
            "kind": "interactive",
            "status": status,
            "statusUpdatedAt": time.time_ns() // 1_000_000,
            **changes,
        }
        (self._sessions / f"{os.getpid()}.json").write_text(json.dumps(state), encoding="utf-8")

    def hook(self, event: str, session_id: str | None = None, **fields: Any) -> dict[str, Any] | None:
        """Run the hook of an event to its end, and give what it printed; None where it printed nothing."""
        session_id = session_id or self.session_id
        command = guard.hook_command(
            event, f"{self.home}/*/hooks", os.path.realpath(sys.executable), self.program
        )
        told = {"session_id": session_id, "cwd": str(self.home), "hook_event_name": event, **fields}
        began = time.monotonic()
        ended = subprocess.run(
            ["/bin/sh", "-c", command],
            input=json.dumps(told).encode(),
            env={"PATH": "/usr/bin:/bin", "CLAUDE_CODE_SESSION_ID": session_id},
            capture_output=True,
            check=False,
        )
        self.took_s = time.monotonic() - began
        assert (ended.returncode, ended.stderr) == (0, b"")
        return json.loads(ended.stdout) if ended.stdout else None

    def text(self, event: str, **fields: Any) -> str:
        """Run a hook, and give the text for the model that it printed; empty where it printed none."""
        shown = self.hook(event, **fields)
        if shown is None:
            return ""
        return str(shown.get("reason") or shown["hookSpecificOutput"]["additionalContext"])

    def flags(self) -> set[str]:
        """Give the names of the flags of this process's sessions."""
        own = {path.name for path in self.home.glob("*/hooks/*")} - {str(os.getpid())}
        return {name.replace(f"-{os.getpid()}", "") for name in own}

    def _listen(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            with caller, caller.makefile("rb") as lines:
                self.pushed.put([json.loads(line) for line in lines])
