"""What tells one version of a file or folder from the next by one stat, and when that can be relied on."""

import os
from typing import NamedTuple

_GRANULE_NS = 100_000_000


class Stamp(NamedTuple):
    """What identifies one version: a file is replaced by rename, and ctime also tells a chmod."""

    inode: int
    changed_ns: int
    size: int

    def settled(self, now_ns: int) -> bool:
        """Tell whether any later change gives another stamp; `now_ns` was read before what it stands for.

        Most kernels stamp with a clock that stands still for milliseconds, and give the number of a removed
        file to the next one: two changes soon after one another could look like none.
        """
        return self.changed_ns + _GRANULE_NS < now_ns


def stamp_of(status: os.stat_result) -> Stamp:
    """Give the stamp in a status."""
    return Stamp(status.st_ino, status.st_ctime_ns, status.st_size)


def stamp_at(path: str, folder_fd: int | None = None) -> Stamp | None:
    """Give the stamp of what stands at a path, or under a name in an open folder; None where nothing does."""
    try:
        return stamp_of(os.stat(path, dir_fd=folder_fd, follow_symlinks=False))
    except FileNotFoundError:
        return None
