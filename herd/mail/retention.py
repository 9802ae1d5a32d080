"""What a mailbox keeps of messages that are resolved, and for how long.

After retention a row loses its text and all that only its readers needed. What identifies the message stays
in it, so that one which is sent again is known and a late reply finds what it answers; that goes at last too.
Each function takes the open connection and runs inside one transaction of its caller.
"""

import sqlite3
from collections.abc import Iterator

from herd.core.limits import IDENTITY_MS, KEPT_AT_ONCE
from herd.core.moments import Moment
from herd.mail import bodies, events, inbox, results
from herd.mail.bodies import RECEIVED, SENT
from herd.mail.inbox import Incoming
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, REJECTED, REPLIED, Receipt

PURGED = "PURGED"
"""The outcome of a message that a person removed from its recipient's mailbox before it was delivered."""

TABLES = {"inbox": "sequence", "outbox": "position"}

_BODIES = {"inbox": RECEIVED, "outbox": SENT}

_FINAL = frozenset({DELIVERED, REPLIED, REJECTED, EXPIRED})

_RESOLVED = (
    "(state IN ('delivered', 'replied', 'rejected', 'expired') OR state = 'accepted' AND outcome IS NOT NULL)"
)


def is_resolved(receipt: Receipt) -> bool:
    """Tell whether nothing more is owed of a message, so that its retention begins."""
    return receipt.state in _FINAL or (receipt.state == ACCEPTED and receipt.outcome is not None)


def note_resolved(connection: sqlite3.Connection, now: Moment) -> None:
    """Note of what has been resolved since the last look that it was resolved by now."""
    for table in TABLES:
        connection.execute(
            f"UPDATE {table} SET settled = ? WHERE settled IS NULL AND {_RESOLVED}", (now.text(),)
        )


def strip(connection: sqlite3.Connection, now: Moment, older_ms: int) -> int:
    """Remove the texts of messages that have been resolved for so long; gives how many.

    Args:
        connection: The mailbox.
        now: When.
        older_ms: Milliseconds; 0 for all that are resolved, `KEPT_AT_ONCE` of each direction at most. Events
            of the journal that are as old go with them.
    """
    count = 0
    for table, number, settled in _aged(connection, stripped=False, most=KEPT_AT_ONCE):
        if now.since(settled) >= older_ms:
            _strip(connection, table, number)
            count += 1
    events.prune(connection, now.wall_ms - older_ms, KEPT_AT_ONCE)
    return count


def forget(connection: sqlite3.Connection, now: Moment) -> int:
    """Remove what identifies messages that were resolved `IDENTITY_MS` ago; gives how many."""
    count = 0
    for table, number, settled in _aged(connection, stripped=True, most=KEPT_AT_ONCE):
        if now.since(settled) >= IDENTITY_MS:
            connection.execute(f"DELETE FROM {table} WHERE {TABLES[table]} = ?", (number,))
            count += 1
    return count


def holds_resolved(connection: sqlite3.Connection) -> bool:
    """Tell whether any resolved message still has its text."""
    return any(
        connection.execute(f"SELECT 1 FROM {table} WHERE stripped = 0 AND {_RESOLVED} LIMIT 1").fetchone()
        for table in TABLES
    )


def remove_unread(connection: sqlite3.Connection, message_id: str, now: Moment) -> list[Incoming]:
    """Reject, on a person's word, the undelivered messages of an id, and remove their texts."""
    removed = []
    for row in inbox.by_id(connection, message_id):
        if row.receipt.state == ACCEPTED:
            refused = inbox.refuse(connection, row.sequence, PURGED, now.wall_ms)
            if refused is not None:
                _strip(connection, "inbox", row.sequence)
                removed.append(refused)
    return removed


def _aged(connection: sqlite3.Connection, *, stripped: bool, most: int) -> Iterator[tuple[str, int, Moment]]:
    """Give the rows whose end is noted, the oldest first."""
    for table, key in TABLES.items():
        rows = connection.execute(
            f"SELECT {key}, settled FROM {table} WHERE stripped = ? AND settled IS NOT NULL AND {_RESOLVED}"
            f" ORDER BY {key} LIMIT ?",
            (int(stripped), most),
        ).fetchall()
        for number, settled in rows:
            yield table, number, Moment.read(settled)


def _strip(connection: sqlite3.Connection, table: str, number: int) -> None:
    bodies.remove(connection, _BODIES[table], number)
    if table == "inbox":
        results.unbind(connection, number)
    connection.execute(
        f"UPDATE {table} SET content = '', topic = NULL, parts = NULL, stripped = 1"
        f" WHERE {TABLES[table]} = ?",
        (number,),
    )
