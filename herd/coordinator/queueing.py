"""The transaction of a send: the row of the outbox, and what the message proves of the one it answers."""

import sqlite3
from typing import NamedTuple

from herd.coordinator.drafting import Draft
from herd.core.limits import Limits
from herd.mail import inbox, outbox
from herd.mail.conversations import require_budget
from herd.mail.inbox import Incoming
from herd.mail.outbox import Outgoing
from herd.mail.parts import Bodies, Parts


class Queued(NamedTuple):
    """A committed row, whether this call made it, its bodies, and what else the commit settled."""

    row: Outgoing
    new: bool
    bodies: Bodies | None
    evidenced: list[Incoming]


def queue(
    connection: sqlite3.Connection, draft: Draft, limits: Limits, now_ms: int, *, automatic: bool = False
) -> Queued:
    """Store a draft as pending; what it answers becomes delivered, since who names a message's id has it.

    Args:
        connection: The sender's mailbox.
        draft: What is to be sent.
        limits: The bounds in force.
        now_ms: When.
        automatic: Whether it is sent without a person, and so counted in its exchange.

    Raises:
        AutomaticReplyLimit: they have been sent and received already, and this one is new.
        MessageIdConflict, QueueFull: see `herd.mail.outbox.enqueued`.
    """
    if automatic and outbox.find(connection, draft.row.message_id) is None:
        require_budget(connection, draft.row.correlation_id, limits.automatic_replies)
    row, new = outbox.enqueued(connection, draft.row, limits, draft.bodies)
    return Queued(row, new, _bodies(draft), _confirmed_by(connection, draft.row, now_ms))


def _bodies(draft: Draft) -> Bodies | None:
    parts = Parts.read(draft.row.parts)
    return None if parts is None else Bodies(parts, draft.bodies)


def _confirmed_by(connection: sqlite3.Connection, reply: Outgoing, now_ms: int) -> list[Incoming]:
    if reply.reply_to is None:
        return []
    answered = [
        row.sequence
        for row in inbox.by_id(connection, reply.reply_to, reply.run)
        if row.handovers and row.sender_key == reply.recipient_identity
    ]
    return inbox.confirm(connection, answered, "reply", now_ms)
