"""Whether a file is the mailbox it should be: looked at in ways that change nothing about it.

Above it a mailbox is made and opened; below it are SQLite and the disk. It does not know where a mailbox lies
or what its rows mean. What it refuses stays as it was found, to the byte, the log of a killed process too.
"""

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import NamedTuple

from herd.core.errors import NewerState, RecoveryRequired
from herd.core.limits import MAILBOX_APPLICATION_ID, MAILBOX_VERSION
from herd.mail.tables import deviations

PRIVATE_MODE = 0o600
"""The mode of a mailbox and of its log."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_FORMATS = slice(18, 20)
_WRITE_AHEAD = b"\2\2"
_PRIVATE_FILE = stat.S_IFREG | PRIVATE_MODE
_COPY = ".check-"

_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
"""Results of SQLite that tell of the disk or the system as it is now, and nothing of what the file holds."""


class Custody(NamedTuple):
    """What identifies one mailbox."""

    id: str
    session_key: str


def open_exclusively(path: str) -> sqlite3.Connection:
    """Open an existing database, in autocommit mode; it is neither read nor changed yet.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = sqlite3.connect(
        f"file:{quoted}?mode=rw", uri=True, isolation_level=None, timeout=0, check_same_thread=False
    )
    # EXCLUSIVE before anything else: then no -shm file appears, and a second opener is refused by SQLite too.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def require_mailbox(path: str) -> None:
    """Check a mailbox's first bytes and its neighbours, without SQLite.

    Raises:
        RecoveryRequired: missing, empty, not private, or no mailbox of Herd.
        NewerState: its tables have a newer version.
        OSError: it cannot be read now.
    """
    header = _header(path)
    if not header:
        what = "missing" if header is None else "empty"
        raise RecoveryRequired(f"{path} is {what}, although its session has a mailbox", path=path)
    version = int.from_bytes(header[60:64], "big")
    application = int.from_bytes(header[68:72], "big")
    ours = len(header) == _HEADER_BYTES and header.startswith(_MAGIC) and header[_FORMATS] == _WRITE_AHEAD
    if not ours or application != MAILBOX_APPLICATION_ID or version < 1:
        raise RecoveryRequired(f"{path} is no mailbox of Herd", path=path)
    _require_version(version, path)
    if os.path.lexists(path + "-journal"):
        # A mailbox never has one, and SQLite would write what it holds into the file.
        raise RecoveryRequired(f"{path}-journal is no file of Herd", path=path + "-journal")


def require_sound(path: str) -> None:
    """Check a whole mailbox, as at a coordinator's start.

    Raises:
        RecoveryRequired: it is missing, empty, foreign or damaged.
        NewerState: a newer Herd wrote it.
        OSError, sqlite3.Error: it cannot be read now.
    """
    require_mailbox(path)
    log = log_of(path)
    with (
        nullcontext(path) if log is None else _copied(path, log) as readable,
        closing(open_exclusively(readable)) as connection,
    ):
        require_whole(connection, path)


def require_openable(path: str, expected: Custody) -> None:
    """Check a mailbox that a killed process left with a log, before anybody opens it.

    Whoever closes a connection folds the log into the file, even after a refusal. So a copy of both is
    looked at. Where there is no log, opening and closing change nothing, and nothing is done here.

    Raises:
        RecoveryRequired: it is damaged, or another's.
        NewerState: a newer Herd wrote it.
        OSError, sqlite3.Error: it cannot be read now.
    """
    log = log_of(path)
    if log is not None:
        with _copied(path, log) as copy, closing(open_exclusively(copy)) as connection:
            _quick_check(connection, path)
            require_custody(connection, path, expected)


def require_custody(connection: sqlite3.Connection, path: str, expected: Custody) -> int:
    """Check that an open mailbox is that of a session and a custody; gives the version of its tables.

    Raises:
        RecoveryRequired: it is damaged, or another's.
        NewerState: a newer Herd wrote it.
    """
    with damage_told(path):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        row = connection.execute("SELECT custody_id, session_key FROM custody").fetchone()
    _require_version(version, path)  # a log may know a newer one than the header does
    if row != expected:
        raise RecoveryRequired(f"{path} is the mailbox of another session or custody", path=path)
    return version


def log_of(path: str) -> str | None:
    """Give the log that a killed process left beside a mailbox; None where there is none, or nothing in it.

    Raises:
        RecoveryRequired: it is not private.
    """
    log = path + "-wal"
    status = _private_status(log)
    return None if status is None or status.st_size == 0 else log


@contextmanager
def damage_told(path: str) -> Iterator[None]:
    """Turn what SQLite reports about a file into the refusal that names it.

    Raises:
        RecoveryRequired: it is no database, or damaged.
        sqlite3.Error: the disk or the system fails now, which says nothing about the file.
    """
    try:
        yield
    except sqlite3.DatabaseError as fault:
        if getattr(fault, "sqlite_errorcode", 0) & 0xFF in _PASSING:
            raise
        raise RecoveryRequired(f"{path} is damaged: {fault}", path=path) from None


def require_whole(connection: sqlite3.Connection, path: str) -> None:
    """Check every page of an open mailbox, and its tables; `path` is what a refusal names.

    Raises:
        RecoveryRequired: it is damaged.
        NewerState: a newer Herd wrote it.
    """
    _quick_check(connection, path)
    with damage_told(path):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        differing = deviations(connection, version)
    _require_version(version, path)  # whose tables may be others
    if differing:
        raise RecoveryRequired(f"{path} is damaged: it has {', '.join(differing)}", path=path)


def _require_version(version: int, path: str) -> None:
    if version > MAILBOX_VERSION:
        raise NewerState(f"{path} has version {version}, and this Herd knows {MAILBOX_VERSION}", path=path)


def _quick_check(connection: sqlite3.Connection, path: str) -> None:
    with damage_told(path):
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise RecoveryRequired(f"{path} is damaged: {found}", path=path)


@contextmanager
def _copied(path: str, log: str) -> Iterator[str]:
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(_COPY):
            shutil.rmtree(os.path.join(folder, name))  # of a process that was killed while it looked
    with tempfile.TemporaryDirectory(prefix=_COPY, dir=folder) as place:
        copy = os.path.join(place, os.path.basename(path))
        shutil.copyfile(path, copy)
        shutil.copyfile(log, copy + "-wal")
        yield copy


def _header(path: str) -> bytes | None:
    if _private_status(path) is None:
        return None
    # Before SQLite has the file open in this process: closing a descriptor drops SQLite's own record locks.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _HEADER_BYTES)
    finally:
        os.close(descriptor)


def _private_status(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    if status.st_mode != _PRIVATE_FILE or status.st_uid != os.geteuid() or status.st_nlink != 1:
        raise RecoveryRequired(f"{path} is not a private file of yours (0600, one link)", path=path)
    return status
