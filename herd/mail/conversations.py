"""A reply settles the message it answers, on both sides, in the transaction that learns of it.

The sender's mailbox makes its message replied when it accepts the correlated reply; the answering mailbox
makes the message it received replied when it learns that the reply was accepted, be it by a receipt or by
an answer to that reply.
"""

import sqlite3

from herd.core.errors import AutomaticReplyLimit, InvalidReply
from herd.mail import events
from herd.mail.correspondents import recipient_sql
from herd.mail.counter import next_cursor
from herd.mail.events import RECEIPT, Event
from herd.mail.pushing import push
from herd.mail.receipts import NEXT, REPLIED

_MAY_BE_REPLIED = tuple(state for state, after in NEXT.items() if REPLIED in after)
_RECIPIENT = recipient_sql()
_PLACES = ", ".join("?" * len(_MAY_BE_REPLIED))


def reply_came(
    connection: sqlite3.Connection,
    message_id: str,
    sender: str,
    correlation_id: str,
    run: str | None,
    now_ms: int,
) -> None:
    """Make a message of the outbox replied, if this is the reply to it by correspondents and correlation.

    Args:
        connection: The mailbox of whoever sent the message.
        message_id: The message.
        sender: The identity of whoever sends the reply.
        correlation_id: That of the reply.
        run: The run that the reply is for; None for the session itself.
        now_ms: When.
    """
    where = (
        f"message_id = ? AND {_RECIPIENT} = ? AND correlation_id = ? AND run IS ? AND state IN ({_PLACES})"
    )
    values = (message_id, sender, correlation_id, run, *_MAY_BE_REPLIED)
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
    events.note(
        connection, Event(cursor, RECEIPT, message_id, recipient, REPLIED, correlation_id, now_ms, run=run)
    )
    if reply_to is not None and accepted_at is None:
        # Our message was a reply too. Its receipt was lost, and after this one it would be no news any more.
        reply_was_accepted(connection, reply_to, sender, run, now_ms)


def reply_was_accepted(
    connection: sqlite3.Connection, message_id: str, sender: str, run: str | None, replied_at: int | None
) -> None:
    """Make a message of the inbox replied, since its sender's mailbox has accepted the reply; tell it so.

    Args:
        connection: The mailbox of whoever got the message and replied.
        message_id: The message.
        sender: The identity of its sender.
        run: The run that it was for; None for the session itself.
        replied_at: When the reply was accepted.
    """
    where = f"message_id = ? AND sender_key = ? AND run IS ? AND state IN ({_PLACES})"
    values = (message_id, sender, run, *_MAY_BE_REPLIED)
    found = connection.execute(f"SELECT sequence FROM inbox WHERE {where}", values).fetchall()  # noqa: S608 - constants
    for (sequence,) in found:
        connection.execute(
            "UPDATE inbox SET state = ?, replied_at = ?, cursor = ?, owed = 1 WHERE sequence = ?",
            (REPLIED, replied_at, next_cursor(connection), sequence),
        )
        push(connection, sequence)


def require_original(
    connection: sqlite3.Connection, message_id: str, sender: str, correlation_id: str, run: str | None
) -> None:
    """Let a reply pass to a message that was sent to the one that replies, in that very exchange.

    What became of the message is of no account: one that was delivered long ago may be answered.

    Args:
        connection: The mailbox of whoever sent the message.
        message_id: The message.
        sender: The identity of whoever replies.
        correlation_id: That of the reply.
        run: The run that the reply is for, and that sent the message; None for the session itself.

    Raises:
        InvalidReply: it sent no such message.
    """
    found = connection.execute(
        f"SELECT 1 FROM outbox WHERE message_id = ? AND {_RECIPIENT} = ?"  # noqa: S608 - constants
        " AND correlation_id = ? AND run IS ?",
        (message_id, sender, correlation_id, run),
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
