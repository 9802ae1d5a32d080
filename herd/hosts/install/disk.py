"""Foreign files on disk: read with care, and changed all together or not at all.

A file may be a link into somebody's dotfiles; the link stays, what it leads to is replaced. New content lies
complete and synced in the same folder before the first rename. What a rename displaces keeps a name until
every file is done, so undoing needs no space on the disk.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import NamedTuple

from herd.core.errors import HerdError, RecoveryRequired, ResourceBusy, UnsafeEndpoint
from herd.core.limits import HOST_FILE_BYTES
from herd.core.processes import start_token

Step = Callable[[str, str], None]
"""Called with a word and a path before each thing that is done to the disk; for tests that let it fail."""

_LEFTOVER = r"\.{}\.herd-(?:old|new)\.(\d+)\.[0-9a-f]{{8}}"
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


class Change(NamedTuple):
    """What is to become of one file."""

    found: Found
    after: bytes | None
    """Its new content; None for its removal."""
    guard: Callable[[str], AbstractContextManager[None]] | None = None
    """Gives, for the time of the rename, the lock that the file's own program takes when it writes."""


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


def apply(changes: Sequence[Change], folders: Sequence[str] = (), step: Step = lambda _, __: None) -> None:
    """Make every change, or none.

    Args:
        changes: In the order in which they are made.
        folders: Folders to make first if they are missing, parents before what is in them.
        step: See `Step`.

    Raises:
        ResourceBusy: a file was changed by another program since it was read; nothing was changed.
        RecoveryRequired: something could not be written; nothing was changed.
    """
    work = _Work(step)
    try:
        for folder in folders:
            work.make(folder)
        for change in changes:
            _sweep(change.found.path)
            work.prepare(change)
        for change in changes:
            work.make_change(change)
    except BaseException as fault:
        work.undo()
        if isinstance(fault, OSError):
            raise RecoveryRequired(
                f"{fault.filename2 or fault.filename or 'a file'} cannot be written: "
                f"{fault.strerror}; every file is as it was",
                hint="Free space, or mend who may write there, and run it again.",
            ) from fault
        raise
    work.finish()


def missing_folders(path: str) -> list[str]:
    """Give the folders above a path that do not exist, the outermost first."""
    missing: list[str] = []
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        missing.insert(0, folder)
        folder = os.path.dirname(folder)
    return missing


class _Work:
    """One set of changes under way, with all that is needed to take it back."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._made: list[str] = []
        self._ready: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []
        self._spare: list[str] = []

    def make(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        self._step("mkdir", folder)
        os.mkdir(folder)
        self._made.append(folder)

    def prepare(self, change: Change) -> None:
        """Write the new content beside the file."""
        if change.after is None:
            return
        found = change.found
        name = _beside(found.path, "new")
        self._step("write", found.path)
        number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._ready[found.path] = name
        try:
            _give_rights(number, found)
            _write_all(number, change.after, name)
            self._step("sync", found.path)
            os.fsync(number)
        finally:
            os.close(number)

    def make_change(self, change: Change) -> None:
        path = change.found.path
        with ExitStack() as stack:
            if change.guard is not None:
                stack.enter_context(change.guard(path))
            _require_unchanged(change.found)
            if change.found.content is None:
                self._create(path)
            else:
                self._displace(path, removes=change.after is None)
        self._step("sync folder", path)
        _sync_folder(os.path.dirname(path))

    def _create(self, path: str) -> None:
        if path not in self._ready:
            return
        self._step("create", path)
        try:
            os.link(self._ready[path], path, follow_symlinks=False)
        except FileExistsError:
            raise _changed_meanwhile(path) from None
        except OSError:  # a file system without links
            os.rename(self._ready.pop(path), path)
        self._undo.append(lambda: os.unlink(path))

    def _displace(self, path: str, *, removes: bool) -> None:
        kept = _beside(path, "old")
        self._step("keep", path)
        if removes:
            os.rename(path, kept)
        else:
            _link_or_copy(path, kept)
        self._spare.append(kept)
        if removes:
            self._undo.append(lambda: os.rename(kept, path))
            return
        self._step("rename", path)
        os.rename(self._ready[path], path)
        del self._ready[path]
        self._undo.append(lambda: os.rename(kept, path))

    def undo(self) -> None:
        """Take everything back; what cannot be is left under the name it has, and the rest goes on."""
        for one in reversed(self._undo):
            with suppress(OSError):
                one()
        self._clean()
        for folder in reversed(self._made):
            with suppress(OSError):
                os.rmdir(folder)

    def finish(self) -> None:
        self._clean()

    def _clean(self) -> None:
        for name in [*self._ready.values(), *self._spare]:
            with suppress(OSError):
                os.unlink(name)


_LOOK = "Look at the named path: it must be a plain file of yours that you may write."


def _require_no_broken_link(path: str, real: str) -> None:
    folder = os.path.dirname(real)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise UnsafeEndpoint(f"{folder}, above {path}, is no folder", hint=_LOOK)
    if os.path.islink(path) and os.path.dirname(real) != folder:
        raise UnsafeEndpoint(
            f"{path} is a link into {os.path.dirname(real)}, which does not exist", hint=_LOOK
        )


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


def _sweep(path: str) -> None:
    """Remove what a run of ours left that was killed; all of it is in the backups, too."""
    for one, pid in _leftovers(path).items():
        with suppress(OSError, HerdError):  # a process that cannot be judged may be at work yet
            if start_token(pid) is None:
                os.unlink(one)


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


def _require_unchanged(found: Found) -> None:
    try:
        now = find(found.path)
    except HerdError as refusal:
        raise _changed_meanwhile(found.path) from refusal
    if now.path != found.path or now.content != found.content:
        raise _changed_meanwhile(found.path)


def _changed_meanwhile(path: str) -> ResourceBusy:
    return ResourceBusy(
        f"{path} was changed by another program just now; every file is as it was",
        hint="Run it again; the host writes its own files, too.",
    )


def _give_rights(number: int, found: Found) -> None:
    mode = found.mode
    if found.group is not None and os.fstat(number).st_gid != found.group:
        try:
            os.fchown(number, -1, found.group)
        except PermissionError:
            mode &= ~stat.S_IRWXG  # they were meant for another group
    os.fchmod(number, mode)


def _write_all(number: int, data: bytes, name: str) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(number, left) :]
    except OSError as fault:
        fault.filename = name
        raise


def _link_or_copy(path: str, kept: str) -> None:
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        found = find(path)
        number = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _give_rights(number, found)
            _write_all(number, found.content or b"", kept)
        except BaseException:
            os.unlink(kept)
            raise
        finally:
            os.close(number)


def _beside(path: str, what: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.herd-{what}.{os.getpid()}.{os.urandom(4).hex()}")


def _sync_folder(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
