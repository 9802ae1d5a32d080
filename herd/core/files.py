"""Private folders and files of ours: made, checked, read, replaced and created, always 0600 or 0700.

Above it is everything that keeps state; below it the kernel's descriptors. It does not know what a file
holds or where state lies. A refusal names the path. What a disk refuses when something is written to it stays
an `OSError`.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from herd.core.errors import RecoveryRequired, UnsafeEndpoint
from herd.core.modes import mode_refused
from herd.core.refusals import mending, refused

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


def private_folder(path: str) -> str:
    """Make a folder of ours, with its missing parents, or check the one that is there.

    Args:
        path: Absolute. Ancestors may be symlinks, the folder itself may not.

    Returns:
        The path with its ancestors resolved.

    Raises:
        UnsafeEndpoint: it is relative, a link, no folder, somebody else's, not exactly 0700, or cannot be
            made in such a place. Nothing that was there is changed.
        SystemWant: the disk or the kernel is in want of something.
    """
    resolved = resolved_folder(path)
    try:
        _make(resolved)
        _check_folder(path, os.lstat(resolved))
    except OSError as error:
        raise refused(f"folder {path!r} cannot be made or used", error, resolved) from error
    return resolved


def checked_folder(path: str) -> os.stat_result:
    """Check a folder as `private_folder` does, and make nothing.

    Raises:
        UnsafeEndpoint: it is no private folder of ours.
        OSError: it cannot be examined; `FileNotFoundError` where there is none.
    """
    found = os.lstat(resolved_folder(path))
    _check_folder(path, found)
    return found


def open_checked_folder(path: str) -> int:
    """Open a folder and check what was opened as `private_folder` does; the caller closes the descriptor.

    Raises:
        UnsafeEndpoint: it is no private folder of ours.
        SystemWant: the disk or the kernel is in want of something.
        OSError: it cannot be opened; `FileNotFoundError` where there is none.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        checked_folder(path)  # tells what stands there instead
        if mending(error) is None:
            raise
        raise refused(f"folder {path!r} cannot be opened", error, path) from error
    try:
        _check_folder(path, os.fstat(number))
    except BaseException:
        os.close(number)
        raise
    return number


def read_private(path: str, limit: int) -> bytes | None:
    """Read a whole private file of ours; nothing that stands in its place can block the caller.

    Returns:
        Its content; None where there is no such file.

    Raises:
        UnsafeEndpoint: it is a link, no regular file, somebody else's, open to others or hard linked.
        RecoveryRequired: it is larger than `limit`, in bytes.
        SystemWant: the disk or the kernel is in want of something.
    """
    found = _read(path, None, limit)
    return found and found[0]


def read_private_at(folder_fd: int, name: str, limit: int) -> tuple[bytes, os.stat_result] | None:
    """Read a file as `read_private` does, by its name in an open folder, and give its status with it.

    Raises:
        UnsafeEndpoint: as `read_private`, or `name` is more than a name.
        RecoveryRequired: it is larger than `limit`, in bytes.
    """
    if name in ("", ".", "..") or "/" in name:
        raise UnsafeEndpoint(f"{name!r} is no name of a file")
    return _read(name, folder_fd, limit)


def replace_private(
    path: str, data: bytes, *, durable: bool = True, step: Callable[[str], None] = lambda _: None
) -> None:
    """Put new content in the place of a file's old one: whoever reads finds one of the two, whole.

    Args:
        path: The file; a symlink there is replaced, and its destination stays untouched.
        data: The whole new content.
        durable: Whether it survives a power failure; False is for what means nothing after its process.
        step: Called after each step: "written", "synced", "renamed", "folder_synced"; for fault tests.

    Raises:
        OSError: it could not be written; only after the very last step is the old content gone already.
    """
    folder, name = os.path.split(path)
    with _opened_folder(folder) as folder_fd, _temporary(folder_fd, name) as (temporary, fd):
        _write_all(fd, data)
        step("written")
        if durable:
            os.fsync(fd)
            step("synced")
        os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        step("renamed")
        if durable:
            os.fsync(folder_fd)
            step("folder_synced")


def create_private(path: str, data: bytes) -> bool:
    """Create a file with its whole content, durably, unless something has its name.

    Returns:
        Whether it was created; False where anything was there, which stays as it was.

    Raises:
        OSError: it could not be written.
    """
    folder, name = os.path.split(path)
    with _opened_folder(folder) as folder_fd, _temporary(folder_fd, name) as (temporary, fd):
        _write_all(fd, data)
        os.fsync(fd)
        try:
            os.link(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd, follow_symlinks=False)
        except FileExistsError:
            return False
        finally:
            # Also where another was first: its name must not vanish after our caller has relied on it.
            os.fsync(folder_fd)
        return True


