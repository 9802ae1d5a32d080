"""Assignments that are right in every field, for tests to spoil or to write; it holds no rule."""

import json
from pathlib import Path
from typing import Any

from assignments import store
from assignments.record import Assignment
from herd.core.authority_lock import AuthorityLock
from herd.core.identity import SessionName
from herd.core.paths import Layout

REPO = "/home/me/project/.git"
CREATED_AT = 1_790_000_000_000


def assignment_of(
    number: int = 1, *, socket: str = "none", repo: str = REPO, branch: str | None = None, **more: Any
) -> Assignment:
    """Give one of many assignments, each of a session and a branch of its own."""
    given: dict[str, Any] = {
        "id": f"00000000-0000-4000-8000-{number:012x}",
        "socket": socket,
        "repo": repo,
        "branch": branch or f"work/{number}",
        "session": SessionName("claude", f"session-{number}"),
        "text": "Mend the clock.",
        "created_at": CREATED_AT,
    }
    return Assignment(**{**given, **more})


def lock_of(layout: Layout) -> AuthorityLock:
    """Give the authority lock of a data root."""
    return AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)


def assigned(layout: Layout, *assignments: Assignment) -> None:
    """Put records in their places, whatever else is there."""
    with lock_of(layout).exclusive() as hold:
        for assignment in assignments:
            store.write(layout, hold, assignment)


def path_of(layout: Layout, assignment: Assignment) -> Path:
    """Give the file of a record."""
    return Path(layout.assignment(*assignment.place))


def shape_of(assignment: Assignment) -> dict[str, Any]:
    """Give the JSON object of a record's file, written out here once more, apart from what is tested."""
    host, session_id, created = assignment.session
    shape: dict[str, Any] = {
        "version": 1,
        "id": assignment.id,
        "socket": assignment.socket,
        "repo": assignment.repo,
        "branch": assignment.branch,
        "session": {"host": host, "session_id": session_id, "created": created},
        "text": assignment.text,
        "created_at": assignment.created_at,
    }
    if assignment.checkout is not None:
        shape["checkout"] = assignment.checkout
    if assignment.attachments:
        shape["attachments"] = [{"name": name, "text": text} for name, text in assignment.attachments]
    if assignment.bindings:
        shape["bindings"] = [{"ref": ref, "canonical": canonical} for ref, canonical in assignment.bindings]
    return shape


def bytes_of(shape: object) -> bytes:
    """Give a JSON value as a file holds it."""
    return json.dumps(shape, ensure_ascii=False).encode("utf-8", "surrogatepass")
