"""Foreign files: what is read of them, which of them are refused, and what a killed run of ours left beside.

It changes nothing but such leavings; `disk` does.
"""

import os
import re
import stat
from contextlib import suppress
from typing import NamedTuple

from herd.core.errors import HerdError, RecoveryRequired, UnsafeEndpoint
from herd.core.limits import HOST_FILE_BYTES
from herd.core.processes import start_token

_LEFTOVER = r"\.{}\.herd-(?:old|new)\.(\d+)\.[0-9a-f]{{8}}\.tmp"
_LOOK = "Look at the named path: it must be a plain file of yours that you may write."
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW_FILE_MODE = 0o600


class Found(NamedTuple):
    """A file as it was read."""

    path: str
    """Where it really lies, links followed."""
    content: bytes | None
    """None where there is none."""
    mode: int = _NEW_FILE_MODE
    """Its permission bits."""
    group: int | None = None
    """Its group."""


def find(path: str, limit: int = HOST_FILE_BYTES) -> Found:
    """Read a file that is to be changed; nothing that stands in its place can block the caller.

    Raises:
        UnsafeEndpoint: it is no regular file, not ours, read-only, hard linked, or cannot be opened.
        RecoveryRequired: it is larger than `limit`, in bytes.
    """
    real = os.path.realpath(path)
    try:
        number = os.open(real, _READ | os.O_NOFOLLOW)
    except FileNotFoundError:
        _require_no_broken_link(path, real)
        return Found(real, None)
    except OSError as fault:
        raise UnsafeEndpoint(f"{path} cannot be opened: {fault.strerror}", hint=_LOOK) from fault
    try:
        status = os.fstat(number)
        _check(path, status)
        content = _content(path, number, limit)
        return Found(real, content, stat.S_IMODE(status.st_mode), status.st_gid)
    finally:
        os.close(number)


def missing_folders(path: str) -> list[str]:
    """Give the folders above a path that do not exist, the outermost first."""
    missing: list[str] = []
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return missing


def sweep(path: str) -> None:
    """Remove what a run of ours left that was killed; all of it is in the backups, too."""
    for one, pid in _leftovers(path).items():
        with suppress(OSError, HerdError):  # a process that cannot be judged may be at work yet
            if start_token(pid) is None:
                os.unlink(one)


def beside(path: str, what: str) -> str:
    """Give a name for something of ours in the folder of a file: `old` or `new`."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.herd-{what}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def _require_no_broken_link(path: str, real: str) -> None:
    folder = os.path.dirname(real)
    if os.path.islink(path) and not os.path.isdir(folder):
        raise UnsafeEndpoint(f"{path} is a link into {folder}, which does not exist", hint=_LOOK)


def _check(path: str, status: os.stat_result) -> None:
    problem = None
    if not stat.S_ISREG(status.st_mode):
        problem = "is no regular file"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif not status.st_mode & stat.S_IWUSR:
        problem = "is read-only"
    elif status.st_nlink > 1 + _names_of_ours(path, status):
        problem = "has a second name (a hard link), which a new file would part from it"
    if problem:
        raise UnsafeEndpoint(f"{path} {problem}; no file was changed", hint=_LOOK)


def _leftovers(path: str) -> dict[str, int]:
    """Give the names beside a file that a run of ours made and may have left, and its pid."""
    folder, name = os.path.split(path)
    pattern = re.compile(_LEFTOVER.format(re.escape(name)))
    with suppress(OSError):
        found = {os.path.join(folder, one): pattern.fullmatch(one) for one in os.listdir(folder)}
        return {one: int(match[1]) for one, match in found.items() if match}
    return {}


def _names_of_ours(path: str, status: os.stat_result) -> int:
    names = 0
    for one in _leftovers(os.path.realpath(path)):
        with suppress(OSError):
            names += os.path.samestat(os.lstat(one), status)
    return names


def _content(path: str, number: int, limit: int) -> bytes:
    data = bytearray()
    while len(data) <= limit and (part := os.read(number, min(1 << 20, limit + 1 - len(data)))):
        data += part
    if len(data) > limit:
        raise RecoveryRequired(
            f"{path} is larger than {limit} bytes; no file was changed",
            hint="Herd edits no file of that size; make it smaller, or move it away.",
        )
    return bytes(data)
