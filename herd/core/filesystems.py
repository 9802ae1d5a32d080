"""Which file system a path lies on, and whether the kernel's locks mean anything there.

It reads the kernel's mount table and nothing else; it does not know what is kept on the path.
"""

import os
import re

from herd.core.errors import UnsupportedPlatform

MOUNTINFO = "/proc/self/mountinfo"
"""The kernel's list of what is mounted for this process."""

_REMOTE = frozenset({"cifs", "smb3", "9p", "fuse.sshfs", "afs"})
_OCTAL = re.compile(rb"\\([0-7]{3})")


def filesystem_type(path: str, mountinfo: str = MOUNTINFO) -> str | None:
    """Give the type of the file system that a path lies on, or would lie on once it is made.

    Args:
        path: Absolute.
        mountinfo: The mount table to read.

    Returns:
        The kernel's name of the type, such as `ext4`; None without a mount table or a line that fits.
    """
    existing = _nearest_existing(path)
    mounts = _mounts(mountinfo)
    device = _device(existing)
    for mounted, _, kind in mounts:
        if mounted == device:
            return kind
    # Some file systems (btrfs) give files a device number that is in no mount line. Of two mounts at one
    # point the later covers the earlier, and max() keeps the first it meets.
    covering = [mount for mount in reversed(mounts) if _lies_below(existing, mount[1])]
    return max(covering, key=lambda mount: len(mount[1]))[2] if covering else None


def require_local_locks(path: str, mountinfo: str = MOUNTINFO) -> None:
    """Refuse a path whose file system is shared with other machines, where locks are not the kernel's own.

    Where the type cannot be told (there is no mount table on macOS) the path is accepted.

    Raises:
        UnsupportedPlatform: the type is nfs*, cifs, smb3, 9p, fuse.sshfs or afs.
    """
    kind = filesystem_type(path, mountinfo)
    if kind is not None and (kind in _REMOTE or kind.startswith("nfs")):
        raise UnsupportedPlatform(
            f"{path!r} lies on a file system of type {kind}, which has no local locks",
            hint="Set HERD_HOME to a folder on a local disk of this machine, for example under /var/tmp.",
        )


def _nearest_existing(path: str) -> str:
    resolved = os.path.realpath(path)
    while not os.path.lexists(resolved) and resolved != "/":
        resolved = os.path.dirname(resolved)
    return resolved


def _device(path: str) -> str:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _mounts(mountinfo: str) -> list[tuple[str, str, str]]:
    try:
        with open(mountinfo, "rb") as table:
            lines = table.read().split(b"\n")
    except OSError:
        return []
    return [mount for mount in map(_mount, lines) if mount is not None]


def _mount(line: bytes) -> tuple[str, str, str] | None:
    # "36 35 98:0 /below /mount\040point rw master:1 - ext4 /dev/sda rw": any number of fields before " - "
    fields, dash, rest = line.partition(b" - ")
    parts = fields.split(b" ")
    if not dash or len(parts) < len(("id", "parent", "device", "root", "point")):
        return None
    point = _OCTAL.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), parts[4])
    return parts[2].decode("ascii", "replace"), os.fsdecode(point), os.fsdecode(rest.split(b" ")[0])


def _lies_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
