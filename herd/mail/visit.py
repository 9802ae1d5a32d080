"""A visit: one transaction on the mailbox of a session that no coordinator holds now.

Whoever of this user has mail for it, or wants an answer, takes the mailbox lock without waiting, makes one
transaction and lets go. A visitor waits for nothing while it holds the lock, holds one at a time, hands
nothing to a host and sets nothing to delivered. So mail for a sleeping session is in its mailbox at once,
and a coordinator that starts meanwhile waits for one short transaction at most.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from herd.core.errors import LockTimeout, PeerOffline, RecoveryRequired
from herd.core.files import checked_folder
from herd.core.limits import VISIT_S
from herd.core.locks import HeldLock, Owner, probe
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.core.refusals import mending
from herd.mail.mailbox_file import open_mailbox
from herd.mail.standing import Standing
from herd.presence.session_file import SessionFile, read_session_file

Result = TypeVar("Result")
VisitWork = Callable[[sqlite3.Connection, SessionFile], Result]

_MEND = "Free space or mend the disk that holds it; what was accepted is kept, and it goes on by itself."
_one_at_a_time = threading.Lock()


def visit(
    layout: Layout, key: str, work: VisitWork[Result], *, now: Callable[[], float] = time.monotonic
) -> Result:
    """Run one transaction on a sleeping session's mailbox, made if need be. Blocks: call it in a thread.

    Args:
        layout: The folders of this machine.
        key: The session key.
        work: The transaction; it gets the connection and the session's file with its custody id. It may not
            visit anybody itself.
        now: Gives the seconds by which the visit is timed.

    Raises:
        PeerOffline: a coordinator or another visitor holds the mailbox, or the session was never here.
        RecoveryRequired, NewerState: the mailbox cannot be used or written now, and stays as found.
        LockTimeout: the transaction took longer than a visit may, and was rolled back.
    """
    with _held(layout, key) as file:
        return _transact(layout, file, work, now)


def look(layout: Layout, key: str, work: VisitWork[Result]) -> Result | None:
    """Do as `visit`, but make nothing: None where the session has no mailbox."""
    with _held(layout, key) as file:
        return None if file.custody_id is None else _transact(layout, file, work, time.monotonic)


@contextmanager
def _held(layout: Layout, key: str) -> Iterator[SessionFile]:
    try:
        checked_folder(layout.session_folder(key))
    except FileNotFoundError:
        raise PeerOffline("the session has no folder on this machine") from None
    with _one_at_a_time:
        if probe(layout.session_lock(key)).held:
            # A coordinator that starts takes this one first: visitors in a row must not keep it out.
            raise PeerOffline("a coordinator holds the session, or is just taking it", retry_after_ms=10)
        try:
            lock = HeldLock.acquire(layout.mailbox_lock(key), wait_ms=0)
        except LockTimeout as busy:
            raise PeerOffline("the session's mailbox is in use just now", retry_after_ms=10) from busy
        with lock:
            with suppress(OSError):  # a full disk: the record is for people, and the lock is the kernel's
                lock.write_owner(Owner(os.getpid(), start_token(os.getpid()) or "", None))
            file = read_session_file(layout, key)
            if file is None:
                raise PeerOffline("the session was never started on this machine")
            yield file


def _transact(layout: Layout, file: SessionFile, work: VisitWork[Result], now: Callable[[], float]) -> Result:
    began = now()
    path = layout.mailbox(file.session.key)
    try:
        connection, custody_id = open_mailbox(layout, file)
        try:
            standing = Standing.of(path)
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection, file._replace(custody_id=custody_id))
            if now() - began > VISIT_S:
                raise LockTimeout(f"a visit took longer than {VISIT_S} s and was rolled back")
            standing.require()
            connection.execute("COMMIT")
        finally:
            connection.close()  # an open transaction is rolled back
    except (sqlite3.Error, OSError) as fault:
        hint = (mending(fault) if isinstance(fault, OSError) else None) or _MEND
        raise RecoveryRequired(f"{path} cannot be written now: {fault}", hint=hint, path=path) from fault
    return result
