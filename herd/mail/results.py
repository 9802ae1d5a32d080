"""What this session's agents have made, and under which references it and others' results can be attached.

A result has a semantic reference, `result:<agent>#<n>`, which people and models use, and a canonical one,
`result:<request-id>`, which names the very call that made it. A session may attach its own results, and those
that came to it attached. Every function takes the open connection of the mailbox and runs inside one
transaction of its caller.
"""

import sqlite3
from collections.abc import Collection, Iterable
from typing import NamedTuple

from herd.core.errors import AmbiguousTarget, RequestIdConflict
from herd.core.limits import DEFAULT_LIMITS, RESULTS_BYTES, RESULTS_KEPT, Limits
from herd.mail import bodies
from herd.mail.attachments import NOTHING_SENT
from herd.mail.bodies import RECEIVED, RESULT
from herd.mail.parts import PREFIX, Binding, Part, Parts, stored_bytes
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


def registered(connection: sqlite3.Connection, canonical: str, agent: str, data: bytes) -> Binding | None:
    """Give what a result was registered as; None where it was not.

    Raises:
        RequestIdConflict: another text was registered as that result, or as another agent's.
    """
    row = connection.execute(
        "SELECT ref, sha256, bytes FROM results WHERE canonical = ?", (canonical,)
    ).fetchone()
    if row is None:
        return None
    if not Part(row[1], row[2]).is_of(data):
        raise RequestIdConflict(f"{canonical} was registered with another text")
    if row[0].rpartition("#")[0] != PREFIX + agent:
        raise RequestIdConflict(f"{canonical} was registered as a result of another agent, {row[0]}")
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
        RequestIdConflict: another text was registered as that result, or as another agent's.
        QueueFull: the mailbox takes up too much for a new one.
    """
    agent = binding.ref.rpartition("#")[0].removeprefix(PREFIX)
    known = registered(connection, binding.canonical, agent, data)
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
        AmbiguousTarget: several results came under it, or what came is another one than this session's own of
            the same request id; `candidates` are their semantic references.
        RecoveryRequired: its text is damaged where it is stored.
    """
    own = _own(connection, reference, branches)
    if own is not None and own.binding.ref == reference:
        return own  # its number was given once in this data root, whatever a peer says of it
    came = _received(connection, reference)
    means = {(one.binding, one.part.sha256, one.part.size) for one in came}
    if own is not None:
        if any(not Part(sha256, size).is_of(own.data) for _, sha256, size in means):
            raise _ambiguous(reference, [own.binding, *(one.binding for one in came)])
        return own
    if len(means) > 1:
        raise _ambiguous(reference, [one.binding for one in came])
    if not came:
        return None
    newest = came[0]
    data = bodies.body(connection, RECEIVED, newest.sequence, newest.number, newest.part)
    return Result(newest.binding, data)


def _ambiguous(reference: str, found: Iterable[Binding]) -> AmbiguousTarget:
    names = [one.canonical if one.ref == reference else one.ref for one in found]
    return AmbiguousTarget(
        f"files: {reference!r} fits several results{NOTHING_SENT}",
        hint="Attach the one that is meant by its own reference among `candidates`.",
        candidates=sorted(set(names)),
        field="files",
        entry=reference,
    )


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


class _Came(NamedTuple):
    """A result that came attached, and where it lies."""

    sequence: int
    number: int
    part: Part
    binding: Binding


def _received(connection: sqlite3.Connection, reference: str) -> list[_Came]:
    """Give every result that came under a reference, the newest first."""
    # Only what the session was given: a message that still waits is evidence of nothing yet.
    rows = connection.execute(
        "SELECT inbox.sequence, inbox.parts, bindings.ref, bindings.canonical, bindings.part FROM bindings"
        " JOIN inbox ON inbox.sequence = bindings.inbox_sequence"
        " WHERE (bindings.ref = ? OR bindings.canonical = ?)"
        " AND (inbox.handovers > 0 OR inbox.state IN ('delivered', 'replied'))"
        " AND inbox.state <> 'rejected' AND inbox.run IS NULL ORDER BY inbox.sequence DESC",
        (reference, reference),
    )
    return [
        _Came(sequence, number, (Parts.read(text) or Parts()).numbered[number], Binding(ref, canonical))
        for sequence, text, ref, canonical, number in rows
    ]


def _make_room(connection: sqlite3.Connection) -> None:
    rows = connection.execute("SELECT result_id, bytes FROM results ORDER BY result_id DESC").fetchall()
    size = 0
    for count, (number, one) in enumerate(rows):
        size += one
        if count and (count >= RESULTS_KEPT or size > RESULTS_BYTES):
            connection.execute("DELETE FROM results WHERE result_id <= ?", (number,))
            return