def resolved_folder(path: str) -> str:
    """Give the path of a folder with its ancestors resolved, as `private_folder` does; nothing is looked at.

    Raises:
        UnsafeEndpoint: it is relative, or does not end in a name.
    """
    folder, name = os.path.split(path.rstrip("/"))
    # A final slash or dot would make the kernel follow a link that lstat is meant to see.
    if not path.startswith("/") or "\0" in path or name in ("", ".", ".."):
        raise UnsafeEndpoint(f"folder {path!r} is not given by an absolute path that ends in a name")
    return os.path.join(os.path.realpath(folder), name)


def _make(resolved: str) -> None:
    if os.path.lexists(resolved):
        return
    parent = os.path.dirname(resolved)
    _make(parent)
    try:
        os.mkdir(resolved, _FOLDER_MODE)
    except FileExistsError:  # another process of ours was first; it is checked like any other
        return
    mode = os.lstat(resolved).st_mode
    # A umask may have taken bits of ours away, and a set-group-id parent adds one.
    if stat.S_ISDIR(mode) and stat.S_IMODE(mode) != _FOLDER_MODE:
        os.chmod(resolved, _FOLDER_MODE)
    # Files below are fsynced for nothing if their folder's name is lost. A 0711 parent cannot be opened.
    with suppress(PermissionError), _opened_folder(parent) as parent_fd:
        os.fsync(parent_fd)


def _check_folder(path: str, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        kind = "a symlink" if stat.S_ISLNK(found.st_mode) else "no folder"
        raise UnsafeEndpoint(f"{path!r} is {kind}")
    _check_owner(path, found)
    if stat.S_IMODE(found.st_mode) != _FOLDER_MODE:
        raise mode_refused(path, found.st_mode, _FOLDER_MODE)


def _check_owner(path: str, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise UnsafeEndpoint(f"{path!r} belongs to user {found.st_uid}, not to {os.geteuid()}")


def _read(path: str, folder_fd: int | None, limit: int) -> tuple[bytes, os.stat_result] | None:
    # Non-blocking, since a FIFO without a writer would hold the caller for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, dir_fd=folder_fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(f"file {path!r} cannot be opened safely", error, path, folder_fd) from error
    try:
        found = _checked_file(path, folder_fd, fd)
        return _content(path, fd, limit, found.st_size), found
    finally:
        os.close(fd)


def _checked_file(path: str, folder_fd: int | None, fd: int) -> os.stat_result:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeEndpoint(f"{path!r} is no regular file")
    _check_owner(path, found)
    if found.st_mode & 0o077:
        raise mode_refused(path, found.st_mode, 0o600)
    # No link at all is a file that was replaced a moment ago, whole as it was. The list may come too late
    # to show a temporary name, so the links are counted once more.
    if found.st_nlink > 1 + _temporary_names(path, folder_fd, found) and os.fstat(fd).st_nlink > 1:
        raise UnsafeEndpoint(f"file {path!r} is hard linked elsewhere")
    return found


def _temporary_names(path: str, folder_fd: int | None, found: os.stat_result) -> int:
    if found.st_nlink <= 1:
        return 0
    # create_private links: a file has two names until the temporary one goes, for good after a kill.
    folder, name = os.path.split(path)
    names = 0
    with _opened_folder(folder or ".", dir_fd=folder_fd) as listed_fd:
        for other in os.listdir(listed_fd):
            if other.startswith(f".{name}.") and other.endswith(".tmp"):
                with suppress(FileNotFoundError):
                    second = os.stat(other, dir_fd=listed_fd, follow_symlinks=False)
                    names += os.path.samestat(second, found)
    return names


def _content(path: str, fd: int, limit: int, size: int) -> bytes:
    data = os.read(fd, min(size, limit) + 1)  # the kernel may fill less, and what is asked for is allocated
    if len(data) == size <= limit:
        return data  # and at its end, as it was when it was opened: nothing of ours grows in place
    while len(data) <= limit and (part := os.read(fd, limit + 1 - len(data))):
        data += part
    if len(data) > limit:
        raise RecoveryRequired(f"file {path!r} is larger than {limit} bytes")
    return data


@contextmanager
def _opened_folder(path: str, dir_fd: int | None = None) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _temporary(folder_fd: int, name: str) -> Iterator[tuple[str, int]]:
    temporary = f".{name}.{os.getpid()}.{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, _FILE_MODE, dir_fd=folder_fd)
    try:
        os.fchmod(fd, _FILE_MODE)  # whatever the umask took away
        yield temporary, fd
    finally:
        with suppress(FileNotFoundError):  # renamed
            os.unlink(temporary, dir_fd=folder_fd)
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
