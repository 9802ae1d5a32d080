"""Real Claude Code processes with Herd's server and hooks and a scripted model, in terminals of their own.

`ClaudeFolder` is a home with Claude Code's settings in it; `ClaudeTui` is one process with its terminal. No
wait is without a bound.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from herd.hosts.claude import guard
from tests.fakes.herd_session import environment
from tests.fakes.patient_hook import patient_hook
from tests.fakes.real_hosts import program

WAIT_S = 20.0
"""Seconds within which whatever a test waits for has to come."""

MODEL = "claude-sonnet-4-5"

HERD_COMMAND = str(Path(sys.executable).parent / "herd")
"""The command `herd` of this environment, as an installed server names it."""

_KEY = "sk-ant-scripted-0123456789abcdef0123456789"
_ENTER = "\r"
ESCAPE = "\x1b"
_WITHOUT_LOOK = re.compile(r"\x1b\[[0-9;?<>=]*[A-Za-z]|\x1b\][^\x07]*\x07|\s+")
"""What only moves or colours, and space, which Claude Code jumps over rather than draws."""


def until(holds: Callable[[], bool], complaint: str, wait_s: float = WAIT_S) -> None:
    """Ask until something holds; each question is itself an exchange with another process or a file."""
    deadline = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(complaint)
        threading.Event().wait(0.02)


class ClaudeFolder:
    """A home of Claude Code: its model is the scripted one, its server and hooks are ours.

    Args:
        home: The data root of Herd, and the home of every process.
        model_url: Where the scripted model answers.
    """

    def __init__(self, home: Path, model_url: str) -> None:
        self.home = home
        self._model_url = model_url
        self.settings_folder = home / ".claude"
        self.settings_folder.mkdir()
        self.settings: dict[str, Any] = {
            "hooks": self.hooks(),
            "permissions": {"allow": ["mcp__herd", "Bash", "Agent"]},
        }
        self._trusted: dict[str, Any] = {}
        self.install()

    def hooks(self) -> dict[str, Any]:
        """Give our hooks as Claude Code's settings have them."""
        commands = {
            event: guard.hook_command(event, f"{self.home}/*/hooks", sys.executable, patient_hook())
            for event in guard.EVENTS
        }
        return {
            event: [{"hooks": [{"type": "command", "command": command}]}]
            for event, command in commands.items()
        }

    def install(self) -> None:
        """Write the settings as they are now."""
        server = {
            "type": "stdio",
            "command": HERD_COMMAND,
            "args": ["mcp", "--host", "claude"],
            "env": {"HERD_HOME": str(self.home)},
            "alwaysLoad": True,
        }
        state = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
            "projects": self._trusted,
            "mcpServers": {"herd": server},
        }
        (self.home / ".claude.json").write_text(json.dumps(state), encoding="utf-8")
        (self.settings_folder / "settings.json").write_text(json.dumps(self.settings), encoding="utf-8")

    def work(self, name: str) -> Path:
        """Give a folder to work in that Claude Code trusts."""
        folder = self.home / "work" / name
        if str(folder) not in self._trusted:
            folder.mkdir(parents=True, exist_ok=True)
            self._trusted[str(folder)] = {"hasTrustDialogAccepted": True, "allowedTools": []}
            self.install()
        return folder

    def environ(self) -> dict[str, str]:
        """Give the variables of a Claude Code process: nothing is fetched, nothing reported."""
        return environment(
            self.home,
            ANTHROPIC_BASE_URL=self._model_url,
            ANTHROPIC_API_KEY=_KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_AUTOUPDATER="1",
            DISABLE_TELEMETRY="1",
            TERM="xterm-256color",
            USE_BUILTIN_RIPGREP="1",
        )

    def state(self, pid: int) -> dict[str, Any]:
        """Give what Claude Code says of one of its processes; empty where it says nothing yet."""
        try:
            text = (self.settings_folder / "sessions" / f"{pid}.json").read_text(encoding="utf-8")
            return dict(json.loads(text))
        except (FileNotFoundError, ValueError):
            return {}


class ClaudeTui:
    """One Claude Code in a terminal; leaving the context ends it.

    Args:
        folder: Its home.
        name: The folder it works in.
        words: More arguments, such as `--resume ID`.
        environ: Variables to add.
    """

    def __init__(
        self, folder: ClaudeFolder, name: str, *words: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.screen = b""
        self._changed = threading.Condition()
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [program("claude"), "--model", MODEL, *words],
            cwd=folder.work(name),
            env={**folder.environ(), **(environ or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The pid of Claude Code itself."""
        return self.process.pid

    @property
    def session_id(self) -> str:
        """The session it is in now."""
        return str(self.folder.state(self.pid).get("sessionId", ""))

    @property
    def status(self) -> str:
        """What it says it does: `idle`, `busy` or `waiting`."""
        return str(self.folder.state(self.pid).get("status", ""))

    def ready(self) -> Self:
        """Wait until it is idle."""
        self.until(lambda: self.status == "idle", "it is not idle")
        return self

    def prompt(self, text: str) -> None:
        """Type a text and send it."""
        self.type(text)
        self.until(lambda: self.shows(text[-8:]), f"{text!r} is not on the screen")
        self.type(_ENTER)

    def shows(self, text: str) -> bool:
        """Tell whether a text was drawn, however it was put on the screen, at some time."""
        drawn = _WITHOUT_LOOK.sub("", self.screen.decode(errors="replace"))
        return "".join(text.split()) in drawn

    def type(self, keys: str) -> None:
        """Type without sending anything."""
        os.write(self._terminal, keys.encode())

    def until(self, holds: Callable[[], bool], complaint: str, wait_s: float = WAIT_S) -> None:
        """Wait until something holds, looked at whenever the screen or a file of the session's changes."""
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not holds():
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise AssertionError(f"{complaint}; its screen ends in {self.screen[-1500:]!r}")
                self._changed.wait(0.05)

    def insist(self, keys: str, holds: Callable[[], bool], complaint: str) -> None:
        """Press keys until something holds: a dialog takes none in its first moments."""

        def pressed() -> bool:
            self.type(keys)
            self._changed.wait(0.3)
            return holds()

        self.until(pressed, complaint)

    def end(self) -> None:
        """End it as a signal from outside does; again: nothing."""
        if self._terminal < 0:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        os.close(self._terminal)
        self._terminal = -1

    def _read(self) -> None:
        while True:
            try:
                if not select.select([self._terminal], [], [], WAIT_S)[0]:
                    if self.process.poll() is not None:
                        return
                    continue
                data = os.read(self._terminal, 65_536)
            except OSError:
                return
            with self._changed:
                self.screen += data
                self._changed.notify_all()
