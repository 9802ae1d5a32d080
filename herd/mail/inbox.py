"""The inbox's transactions behind acceptance: hand-overs, evidence, and the receipts that are owed.

Every function takes the open connection of the mailbox and runs inside one transaction of its caller: the
session's coordinator, or a visitor, who may accept and read but hands nothing over.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable
from typing import Any

from herd.core.errors import (
    MessageIdConflict,
    ScopeDenied,
    UnknownTarget,
)
from herd.core.limits import HANDOVERS
from herd.core.moments import Moment
from herd.mail import events
from herd.mail.correspondents import runs_of
from herd.mail.counter import next_cursor
from herd.mail.events import MESSAGE, Event
from herd.mail.lifetimes import is_over
from herd.mail.pushing import push
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, REJECTED, TARGET_ENDED, Receipt, advanced
from herd.mail.received import Acceptance, Admission, Admitted, Incoming, Lying, Sender

__all__ = ["Acceptance", "Admission", "Admitted", "Incoming", "Lying", "Sender", "find"]

_COLUMNS = (
    "sequence, sender_key, message_id, recipient, digest, sender, content, topic, reply_to, correlation_id,"
    " conversation_id, depth, no_reply_needed, created_at, handovers, evidence, owed, state, cursor,"
    " accepted_at, delivered_at, replied_at, outcome, run, instance_id, lifetime_ms, since, parts,"
    " stripped"
)

_COLUMNS_RUN = _COLUMNS.split(", ").index("run")

_LIES = "state = 'accepted' AND run IS ?"
"""What lies undelivered for one recipient: the session itself, whose mail has no run, or one of its runs."""

_SPAN = (
    f"SELECT 1 + (SELECT sequence FROM inbox WHERE {_LIES} ORDER BY sequence DESC LIMIT 1)"
    f" - (SELECT sequence FROM inbox WHERE {_LIES} ORDER BY sequence LIMIT 1)"
)

_WAITING = f"SELECT {_COLUMNS} FROM inbox WHERE {_LIES} ORDER BY sequence"


def find(connection: sqlite3.Connection, sender: str, message_id: str, to: str) -> Incoming | None:
    """Give a row by what identifies it: sender (see `Sender.identity`), message id, exact recipient."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM inbox WHERE sender_key = ? AND message_id = ? AND recipient = ?",
        (sender, message_id, to),
    ).fetchone()
    return None if row is None else _incoming(row)


def asked(
    connection: sqlite3.Connection, sender: str, message_id: str, to: str, digest: str | None
) -> Incoming:
    """Give the row that a sender asks after: a message that it sent itself, to this very recipient.

    Raises:
        ScopeDenied: the message is somebody else's, or it was not sent to that recipient.
        UnknownTarget: no message of that id was ever here.
        MessageIdConflict: the one of that id has other content than what the sender says it sent.
    """
    row = find(connection, sender, message_id, to)
    if row is None:
        known = "SELECT 1 FROM inbox WHERE message_id = :id UNION SELECT 1 FROM outbox WHERE message_id = :id"
        if connection.execute(known, {"id": message_id}).fetchone():
            raise ScopeDenied(f"message {message_id} is not one that you sent to that recipient")
        raise UnknownTarget(f"message {message_id} of yours has not come here")
    if digest not in {None, row.digest}:
        raise MessageIdConflict(f"message {message_id} was accepted before with other content")
    return row


def waiting(connection: sqlite3.Connection, run: str | None = None) -> int:
    """Count the messages accepted and not yet delivered, of the session itself or of one run."""
    return int(connection.execute(f"SELECT count(*) FROM inbox WHERE {_LIES}", (run,)).fetchone()[0])


def span(connection: sqlite3.Connection, run: str | None = None) -> int:
    """Give the numbers from the first to the last that waits, by two look-ups: no more can wait."""
    return connection.execute(_SPAN, (run, run)).fetchone()[0] or 0


