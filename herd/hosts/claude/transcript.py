"""Evidence in a session's transcript: the entry of one tool call's result, of one message, of a cut turn.

Claude Code appends a line of JSON for each entry. Only the end of the file is read, and only lines that hold
the text looked for are parsed. All of it blocks: it is work for a thread.
"""

import json
import os
import stat
from collections.abc import Iterator
from typing import Any

from herd.core.limits import TRANSCRIPT_TAIL_BYTES

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def has_result(path: str, tool_use_id: str) -> bool:
    """Tell whether the session itself, no subagent of it, has the result of that call."""
    return any(_has_result(entry, tool_use_id) for entry in _entries(path, tool_use_id))


def has_message(path: str, message_id: str) -> bool:
    """Tell whether what a hook printed about that message stands in the session's conversation."""
    return any(entry.get("type") in {"attachment", "user"} for entry in _entries(path, message_id))


def was_answered(path: str, message_id: str) -> bool:
    """Tell whether the agent has said anything since that message was put into the session's conversation."""
    seen = False
    for entry in _entries(path, message_id, '"assistant"'):
        if entry.get("type") in {"attachment", "user"}:
            seen = True
        elif entry.get("type") == "assistant" and seen:
            return True
    return False


def ends_cut(path: str) -> bool:
    """Tell whether the last turn was cut off: its last word is the user's, or a result nobody answered."""
    last = None
    for entry in _entries(path, '"role"'):
        if entry.get("type") in {"user", "assistant"} and not entry.get("isMeta"):
            last = entry["type"]
    return last == "user"


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
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if entry.get("type") != "user" or not isinstance(content, list):
        return False
    return any(
        isinstance(block, dict)
        and block.get("type") == "tool_result"
        and block.get("tool_use_id") == tool_use_id
        for block in content
    )


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
