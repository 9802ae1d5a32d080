"""The one lock of a user under which peers are judged (shared) and authority changes (held alone).

A reader takes the gate shared, the lock shared, and drops the gate; a writer takes the gate alone, the lock
alone, and keeps both. So a writer that waits keeps new readers out and needs only the present ones to end,
and readers never wait for one another. The generation file counts the changes. What is judged or changed,
this module does not know. Import its names from `herd.core.locks`.
"""

import os
import time
import warnings
from collections.abc import Callable
from fcntl import LOCK_EX
from types import TracebackType
from typing import Self, TypeVar

from herd.core.errors import LockTimeout, RecoveryRequired
from herd.core.limits import AUTHORITY_WAIT_S
from herd.core.lock_files import LockFile
from herd.core.shared_lock import Hold, SharedLock

_PAUSE_FIRST_S = 0.0002
_PAUSE_GREATEST_S = 0.005
_DIGITS = 20
_LOOK = "Try again; if it stays so, run `herd doctor`: it names who holds it, where that can be told."
# Who runs keeps what it read by the number of that moment, and a count begun anew may come to it again.
_MEND = (
    "End every session of this user, and remove the file; the next change begins to count anew. While one"
    " runs, do not: it might take what it read before for what is so now."
)

_Got = TypeVar("_Got")


class AuthorityHold:
    """One hold of the authority lock; alone, on open files of its own.

    Attributes:
        exclusive: Whether it is held alone, so that authority may be changed under it.

    *Resource handling*: a context manager, or call `release`; it ends with the process at the latest. Forked
    children do not hold it.
    """

    def __init__(self, *parts: LockFile | Hold, exclusive: bool) -> None:
        self.exclusive = exclusive
        self._parts = parts

    def covers(self, lock: str) -> bool:
        """Tell whether it still stands, and is one of the lock whose file has this path."""
        return self._parts[0].held and self._parts[0].path == lock

    def release(self) -> None:
        """End the hold; again, or in a forked child: nothing."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        # A hold that is dropped would keep every change out until this process ends.
        if any(part.held for part in self._parts):
            self.release()
            warnings.warn(
                "a hold of the authority lock was dropped, not released", ResourceWarning, stacklevel=2
            )


class AuthorityLock:
    """The authority lock; one object may be used from every thread, each hold stands for itself.

    A hold does not nest: who holds the lock in any way and asks for it alone waits for itself. The files of
    shared holds stay open until this object and the last hold are gone, or until `close`.

    Args:
        lock: Path of the lock file.
        gate: Path of the gate file.
        generation: Path of the file that counts the changes.
    """

    def __init__(self, lock: str, gate: str, generation: str) -> None:
        self._lock = lock
        self._gate = gate
        self._generation = generation
        self._shared: SharedLock | None = None

    def try_shared(self) -> AuthorityHold | None:
        """Hold the lock shared, or give None where that would wait; for the event loop too.

        Raises:
            UnsafeEndpoint: a file of the lock is not ours alone.
            SystemWant: the disk or the kernel is in want of something.
        """
        shared = self._shared
        if shared is None or not shared.stands():
            # Those that hold an older one keep it open.
            shared = self._shared = SharedLock(self._lock, self._gate)
        hold = shared.take()
        return AuthorityHold(hold, exclusive=False) if hold is not None else None

    def close(self) -> None:
        """Close the files of shared holds, which must have ended; the lock can be used again all the same."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()

    def shared(self, wait_s: float = AUTHORITY_WAIT_S) -> AuthorityHold:
        """Hold the lock shared, for a verdict and its commit; blocks, so call it in a thread.

        Args:
            wait_s: Seconds to wait at most; 0 tries once.

        Raises:
            LockTimeout: somebody held it alone all that time.
            UnsafeEndpoint: a file of the lock is not ours alone.
            SystemWant: the disk or the kernel is in want of something.
        """
        return _tried(self.try_shared, time.monotonic() + wait_s, self._lock)

    def exclusive(self, wait_s: float = AUTHORITY_WAIT_S) -> AuthorityHold:
        """Hold the lock alone, for a change; blocks, so call it in a thread.

        The generation is counted up on entering, so a change that is interrupted has been counted too.

        Args:
            wait_s: Seconds to wait at most; 0 tries once.

        Raises:
            LockTimeout: it was not free within that time.
            RecoveryRequired: the generation file holds no number.
            UnsafeEndpoint: a file of the lock is not ours alone.
            SystemWant: the disk or the kernel is in want of something.
            OSError: the disk refused the new generation.
        """
        give_up = time.monotonic() + wait_s
        # The lock is closed before the gate: whoever finds the gate open finds the lock free.
        files = [LockFile(self._gate, write=True)]
        try:
            _tried(lambda: files[0].take(LOCK_EX) or None, give_up, self._lock)
            files.insert(0, LockFile(self._lock, write=True))
            _tried(lambda: files[0].take(LOCK_EX) or None, give_up, self._lock)
            self._count()
        except BaseException:
            for file in files:
                file.close()
            raise
        return AuthorityHold(*files, exclusive=True)

    def generation(self) -> int:
        """Count the changes so far; meaningful inside a hold, since a change counts before it happens.

        Raises:
            RecoveryRequired: the file holds no number.
            UnsafeEndpoint: it is not ours alone.
            SystemWant: the disk or the kernel is in want of something.
        """
        try:
            file = LockFile(self._generation, write=False)
        except FileNotFoundError:
            return 0
        with file:
            return _number_in(file)

    def _count(self) -> None:
        with LockFile(self._generation, write=True) as file:
            counted = _number_in(file) + 1
            os.pwrite(file.number, b"%0*d\n" % (_DIGITS, counted), 0)


def _number_in(file: LockFile) -> int:
    text = os.pread(file.number, _DIGITS + 2, 0)
    if not text:
        return 0
    if len(text) != _DIGITS + 1 or not text[:_DIGITS].isdigit():
        raise RecoveryRequired(f"{file.path} holds no generation", hint=_MEND, path=file.path)
    return int(text)


def _tried(attempt: Callable[[], _Got | None], give_up: float, path: str) -> _Got:
    # The kernel's own waiting has no time limit, and a signal cannot end it in a thread. Pauses stay short: a
    # verdict takes milliseconds. They cost nothing while nobody changes authority.
    pause = _PAUSE_FIRST_S
    while (got := attempt()) is None:
        left = give_up - time.monotonic()
        if left <= 0:
            raise LockTimeout(f"{path} was not free in time", hint=_LOOK, holder=None)
        time.sleep(min(pause, left))
        pause = min(pause * 2, _PAUSE_GREATEST_S)
    return got
