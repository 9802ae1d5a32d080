"""The open files on which all shared holds of one authority lock in this process stand.

To open, check and close two files for each verdict cost more than the verdict. So they stay open, the first
hold takes the lock and the last one frees it. The gate is taken for each hold all the same: a writer that
waits in it keeps new readers out, also those of a process in which others hold the lock already.
"""

import threading
from fcntl import LOCK_SH

from herd.core.lock_files import LockFile


class SharedLock:
    """Gate and lock, open until the last hold and the authority lock that made them are gone.

    Args:
        lock: Path of the lock file.
        gate: Path of the gate file.

    Attributes:
        path: The lock file's.

    Raises:
        UnsafeEndpoint: one of them is not ours alone.
        SystemWant: the disk or the kernel is in want of something.
    """

    def __init__(self, lock: str, gate: str) -> None:
        self.path = lock
        self._holds = 0
        self._mutex = threading.Lock()
        self._gate = LockFile(gate, write=True)
        try:
            self._lock = LockFile(lock, write=True)
        except BaseException:
            self._gate.close()
            raise

    def stands(self) -> bool:
        """Tell whether both files are still those at their paths; False in a forked child, too.

        Raises:
            UnsafeEndpoint: they are, and one of them is not ours alone any more.
        """
        return self._gate.stands() and self._lock.stands()

    def take(self) -> "Hold | None":
        """Hold the lock shared once more; None where somebody changes authority, or waits to."""
        with self._mutex:
            if not self._gate.take(LOCK_SH):
                return None
            try:
                if not self._holds and not self._lock.take(LOCK_SH):
                    return None
            finally:
                self._gate.free()
            self._holds += 1
            return Hold(self)

    def held_here(self) -> bool:
        """Tell whether this process has the lock file open: a forked child has not."""
        return self._lock.number >= 0

    def leave(self) -> None:
        """End one hold."""
        if not self.held_here():
            return  # before the mutex, which another thread may have held when this child was forked
        with self._mutex:
            self._holds -= 1
            if not self._holds:
                self._lock.free()

    def close(self) -> None:
        """Close both files; whoever still holds the lock loses it."""
        self._gate.close()
        self._lock.close()

    def __del__(self) -> None:
        # Where opening failed there is no lock.
        if hasattr(self, "_lock"):
            self.close()


class Hold:
    """One shared hold."""

    __slots__ = ("_shared",)

    def __init__(self, shared: SharedLock) -> None:
        self._shared: SharedLock | None = shared

    @property
    def path(self) -> str | None:
        """The path of the lock file; None where it has ended."""
        return None if self._shared is None else self._shared.path

    @property
    def held(self) -> bool:
        """Whether it has not ended, and in this process."""
        return self._shared is not None and self._shared.held_here()

    def close(self) -> None:
        """End it; again: nothing."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.leave()