def undelivered(connection: sqlite3.Connection, run: str | None = None) -> list[Incoming]:
    """Give every accepted, undelivered message in the order of acceptance, and change nothing.

    What cannot be read is left out, so that it keeps no other message from its reader; see `unreadable`.

    Args:
        connection: The mailbox.
        run: Whose: a run's, by its peer id; None for the session's own. Neither sees the other's.
    """
    return [row for row in map(_read, connection.execute(_WAITING, (run,))) if row is not None]


def lying(connection: sqlite3.Connection, run: str | None = None) -> list[Lying]:
    """Give what lies undelivered, in the order of acceptance, for whoever counts and needs no text."""
    rows = connection.execute(
        "SELECT sequence, message_id, handovers, depth, no_reply_needed, accepted_at FROM inbox"
        f" WHERE {_LIES} ORDER BY sequence",
        (run,),
    )
    return [Lying._make((*row[:4], bool(row[4]), row[5])) for row in rows]


def unreadable(connection: sqlite3.Connection, run: str | None = None) -> list[str]:
    """Give the ids of accepted, undelivered messages whose stored record does not parse."""
    return [str(row[2]) for row in connection.execute(_WAITING, (run,)) if _read(row) is None]


def by_id(connection: sqlite3.Connection, message_id: str, run: str | None = None) -> list[Incoming]:
    """Give the messages of an id that came for the session itself or for one run, whatever their state."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM inbox WHERE message_id = ? AND run IS ? ORDER BY sequence",
        (message_id, run),
    )
    return [_incoming(row) for row in rows]


def may_be_handed_over(row: Incoming) -> bool:
    """Tell whether a message may be given without a person asking: not after `HANDOVERS` of no evidence."""
    return row.receipt.state == ACCEPTED and row.handovers < HANDOVERS


def count_handovers(connection: sqlite3.Connection, sequences: Iterable[int], now_ms: int) -> None:
    """Count a hand-over of each message, before it is made."""
    connection.executemany(
        "UPDATE inbox SET handovers = handovers + 1, handed_at = ? WHERE sequence = ?",
        [(now_ms, number) for number in sequences],
    )


def uncount_handovers(connection: sqlite3.Connection, sequences: Iterable[int]) -> None:
    """Take back the last counted hand-over of each message: it never reached the session."""
    connection.executemany(
        "UPDATE inbox SET handovers = handovers - 1,"
        " handed_at = CASE handovers WHEN 1 THEN NULL ELSE handed_at END"
        " WHERE sequence = ? AND handovers > 0",
        [(number,) for number in sequences],
    )


def confirm(
    connection: sqlite3.Connection, sequences: Iterable[int], evidence: str, now_ms: int
) -> list[Incoming]:
    """Record the host's evidence and make each message delivered; gives the rows that changed."""
    return [
        row
        for number in sequences
        if (row := _advance(connection, number, DELIVERED, now_ms, evidence=evidence)) is not None
    ]


def refuse(connection: sqlite3.Connection, sequence: int, code: str, now_ms: int) -> Incoming | None:
    """Reject an accepted message at its delivery, by what evidence says now."""
    return _advance(connection, sequence, REJECTED, now_ms, outcome=code)


def expire(connection: sqlite3.Connection, sequence: int, now_ms: int) -> Incoming | None:
    """End an accepted message whose lifetime is over; when it was accepted stays known."""
    return _advance(connection, sequence, EXPIRED, now_ms)


