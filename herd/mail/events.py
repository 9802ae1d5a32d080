"""The journal of one mailbox: what its host may be told of, each entry written with the change it tells.

A row knows its state of now alone. Whoever reads on from a cursor here gets every later event once and in
order, however fast the states followed one another and whoever ran the mailbox meanwhile.
"""

import sqlite3
from typing import NamedTuple

from herd.core.errors import InvalidParams
from herd.mail import counter

MESSAGE = "message"
RECEIPT = "receipt"


class Event(NamedTuple):
    """One entry.

    Attributes:
        cursor: Its place; they rise and have gaps.
        kind: `message` for mail that came, or that ended without being delivered; `receipt` for a message
            that this session sent.
        message_id: The message.
        target: Who sent it, as verified; for a receipt the target or peer id it was sent to.
        state: What was reached.
        correlation_id: The message that its exchange began with.
        at: When this mailbox learnt it, in milliseconds since the epoch.
        outcome: The code of a refusal.
        run: The run whose message it is, by its peer id; None for the session's own.
    """

    cursor: int
    kind: str
    message_id: str
    target: str
    state: str
    correlation_id: str
    at: int
    outcome: str | None = None
    run: str | None = None


_COLUMNS = ", ".join(Event._fields)


def note(connection: sqlite3.Connection, event: Event) -> None:
    """Write an entry, in the transaction that makes it true."""
    connection.execute(f"INSERT INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", event)  # noqa: S608


def after(connection: sqlite3.Connection, cursor: int, limit: int) -> list[Event]:
    """Give at most `limit` events behind a cursor, in order; the oldest that are kept where it is older.

    They are the session's own: what happens to a run's mail is nobody else's.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE cursor > ? AND run IS NULL ORDER BY cursor LIMIT ?",  # noqa: S608
        (cursor, limit),
    )
    return [Event._make(row) for row in rows]


def expired_after(
    connection: sqlite3.Connection, cursor: int, limit: int, run: str | None = None
) -> list[Event]:
    """Give at most `limit` messages that came for the session, or for a run, and expired behind a cursor."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM events WHERE kind = 'message' AND state = 'expired' AND cursor > ?"  # noqa: S608
        " AND run IS ? ORDER BY cursor LIMIT ?",
        (cursor, run, limit),
    )
    return [Event._make(row) for row in rows]


def prune(connection: sqlite3.Connection, until_ms: int, most: int) -> None:
    """Forget the oldest events up to a time, `most` of them at once."""
    connection.execute(
        "DELETE FROM events WHERE cursor IN (SELECT cursor FROM events ORDER BY cursor LIMIT ?) AND at <= ?",
        (most, until_ms),
    )


def require_cursor(connection: sqlite3.Connection, cursor: int) -> int:
    """Let a cursor pass from which one can read on.

    Raises:
        InvalidParams: it lies past the last event, as one of another mailbox may.
    """
    last = counter.last_cursor(connection)
    if cursor > last:
        raise past_the_last(cursor, last)
    return cursor


def past_the_last(cursor: int, last: int) -> InvalidParams:
    """Give the refusal of a cursor that no event has reached."""
    return InvalidParams(f"after: {cursor} is past the last event, {last}", field="after")
