"""What a peer socket must be before it is trusted: its name, its folder, its owner, its mode, its process.

It owns the checks and is ignorant of streams; `herd.rpc.unix` binds, serves and dials. A path in a record is
a claim like any other, so it is checked on every use.
"""

import os
import socket
import stat
import struct
import sys
from typing import NamedTuple

from herd.core.errors import AuthenticationFailed, PeerOffline, UnsafeEndpoint, UnsupportedPlatform
from herd.core.limits import SOCKET_PATH_BYTES
from herd.core.modes import mode_refused
from herd.core.refusals import refused

PRIVATE_FOLDER = 0o700
"""Mode of a folder that holds a socket."""

PRIVATE_SOCKET = 0o600
"""Mode of a socket."""

_OTHERS = 0o077


class Bound(NamedTuple):
    """What identifies a socket that we bound, so that another one in its place is never taken for it."""

    device: int
    inode: int
    owner: int
    folder_device: int
    folder_inode: int


def socket_name(instance_id: str) -> str:
    """Give the file name of an instance's socket."""
    return f"{instance_id}.sock"


def fits_socket_path(path: str) -> bool:
    """Tell whether every supported system can bind and dial a socket of this path."""
    return len(os.fsencode(path)) <= SOCKET_PATH_BYTES


def checked_endpoint(path: str, instance_id: str) -> None:
    """Check a socket before it is dialled; nothing is changed, whatever is found.

    Raises:
        AuthenticationFailed: its name is not that of the instance's socket.
        UnsafeEndpoint: the path, the folder or the socket is not private to this user.
        PeerOffline: there is nothing.
    """
    if os.path.basename(path) != socket_name(instance_id):
        raise AuthenticationFailed(f"{path!a} is not named after instance {instance_id}")
    try:
        if not os.path.isabs(path) or not fits_socket_path(path):
            raise UnsafeEndpoint(f"{path!a} is no absolute path of at most {SOCKET_PATH_BYTES} bytes")
        check_private_folder(os.path.dirname(path))
        _check_socket(path, os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        raise PeerOffline(f"{path} is gone") from None
    except ValueError:
        raise UnsafeEndpoint(f"{path!a} is no path") from None
    except OSError as error:
        raise refused(f"{path} cannot be checked", error, path) from None


def check_private_folder(path: str) -> None:
    """Check that a folder is real, ours and 0700.

    Raises:
        UnsafeEndpoint: it is not.
        OSError: it cannot be looked at.
    """
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeEndpoint(f"{path} is no folder, or a link to one")
    if found.st_uid != os.geteuid():
        raise UnsafeEndpoint(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if stat.S_IMODE(found.st_mode) != PRIVATE_FOLDER:
        raise mode_refused(path, found.st_mode, PRIVATE_FOLDER)


def bound_at(path: str) -> Bound:
    """Give what identifies the file at a path and the folder it lies in.

    Raises:
        OSError: one of them cannot be looked at.
    """
    folder, found = os.lstat(os.path.dirname(path)), os.lstat(path)
    return Bound(found.st_dev, found.st_ino, found.st_uid, folder.st_dev, folder.st_ino)


def is_still(path: str, bound: Bound) -> bool:
    """Tell whether the file at a path is the one we bound, in the folder we bound it in."""
    try:
        return bound_at(path) == bound
    except OSError:
        return False


def check_bound(path: str) -> None:
    """Check a socket that we have just bound: ours, 0600, in a private folder.

    Raises:
        UnsafeEndpoint: it is not.
        OSError: it cannot be looked at.
    """
    check_private_folder(os.path.dirname(path))
    found = os.lstat(path)
    _check_socket(path, found)
    if stat.S_IMODE(found.st_mode) != PRIVATE_SOCKET:
        raise mode_refused(path, found.st_mode, PRIVATE_SOCKET)


def peer_credentials(sock: socket.socket) -> tuple[int, int, int]:
    """Give pid, uid and gid of the process at the other end, from the kernel.

    On a connected socket of the dialling side they are those of the process that listens.

    Raises:
        UnsupportedPlatform: this system cannot tell.
        OSError: the socket is not connected.
    """
    if sys.platform not in _CREDENTIALS:
        raise UnsupportedPlatform(f"{sys.platform} cannot tell whose process is at the other end of a socket")
    return _CREDENTIALS[sys.platform](sock)


def _linux_credentials(sock: socket.socket) -> tuple[int, int, int]:
    form = struct.Struct("=iII")
    pid, uid, gid = form.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))
    return pid, uid, gid


def _darwin_credentials(sock: socket.socket) -> tuple[int, int, int]:
    # <sys/un.h>: SOL_LOCAL 0, LOCAL_PEERCRED 1, LOCAL_PEERPID 2; struct xucred is version, uid, count,
    # groups. Unproven until someone runs the suite on macOS.
    form = struct.Struct("@IIh16I")
    _, uid, _, gid, *_ = form.unpack(sock.getsockopt(0, 1, form.size))
    (pid,) = struct.unpack("@i", sock.getsockopt(0, 2, 4))
    return pid, uid, gid


_CREDENTIALS = {"linux": _linux_credentials, "darwin": _darwin_credentials}


def _check_socket(path: str, found: os.stat_result) -> None:
    if not stat.S_ISSOCK(found.st_mode):
        raise UnsafeEndpoint(f"{path} is no socket, or a link to one")
    if found.st_uid != os.geteuid():
        raise UnsafeEndpoint(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if stat.S_IMODE(found.st_mode) & _OTHERS:
        raise mode_refused(path, found.st_mode, PRIVATE_SOCKET)
