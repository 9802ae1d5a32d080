"""What is owed of received messages: the newest receipt of each, and every single one to who subscribed.

Each function runs inside one transaction of its caller.
"""

import sqlite3
from typing import NamedTuple

from herd.mail import inbox
from herd.mail.inbox import Incoming
from herd.mail.receipts import Receipt


class Owed(NamedTuple):
    """A receipt that a message's sender has not confirmed yet."""

    row: Incoming
    receipt: Receipt


def subscribe(
    connection: sqlite3.Connection, sender_key: str, message_id: str, to: str, digest: str | None
) -> Incoming:
    """Owe the sender of a message each of its receipts from now on; gives the row as things stand.

    Raises:
        UnknownTarget, ScopeDenied, MessageIdConflict: see `herd.mail.inbox.asked`.
    """
    row = inbox.asked(connection, sender_key, message_id, to, digest)
    connection.execute("UPDATE inbox SET subscribed = 1 WHERE sequence = ?", (row.sequence,))
    return row


def owed(connection: sqlite3.Connection, sender_key: str) -> list[Owed]:
    """Give the receipts that are owed to one sender, those of one message in the order of its changes."""
    return [
        Owed(row, receipt)
        for row in inbox.owed(connection, sender_key)
        for receipt in _pushes(connection, row) or [row.receipt]
    ]


def settle(connection: sqlite3.Connection, owed: Owed) -> None:
    """Note that the sender has confirmed a receipt; later ones stay owed."""
    inbox.settle(connection, owed.row.sequence, owed.receipt.cursor)
    connection.execute(
        "DELETE FROM pushes WHERE sequence = ? AND cursor <= ?", (owed.row.sequence, owed.receipt.cursor)
    )


def _pushes(connection: sqlite3.Connection, row: Incoming) -> list[Receipt]:
    rows = connection.execute(
        "SELECT state, cursor, accepted_at, delivered_at, replied_at, outcome FROM pushes"
        " WHERE sequence = ? ORDER BY cursor",
        (row.sequence,),
    )
    return [Receipt(row.message_id, row.recipient, None, *one) for one in rows]
