"""The outbox's transactions: what this session sent, and what it knows of each message.

Every function takes the open connection of the mailbox and runs inside one transaction of its caller, who
is the session's coordinator or, for receipts that come while it sleeps, a visitor.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from herd.core.errors import (
    CustodyChanged,
    InvalidReply,
    InvalidRpc,
    MessageIdConflict,
    ScopeDenied,
    UnknownTarget,
)
from herd.core.identity import target_of
from herd.core.limits import DEFAULT_LIMITS, Limits
from herd.mail import bodies as rows_of_bodies
from herd.mail import events
from herd.mail.bodies import SENT
from herd.mail.body_wire import described_in
from herd.mail.conversations import reply_was_accepted
from herd.mail.correspondents import identity_of
from herd.mail.counter import next_cursor
from herd.mail.events import RECEIPT, Event
from herd.mail.parts import Bodies, Parts, stored_bytes
from herd.mail.receipts import EXPIRED, PENDING, REJECTED, Receipt, advanced, merged
from herd.mail.storage import require_room
from herd.mail.wire import Conversation, Envelope, Sender, as_json

_COLUMNS = (
    "position, message_id, recipient, recipient_key, digest, sender, content, topic, reply_to,"
    " correlation_id, conversation_id, depth, no_reply_needed, created_at, custody_id, state, cursor,"
    " accepted_at, delivered_at, replied_at, outcome, run, instance_id, lifetime_ms, since, parts, to_run"
)


class Outgoing(NamedTuple):
    """One row of the outbox.

    `recipient` is the target or peer id as sent, and `recipient_key` the session that it means; `to_run` says
    that it means a run of that session. `sender` is the verified context, `run` the run that sends. `content`
    is empty where the text is one of the `parts`.
    """

    position: int
    message_id: str
    recipient: str
    recipient_key: str
    digest: str
    sender: dict[str, Any]
    content: str
    topic: str | None
    reply_to: str | None
    correlation_id: str
    conversation_id: str
    depth: int
    no_reply_needed: bool
    created_at: int
    custody_id: str | None
    receipt: Receipt
    run: str | None = None
    instance_id: str | None = None
    lifetime_ms: int | None = None
    since: str | None = None
    parts: str | None = None
    to_run: bool = False

    @property
    def route(self) -> str:
        """What orders this message among others: who sends it, and its exact recipient."""
        return self.recipient if self.run is None else f"{self.run} {self.recipient}"

    @property
    def recipient_identity(self) -> str:
        """Who it is sent to, as messages are told apart by it: the session, or one exact run of it."""
        return identity_of(self.recipient_key, self.recipient if self.to_run else None)

    def envelope(self, left_ms: int | None = None) -> Envelope:
        """Give what travels; the same at every attempt but for the custody id, once it is known.

        Args:
            left_ms: Milliseconds that it has left when it is sent; None where it is good for ever.

        Raises:
            RecoveryRequired: what is stored of its text and files is damaged.
        """
        parts = Parts.read(self.parts)
        outside = {} if parts is None else described_in(parts)
        return Envelope.model_construct(
            version=1,
            message_id=self.message_id,
            sender=_wire_sender(self.sender, self.run),
            to=self.recipient,
            custody_id=self.custody_id,
            content=self.content or None,
            created_at=self.created_at,
            topic=self.topic,
            reply_to=self.reply_to,
            correlation_id=self.correlation_id,
            conversation=Conversation.model_construct(id=self.conversation_id, depth=self.depth),
            no_reply_needed=self.no_reply_needed,
            expires_in_ms=left_ms,
            **outside,
        )


class Enqueued(NamedTuple):
    """A stored row, and whether it was stored just now."""

    row: Outgoing
    new: bool


def enqueue(connection: sqlite3.Connection, row: Outgoing, limits: Limits = DEFAULT_LIMITS) -> Outgoing:
    """Store a new message as pending; see `enqueued`."""
    return enqueued(connection, row, limits).row


def enqueued(
    connection: sqlite3.Connection,
    row: Outgoing,
    limits: Limits = DEFAULT_LIMITS,
    bodies: Mapping[int, bytes] | None = None,
) -> Enqueued:
    """Store a new message as pending, or give the stored one where the same call was made before.

    Args:
        connection: The sender's mailbox.
        row: The message.
        limits: The bounds in force.
        bodies: Those of its parts, by number; they become rows with it.

    Raises:
        QueueFull: the mailbox takes up too much for a new one.
        MessageIdConflict: the id is known with another recipient or content.
    """
    known = find(connection, row.message_id)
    if known is not None:
        _require_same(known, row)
        return Enqueued(known, new=False)
    require_room(
        connection, limits, len(row.content.encode()) + stored_bytes(map(len, (bodies or {}).values()))
    )
    cursor = next_cursor(connection)
    position = _insert(connection, row, cursor)
    if bodies:
        rows_of_bodies.keep(connection, SENT, position, bodies)
    receipt = Receipt(row.message_id, row.recipient, row.custody_id, PENDING, cursor)
    return Enqueued(row._replace(position=position, receipt=receipt), new=True)


def _require_same(known: Outgoing, row: Outgoing) -> None:
    if _identifying(known) != _identifying(row):
        raise MessageIdConflict(f"message {row.message_id} was sent with other content or to another target")


def find(connection: sqlite3.Connection, message_id: str) -> Outgoing | None:
    """Give the row of a message; None where this session sent none of that id."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM outbox WHERE message_id = ?", (message_id,)).fetchone()
    return None if row is None else _outgoing(row)


