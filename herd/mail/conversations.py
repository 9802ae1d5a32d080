"""A reply settles the message it answers, on both sides, in the transaction that learns of it.

The sender's mailbox makes its message replied when it accepts the correlated reply; the answering mailbox
makes the message it received replied when it learns that the reply was accepted, be it by a receipt or by
an answer to that reply.
"""

import sqlite3

from herd.core.errors import AutomaticReplyLimit, InvalidReply
from herd.mail import events
from herd.mail.counter import next_cursor
from herd.mail.events import RECEIPT, Event
from herd.mail.pushing import push
from herd.mail.receipts import NEXT, REPLIED

_MAY_BE_REPLIED = tuple(state for state, after in NEXT.items() if REPLIED in after)
_PLACES = ", ".join("?" * len(_MAY_BE_REPLIED))


def reply_came(
    connection: sqlite3.Connection, message_id: str, recipient_key: str, correlation_id: str, now_ms: int
) -> None:
    """Make a message of the outbox replied, if this is the reply to it by session and correlation."""
    where = f"message_id = ? AND recipient_key = ? AND correlation_id = ? AND state IN ({_PLACES})"
    values = (message_id, recipient_key, correlation_id, *_MAY_BE_REPLIED)
    wanted = f"SELECT reply_to, accepted_at, recipient FROM outbox WHERE {where}"  # noqa: S608 - constants
    found = connection.execute(wanted, values).fetchone()
    if found is None:
        return
    cursor = next_cursor(connection)
    connection.execute(
        f"UPDATE outbox SET state = ?, replied_at = ?, cursor = ? WHERE {where}",  # noqa: S608
        (REPLIED, now_ms, cursor, *values),
    )
    reply_to, accepted_at, recipient = found
    events.note(connection, Event(cursor, RECEIPT, message_id, recipient, REPLIED, correlation_id, now_ms))
    if reply_to is not None and accepted_at is None:
        # Our message was a reply too. Its receipt was lost, and after this one it would be no news any more.
        reply_was_accepted(connection, reply_to, recipient_key, now_ms)


def reply_was_accepted(
    connection: sqlite3.Connection, message_id: str, sender_key: str, replied_at: int | None
) -> None:
    """Make a message of the inbox replied, since its sender's mailbox has accepted the reply; tell it so."""
    where = f"message_id = ? AND sender_key = ? AND state IN ({_PLACES})"
    values = (message_id, sender_key, *_MAY_BE_REPLIED)
    found = connection.execute(f"SELECT sequence FROM inbox WHERE {where}", values).fetchall()  # noqa: S608 - constants
    for (sequence,) in found:
        connection.execute(
            "UPDATE inbox SET state = ?, replied_at = ?, cursor = ?, owed = 1 WHERE sequence = ?",
            (REPLIED, replied_at, next_cursor(connection), sequence),
        )
        push(connection, sequence)


def require_original(
    connection: sqlite3.Connection, message_id: str, recipient_key: str, correlation_id: str
) -> None:
    """Let a reply pass to a message that this session sent to the one that replies, in that very exchange.

    What became of the message is of no account: one that was delivered long ago may be answered.

    Raises:
        InvalidReply: it sent no such message.
    """
    found = connection.execute(
        "SELECT 1 FROM outbox WHERE message_id = ? AND recipient_key = ? AND correlation_id = ?",
        (message_id, recipient_key, correlation_id),
    )
    if found.fetchone() is None:
        raise InvalidReply(f"no message {message_id} of this exchange was sent to the one that answers it")


def require_budget(connection: sqlite3.Connection, correlation_id: str, most: int) -> None:
    """Let one more message without a person pass in an exchange, counted over what was sent and received.

    Each side counts for itself, and what its mailbox holds: so neither an exchange that branches nor a
    restart gets past the bound. What a person wrote in it begins the count afresh.

    Raises:
        AutomaticReplyLimit: there have been `most` of them.
    """
    rows = [row for table in ("inbox", "outbox") for row in _exchange(connection, table, correlation_id)]
    begun = max((entered for entered, depth in rows if depth == 0), default=-1)
    count = sum(1 for entered, depth in rows if depth and entered > begun)
    if count >= most:
        raise AutomaticReplyLimit(
            f"{most} messages of one exchange have followed one another without a person's word"
        )


def _exchange(connection: sqlite3.Connection, table: str, correlation_id: str) -> list[tuple[int, int]]:
    """Give cursor and depth of the messages of an exchange: its first one, and all that name it."""
    # The condition of the partial index stands here word for word, or SQLite would not use it.
    rows = connection.execute(
        f"SELECT entered, depth FROM {table} WHERE message_id = :id AND correlation_id = :id"  # noqa: S608
        f" UNION ALL SELECT entered, depth FROM {table} WHERE correlation_id = :id AND message_id <> :id"
        " AND (depth > 0 OR reply_to IS NOT NULL)",
        {"id": correlation_id},
    )
    return rows.fetchall()
