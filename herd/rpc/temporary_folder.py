"""A private folder in a shared place such as /tmp, for a socket whose own path would be too long.

It owns the folder from making to removal, and is ignorant of what lies in it.
"""

import fcntl
import logging
import os
import tempfile
from typing import NamedTuple

from herd.core.refusals import refused
from herd.rpc.endpoints import PRIVATE_FOLDER

_log = logging.getLogger(__name__)


class TemporaryFolder(NamedTuple):
    """A folder of ours; the lock on its descriptor tells sweepers of the shared place that it is in use."""

    path: str
    descriptor: int

    def remove(self) -> None:
        """Remove the folder if it is empty and still this one, and release it."""
        try:
            if os.path.samestat(os.lstat(self.path), os.fstat(self.descriptor)):
                os.rmdir(self.path)
        except OSError as error:
            _log.warning("rpc.folder.left path=%s errno=%s", self.path, error.errno)
        finally:
            os.close(self.descriptor)


def make_temporary_folder(parent: str) -> TemporaryFolder:
    """Make a folder in a place that others may write to, and lock it.

    Raises:
        UnsafeEndpoint: it cannot be made there or locked.
        SystemWant: the disk or the kernel is in want of something.
    """
    try:
        path = tempfile.mkdtemp(prefix="herd-", dir=os.path.realpath(parent))
        os.chmod(path, PRIVATE_FOLDER)  # whatever the umask took away, or a setgid parent added
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise refused(f"no folder for a socket can be made in {parent}", error, parent) from None
    folder = TemporaryFolder(path, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        folder.remove()
        raise refused(f"{path} cannot be locked", error, path) from None
    return folder
