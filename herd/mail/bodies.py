"""The rows in which bodies lie, in chunks: with what they belong to, and never without.

Every function takes the open connection of a mailbox and runs inside one transaction of its caller.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Literal

from herd.core.errors import RecoveryRequired
from herd.core.limits import CHUNK_BYTES
from herd.mail.parts import TEXT, Part, Parts

Owner = Literal["outbox_position", "inbox_sequence", "result_id"]
"""The column that names what a body belongs to."""

SENT: Owner = "outbox_position"
RECEIVED: Owner = "inbox_sequence"
RESULT: Owner = "result_id"


def keep(connection: sqlite3.Connection, owner: Owner, number: int, data: Mapping[int, bytes]) -> None:
    """Store bodies by their part numbers; they belong to that row from now on."""
    for part, whole in data.items():
        stored = connection.execute(f"INSERT INTO bodies ({owner}, part) VALUES (?, ?)", (number, part))
        connection.executemany(
            "INSERT INTO chunks (body_id, number, data) VALUES (?, ?, ?)",
            [(stored.lastrowid, count, chunk) for count, chunk in enumerate(_chunks(whole))],
        )


def stored(connection: sqlite3.Connection, owner: Owner, number: int, part: int) -> bytes:
    """Give one body as it is stored, whatever that is; empty where there is none."""
    rows = connection.execute(
        f"SELECT chunks.data FROM bodies JOIN chunks USING (body_id) WHERE bodies.{owner} = ?"
        " AND bodies.part = ? ORDER BY chunks.number",
        (number, part),
    )
    return b"".join(chunk for (chunk,) in rows)


def body(connection: sqlite3.Connection, owner: Owner, number: int, part: int, described: Part) -> bytes:
    """Give one body, found right again: what is stored can be damaged after it was taken.

    Raises:
        RecoveryRequired: it is not there, or its length or SHA-256 is another.
    """
    data = stored(connection, owner, number, part)
    if not described.is_of(data):
        named = "the text" if described.name is None else f"file {described.name!r}"
        raise RecoveryRequired(
            f"{named} of a message is damaged where it is stored: it has not the SHA-256 with which it came",
            hint="Ask its sender for it again; the message stays where it is and is shown to nobody.",
        )
    return data


def text_of(connection: sqlite3.Connection, number: int, parts: Parts) -> str | None:
    """Give the text of a received message of which every body was found right; None where its row has it.

    Raises:
        RecoveryRequired: any of them is wrong.
    """
    data = {part: body(connection, RECEIVED, number, part, one) for part, one in parts.numbered.items()}
    return data[TEXT].decode() if TEXT in data else None


def remove(connection: sqlite3.Connection, owner: Owner, number: int) -> None:
    """Remove the bodies of a row that stays: nobody needs them any more."""
    connection.execute(
        f"DELETE FROM chunks WHERE body_id IN (SELECT body_id FROM bodies WHERE {owner} = ?)", (number,)
    )
    connection.execute(f"DELETE FROM bodies WHERE {owner} = ?", (number,))


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]
