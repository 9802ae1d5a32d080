"""What becomes of an `OSError` over a file of ours: a place that is not safe, or a system that is in want.

A disk that is full, read-only or failing and a process without descriptors say nothing of a file: mail waits
until that is mended. Only a wrong owner, type, link or mode is unsafe, and refuses for good. Knows nothing of
what the files hold, or of who is told.
"""

import errno
import os
import stat

from herd.core.errors import HerdError, RecoveryRequired, SystemWant, UnsafeEndpoint

_THEN = "; nothing that was accepted is lost, and it goes on then."
_SPACE = "Free space on the disk that holds it" + _THEN
_DISK = "Mend the disk that holds it, which cannot be used as it is (read-only, failing or locked)" + _THEN
_ROOM = "Raise the limit on open files (`ulimit -n`), or end programs that need much memory" + _THEN

_WANTS: dict[int, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _SPACE),
    **dict.fromkeys((errno.EROFS, errno.EIO, errno.ESTALE, getattr(errno, "EUCLEAN", errno.EIO)), _DISK),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ENOLCK), _ROOM),
}
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_MISPLACED = (errno.ELOOP, errno.ENOTDIR, errno.EISDIR)
_FOLDER = 0o700
_FILE = 0o600


def mending(fault: OSError) -> str | None:
    """Give what mends a want of the disk or the kernel, as a hint; None where the fault is another."""
    return _WANTS.get(fault.errno or 0)


def refused(text: str, fault: OSError, path: str, folder_fd: int | None = None) -> HerdError:
    """Give the refusal of a file or folder that could not be opened, made or locked.

    Args:
        text: What could not be done, naming the thing; the kernel's reason is put behind it.
        fault: What the kernel said.
        path: What was meant.
        folder_fd: The open folder that a relative `path` starts from.

    Returns:
        `SystemWant` where the system is in want of something, or forbids what the mode allows, as it does for
        an immutable file; `UnsafeEndpoint` where the place itself is wrong.
    """
    message = f"{text}: {fault.strerror or fault}"
    hint = mending(fault)
    if hint is None and fault.errno in _FORBIDDEN and _is_ours(path, folder_fd):
        hint = _DISK
    return UnsafeEndpoint(message) if hint is None else SystemWant(message, hint=hint)


def refusal_of(fault: OSError) -> HerdError | None:
    """Give the refusal that a bare fault over a file amounts to; None where it tells of no file of ours.

    Args:
        fault: What the kernel said; of a rename, the file that was meant to be there is named.
    """
    file = fault.filename2 or fault.filename
    path = os.fsdecode(file) if isinstance(file, str | bytes) else None
    hint = mending(fault)
    if hint is not None:
        where = "" if path is None else f"{path}: "
        return SystemWant(f"{where}{fault.strerror or fault}", hint=hint)
    if path is None:
        return None
    if fault.errno == errno.ENOENT:
        return RecoveryRequired(f"{path} is missing")
    known = fault.errno in _FORBIDDEN or fault.errno in _MISPLACED
    return refused(f"{path} cannot be used", fault, path) if known else None


def _is_ours(path: str, folder_fd: int | None) -> bool:
    """Tell whether owner, type and mode of a place would allow its use.

    Of a place where nothing is, the folder is looked at that it was to be made in.
    """
    try:
        found = _nearest(path, folder_fd)
    except OSError:
        return False  # a folder above it is another's, or shut to us
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        return False
    if stat.S_ISDIR(found.st_mode):
        return mode & _FOLDER == _FOLDER
    return stat.S_ISREG(found.st_mode) and mode == _FILE and found.st_nlink <= 1


def _nearest(path: str, folder_fd: int | None) -> os.stat_result:
    while True:
        try:
            return os.lstat(path, dir_fd=folder_fd)
        except FileNotFoundError:
            above = os.path.dirname(path) or "."
            if above == path:
                raise
            path = above
