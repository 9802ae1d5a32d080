"""A reply settles the message it answers, on both sides, in the transaction that learns of it.

The sender's mailbox makes its message replied when it accepts the correlated reply; the answering mailbox
makes the message it received replied when it learns that the reply was accepted, be it by a receipt or by
an answer to that reply.
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
    found = connection.execute(f"SELECT reply_to, accepted_at FROM outbox WHERE {where}", values).fetchone()  # noqa: S608 - constants
    if found is None:
        return
    connection.execute(
        f"UPDATE outbox SET state = ?, replied_at = ?, cursor = ? WHERE {where}",  # noqa: S608
        (REPLIED, now_ms, next_cursor(connection), *values),
    )
    reply_to, accepted_at = found
    if reply_to is not None and accepted_at is None:
        # Our message was a reply too. Its receipt was lost, and after this one it would be no news any more.
        reply_was_accepted(connection, reply_to, recipient_key, now_ms)


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
