"""A message is taken into custody: every check that a new one has to pass in this mailbox, and its row.

Every function takes the open connection of the mailbox and runs inside one transaction of its caller: the
session's coordinator, or a visitor. What becomes of the row afterwards is told in `inbox`.
"""

import sqlite3

from herd.core.errors import CustodyChanged, InvalidParams, MessageExpired, MessageIdConflict, QueueFull
from herd.core.limits import RETRY_WHEN_FULL_MS, Limits
from herd.mail import bodies as rows_of_bodies
from herd.mail import events, results, shown
from herd.mail.bodies import RECEIVED
from herd.mail.conversations import reply_came, require_budget, require_original
from herd.mail.counter import next_cursor
from herd.mail.events import MESSAGE, Event
from herd.mail.inbox import find, span, waiting
from herd.mail.parts import Bodies, Parts, require_taken
from herd.mail.rates import Rates
from herd.mail.receipts import ACCEPTED, Receipt
from herd.mail.received import Acceptance, Admission, Sender
from herd.mail.shown import Shown
from herd.mail.storage import require_room
from herd.mail.wire import Envelope, as_json, digest_of


def accept(
    connection: sqlite3.Connection,
    envelope: Envelope,
    sender: Sender,
    admission: Admission,
    bodies: Bodies | None = None,
) -> Acceptance:
    """Take a message into custody with its bodies, or give the receipt it got before.

    Args:
        connection: The recipient's mailbox.
        envelope: The message.
        sender: Who sends it, as it was proved.
        admission: With what the mailbox admits it.
        bodies: What of it lies outside the envelope, found right.

    Raises:
        BodyMissing: its bodies are not there.
        InvalidParams, MessageTooLarge: they are no text, or more than this session takes.
        CustodyChanged: the message may have reached another mailbox than this one.
        MessageIdConflict: the id is known from this sender with other content.
        InvalidParams: its lifetime is longer than a message may be good for here.
        MessageExpired: its lifetime ran out on the way.
        InvalidReply: this session has sent no such message as it answers to that sender.
        AutomaticReplyLimit: its exchange has had its messages without a person.
        QueueFull: too many messages wait to be delivered, or the mailbox takes up too much; a duplicate is
            answered all the same.
        RateLimited: the sender hands in too many at once; a duplicate costs it nothing.
        HerdError: what closes the mailbox to new messages of this sender.
    """
    custody_id, now_ms = admission.custody_id, admission.now.wall_ms
    if envelope.custody_id not in {None, custody_id}:
        raise CustodyChanged(f"message {envelope.message_id} may lie in another mailbox of this session")
    digest = digest_of(envelope)
    known = find(connection, sender.identity, envelope.message_id, envelope.to)
    if known is not None:
        if known.digest != digest:
            raise MessageIdConflict(f"message {envelope.message_id} was accepted before with other content")
        return Acceptance(known.receipt._replace(custody_id=custody_id), new=False)
    outside = envelope.parts
    lifetime_ms = _admitted(connection, envelope, sender, admission, bodies)
    cursor = next_cursor(connection)
    sequence = _insert(connection, envelope, sender, digest, cursor, lifetime_ms, admission)
    if outside is not None and bodies is not None:
        rows_of_bodies.keep(connection, RECEIVED, sequence, bodies.data)
        results.bind(connection, sequence, outside)
    came = (envelope.message_id, sender.target, ACCEPTED, envelope.correlation_id, now_ms)
    events.note(connection, Event(cursor, MESSAGE, *came, run=admission.run))
    if envelope.reply_to is not None:
        reply_came(
            connection, envelope.reply_to, sender.identity, envelope.correlation_id, admission.run, now_ms
        )
    _show(connection, sender, now_ms)
    receipt = Receipt(envelope.message_id, envelope.to, custody_id, ACCEPTED, cursor, accepted_at=now_ms)
    return Acceptance(receipt, new=True)


