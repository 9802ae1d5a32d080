"""The open files that locks stand on: checked when they are opened, gone in every forked child.

A flock belongs to the open file, and a fork shares open files: a child that outlives the holder would keep
the lock. Descriptors are close-on-exec, which covers every child that runs another program; a child that
does not is covered here, by closing them in it. This module knows nothing of who locks what, or why.
"""

import fcntl
import os
import stat
from _thread import RLock
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from herd.core.errors import UnsafeEndpoint
from herd.core.modes import mode_refused
from herd.core.refusals import refused

_ALWAYS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PRIVATE = 0o600

Told = TypeVar("Told")

# Held while a descriptor enters or leaves `_open_files`, and by a fork: otherwise another thread's fork could
# fall between the opening and the entry, and its child would share a lock that nobody closes there.
_changing = RLock()
_open_files: set["LockFile"] = set()


def _close_in_child() -> None:
    # No LOCK_UN here: it would end the lock of the parent, whose open file this is.
    for file in _open_files:
        os.close(file.number)
        file.number = -1
    _open_files.clear()
    _changing.release()


os.register_at_fork(
    before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_close_in_child
)


def check_lock_file(number: int, path: str) -> os.stat_result:
    """Check that an open file may serve as a lock: regular, ours, nothing for group and others.

    Raises:
        UnsafeEndpoint: it may not; the message names the path and what is wrong.
    """
    return _checked(os.fstat(number), path)


def _checked(status: os.stat_result, path: str) -> os.stat_result:
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeEndpoint(f"{path} is no regular file")
    if status.st_uid != os.geteuid():
        raise UnsafeEndpoint(f"{path} belongs to user {status.st_uid}, not to us")
    if status.st_mode & 0o077:
        raise mode_refused(path, status.st_mode, 0o600)
    return status


class LockFile:
    """One open lock file, through which at most one lock is held.

    Args:
        path: The file; a symlink is refused.
        write: Open it for writing as well, and make it (0600) where it is absent.

    Raises:
        FileNotFoundError: it is absent and `write` is False.
        UnsafeEndpoint: it is not ours alone, or its folder is missing.
        SystemWant: the disk or the kernel is in want of something.

    *Resource handling*: use it as a context manager, or call `close`.
    """

    __slots__ = ("_identity", "number", "path", "taken")

    def __init__(self, path: str, *, write: bool) -> None:
        self.path = path
        self.taken = False
        with _changing:
            self.number = _opened(path, write=write)
            _open_files.add(self)
        try:
            status = check_lock_file(self.number, path)
        except BaseException:
            self.close()
            raise
        self._identity = status.st_dev, status.st_ino

    @property
    def held(self) -> bool:
        """Whether it is open in this process: a forked child has it closed."""
        return self.number >= 0

    def stands(self) -> bool:
        """Tell whether it is open and still the file at its path, by one stat.

        Raises:
            UnsafeEndpoint: it is, and it is not ours alone any more.
        """
        try:
            status = os.lstat(self.path)
        except OSError:
            return False  # whoever opens it anew is told why
        if not self.held or (status.st_dev, status.st_ino) != self._identity:
            return False
        _checked(status, self.path)
        return True

    def take(self, operation: int) -> bool:
        """Take the lock now, `LOCK_SH` or `LOCK_EX` of fcntl; False where somebody's stands against it."""
        try:
            fcntl.flock(self.number, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise refused(f"{self.path} cannot be locked", error, self.path) from error
        self.taken = True
        return True

    def wait(self, operation: int) -> None:
        """Take the lock, however long it takes; for threads only."""
        try:
            fcntl.flock(self.number, operation)
        except OSError as error:
            raise refused(f"{self.path} cannot be locked", error, self.path) from error
        self.taken = True

    def free(self) -> None:
        """End the lock, if one was taken, and keep the file open."""
        if not self.taken:
            return
        # Explicitly, not by closing alone: a child between fork and exec still shares the open file.
        fcntl.flock(self.number, fcntl.LOCK_UN)
        self.taken = False

    def close(self) -> None:
        """End the lock and close the file; again, or in a forked child: nothing."""
        with _changing:
            if self.number < 0:
                return
            try:
                self.free()
            finally:
                _open_files.discard(self)
                os.close(self.number)
                self.number = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def looked_at(path: str, told: Callable[[int], Told], *, operation: int = fcntl.LOCK_SH) -> Told | None:
    """Look whether a lock is held, by taking it for an instant, without an object that stands for it.

    Args:
        path: The file; a symlink is refused.
        told: Called with its descriptor while somebody holds the lock.
        operation: `LOCK_SH` finds who holds it alone, `LOCK_EX` who holds it in any way.

    Returns:
        What `told` gives; None where nobody holds it.

    Raises:
        FileNotFoundError: it is absent.
        UnsafeEndpoint: it is not ours alone.
        SystemWant: the disk or the kernel is in want of something.
    """
    with _changing:  # so no fork of ours shares the file, and it need not stand among `_open_files`
        number = _opened(path, write=False)
        try:
            check_lock_file(number, path)
            fcntl.flock(number, operation | fcntl.LOCK_NB)
            fcntl.flock(number, fcntl.LOCK_UN)  # see `LockFile.free`
        except BlockingIOError:
            return told(number)
        except OSError as error:
            raise refused(f"{path} cannot be locked", error, path) from error
        finally:
            os.close(number)
    return None


def _opened(path: str, *, write: bool) -> int:
    try:
        return _existing_or_made(path) if write else os.open(path, os.O_RDONLY | _ALWAYS)
    except FileNotFoundError as error:
        if not write:
            raise
        raise UnsafeEndpoint(f"{path} cannot be made: {error.strerror}") from error
    except OSError as error:
        raise refused(f"{path} cannot be opened", error, path) from error


def _existing_or_made(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | _ALWAYS)
    except FileNotFoundError:
        pass
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _ALWAYS, _PRIVATE)
    except FileExistsError:  # another process was faster; lock files are never removed
        return os.open(path, os.O_RDWR | _ALWAYS)
    try:
        os.fchmod(number, _PRIVATE)  # a strange umask may have taken our own bits
    except BaseException:
        os.close(number)
        raise
    return number
