"""Learning at once what happens in a folder: inotify on Linux, kqueue on macOS, on the running event loop.

No thread, no polling. It tells which names changed and nothing more: what a change means, and how the folder
looks now, its caller reads for itself. Ignorant of what the files are.
"""

import asyncio
import ctypes
import os
import struct
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

_CLOSE_WRITE = 0x0000_0008
_MOVED_FROM = 0x0000_0040
_MOVED_TO = 0x0000_0080
_CREATE = 0x0000_0100
_DELETE = 0x0000_0200
_DELETE_SELF = 0x0000_0400
_MOVE_SELF = 0x0000_0800
_UNMOUNT = 0x0000_2000
_Q_OVERFLOW = 0x0000_4000
_IGNORED = 0x0000_8000
_ONLYDIR = 0x0100_0000
_DONT_FOLLOW = 0x0200_0000

_ENTRIES = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_GONE = _DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the padded name that follows
_BUFFER_BYTES = 65_536


_RESERVED = 4
_reserved: list[int] = []


def reserve_descriptors() -> None:
    """Keep some low descriptors for watches; call it before taking a lock that is held for life.

    Of a process that is killed the kernel closes the highest descriptors first, and an inotify instance takes
    it milliseconds to take down. A lock opened before the watch would stay held for as long, and whoever
    stands by for it would wait.
    """
    while len(_reserved) < _RESERVED:
        _reserved.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


class FolderWatch:
    """A watch on the entries of one folder, for as long as it is open.

    Args:
        path: The folder; no symlink.
        changed: Called on the loop with the name of each entry that was made, renamed into or out of the
            folder, deleted, or closed after writing, in order, perhaps more than once for one change. Called
            with None when the folder itself is gone or moved, or changes were lost: look at everything again.
            Linux tells that a folder was removed once nobody has it open any more; that its entries were,
            which comes before, it tells at once.

    Raises:
        RuntimeError: no event loop is running.
        OSError: the folder cannot be watched: it is absent, no folder, or the system's watches are used up.

    *Resource handling*: a context manager, or call `close`.
    *Error handling*: what `changed` raises goes to the loop's exception handler and ends nothing.
    """

    def __init__(self, path: str, changed: Callable[[str | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = changed
        self._source = _source(path)
        self._open = True
        self._loop.add_reader(self._source.number, self._read)

    def close(self) -> None:
        """Stop watching; what was not told yet stays untold. Again: nothing."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._source.number)
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> None:
        # One call each, so that one that raises does not swallow the rest.
        for name in self._source.names():
            self._loop.call_soon(self._tell, name)

    def _tell(self, name: str | None) -> None:
        if self._open:
            self._changed(name)


class _Inotify:
    def __init__(self, path: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.number: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.number < 0:
            raise _failed(path)
        self._lowered = bool(_reserved)
        if self._lowered:
            # Onto the reserved one in one step: closed first, its number might be taken by another thread.
            high, self.number = self.number, os.dup2(self.number, _reserved.pop(), inheritable=False)
            os.close(high)
        mask = _ENTRIES | _DELETE_SELF | _MOVE_SELF | _ONLYDIR | _DONT_FOLLOW
        if libc.inotify_add_watch(self.number, os.fsencode(path), ctypes.c_uint32(mask)) < 0:
            error = _failed(path)
            self.close()
            raise error

    def names(self) -> list[str | None]:
        try:
            return names_in(os.read(self.number, _BUFFER_BYTES))
        except BlockingIOError:
            return []

    def close(self) -> None:
        if not self._lowered:
            os.close(self.number)
            return
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        _reserved.append(os.dup2(nothing, self.number, inheritable=False))
        os.close(nothing)


def _failed(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)


def names_in(events: bytes) -> list[str | None]:
    """Read what inotify wrote: the name of each entry that changed, None for what calls for a new look."""
    names: list[str | None] = []
    at = 0
    while at < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size
        if mask & (_GONE | _Q_OVERFLOW):
            names.append(None)
        elif mask & _ENTRIES:
            names.append(os.fsdecode(events[at : at + length].rstrip(b"\0")))
        at += length
    return names


if sys.platform == "darwin":
    import select

    _KQUEUE_GONE = select.KQ_NOTE_DELETE | select.KQ_NOTE_RENAME | select.KQ_NOTE_REVOKE

    class _Kqueue:
        """Unproven: nobody has run it on macOS yet.

        kqueue says that the folder's entries changed, not which, so each event is answered by a new look. A
        file rewritten in place is not seen; what Herd watches is renamed into its place.
        """

        def __init__(self, path: str) -> None:
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self._queue = select.kqueue()
            except OSError:
                os.close(self._folder)
                raise
            self.number = self._queue.fileno()
            notes = select.KQ_NOTE_WRITE | _KQUEUE_GONE
            flags = select.KQ_EV_ADD | select.KQ_EV_CLEAR
            self._queue.control([select.kevent(self._folder, select.KQ_FILTER_VNODE, flags, notes)], 0)
            self._seen = self._look()

        def names(self) -> list[str | None]:
            events = self._queue.control(None, 8, 0)
            before, self._seen = self._seen, self._look()
            changed = {name for name, _ in before.items() ^ self._seen.items()}
            return [
                *sorted(changed),
                *([None] if any(event.fflags & _KQUEUE_GONE for event in events) else []),
            ]

        def close(self) -> None:
            self._queue.close()
            os.close(self._folder)

        def _look(self) -> dict[str, tuple[int, int]]:
            with os.scandir(self._folder) as entries:
                return {entry.name: _identity(entry) for entry in entries}

    def _identity(entry: "os.DirEntry[str]") -> tuple[int, int]:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return (0, 0)
        return (status.st_ino, status.st_mtime_ns)

    _source = _Kqueue
else:
    _source = _Inotify
