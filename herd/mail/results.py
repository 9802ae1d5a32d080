"""What this session's agents have made, and under which references it and others' results can be attached.

A result has a semantic reference, `result:<agent>#<n>`, which people and models use, and a canonical one,
`result:<request-id>`, which names the very call that made it. A session may attach its own results, and those
that came to it attached. Every function takes the open connection of the mailbox and runs inside one
transaction of its caller.
"""

import sqlite3
from collections.abc import Collection
from typing import NamedTuple

from herd.core.errors import RequestIdConflict
from herd.core.limits import DEFAULT_LIMITS, RESULTS_BYTES, RESULTS_KEPT, Limits
from herd.mail import bodies
from herd.mail.bodies import RECEIVED, RESULT
from herd.mail.parts import Binding, Part, Parts, stored_bytes
from herd.mail.storage import require_room

_ONLY = 0
"""The number of the one part of a result."""


class Result(NamedTuple):
    """A result that may be attached."""

    binding: Binding
    data: bytes


def bind(connection: sqlite3.Connection, sequence: int, parts: Parts) -> None:
    """Note under which references attached results came with a message."""
    bound = [(number, parts.bound(number)) for number in parts.numbered]
    connection.executemany(
        "INSERT INTO bindings (inbox_sequence, ref, canonical, part) VALUES (?, ?, ?, ?)",
        [(sequence, *binding, number) for number, binding in bound if binding is not None],
    )


def unbind(connection: sqlite3.Connection, sequence: int) -> None:
    """Forget under which references results came with a message, whose bodies are removed."""
    connection.execute("DELETE FROM bindings WHERE inbox_sequence = ?", (sequence,))


def registered(connection: sqlite3.Connection, canonical: str, data: bytes) -> Binding | None:
    """Give what a result was registered as; None where it was not.

    Raises:
        RequestIdConflict: another text was registered as that result.
    """
    row = connection.execute(
        "SELECT ref, sha256, bytes FROM results WHERE canonical = ?", (canonical,)
    ).fetchone()
    if row is None:
        return None
    if not Part(row[1], row[2]).is_of(data):
        raise RequestIdConflict(f"{canonical} was registered with another text")
    return Binding(row[0], canonical)


def register(
    connection: sqlite3.Connection,
    binding: Binding,
    branch: str | None,
    data: bytes,
    limits: Limits = DEFAULT_LIMITS,
) -> Binding:
    """Store a result, or give the one that is stored for the same call; the oldest make room.

    Raises:
        RequestIdConflict: another text was registered as that result.
        QueueFull: the mailbox takes up too much for a new one.
    """
    known = registered(connection, binding.canonical, data)
    if known is not None:
        return known
    require_room(connection, limits, stored_bytes([len(data)]))
    described = Part.of(data)
    inserted = connection.execute(
        "INSERT INTO results (ref, canonical, branch, sha256, bytes) VALUES (?, ?, ?, ?, ?)",
        (*binding, branch, described.sha256, described.size),
    )
    bodies.keep(connection, RESULT, inserted.lastrowid or 0, {_ONLY: data})
    _make_room(connection)
    return binding


def find(
    connection: sqlite3.Connection, reference: str, branches: Collection[str] | None = None
) -> Result | None:
    """Give the result that a reference means to this session; None where it means none.

    Args:
        connection: The session's mailbox.
        reference: Semantic or canonical.
        branches: The branches from the conversation's beginning to where it is now: a result made on another
            one is not found by its semantic reference. None where the host has none, or for all of them.

    Raises:
        RecoveryRequired: its text is damaged where it is stored.
    """
    return _own(connection, reference, branches) or _received(connection, reference)


def _own(connection: sqlite3.Connection, reference: str, branches: Collection[str] | None) -> Result | None:
    row = connection.execute(
        "SELECT result_id, ref, canonical, branch, sha256, bytes FROM results WHERE ? IN (ref, canonical)",
        (reference,),
    ).fetchone()
    if row is None:
        return None
    number, ref, canonical, branch, sha256, size = row
    if reference == ref and branches is not None and branch is not None and branch not in branches:
        return None
    data = bodies.body(connection, RESULT, number, _ONLY, Part(sha256, size, ref))
    return Result(Binding(ref, canonical), data)


def _received(connection: sqlite3.Connection, reference: str) -> Result | None:
    # Only what the session was given: a message that still waits is evidence of nothing yet.
    row = connection.execute(
        "SELECT inbox.sequence, inbox.parts, bindings.ref, bindings.canonical, bindings.part FROM bindings"
        " JOIN inbox ON inbox.sequence = bindings.inbox_sequence"
        " WHERE (bindings.ref = ? OR bindings.canonical = ?)"
        " AND (inbox.handovers > 0 OR inbox.state IN ('delivered', 'replied'))"
        " AND inbox.state <> 'rejected' AND inbox.run IS NULL ORDER BY inbox.sequence DESC LIMIT 1",
        (reference, reference),
    ).fetchone()
    if row is None:
        return None
    sequence, text, ref, canonical, part = row
    parts = Parts.read(text) or Parts()
    data = bodies.body(connection, RECEIVED, sequence, part, parts.numbered[part])
    return Result(Binding(ref, canonical), data)


def _make_room(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT result_id, bytes FROM results ORDER BY result_id DESC").fetchall()
    size = 0
    for count, (number, one) in enumerate(rows):
        size += one
        if count and (count >= RESULTS_KEPT or size > RESULTS_BYTES):
            connection.execute("DELETE FROM results WHERE result_id <= ?", (number,))
            return
