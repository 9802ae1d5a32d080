"""A reply settles the message it answers, on both sides, in the transaction that learns of it.

The sender's mailbox makes its message replied when it accepts the correlated reply; the answering mailbox
makes the message it received replied when it learns that the reply was accepted.
"""

import sqlite3

from herd.mail.counter import next_cursor
from herd.mail.receipts import NEXT, REPLIED

_MAY_BE_REPLIED = tuple(state for state, after in NEXT.items() if REPLIED in after)
_PLACES = ", ".join("?" * len(_MAY_BE_REPLIED))


def reply_came(
    connection: sqlite3.Connection, message_id: str, recipient_key: str, correlation_id: str, now_ms: int
) -> None:
    """Make a message of the outbox replied, if this is the reply to it by session and correlation."""
    where = f"message_id = ? AND recipient_key = ? AND correlation_id = ? AND state IN ({_PLACES})"
    values = (message_id, recipient_key, correlation_id, *_MAY_BE_REPLIED)
    if connection.execute(f"SELECT 1 FROM outbox WHERE {where}", values).fetchone():  # noqa: S608 - constants
        connection.execute(
            f"UPDATE outbox SET state = ?, replied_at = ?, cursor = ? WHERE {where}",  # noqa: S608
            (REPLIED, now_ms, next_cursor(connection), *values),
        )


def reply_was_accepted(
    connection: sqlite3.Connection, message_id: str, sender_key: str, replied_at: int | None
) -> None:
    """Make a message of the inbox replied, since its sender's mailbox has accepted the reply; tell it so."""
    where = f"message_id = ? AND sender_key = ? AND state IN ({_PLACES})"
    values = (message_id, sender_key, *_MAY_BE_REPLIED)
    if connection.execute(f"SELECT 1 FROM inbox WHERE {where}", values).fetchone():  # noqa: S608 - constants
        connection.execute(
            f"UPDATE inbox SET state = ?, replied_at = ?, cursor = ?, owed = 1 WHERE {where}",  # noqa: S608
            (REPLIED, replied_at, next_cursor(connection), *values),
        )
