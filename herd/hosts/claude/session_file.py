"""What Claude Code writes about each of its processes: which session is current there, and what it does.

`sessions/<pid>.json` in its folder of settings, rewritten at every change. The file is Claude Code's and its
form is no promise, so whatever is not as expected counts as not there.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

from herd.core.errors import HerdError
from herd.core.identity import checked_session
from herd.core.limits import HOST_STATE_BYTES
from herd.core.watch import FolderWatch

IDLE = "idle"
ACTIVITIES = {IDLE: IDLE, "busy": "working", "waiting": "waiting"}
"""What a status means as an activity; any other status is not understood and tells nothing."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OTHERS_WRITE = 0o022
_RUN = "sdk"
"""How the entrypoint of a process begins that nobody sits at: `claude -p` also calls itself interactive."""


class State(NamedTuple):
    """What is known of a process of Claude Code."""

    session_id: str
    cwd: str | None
    status: str | None
    """`idle`, `busy` or `waiting`; None for another word."""
    interactive: bool
    """Whether a person sits at it."""
    changed: int | None
    """When the status last changed, by Claude Code's clock."""


class Process(NamedTuple):
    """A process of the host."""

    pid: int
    start: str
    """Its start token; empty where there is none."""


def settings_folder(environ: Mapping[str, str]) -> str | None:
    """Give the folder of Claude Code's settings and state; None where nobody can tell."""
    chosen = environ.get("CLAUDE_CONFIG_DIR") or ""
    if chosen.startswith("/"):
        return chosen
    home = environ.get("HOME") or ""
    return os.path.join(home, ".claude") if home.startswith("/") else None


def read_state(folder: str, process: Process) -> State | None:
    """Read the state of one process; None where its file is absent, unsafe, malformed or another process's.

    Args:
        folder: The folder `sessions`.
        process: The process; one of the same pid that ended before is told from it by its start.
    """
    data = _content(os.path.join(folder, f"{process.pid}.json"))
    if data is None:
        return None
    try:
        found = json.loads(data.decode("utf-8"))
        if not isinstance(found, dict) or not _names(found, process):
            return None
        session = checked_session("claude", str(found["sessionId"]), "")
    except (ValueError, KeyError, RecursionError, HerdError):
        return None
    cwd, status, changed = found.get("cwd"), found.get("status"), found.get("statusUpdatedAt")
    return State(
        session_id=session.session_id,
        cwd=cwd if isinstance(cwd, str) and cwd.startswith("/") else None,
        status=status if isinstance(status, str) and status in ACTIVITIES else None,
        interactive=found.get("kind") == "interactive" and not str(found.get("entrypoint")).startswith(_RUN),
        changed=changed if type(changed) is int else None,
    )


class StateWatch:
    """The state of one process, told at every change for as long as the watch is open.

    Args:
        settings: The folder of Claude Code's settings; it may be a link, and may hold no `sessions` yet.
        process: The process.
        changed: Told each state that differs from the one before.

    Resource handling: a context manager, or call `close`.
    """

    def __init__(self, settings: str, process: Process, changed: Callable[[State], None]) -> None:
        self._settings = os.path.realpath(settings)
        self._folder = os.path.join(self._settings, "sessions")
        self._name = f"{process.pid}.json"
        self._process = process
        self._changed = changed
        self._watch: FolderWatch | None = None
        self.state: State | None = None
        self._begin()

    def close(self) -> None:
        """Watch no longer; again: nothing."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        self.close()
        # The watch comes before the look, so that no change falls between the two. Where there is no folder
        # to watch, or no watch to be had, the hooks alone tell.
        with suppress(OSError):
            try:
                self._watch = FolderWatch(self._folder, self._told)
            except FileNotFoundError:
                self._watch = FolderWatch(self._settings, self._appeared)
        self._look()

    def _appeared(self, name: str | None) -> None:
        if name == "sessions":
            self._begin()

    def _told(self, name: str | None) -> None:
        if name is None:
            self._begin()
        elif name == self._name:
            self._look()

    def _look(self) -> None:
        state = read_state(self._folder, self._process)
        if state is not None and state != self.state:
            self.state = state
            self._changed(state)


def _content(path: str) -> bytes | None:
    try:
        number = os.open(path, _READ)
    except OSError:
        return None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return None
        if status.st_mode & _OTHERS_WRITE or status.st_size > HOST_STATE_BYTES:
            return None
        return os.read(number, HOST_STATE_BYTES)
    except OSError:
        return None
    finally:
        os.close(number)


def _names(found: Mapping[str, Any], process: Process) -> bool:
    """Tell whether the file is about this process: its pid and, where the kernel tells it, its start."""
    pid, start = found.get("pid"), found.get("procStart")
    if type(pid) is not int or pid != process.pid or sys.platform != "linux":
        return False  # elsewhere nothing tells what `procStart` counts: the hooks name the session
    return isinstance(start, str) and start != "" and start == process.start.rpartition(":")[2]
