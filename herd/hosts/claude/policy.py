"""Whether Claude Code's person lets other sessions' messages start turns: its setting `crossSessionInbound`.

Herd wakes a session from the session's own child process, which Claude Code lets through where it would hold
a stranger's text. So Herd holds itself to what the person decided about strangers. The strictest word counts:
a project can tighten what its person allows, an unknown word or an unreadable file allows nothing.
"""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from herd.core.limits import HOST_SETTINGS_BYTES

_KEY = "crossSessionInbound"
_ACCEPT = "accept"
_BYPASS = "bypassPermissions"
_MANAGED = (
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
)
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ARGUMENTS_BYTES = 1 << 17


class Sources(NamedTuple):
    """Where the person's words are looked for."""

    settings: str
    """The folder of Claude Code's settings."""
    project: str | None
    """The project's folder."""
    pid: int
    """The host's process, whose arguments may name settings, too."""
    managed: Sequence[str] = _MANAGED
    """The files of an administrator."""


def sources(settings: str, environ: Mapping[str, str], pid: int) -> Sources:
    """Give where the person's words are looked for, for a server that Claude Code started."""
    return Sources(settings, environ.get("CLAUDE_PROJECT_DIR") or None, pid)


def may_wake(found: Sources, permission_mode: str | None) -> bool:
    """Tell whether the notice may start a turn; it reads files and is no work for an event loop.

    Args:
        found: Where to look.
        permission_mode: The mode that hooks told last; None where none did.
    """
    arguments = _arguments(found.pid)
    words = [_word(content) for content in _contents(found, arguments)]
    said = [word for word in words if word is not None]
    if said:
        return all(word == _ACCEPT for word in said)
    # Unasked, Claude Code holds the text of others in a session that asks before nothing.
    bypasses = permission_mode == _BYPASS or (permission_mode is None and _begins_bypassing(arguments))
    return not bypasses


def _contents(found: Sources, arguments: Sequence[str]) -> list[str]:
    files = [os.path.join(found.settings, "settings.json"), *found.managed]
    if found.project is not None:
        files += [os.path.join(found.project, ".claude", name) for name in _PROJECT_FILES]
    contents = [content for path in files if (content := _content(path)) is not None]
    for value in _values(arguments, "--settings"):
        inline = value.lstrip().startswith("{")
        contents.append(value if inline else _content(value) or "unreadable")
    return contents


_PROJECT_FILES = ("settings.json", "settings.local.json")


def _word(content: str) -> str | None:
    """Give what one file says, None where it says nothing; a broken one says what allows nothing."""
    try:
        settings = json.loads(content) if content.strip() else {}
    except (ValueError, RecursionError):
        return "unreadable"
    if not isinstance(settings, dict):
        return "unreadable"
    word = settings.get(_KEY)
    return None if word is None else str(word)


def _content(path: str) -> str | None:
    try:
        number = os.open(path, _READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return "unreadable"
    with os.fdopen(number, "rb", closefd=True) as file:
        try:
            return file.read(HOST_SETTINGS_BYTES).decode("utf-8", "replace")
        except OSError:
            return "unreadable"


def _arguments(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(_ARGUMENTS_BYTES).decode("utf-8", "replace").removesuffix("\0").split("\0")
    except OSError:
        return []


def _values(arguments: Sequence[str], option: str) -> list[str]:
    after = [value for name, value in pairwise(arguments) if name == option]
    joined = [one.partition("=")[2] for one in arguments if one.startswith(f"{option}=")]
    return after + joined


def _begins_bypassing(arguments: Sequence[str]) -> bool:
    return "--dangerously-skip-permissions" in arguments or _BYPASS in _values(arguments, "--permission-mode")
