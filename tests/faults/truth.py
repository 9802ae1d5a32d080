"""What a session's mailbox holds in truth: read from a copy, so that what a dead process left stays as it is.

It owns the looking, in SQL of its own. It is ignorant of what ought to be there.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from herd.core.identity import SessionName
from herd.core.locks import probe
from herd.core.paths import Layout
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, REJECTED, REPLIED

RANKS = {"queued": 0, PENDING: 0, ACCEPTED: 1, DELIVERED: 2, REPLIED: 3, REJECTED: 3}
"""How much each state says; a send calls the first one queued."""


class Came(NamedTuple):
    """A row of an inbox."""

    message_id: str
    sender_key: str
    content: str
    reply_to: str | None
    state: str
    handovers: int
    evidence: str | None
    owed: bool


class Went(NamedTuple):
    """A row of an outbox."""

    message_id: str
    recipient_key: str
    content: str
    state: str


class Mail(NamedTuple):
    """All rows of one mailbox: the inbox in the order of acceptance, the outbox in the order of sending."""

    inbox: list[Came]
    outbox: list[Went]

    def came(self, message_id: str) -> Came | None:
        """Give the row of a message that came."""
        found = [row for row in self.inbox if row.message_id == message_id]
        assert len(found) < 2, f"{message_id} lies there twice"
        return found[0] if found else None

    def went(self, message_id: str) -> Went | None:
        """Give the row of a message that was sent."""
        return next((row for row in self.outbox if row.message_id == message_id), None)


NOTHING = Mail([], [])


def look(layout: Layout, session: SessionName) -> Mail:
    """Read a session's mailbox, whether a process has it open, left it behind, or never made it.

    The file and its log are copied. Where no coordinator has them open, nobody visits them meanwhile; one
    that has may fold the log into the file between the two copies, and then they are made again.
    """
    path = layout.mailbox(session.key)
    with _kept_from_visitors(layout, session.key), tempfile.TemporaryDirectory(prefix="look-") as place:
        if not os.path.exists(path):
            return NOTHING
        copy = os.path.join(place, "mailbox")
        while True:
            before = _fold(path)
            shutil.copyfile(path, copy)
            try:
                shutil.copyfile(path + "-wal", copy + "-wal")
            except (
                FileNotFoundError
            ):  # folded for good meanwhile; a log of an earlier round is none of this one
                with suppress(FileNotFoundError):
                    os.unlink(copy + "-wal")
            if _fold(path) == before:
                return read(copy)


def _fold(path: str) -> tuple[int, int, bytes]:
    """Tell one fold of a log from the next: it writes to the file, and the log begins with other salts."""
    found = os.stat(path)
    try:
        with open(path + "-wal", "rb") as log:
            header = log.read(32)
    except FileNotFoundError:
        header = b""
    return found.st_mtime_ns, found.st_size, header


@contextmanager
def _kept_from_visitors(layout: Layout, key: str) -> Iterator[None]:
    path = layout.mailbox_lock(key)
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC) if os.path.exists(path) else -1
    try:
        # A visitor keeps it for an instant and waits for nothing; a coordinator has the session's lock too.
        while number >= 0 and not _taken(number) and not probe(layout.session_lock(key)).held:
            pass
        yield
    finally:
        if number >= 0:
            os.close(number)


def _taken(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def read(path: str) -> Mail:
    """Read a database that nobody else has open, and find it undamaged."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        came = connection.execute(
            "SELECT sequence, parts, message_id, sender_key, content, reply_to, state, handovers, evidence,"
            " owed FROM inbox ORDER BY sequence"
        ).fetchall()
        went = connection.execute(
            "SELECT position, parts, message_id, recipient_key, content, state FROM outbox ORDER BY position"
        ).fetchall()
        inbox = [Came(*row[2:]) for row in came]
        outbox = [Went(*row[2:]) for row in went]
        for number, row in enumerate(came):
            if row[1] is not None:
                text = _body(connection, "inbox_sequence", row[0], row[1])
                inbox[number] = inbox[number]._replace(content=text)
        for number, row in enumerate(went):
            if row[1] is not None and outbox[number].state == PENDING:
                _body(connection, "outbox_position", row[0], row[1])
            if row[1] is not None:
                outbox[number] = outbox[number]._replace(content=LONG_TEXTS[_sha256(row[1])])
        return Mail(inbox, outbox)


def long_text(text: str) -> str:
    """Give a text that goes by a body, and know it again where only its SHA-256 is left."""
    whole = text + "x" * 20_000
    LONG_TEXTS[hashlib.sha256(whole.encode()).hexdigest()] = whole
    return whole


LONG_TEXTS: dict[str, str] = {}


def _sha256(parts: str) -> str:
    return str(json.loads(parts)["body"]["sha256"])


def _body(connection: sqlite3.Connection, owner: str, number: int, parts: str) -> str:
    """Give a text that lies in chunks, which must be all there wherever its row is."""
    chunks = connection.execute(
        f"SELECT data FROM bodies JOIN chunks USING (body_id) WHERE {owner} = ? ORDER BY number", (number,)
    )
    data = b"".join(chunk for (chunk,) in chunks)
    assert hashlib.sha256(data).hexdigest() == _sha256(parts), "a row without all of its body"
    return data.decode()
