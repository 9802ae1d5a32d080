"""Examining a mailbox that nobody has open, the whole of it, without changing a byte or a name beside it.

A visit opens the file itself: that folds a killed process's log into it, and reads only the pages that its
rows touch. Here a copy is looked at, in another place, and all of it. What is found are counts; no text
leaves this module. Whoever examines holds the mailbox's lock shared, and only while the copy is made.
"""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from herd.core.errors import PeerOffline, RecoveryRequired, ResourceBusy
from herd.core.limits import HANDOVERS
from herd.core.lock_files import LockFile
from herd.core.paths import Layout
from herd.core.record_locks import Opener, opener_of
from herd.mail import inbox, outbox, whole
from herd.mail.mailbox_proof import (
    Custody,
    damage_told,
    log_of,
    open_exclusively,
    require_custody,
    require_mailbox,
    require_whole,
)
from herd.presence.session_file import SessionFile

_PLACES = ("/dev/shm", "/tmp")  # noqa: S108 - a folder of ours inside one of them, made by mkdtemp
"""Where a copy may lie, the first that has room: memory writes no text to a disk and is on no full one."""


class Examined(NamedTuple):
    """What lies in a sound mailbox."""

    waiting: int
    """Messages accepted and not yet delivered, those set aside among them."""
    set_aside: int
    """Those of them that were handed over too often in vain and wait for a person."""
    unreadable: int
    """Those of them whose stored record does not parse."""
    unsent: int
    """Messages of this session that no mailbox has yet."""


def examine(layout: Layout, file: SessionFile) -> Examined | None:
    """Check the whole mailbox of a session that nobody coordinates; None where it has none.

    Raises:
        PeerOffline: somebody holds the mailbox's lock: it is in use just now.
        ResourceBusy: nobody holds that lock, and a process has the mailbox open all the same.
        RecoveryRequired: it is missing, empty, foreign or damaged, or lacks a table.
        NewerState: a newer Herd wrote it.
        OSError, sqlite3.Error: it cannot be read now, or there is no room for a copy.
    """
    key = file.session.key
    path = layout.mailbox(key)
    if file.custody_id is None and not os.path.lexists(path):
        with _held_shared(layout.mailbox_lock(key)):
            pass  # a visitor may be making it
        if os.path.lexists(path + "-wal"):
            raise RecoveryRequired(f"{path}-wal is there without its mailbox", path=path + "-wal")
        return None
    with (
        _copied_under_lock(layout.mailbox_lock(key), path) as copy,
        closing(open_exclusively(copy)) as connection,
    ):
        require_whole(connection, path)
        if file.custody_id is None:
            _require_unused(connection, path)
            return None
        require_custody(connection, path, Custody(file.custody_id, key))
        with damage_told(path):
            return _counted(connection)


def _counted(connection: sqlite3.Connection) -> Examined:
    lying = inbox.lying(connection)
    return Examined(
        waiting=len(lying),
        set_aside=sum(row.handovers >= HANDOVERS for row in lying),
        unreadable=len(whole.unreadable(connection)),
        unsent=len(outbox.pending(connection)),
    )


def _require_unused(connection: sqlite3.Connection, path: str) -> None:
    # One without a row is what a crash leaves between the making of the file and the note of it.
    with damage_told(path):
        used = connection.execute(
            "SELECT 1 FROM inbox UNION ALL SELECT 1 FROM outbox UNION ALL SELECT 1 FROM shown LIMIT 1"
        ).fetchone()
    if used:
        raise RecoveryRequired(f"{path} holds mail, but its session.json knows no mailbox", path=path)


@contextmanager
def _copied_under_lock(lock: str, path: str) -> Iterator[str]:
    with _place(path) as place:
        with _held_shared(lock):
            require_mailbox(path)
            opener = opener_of(path)
            if opener is not None:
                raise ResourceBusy(f"{path} is open in {_process(opener)}, although {lock} is free")
            copy = os.path.join(place, os.path.basename(path))
            log = log_of(path)
            shutil.copyfile(path, copy)
            if log is not None:
                shutil.copyfile(log, copy + "-wal")
        yield copy


@contextmanager
def _place(path: str) -> Iterator[str]:
    size = sum(os.stat(one).st_size for one in (path, path + "-wal") if os.path.isfile(one))
    parent = next((one for one in _PLACES if _has_room(one, 2 * size)), _PLACES[-1])
    with tempfile.TemporaryDirectory(prefix="herd-check-", dir=parent) as place:
        yield place


def _has_room(folder: str, size: int) -> bool:
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize > size


@contextmanager
def _held_shared(path: str) -> Iterator[None]:
    try:
        file = LockFile(path, write=False)
    except FileNotFoundError:  # never locked, or removed: then a process that has the mailbox open tells
        yield
        return
    with file:
        if not file.take(fcntl.LOCK_SH):
            raise PeerOffline("the session's mailbox is in use just now", retry_after_ms=10)
        yield


def _process(opener: Opener) -> str:
    return f"process {opener.pid}" if opener.pid > 0 else "a process of another pid namespace"
