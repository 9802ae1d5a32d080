"""The files by which a hook knows, without starting anything, whether its session's server wants it.

One file for each process of the host, named by its pid, is there as long as its server; beside it stand links
to that file, named by session and pid, for as long as a hook of that session would have something to do. All
of them are one inode, which the server keeps locked: what nobody locks was left by a dead server.
"""

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from herd.core.errors import HerdError, LockTimeout
from herd.core.lock_files import LockFile
from herd.hosts.claude.guard import PROMPT_SUFFIX

_log = logging.getLogger("herd.hosts.claude")

_SESSION = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ATTEMPTS = 8


def is_flag_session(session_id: str) -> bool:
    """Tell whether a session id may stand in a file's name; hooks of any other find no flag."""
    return _SESSION.fullmatch(session_id) is not None


class Flags:
    """The flags of one process of the host.

    Args:
        folder: Where they stand; it exists.
        pid: The host's process.

    Resource handling: after `open`, `close` must be called.
    """

    def __init__(self, folder: str, pid: int) -> None:
        self.path = os.path.join(folder, str(pid))
        self._folder = folder
        self._pid = pid
        self._file: LockFile | None = None
        self._shown: set[str] = set()

    def open(self, socket: str, token: str) -> None:
        """Clear away what dead servers left, and put up the process's file: from here on hooks find us.

        Args:
            socket: The path that hooks are to connect to; no line break stands in it.
            token: What they prove themselves with.

        Raises:
            LockTimeout: another server of the same process is still there.
            UnsafeEndpoint: the file cannot be made, or is not ours alone.
        """
        sweep(self._folder)
        self._file = self._taken()
        os.ftruncate(self._file.number, 0)
        os.pwrite(self._file.number, f"{socket}\n{token}\n".encode(), 0)

    def show(self, session_id: str | None, *, wanted: bool, prompt: bool) -> None:
        """Let the hooks of one session, and of no other, find that something is to be done.

        Args:
            session_id: The session that the host's process is in; None where it is not known.
            wanted: Whether every hook is wanted.
            prompt: Whether the hook of a prompt is; it makes no difference where every hook is.
        """
        names: set[str] = set()
        if self._file is not None and session_id is not None and is_flag_session(session_id):
            name = f"{session_id}-{self._pid}"
            names = {name} if wanted else {name + PROMPT_SUFFIX} if prompt else set()
        try:
            for name in self._shown - names:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))
            for name in names - self._shown:
                self._link(name)
        except OSError as fault:  # hooks are late then, and nothing else may be
            _log.warning("claude.flag.failed errno=%s", fault.errno)
        self._shown = names

    def close(self) -> None:
        """Take everything down; again: nothing."""
        self.show(None, wanted=False, prompt=False)
        file, self._file = self._file, None
        if file is not None:
            with suppress(FileNotFoundError):
                os.unlink(self.path)
            file.close()

    def _link(self, name: str) -> None:
        path = os.path.join(self._folder, name)
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.link(self.path, path, follow_symlinks=False)

    def _taken(self) -> LockFile:
        for _ in range(_ATTEMPTS):
            file = LockFile(self.path, write=True)
            if not file.take(fcntl.LOCK_EX):
                file.close()
                break
            # A sweep may have removed the name between our opening it and our lock.
            if _is_still(self.path, file):
                return file
            file.close()
        raise LockTimeout(f"{self.path} is held by another server of process {self._pid}", holder=None)


def sweep(folder: str) -> None:
    """Remove what dead servers left in a folder of flags; what is anything else stays."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with _opened(path) as file:
            if file is not None and file.take(fcntl.LOCK_EX) and _is_still(path, file):
                os.unlink(path)


@contextmanager
def _opened(path: str) -> Iterator[LockFile | None]:
    try:
        file = LockFile(path, write=False)
    except (HerdError, OSError):
        yield None
        return
    with file:
        yield file


def _is_still(path: str, file: LockFile) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.number))
    except FileNotFoundError:
        return False