def mortal(connection: sqlite3.Connection, run: str | None = None) -> list[Incoming]:
    """Give the accepted, undelivered messages that are not good for ever, in the order of acceptance."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM inbox WHERE {_LIES} AND lifetime_ms IS NOT NULL ORDER BY sequence", (run,)
    )
    return [row for row in map(_read, rows) if row is not None]


def expire_due(connection: sqlite3.Connection, now: Moment) -> None:
    """End every message whose lifetime is over, where nobody can be holding one: on a visit."""
    for row in mortal(connection):
        if is_over(row, now):
            expire(connection, row.sequence, now.wall_ms)


def runs_ended(connection: sqlite3.Connection, runs: Collection[str] | None = None) -> list[Incoming]:
    """Note that nobody will read what lies undelivered for runs that are over; gives the rows that changed.

    It stays accepted, which is true, and goes to no other reader; its sender is told the outcome.

    Args:
        connection: The mailbox.
        runs: Their peer ids; None for every run there ever was, as when a coordinator starts.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM inbox WHERE state = 'accepted' AND run IS NOT NULL AND outcome IS NULL"
        " ORDER BY sequence"
    ).fetchall()
    ended = [row for row in rows if runs is None or row[_COLUMNS_RUN] in runs]
    return [_ended(connection, _incoming(row)) for row in ended]


def owed(connection: sqlite3.Connection, key: str | None = None) -> list[Incoming]:
    """Give the rows whose receipt the sender has not confirmed yet, of one session or of all.

    What a session's runs sent is told to its coordinator as well.
    """
    condition = "" if key is None else "AND (sender_key = ? OR sender_key > ? AND sender_key < ?)"
    values = () if key is None else (key, *runs_of(key))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM inbox WHERE owed = 1 {condition} ORDER BY cursor",
        values,
    )
    return [_incoming(row) for row in rows]


def settle(connection: sqlite3.Connection, sequence: int, cursor: int) -> None:
    """Note that the sender has confirmed the receipt of that cursor; a later one stays owed."""
    connection.execute("UPDATE inbox SET owed = 0 WHERE sequence = ? AND cursor = ?", (sequence, cursor))


def _ended(connection: sqlite3.Connection, row: Incoming) -> Incoming:
    receipt = row.receipt._replace(outcome=TARGET_ENDED, cursor=next_cursor(connection))
    connection.execute(
        "UPDATE inbox SET outcome = ?, cursor = ?, owed = 1 WHERE sequence = ?",
        (receipt.outcome, receipt.cursor, row.sequence),
    )
    push(connection, row.sequence)
    return row._replace(receipt=receipt, owed=True)


def _advance(
    connection: sqlite3.Connection,
    sequence: int,
    state: str,
    now_ms: int,
    *,
    evidence: str | None = None,
    outcome: str | None = None,
) -> Incoming | None:
    found = connection.execute(f"SELECT {_COLUMNS} FROM inbox WHERE sequence = ?", (sequence,)).fetchone()
    row = None if found is None else _incoming(found)
    if row is None:
        return None
    receipt = advanced(row.receipt, state, now_ms, outcome)
    if receipt == row.receipt:
        return None
    receipt = receipt._replace(cursor=next_cursor(connection))
    connection.execute(
        "UPDATE inbox SET state = ?, cursor = ?, accepted_at = ?, delivered_at = ?, replied_at = ?,"
        " outcome = ?, evidence = coalesce(?, evidence), owed = 1 WHERE sequence = ?",
        (*receipt[3:], evidence, sequence),
    )
    push(connection, sequence)
    if state in {REJECTED, EXPIRED}:  # what is delivered, its host knows already
        ended = (row.message_id, row.sender.target, state, row.correlation_id, now_ms, outcome, row.run)
        events.note(connection, Event(receipt.cursor, MESSAGE, *ended))
    return row._replace(receipt=receipt, owed=True, evidence=evidence or row.evidence)


def _incoming(row: tuple[Any, ...]) -> Incoming:
    sender = Sender(**json.loads(row[5]))
    receipt = Receipt(row[2], row[3], None, *row[17:23])
    values = (*row[:5], sender, *row[6:12], bool(row[12]), *row[13:16], bool(row[16]), receipt, *row[23:])
    return Incoming._make(values)


def _read(row: tuple[Any, ...]) -> Incoming | None:
    try:
        return _incoming(row)
    except (ValueError, TypeError):  # no JSON, or JSON of something else than a sender
        return None
