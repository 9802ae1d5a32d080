"""What this session has been shown: the targets its tools may write to, kept over restarts.

A target shown to another session, or typed from a text, is not in this table and resolves to nothing.
"""

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from herd.core.limits import SHOWN_PEERS


class Shown(NamedTuple):
    """One peer as it was shown: its exact target or peer id, and the session that it names."""

    target: str
    key: str
    name: str | None = None


def remember(connection: sqlite3.Connection, peers: Iterable[Shown], now_ms: int) -> None:
    """Note that these peers were shown, and forget those shown longest ago beyond `SHOWN_PEERS`."""
    connection.executemany(
        "INSERT INTO shown (target, session_key, name, shown_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (target) DO UPDATE SET name = excluded.name, shown_at = excluded.shown_at",
        [(*peer, now_ms) for peer in peers],
    )
    if connection.execute("SELECT count(*) FROM shown").fetchone()[0] > SHOWN_PEERS:
        _forget(connection)


def _forget(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM shown WHERE target IN ("
        " SELECT target FROM shown WHERE session_key NOT IN"
        " (SELECT substr(sender_key, 1, 64) FROM inbox UNION ALL SELECT recipient_key FROM outbox)"
        " ORDER BY shown_at DESC LIMIT -1 OFFSET ?)",
        (SHOWN_PEERS,),
    )


def find(connection: sqlite3.Connection, target: str) -> Shown | None:
    """Give what a target was shown as; None where this session was never shown it."""
    row = connection.execute(
        "SELECT target, session_key, name FROM shown WHERE target = ?", (target,)
    ).fetchone()
    return None if row is None else Shown(*row)


def every(connection: sqlite3.Connection) -> dict[str, Shown]:
    """Give all that was shown, by target."""
    rows = connection.execute("SELECT target, session_key, name FROM shown")
    return {row[0]: Shown(*row) for row in rows}
