"""How much of a disk one mailbox may take up, and the room that is kept for what has to be written later.

What counts are the pages of the file that hold something: SQLite keeps their number in the file's header, so
it is exact, costs no query over the rows and includes everything a mailbox holds. The log beside the file is
folded back and is not counted.

Only what is new is refused. A receipt, a hand-over or evidence is never: for each message whose last word is
still to come `RECEIPT_ROOM_BYTES` are set aside when something is taken in. What is delivered and may become
replied needs none, since the reply itself is taken in, or sent, with room of its own.
"""

import sqlite3

from herd.core.errors import QueueFull
from herd.core.limits import RECEIPT_ROOM_BYTES, RETRY_GREATEST_MS, Limits

_SPLIT_PAGES = 8
"""Pages that storing a row may need beside its bytes: one is split in each table and index it goes to."""

_FIELD_BYTES = 8_192
"""Bytes of a row's other fields, at most: topic, ids, digest and the verified sender, and indexed again."""

_ROW_BYTES = 256
"""Bytes of a row, at least: session key, digest and sender alone have more."""


def used(connection: sqlite3.Connection) -> int:
    """Give the bytes of the pages that hold something, those of this transaction included."""
    pages = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return pages * _pragma(connection, "page_size")


def unresolved(connection: sqlite3.Connection) -> int:
    """Count the messages, received and sent, of which more is still to be written down."""
    received = connection.execute("SELECT count(*) FROM inbox WHERE state = 'accepted'").fetchone()
    sent = connection.execute("SELECT count(*) FROM outbox WHERE state IN ('pending', 'accepted')").fetchone()
    return int(received[0]) + int(sent[0])


def require_room(connection: sqlite3.Connection, limits: Limits, adding: int) -> None:
    """Check that a new message can be stored, and all that will have to be written about it and the others.

    Args:
        connection: The mailbox, inside the transaction that stores the message.
        limits: The bounds in force.
        adding: UTF-8 bytes of its text, with whatever of it lies outside its row.

    Raises:
        QueueFull: the mailbox would take up more than `storage_bytes`; nothing was changed.
    """
    page = _pragma(connection, "page_size")
    beside = adding + _FIELD_BYTES + _SPLIT_PAGES * page + RECEIPT_ROOM_BYTES
    # There cannot be more rows than the file has room for: in most mailboxes nothing more is asked.
    whole = _pragma(connection, "page_count") * page
    if whole + beside + whole // _ROW_BYTES * RECEIPT_ROOM_BYTES <= limits.storage_bytes:
        return
    if used(connection) + beside + unresolved(connection) * RECEIPT_ROOM_BYTES > limits.storage_bytes:
        raise QueueFull(
            f"the mailbox has no room left within {limits.storage_bytes} bytes",
            retry_after_ms=RETRY_GREATEST_MS,
        )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])
