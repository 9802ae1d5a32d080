"""Foreign files on disk: changed all together or not at all.

A file may be a link into somebody's dotfiles; the link stays, what it leads to is replaced. New content lies
complete and synced in the same folder before the first rename. What a rename displaces keeps a name until
every file is done, so undoing needs no space on the disk.
"""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import NamedTuple

from herd.core.errors import HerdError, RecoveryRequired
from herd.hosts.install.found import Found, beside, find, sweep

Step = Callable[[str, str], None]
"""Called with a word and a path before each thing that is done to the disk; for tests that let it fail."""


class ChangedMeanwhile(Exception):
    """A file was changed by another program between reading and writing; every file is as it was."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class Change(NamedTuple):
    """What is to become of one file."""

    found: Found
    after: bytes | None
    """Its new content; None for its removal."""
    guard: Callable[[str], AbstractContextManager[None]] | None = None
    """Gives, for the time of the rename, the lock that the file's own program takes when it writes."""


def apply(changes: Sequence[Change], folders: Sequence[str] = (), step: Step = lambda _, __: None) -> None:
    """Make every change, or none.

    Args:
        changes: In the order in which they are made.
        folders: Folders to make first if they are missing, parents before what is in them.
        step: See `Step`.

    Raises:
        ChangedMeanwhile: a file was changed by another program since it was read; nothing was changed.
        RecoveryRequired: something could not be written; nothing was changed.
    """
    work = _Work(step)
    try:
        for folder in folders:
            work.make(folder)
        for change in changes:
            sweep(change.found.path)
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
        name = beside(found.path, "new")
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
            raise ChangedMeanwhile(path) from None
        except OSError:  # a file system without links
            os.rename(self._ready.pop(path), path)
        self._undo.append(lambda: os.unlink(path))

    def _displace(self, path: str, *, removes: bool) -> None:
        kept = beside(path, "old")
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


def _require_unchanged(found: Found) -> None:
    try:
        now = find(found.path)
    except HerdError as refusal:
        raise ChangedMeanwhile(found.path) from refusal
    if now.path != found.path or now.content != found.content:
        raise ChangedMeanwhile(found.path)


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


def _sync_folder(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