def require_place(
    connection: sqlite3.Connection,
    limits: Limits,
    adding: int,
    parts: Parts | None = None,
    *,
    run: str | None = None,
) -> None:
    """Refuse a new message where there is no place for it.

    Args:
        connection: The recipient's mailbox.
        limits: The bounds in force.
        adding: UTF-8 bytes of the text that its row holds.
        parts: What of it lies outside the row.
        run: The run that it is for; None for the session itself.

    Raises:
        QueueFull: too many messages wait to be delivered, or the mailbox takes up too much for a new one.
    """
    if _is_full(connection, run, limits.inbox_messages):
        raise QueueFull(
            f"{limits.inbox_messages} messages wait to be read there already",
            retry_after_ms=RETRY_WHEN_FULL_MS,
        )
    require_room(connection, limits, adding + (0 if parts is None else parts.stored_bytes))


def _is_full(connection: sqlite3.Connection, run: str | None, inbox_messages: int) -> bool:
    # A count takes longer the more there are, so it is made only where there may be too many.
    return span(connection, run) >= inbox_messages and waiting(connection, run) >= inbox_messages


def _admitted(
    connection: sqlite3.Connection,
    envelope: Envelope,
    sender: Sender,
    admission: Admission,
    bodies: Bodies | None,
) -> int | None:
    """Make every check of a new message that needs this mailbox; gives what it has left of its lifetime."""
    if admission.closed is not None and not (admission.replies and envelope.reply_to is not None):
        raise admission.closed
    lifetime_ms = _lifetime(envelope, admission)
    if envelope.reply_to is not None:
        require_original(
            connection, envelope.reply_to, sender.identity, envelope.correlation_id, admission.run
        )
    if admission.driven and envelope.conversation.depth:
        require_budget(connection, envelope.correlation_id, admission.limits.automatic_replies)
    outside = envelope.parts
    if outside is not None:
        require_taken(outside, bodies, admission.limits)
    size = len((envelope.content or "").encode())
    require_place(connection, admission.limits, size, outside, run=admission.run)
    # Behind all other checks, since the rate counts what is taken.
    rates = Rates(admission.limits) if admission.rates is None else admission.rates
    rates.take(connection, sender.identity, admission.now)
    return lifetime_ms


def _lifetime(envelope: Envelope, admission: Admission) -> int | None:
    """Give what a message has left now; what it waited for here since it came counts already."""
    told = envelope.expires_in_ms
    if told is None:
        return None
    if told > admission.limits.max_expiry_ms:
        raise InvalidParams(
            f"expiresInMs: {told} is more than {admission.limits.max_expiry_ms}", field="expiresInMs"
        )
    left = told - (admission.now.since(admission.came) if admission.came else 0)
    if left <= 0:
        raise MessageExpired(f"the lifetime of message {envelope.message_id} ran out on the way")
    return left


def _insert(
    connection: sqlite3.Connection,
    envelope: Envelope,
    sender: Sender,
    digest: str,
    cursor: int,
    lifetime_ms: int | None,
    admission: Admission,
) -> int:
    parts = envelope.parts
    inserted = connection.execute(
        "INSERT INTO inbox (sender_key, message_id, recipient, digest, sender, content, topic, reply_to,"
        " correlation_id, conversation_id, depth, no_reply_needed, created_at, state, cursor, accepted_at,"
        " instance_id, lifetime_ms, since, parts, entered, run)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            sender.identity,
            envelope.message_id,
            envelope.to,
            digest,
            as_json(sender._asdict()),
            envelope.content or "",
            envelope.topic,
            envelope.reply_to,
            envelope.correlation_id,
            envelope.conversation.id,
            envelope.conversation.depth,
            int(envelope.no_reply_needed),
            envelope.created_at,
            ACCEPTED,
            cursor,
            admission.now.wall_ms,
            admission.instance_id,
            lifetime_ms,
            admission.now.text(),
            None if parts is None else parts.text(),
            cursor,
            admission.run,
        ),
    )
    return inserted.lastrowid or 0


def _show(connection: sqlite3.Connection, sender: Sender, now_ms: int) -> None:
    # Whoever wrote to a session may be answered by it, now and after a restart. When it was shown last is of
    # no account for one with mail here, so what is known already is not written again.
    writer = Shown(sender.target, sender.key, sender.name)
    if shown.find(connection, sender.target) != writer:
        shown.remember(connection, [writer], now_ms)
