"""The file `mailbox.sqlite3`: made and opened, always under the session's mailbox lock.

A mailbox that should exist and does not, is empty, foreign or damaged is RECOVERY_REQUIRED and stays as it
was found. SQLite opens an emptied file as a new, empty database without a word, so what tells "new" from
"lost" is `session.json`: it gets the custody id after the file is complete and before its first row.
"""

import os
import sqlite3
import uuid
from contextlib import closing

from herd.core.errors import RecoveryRequired
from herd.core.files import private_folder
from herd.core.limits import MAILBOX_APPLICATION_ID, MAILBOX_VERSION
from herd.core.paths import Layout
from herd.mail.mailbox_proof import (
    PRIVATE_MODE,
    Custody,
    damage_told,
    log_of,
    open_exclusively,
    require_custody,
    require_mailbox,
    require_openable,
)
from herd.mail.tables import bring_up
from herd.presence.session_file import SessionFile, amend_session_file

_UNFINISHED = ".mailbox."


def open_mailbox(layout: Layout, file: SessionFile) -> tuple[sqlite3.Connection, str]:
    """Open a session's mailbox, making it where the session has none yet.

    The caller holds the session's mailbox lock and keeps it while the connection is open.

    Returns:
        The connection, in autocommit mode with its pragmas set, and the custody id.

    Raises:
        RecoveryRequired: the mailbox is missing, empty, foreign or damaged.
        NewerState: a newer Herd wrote it.
        OSError, sqlite3.Error: it cannot be read or made now.
    """
    path = layout.mailbox(file.session.key)
    custody = Custody(file.custody_id or _make(layout, file, path), file.session.key)
    require_mailbox(path)
    require_openable(path, custody)
    connection = open_exclusively(path)
    try:
        version = require_custody(connection, path, custody)
        _write_ahead(connection)
        if version < MAILBOX_VERSION:
            _renew(connection, version)
    except BaseException:
        connection.close()
        raise
    return connection, custody.id


def _make(layout: Layout, file: SessionFile, path: str) -> str:
    folder = private_folder(layout.session_folder(file.session.key))
    if os.path.lexists(path):
        # A crash came between the rename below and session.json; the file is complete and has no row.
        custody_id = _unused_custody(path, file.session.key)
    else:
        if os.path.lexists(path + "-wal"):
            # SQLite would take it for the log of the new file and fold a lost mailbox's pages into it.
            raise RecoveryRequired(f"{path}-wal is there without its mailbox", path=path + "-wal")
        custody_id = str(uuid.uuid4())
        _build(folder, path, Custody(custody_id, file.session.key))
    amend_session_file(layout, file, custody_id=custody_id)
    return custody_id


def _unused_custody(path: str, key: str) -> str:
    require_mailbox(path)
    if log_of(path) is None:
        with closing(open_exclusively(path)) as connection, damage_told(path):
            row = connection.execute("SELECT custody_id, session_key FROM custody").fetchone()
            used = connection.execute(
                "SELECT 1 FROM inbox UNION ALL SELECT 1 FROM outbox UNION ALL SELECT 1 FROM shown LIMIT 1"
            ).fetchone()
        if row is not None and row[1] == key and not used:
            return str(row[0])
    # A log is as good as a row: the file was complete, and closed, before it got this name.
    raise RecoveryRequired(f"{path} holds mail, but its session.json knows no mailbox", path=path)


def _build(folder: str, path: str, custody: Custody) -> None:
    for name in os.listdir(folder):
        if name.startswith(_UNFINISHED):
            os.unlink(os.path.join(folder, name))
    unfinished = os.path.join(folder, f"{_UNFINISHED}{os.getpid()}")
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_MODE))
    os.chmod(unfinished, PRIVATE_MODE)
    # Closing folds the log back, so that a reader of the header alone sees all of it.
    with closing(open_exclusively(unfinished)) as connection:
        _write_ahead(connection)
        connection.execute("BEGIN IMMEDIATE")
        bring_up(connection, 0)
        connection.execute("INSERT INTO custody VALUES (1, ?, ?)", custody)
        connection.execute(f"PRAGMA application_id = {MAILBOX_APPLICATION_ID}")
        connection.execute("COMMIT")
    os.rename(unfinished, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renew(connection: sqlite3.Connection, version: int) -> None:
    """Bring what an older Herd made up to date, all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    bring_up(connection, version)
    connection.execute("COMMIT")


def _write_ahead(connection: sqlite3.Connection) -> None:
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = ON",
        "foreign_keys = ON",
        "wal_autocheckpoint = 0",
    ):
        connection.execute(f"PRAGMA {pragma}")
