"""Which process has a file locked by its records, as SQLite locks a database: asked, never taken.

The flocks of `herd.core.locks` stand on files beside what they guard, and such a file can be removed. The
lock that SQLite itself holds stands on the database, so it also tells of whoever has that open without a
flock.
"""

import fcntl
import os
import struct
import sys
from typing import NamedTuple

SQLITE_LOCKS = (0x40000000, 512)
"""First byte and number of the bytes on which SQLite locks a database."""

_LINUX = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid
_DARWIN = struct.Struct("qqihh")  # struct flock: start, length, pid, type, whence; unproven


class Opener(NamedTuple):
    """Who has a file locked."""

    pid: int
    """Its process; 0 or less where the kernel does not show it to this one."""


def opener_of(path: str, span: tuple[int, int] = SQLITE_LOCKS) -> Opener | None:
    """Give a process that holds a record lock within a span of a file; None where there is none.

    The file is opened to read and closed again. That ends every record lock that this process itself has on
    the file, so whoever has it open must not ask.

    Args:
        path: The file; a symlink is refused.
        span: The first byte, and how many there are.

    Raises:
        OSError: it cannot be opened, or the kernel does not say.
    """
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return _asked(number, *span)
    finally:
        os.close(number)


def _asked(number: int, start: int, length: int) -> Opener | None:
    if sys.platform == "darwin":
        wanted = _DARWIN.pack(start, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, pid, kind, _ = _DARWIN.unpack(fcntl.fcntl(number, fcntl.F_GETLK, wanted))
    else:
        wanted = _LINUX.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, _, _, _, pid = _LINUX.unpack(fcntl.fcntl(number, fcntl.F_GETLK, wanted))
    return None if kind == fcntl.F_UNLCK else Opener(int(pid))
