"""The file `mailbox.sqlite3`: made, opened and checked, always under the session's mailbox lock.

A mailbox that should exist and does not, is empty, foreign or damaged is RECOVERY_REQUIRED and stays as it
was found. SQLite opens an emptied file as a new, empty database without a word, so what tells "new" from
"lost" is `session.json`: it gets the custody id after the file is complete and before its first row.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
import uuid

from herd.core.errors import NewerState, RecoveryRequired
from herd.core.files import private_folder
from herd.core.limits import MAILBOX_APPLICATION_ID, MAILBOX_VERSION
from herd.core.paths import Layout
from herd.mail.tables import TABLES
from herd.presence.session_file import SessionFile, read_session_file, write_session_file

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_PRIVATE_MODE = 0o600
_PRIVATE_FILE = stat.S_IFREG | _PRIVATE_MODE
_UNFINISHED = ".mailbox."


def mailbox_exists(layout: Layout, key: str) -> bool:
    """Tell whether the session has a mailbox, by what `session.json` says."""
    file = read_session_file(layout, key)
    return file is not None and file.custody_id is not None


def open_mailbox(layout: Layout, file: SessionFile) -> tuple[sqlite3.Connection, str]:
    """Open a session's mailbox, making it where the session has none yet.

    The caller holds the session's mailbox lock and keeps it while the connection is open.

    Returns:
        The connection, in autocommit mode with its pragmas set, and the custody id.

    Raises:
        RecoveryRequired: the mailbox is missing, empty, foreign or damaged.
        NewerState: a newer Herd wrote it.
    """
    path = layout.mailbox(file.session.key)
    if file.custody_id is None:
        custody_id = _make(layout, file, path)
    else:
        custody_id = file.custody_id
        require_mailbox(path)
    connection = _connect(path)
    try:
        _require_custody(connection, path, file.session.key, custody_id)
    except BaseException:
        connection.close()
        raise
    return connection, custody_id


def require_mailbox(path: str) -> None:
    """Check a mailbox's first bytes without SQLite, so that nothing about the file changes.

    Raises:
        RecoveryRequired: missing, empty, not ours to read, or no mailbox of Herd.
        NewerState: its tables have a newer version.
    """
    header = _header(path)
    if header is None:
        raise RecoveryRequired(f"{path} is missing, although its session has a mailbox", path=path)
    if not header:
        raise RecoveryRequired(f"{path} is empty, although its session has a mailbox", path=path)
    version = int.from_bytes(header[60:64], "big")
    application = int.from_bytes(header[68:72], "big")
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC) or application != MAILBOX_APPLICATION_ID:
        raise RecoveryRequired(f"{path} is no mailbox of Herd", path=path)
    if version > MAILBOX_VERSION:
        raise NewerState(f"{path} has version {version}, and this Herd knows {MAILBOX_VERSION}", path=path)


def require_sound(path: str) -> None:
    """Check a whole mailbox, at a coordinator's start.

    A log left by a crash would be folded into the file when the checking connection closes; a damaged file
    must stay as found, so then a copy of both is checked.

    Raises:
        RecoveryRequired: the check found damage.
    """
    log = path + "-wal"
    if not os.path.lexists(log) or os.lstat(log).st_size == 0:
        _quick_check(path, path)
        return
    with tempfile.TemporaryDirectory(prefix=".check-", dir=os.path.dirname(path)) as folder:
        copy = os.path.join(folder, "mailbox.sqlite3")
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy + "-wal")
        _quick_check(copy, path)


def _quick_check(path: str, named: str) -> None:
    try:
        connection = _connect(path)
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            connection.close()
    except sqlite3.DatabaseError as fault:
        found = str(fault)
    if found != "ok":
        raise RecoveryRequired(f"{named} is damaged: {found}", path=named)


def _header(path: str) -> bytes | None:
    try:
        status = os.lstat(path)
        if status.st_mode != _PRIVATE_FILE or status.st_uid != os.geteuid() or status.st_nlink != 1:
            raise RecoveryRequired(f"{path} is not a private file of yours (0600, one link)", path=path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    # Before SQLite has the file open in this process: closing a descriptor drops SQLite's own record locks.
    try:
        return os.read(descriptor, _HEADER_BYTES)
    finally:
        os.close(descriptor)


def _make(layout: Layout, file: SessionFile, path: str) -> str:
    folder = private_folder(layout.session_folder(file.session.key))
    if os.path.lexists(path):
        # A crash came between the rename below and session.json; the file is complete and has no row.
        custody_id = _unused_custody(path, file.session.key)
    else:
        custody_id = str(uuid.uuid4())
        _build(folder, path, file.session.key, custody_id)
    write_session_file(layout, file._replace(custody_id=custody_id))
    return custody_id


def _build(folder: str, path: str, key: str, custody_id: str) -> None:
    for name in os.listdir(folder):
        if name.startswith(_UNFINISHED):
            os.unlink(os.path.join(folder, name))
    unfinished = os.path.join(folder, f"{_UNFINISHED}{os.getpid()}")
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _PRIVATE_MODE))
    os.chmod(unfinished, _PRIVATE_MODE)
    connection = _connect(unfinished)
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in TABLES.split(";\n"):
            connection.execute(statement)
        connection.execute("INSERT INTO custody VALUES (1, ?, ?)", (custody_id, key))
        connection.execute(f"PRAGMA application_id = {MAILBOX_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {MAILBOX_VERSION}")
        connection.execute("COMMIT")
    finally:
        connection.close()  # folds the log back, so that a reader of the header alone sees all of it
    os.rename(unfinished, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unused_custody(path: str, key: str) -> str:
    require_mailbox(path)
    connection = _connect(path)
    try:
        row = connection.execute("SELECT custody_id, session_key FROM custody").fetchone()
        used = connection.execute(
            "SELECT 1 FROM inbox UNION ALL SELECT 1 FROM outbox UNION ALL SELECT 1 FROM shown LIMIT 1"
        ).fetchone()
    except sqlite3.DatabaseError as fault:
        raise RecoveryRequired(f"{path} is damaged: {fault}", path=path) from None
    finally:
        connection.close()
    if row is None or row[1] != key or used:
        raise RecoveryRequired(f"{path} holds mail, but its session.json knows no mailbox", path=path)
    return str(row[0])


def _connect(path: str) -> sqlite3.Connection:
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(
        f"file:{quoted}?mode=rw", uri=True, isolation_level=None, timeout=0, check_same_thread=False
    )
    # EXCLUSIVE before anything else: then no -shm file appears, and a second opener is refused by SQLite too.
    for pragma in (
        "locking_mode = EXCLUSIVE",
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = ON",
        "foreign_keys = ON",
        "wal_autocheckpoint = 0",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _require_custody(connection: sqlite3.Connection, path: str, key: str, custody_id: str) -> None:
    try:
        row = connection.execute("SELECT custody_id, session_key FROM custody").fetchone()
    except sqlite3.DatabaseError as fault:
        raise RecoveryRequired(f"{path} is damaged: {fault}", path=path) from None
    if row != (custody_id, key):
        raise RecoveryRequired(f"{path} is the mailbox of another session or custody", path=path)
