"""What a session's mailbox holds in truth: read from a copy, so that what a killed process left stays as it is.

It owns the looking. It is ignorant of what ought to be there.
"""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from typing import Any, NamedTuple

from herd.core.identity import SessionName
from herd.core.paths import Layout
from herd.mail import inbox, outbox
from herd.mail.inbox import Incoming
from herd.mail.outbox import Outgoing


class Mail(NamedTuple):
    """All rows of one mailbox: the inbox in the order of acceptance, the outbox in the order of sending."""

    inbox: list[Incoming]
    outbox: list[Outgoing]

    def came(self, message_id: str) -> Incoming | None:
        """Give the row of a message that came."""
        found = [row for row in self.inbox if row.message_id == message_id]
        assert len(found) < 2, f"{message_id} lies there twice"
        return found[0] if found else None

    def went(self, message_id: str) -> Outgoing | None:
        """Give the row of a message that was sent."""
        return next((row for row in self.outbox if row.message_id == message_id), None)


NOTHING = Mail([], [])


def look(layout: Layout, session: SessionName) -> Mail:
    """Read a session's mailbox, whether a process has it open, left it behind, or never made it.

    The file and its log are copied. Nobody folds the log into the file meanwhile: a coordinator does it after
    a thousand transactions and at its orderly end, and a test does not look then.
    """
    path = layout.mailbox(session.key)
    if not os.path.exists(path):
        return NOTHING
    with tempfile.TemporaryDirectory(prefix="look-", dir="/tmp") as place:
        copy = os.path.join(place, "mailbox")
        shutil.copyfile(path, copy)
        if os.path.exists(path + "-wal"):
            shutil.copyfile(path + "-wal", copy + "-wal")
        return read(copy)


def read(path: str) -> Mail:
    """Read a database that nobody else has open, and find it undamaged."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return Mail(
            [row for one in _ids(connection, "inbox", "sequence") for row in inbox.by_id(connection, one)],
            [outbox.required(connection, one) for one in _ids(connection, "outbox", "position")],
        )


def _ids(connection: sqlite3.Connection, table: str, order: str) -> list[Any]:
    rows = connection.execute(f"SELECT message_id, min({order}) FROM {table} GROUP BY message_id ORDER BY 2")
    return [row[0] for row in rows]
