"""What Claude Code tells its hooks, as JSON on their standard input: read strictly as far as it is used.

Field by field it is foreign data. A field of another form than expected counts as absent, except those
without which nothing may follow from the event.
"""

import json
from typing import Any, NamedTuple

from herd.core.errors import HerdError
from herd.core.identity import checked_session
from herd.hosts.claude.wire import Told
from herd.mail.header import NOTICE

SESSION_START = "SessionStart"
PROMPT = "UserPromptSubmit"
TOOL = "PostToolUse"
TOOLS = "PostToolBatch"
STOP = "Stop"
SESSION_END = "SessionEnd"

_NOT_TYPED = ("<task-notification>",)
"""How prompts begin that Claude Code writes itself."""


class Event(NamedTuple):
    """One event, as far as it is used."""

    name: str
    session_id: str
    cwd: str | None
    transcript: str | None
    """The path of the session's transcript."""
    permission_mode: str | None
    of_subagent: bool
    """Whether it happened in a subagent, whose conversation is another one than the session's."""
    tool_use_ids: tuple[str, ...]
    """The calls whose results the agent has now."""
    by_person: bool
    """Whether it is a prompt that a person wrote."""
    again: bool
    """Whether the turn goes on only because a hook kept it from ending before."""
    source: str | None
    """How a session came to start."""


def read_event(told: Told) -> Event | None:
    """Read an event; None where it is cut off, malformed or another one than the hook was started for."""
    if not told.whole:
        return None
    try:
        found = json.loads(told.data.decode("utf-8"))
        if not isinstance(found, dict) or found.get("hook_event_name") != told.event:
            return None
        session_id = found.get("session_id")
        if not isinstance(session_id, str):
            return None
        checked_session("claude", session_id, "")
    except (ValueError, RecursionError, HerdError):
        return None
    return Event(
        name=told.event,
        session_id=session_id,
        cwd=_path(found, "cwd"),
        transcript=_path(found, "transcript_path"),
        permission_mode=_text(found, "permission_mode"),
        of_subagent="agent_id" in found,
        tool_use_ids=_tool_use_ids(told.event, found),
        by_person=told.event == PROMPT and _by_person(found),
        again=bool(found.get("stop_hook_active")),
        source=_text(found, "source"),
    )


def _by_person(found: dict[str, Any]) -> bool:
    prompt = _text(found, "prompt")
    if prompt is None or "agent_id" in found:
        return False
    # What wakes the session is not what a person wrote: only the exact words, or a person could not quote it.
    return prompt != NOTICE and not prompt.startswith(_NOT_TYPED)


def _tool_use_ids(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    calls = found.get("tool_calls") if name == TOOLS else [found] if name == TOOL else []
    if not isinstance(calls, list):
        return ()
    ids = (call.get("tool_use_id") for call in calls if isinstance(call, dict))
    return tuple(one for one in ids if isinstance(one, str))


def _text(found: dict[str, Any], field: str) -> str | None:
    value = found.get(field)
    return value if isinstance(value, str) else None


def _path(found: dict[str, Any], field: str) -> str | None:
    value = _text(found, field)
    return value if value is not None and value.startswith("/") and "\0" not in value else None
