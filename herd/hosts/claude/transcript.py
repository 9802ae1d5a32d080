"""Evidence in a session's transcript: the entry of one tool call's result, of one message, of a cut turn.

Claude Code appends a line of JSON for each entry. Only the end of the file is read, and only lines that hold
the text looked for are parsed. All of it blocks: it is work for a thread.
"""

import json
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from herd.core.limits import TRANSCRIPT_TAIL_BYTES

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_INTERRUPTED = "[Request interrupted by user"
"""How the note begins that Claude Code writes where a person has cut a turn off."""


def has_result(path: str, tool_use_id: str) -> bool:
    """Tell whether the session itself, no subagent of it, has the result of that call."""
    return any(_has_result(entry, tool_use_id) for entry in _entries(path, tool_use_id))


def has_message(path: str, message_id: str) -> bool:
    """Tell whether what a hook printed about that message stands in the session's conversation."""
    return any(entry.get("type") in {"attachment", "user"} for entry in _entries(path, message_id))


def was_kept(path: str, message_id: str) -> bool:
    """Tell whether a message beside a prompt stays in the conversation, whatever has become of its turn.

    A prompt that is cancelled before its answer is either taken back, and what stood beside it with it, or
    kept with a note that it was interrupted.
    """
    seen = False
    for entry in _entries(path, message_id, '"assistant"', _INTERRUPTED):
        if _is_interruption(entry) or entry.get("type") == "assistant":
            if seen:
                return True
        elif entry.get("type") in {"attachment", "user"}:
            seen = True
    return False


def ended(path: str, since: int) -> bool | None:
    """Tell how the turn that began at that time, in milliseconds, has ended.

    Returns:
        True: with the agent's last word, or as a command of the host. False: a person has cut it off. None:
        its end is not written, or not yet.
    """
    last: dict[str, Any] = {}
    for entry in _entries(path, '"role"'):
        if entry.get("type") in {"user", "assistant"} and not entry.get("isMeta"):
            last = entry
    if _milliseconds(last.get("timestamp")) < since:
        return None
    if last.get("type") == "assistant":
        return None if any(block.get("type") == "tool_use" for block in _blocks(last)) else True
    if _is_interruption(last):
        return False
    return True if last.get("isCompactSummary") or _is_output(last) else None


def _entries(path: str, *wanted: str) -> Iterator[dict[str, Any]]:
    for line in _tail(path).split(b"\n"):
        if any(text.encode() in line for text in wanted):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue  # cut off by our bound, or being written just now
            if isinstance(entry, dict) and not entry.get("isSidechain"):
                yield entry


def _has_result(entry: dict[str, Any], tool_use_id: str) -> bool:
    return entry.get("type") == "user" and any(
        block.get("type") == "tool_result" and block.get("tool_use_id") == tool_use_id
        for block in _blocks(entry)
    )


def _is_interruption(entry: dict[str, Any]) -> bool:
    # A person may quote the words: Claude Code's own note is a block, and what is typed is a plain text.
    return entry.get("type") == "user" and any(
        block.get("type") == "text" and str(block.get("text")).startswith(_INTERRUPTED)
        for block in _blocks(entry)
    )


def _is_output(entry: dict[str, Any]) -> bool:
    message = entry.get("message")
    return isinstance(message, dict) and str(message.get("content")).startswith("<local-command-stdout>")


def _blocks(entry: dict[str, Any]) -> list[dict[str, Any]]:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _milliseconds(timestamp: object) -> float:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp() * 1_000
    except (ValueError, OverflowError):
        return -1


def _tail(path: str) -> bytes:
    try:
        number = os.open(path, _READ)
    except OSError:
        return b""
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return b""
        start = max(0, status.st_size - TRANSCRIPT_TAIL_BYTES)
        return os.pread(number, TRANSCRIPT_TAIL_BYTES, start)
    except OSError:
        return b""
    finally:
        os.close(number)