def required(connection: sqlite3.Connection, message_id: str, run: str | None = None) -> Outgoing:
    """Give the row of a message.

    Args:
        connection: The sender's mailbox.
        message_id: The message.
        run: The run that asks; None for the session itself. Neither is told of the other's messages.

    Raises:
        UnknownTarget: this session, or that run of it, sent none of that id.
    """
    row = find(connection, message_id)
    if row is None or row.run != run:
        raise UnknownTarget(
            f"no message {message_id[:128]!r} was sent by this session",
            hint="Use the message_id that the send gave.",
        )
    return row


def pending(connection: sqlite3.Connection) -> list[Outgoing]:
    """Give every pending row in the order of sending."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM outbox WHERE state = 'pending'"
        " AND state IN ('pending', 'accepted') ORDER BY position"  # the words of the index, or it is not used
    )
    return [_outgoing(row) for row in rows]


def bodies_of(connection: sqlite3.Connection, row: Outgoing) -> Bodies | None:
    """Give the bodies of a pending message as they are stored; None where it has none.

    They are not looked at: whoever takes them finds them right or refuses the message.
    """
    parts = Parts.read(row.parts)
    if parts is None:
        return None
    data = {one: rows_of_bodies.stored(connection, SENT, row.position, one) for one in parts.numbered}
    return Bodies(parts, data)


def mortal(connection: sqlite3.Connection) -> list[Outgoing]:
    """Give the pending rows that are not good for ever, in the order of sending."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM outbox WHERE state = 'pending' AND lifetime_ms IS NOT NULL"
        " AND state IN ('pending', 'accepted') ORDER BY position"  # as in `pending`
    )
    return [_outgoing(row) for row in rows]


def record_receipt(
    connection: sqlite3.Connection,
    receipt: Receipt,
    recipient_key: str,
    digest: str | None = None,
    *,
    now_ms: int,
) -> Outgoing:
    """Learn a receipt from the session that is the message's recipient.

    Args:
        connection: The sender's mailbox.
        receipt: What was told.
        recipient_key: Who told it.
        digest: The content digest of the message that it is about, where that was told.
        now_ms: When, on this machine.

    Raises:
        ScopeDenied: no message of that id was sent to that session.
        MessageIdConflict: one was, of other content: a sender that lost its records may give an id again.
    """
    row = find(connection, receipt.message_id)
    if row is None or row.recipient_key != recipient_key or row.recipient != receipt.to:
        raise ScopeDenied(f"message {receipt.message_id} was not sent to the session that confirms it")
    if row.custody_id is not None and receipt.custody_id != row.custody_id:
        raise ScopeDenied(
            f"message {receipt.message_id} lies in another custody than the one that confirms it"
        )
    if digest not in {None, row.digest}:
        raise MessageIdConflict(f"the receipt is about other content than message {row.message_id} has now")
    learnt = _store(connection, row, merged(row.receipt, receipt), now_ms)
    if learnt is not row and row.reply_to is not None and learnt.receipt.accepted_at is not None:
        accepted_at = learnt.receipt.accepted_at
        reply_was_accepted(connection, row.reply_to, row.recipient_identity, row.run, accepted_at)
    return learnt


def require_answer(row: Outgoing, receipt: Receipt) -> None:
    """Check that what answered an attempt at a message can be believed about it.

    Raises:
        InvalidRpc: it is the receipt of another message.
        CustodyChanged: the message may lie in another mailbox than the one that answered.
    """
    if (receipt.message_id, receipt.to) != (row.message_id, row.recipient):
        raise InvalidRpc(f"the receipt of another message answered {row.message_id}")
    if row.custody_id not in {None, receipt.custody_id}:
        raise CustodyChanged(
            f"message {row.message_id} may lie in another mailbox than the one that answered"
        )


