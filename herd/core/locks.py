"""Who holds what: locks for life and probes of them; the authority lock is given from its own module.

The kernel's flock alone decides. A lock file is never unlinked; its age and what it says free nothing. Its
content is the owner record of whoever holds it, written for people and for comparison with a presence.
Ignorant of sessions, mailboxes and evidence: it is given paths.
"""

import json
import os
import time
from collections.abc import Callable
from fcntl import LOCK_SH
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.errors import InvalidParams, LockTimeout, RecoveryRequired, UnsafeEndpoint
from herd.core.limits import LOCK_BUSY_MS, LOCK_PROBED_MS, OWNER_RECORD_BYTES
from herd.core.lock_files import LockFile, check_lock_file, looked_at
from herd.core.refusals import refused

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = [
    "AuthorityHold",
    "AuthorityLock",
    "HeldLock",
    "LockState",
    "Owner",
    "probe",
    "wait_until_free",
]

_RETRY_S = 0.005
_READS = 4
_text: Callable[[str], str] = json.encoder.encode_basestring_ascii
"""Gives a text as JSON."""


class Owner(NamedTuple):
    """The claim in a held lock's file."""

    pid: int
    """The holder's process, numbered as its own pid namespace numbers it."""
    start: str
    """Its start token."""
    id: str | None
    """The presence generation; None while the session is withdrawn."""


class LockState(NamedTuple):
    """What a probe saw."""

    held: bool
    """Whether somebody holds the lock; only the kernel says so."""
    owner: Owner | None
    """The holder's record; None where the lock is free or its holder has written none."""


_FREE = LockState(held=False, owner=None)


class HeldLock:
    """A lock held for life; made by `acquire`, ended by `release` or with the process.

    *Resource handling*: a context manager. Forked children do not hold it. Use it from one thread at a time.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._number = -1
        self._lock: BaseFileLock | None = None

    @classmethod
    def acquire(cls, path: str, *, wait_ms: int = LOCK_BUSY_MS) -> "HeldLock":
        """Take the lock, making its file (0600) where it is absent; the folder must exist.

        Args:
            path: The lock file.
            wait_ms: Milliseconds for which a busy lock is tried again, since a probe takes it for an instant;
                0 tries once. A lock that probes alone keep busy is tried longer than that.

        Raises:
            LockTimeout: somebody else holds it; `holder` is the owner record, or None where there is none.
            UnsafeEndpoint: the file is not ours alone, or its folder is missing.
            SystemWant: the disk or the kernel is in want of something.
        """
        held = cls(path)
        held._take(wait_ms)
        return held

    def write_owner(self, owner: Owner) -> None:
        """Say in the file who holds the lock.

        One write over the bytes of the record before it: it needs no new block, so it works on a full disk.

        Raises:
            InvalidParams: the record is too long.
            RecoveryRequired: the lock is not held by this process.
            OSError: the disk refused it; the first record of a new file needs a block.
        """
        record = _record(owner)
        if self._lock is None or not self._lock.is_locked:
            raise RecoveryRequired(f"{self.path} is not held by this process, so its owner is not written")
        os.pwrite(self._number, record, 0)

    def release(self) -> None:
        """Give the lock up and leave its file; again, or in a forked child: nothing."""
        lock, self._lock, self._number = self._lock, None, -1
        if lock is not None:
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _take(self, wait_ms: int) -> None:
        # filelock costs more to import than everything `herd peers` does.
        from filelock import FileLock

        # filelock would make a missing folder, open to others.
        if not os.path.isdir(os.path.dirname(self.path) or "."):
            raise UnsafeEndpoint(f"{self.path} cannot be made: its folder is missing")
        lock = FileLock(
            self.path,
            timeout=wait_ms / 1000,
            mode=0o600,
            thread_local=False,
            poll_interval=_RETRY_S,
            preserve_lock_file=True,
            on_acquired=self._begin,
        )
        give_up = time.monotonic() + (LOCK_PROBED_MS / 1000 if wait_ms else 0)
        while not self._got(lock, give_up):
            pass
        self._lock = lock

    def _got(self, lock: "BaseFileLock", give_up: float) -> bool:
        from filelock import Timeout  # with FileLock, see _take

        try:
            lock.acquire()
        except Timeout:
            state = probe(self.path)
            # A probe holds the lock shared and a holder never does: what lets us in shared has no holder.
            if not state.held and time.monotonic() < give_up:
                return False
            holder = state.owner._asdict() if state.owner else None
            raise LockTimeout(_busy(self.path, state.owner), holder=holder) from None
        except OSError as error:
            raise refused(f"{self.path} cannot be opened or locked", error, self.path) from error
        return True

    def _begin(self, number: int) -> None:
        if check_lock_file(number, self.path).st_size:
            # The record of a killed holder still fits that holder's presence: gone before we say our own.
            os.pwrite(number, b" " * (OWNER_RECORD_BYTES - 1) + b"\n", 0)
        self._number = number


def _busy(path: str, owner: Owner | None) -> str:
    return f"{path} is held by process {owner.pid}" if owner else f"{path} is held by another process"


def _record(owner: Owner) -> bytes:
    record = _padded(owner)
    if len(record) > OWNER_RECORD_BYTES:
        raise InvalidParams(f"the owner record of process {owner.pid} is over {OWNER_RECORD_BYTES} bytes")
    return record


def _padded(owner: Owner) -> bytes:
    # Put together by hand, in half the time: every look at a lock compares with one.
    ident = "null" if owner.id is None else _text(owner.id)
    text = f'{{"pid":{owner.pid},"start":{_text(owner.start)},"id":{ident}}}'
    return text.encode().ljust(OWNER_RECORD_BYTES - 1) + b"\n"


def _owner(record: bytes) -> Owner | None:
    try:
        fields = json.loads(record)
    except ValueError:
        return None
    match fields:
        case {"pid": int(pid), "start": str(start), "id": str() | None as ident} if (
            pid is not True and pid > 0
        ):
            return Owner(pid, start, ident)
    return None


def _read_owner(number: int, claim: Owner | None) -> Owner | None:
    # The kernel may let a read fall into the middle of a write, even of one this short; two reads that agree
    # have seen no writer.
    record = os.pread(number, OWNER_RECORD_BYTES, 0)
    for _ in range(_READS):
        again = os.pread(number, OWNER_RECORD_BYTES, 0)
        if again == record:
            # Nearly always it says what the record claims, and then need not be parsed.
            return claim if claim is not None and record == _padded(claim) else _owner(record)
        record = again
    return None


def probe(path: str, claim: Owner | None = None) -> LockState:
    """Look whether somebody holds a lock, and who says so.

    It takes the lock shared for an instant. An absent file is a free lock.

    Args:
        path: The lock file.
        claim: Who is said to hold it, elsewhere; it changes nothing but how fast the same is read.

    Raises:
        UnsafeEndpoint: the file is not ours alone: nothing is known about the lock.
        SystemWant: the disk or the kernel is in want of something: likewise.
    """
    try:
        held = looked_at(path, lambda number: LockState(held=True, owner=_read_owner(number, claim)))
    except FileNotFoundError:
        return _FREE
    return held or _FREE


def wait_until_free(path: str) -> None:
    """Block until nobody holds the lock; for a daemon thread.

    The lock may be taken again before the caller gets to it. An absent file is a free lock.

    Raises:
        UnsafeEndpoint: the file is not ours alone.
        SystemWant: the disk or the kernel is in want of something.
    """
    try:
        file = LockFile(path, write=False)
    except FileNotFoundError:
        return
    with file:
        file.wait(LOCK_SH)
