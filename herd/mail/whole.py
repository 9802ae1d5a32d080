"""Received messages with all that lies outside their rows, found right again before any of it is shown.

Every function takes the open connection of the mailbox and runs inside one transaction of its caller.
"""

import sqlite3

from herd.core.errors import HerdError
from herd.mail import bodies, inbox
from herd.mail.bodies import RECEIVED
from herd.mail.inbox import Incoming
from herd.mail.parts import Parts


def whole(connection: sqlite3.Connection, row: Incoming) -> Incoming:
    """Give a message with its text, wherever that lies, once its length and SHA-256 and its files' are right.

    Raises:
        RecoveryRequired: something of it is damaged; then nothing of it may be shown.
    """
    parts = Parts.read(row.parts)
    if parts is None:
        return row
    text = bodies.text_of(connection, row.sequence, parts)
    return row if text is None else row._replace(content=text)


def is_whole(connection: sqlite3.Connection, row: Incoming) -> bool:
    """Tell whether nothing of a message is damaged."""
    try:
        whole(connection, row)
    except HerdError:
        return False
    return True


def undelivered(connection: sqlite3.Connection, run: str | None = None) -> list[Incoming]:
    """Give every accepted, undelivered message that can be shown, in the order of acceptance."""
    rows = inbox.undelivered(connection, run)
    return [whole(connection, row) for row in rows if row.parts is None or is_whole(connection, row)]


def unreadable(connection: sqlite3.Connection, run: str | None = None) -> list[str]:
    """Give the ids of accepted, undelivered messages whose stored record, text or files are damaged."""
    rows = inbox.undelivered(connection, run)
    damaged = [row.message_id for row in rows if row.parts is not None and not is_whole(connection, row)]
    return inbox.unreadable(connection, run) + damaged


def attachment(connection: sqlite3.Connection, row: Incoming, number: int) -> str:
    """Give the text of one attached file, found right again.

    Args:
        connection: The recipient's mailbox.
        row: The message.
        number: The number of the part.

    Raises:
        RecoveryRequired: it is damaged.
    """
    parts = Parts.read(row.parts) or Parts()
    return bodies.body(connection, RECEIVED, row.sequence, number, parts.numbered[number]).decode()