def reject(connection: sqlite3.Connection, message_id: str, code: str, now_ms: int) -> Outgoing:
    """Record a definitive refusal, unless more is known already."""
    row = find(connection, message_id) or required(connection, message_id)
    if row.receipt.state != PENDING:
        return row  # what a mailbox has accepted, no refusal of a later attempt can undo
    return _store(connection, row, advanced(row.receipt, REJECTED, now_ms, code), now_ms)


def expire(connection: sqlite3.Connection, message_id: str, now_ms: int) -> Outgoing:
    """End a message whose lifetime is over and that no mailbox has, unless more is known of it already."""
    row = find(connection, message_id) or required(connection, message_id)
    if row.receipt.state != PENDING:
        return row
    return _store(connection, row, advanced(row.receipt, EXPIRED, now_ms), now_ms)


def changed_after(
    connection: sqlite3.Connection, cursor: int, limit: int, run: str | None = None
) -> list[Outgoing]:
    """Give at most `limit` rows whose state changed after `cursor`, in the order of their changes.

    Only those that the session itself sent, or that one run of it did.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM outbox WHERE cursor > ? AND state <> 'pending' AND run IS ?"
        " ORDER BY cursor LIMIT ?",
        (cursor, run, limit),
    )
    return [_outgoing(row) for row in rows]


def require_reply(
    connection: sqlite3.Connection, message_id: str, sender: str, run: str | None = None
) -> tuple[str, str, int]:
    """Give correlation id, conversation id and depth of a received message that is to be answered.

    Args:
        connection: The mailbox of whoever answers.
        message_id: The message.
        sender: The identity of whoever is answered; see `herd.mail.inbox.Sender.identity`.
        run: The run that answers; None for the session itself.

    Raises:
        InvalidReply: this session, or that run of it, received no such message from that correspondent.
    """
    row = connection.execute(
        "SELECT correlation_id, conversation_id, depth FROM inbox"
        " WHERE message_id = ? AND sender_key = ? AND run IS ?",
        (message_id, sender, run),
    ).fetchone()
    if row is None:
        raise InvalidReply(f"no message {message_id[:128]!r} came from that target")
    return str(row[0]), str(row[1]), int(row[2])


def _insert(connection: sqlite3.Connection, row: Outgoing, cursor: int) -> int:
    values = (
        row.message_id,
        row.recipient,
        row.recipient_key,
        row.digest,
        as_json(row.sender),
        row.content,
        row.topic,
        row.reply_to,
        row.correlation_id,
        row.conversation_id,
        row.depth,
        int(row.no_reply_needed),
        row.created_at,
        row.custody_id,
        PENDING,
        cursor,
        *row[16:21],
        cursor,
        int(row.to_run),
    )
    inserted = connection.execute(
        "INSERT INTO outbox (message_id, recipient, recipient_key, digest, sender, content, topic, reply_to,"
        " correlation_id, conversation_id, depth, no_reply_needed, created_at, custody_id, state, cursor,"
        " run, instance_id, lifetime_ms, since, parts, entered, to_run)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    return inserted.lastrowid or 0


def _store(connection: sqlite3.Connection, row: Outgoing, receipt: Receipt, now_ms: int) -> Outgoing:
    if receipt == row.receipt:
        return row
    receipt = receipt._replace(cursor=next_cursor(connection))
    connection.execute(
        "UPDATE outbox SET custody_id = ?, state = ?, cursor = ?, accepted_at = ?, delivered_at = ?,"
        " replied_at = ?, outcome = ? WHERE position = ?",
        (*receipt[2:], row.position),
    )
    if row.parts is not None:
        rows_of_bodies.remove(connection, SENT, row.position)  # some mailbox has it, or none ever will
    reached = (
        row.message_id,
        row.recipient,
        receipt.state,
        row.correlation_id,
        now_ms,
        receipt.outcome,
        row.run,
    )
    events.note(connection, Event(receipt.cursor, RECEIPT, *reached))
    return row._replace(custody_id=receipt.custody_id, receipt=receipt)


def _outgoing(row: tuple[Any, ...]) -> Outgoing:
    receipt = Receipt(row[1], row[2], *row[14:21])
    values = (*row[:5], json.loads(row[5]), *row[6:12], bool(row[12]), row[13], row[14], receipt, *row[21:26])
    return Outgoing._make((*values, bool(row[26])))


def _identifying(row: Outgoing) -> tuple[str | None, ...]:
    """Give what two messages of one id must agree on."""
    return row.run, row.recipient_key, row.recipient, row.digest


def _wire_sender(sender: dict[str, Any], run: str | None) -> Sender:
    if run is None:
        return Sender.model_construct(session=sender["target"])
    return Sender.model_construct(session=target_of(sender["role"], sender["key"]), run=run)
