"""What the kernel shows of running processes: which belong to a data root, and what they hold.

It looks at /proc and changes nothing.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_KINDS = {"0001": "unix stream", "0002": "unix datagram", "0005": "unix seqpacket"}


def processes_of(home: Path) -> list[int]:
    """Give the processes whose data root is `home`, children of theirs that know it not included."""
    wanted = f"HERD_HOME={home}".encode()
    return [pid for pid in _pids() if wanted in _read(pid, "environ").split(b"\0")]


def command_line_of(pid: int) -> bytes:
    """Give the arguments of a process, each ended by NUL."""
    return _read(pid, "cmdline")


def environment_of(pid: int) -> bytes:
    """Give the variables that a process was started with, each ended by NUL."""
    return _read(pid, "environ")


def children_of(pid: int) -> list[int]:
    """Give the processes whose parent is this one."""
    return [one for one in _pids() if _parent(one) == pid]


def sockets_of(pid: int) -> list[str]:
    """Name the kind of each socket that a process holds: `unix stream` and the like, or what else it is."""
    kinds = dict(_unix_sockets(pid))
    return [kinds.get(inode, f"no unix socket: {inode}") for inode in _held(pid)]


def _held(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            kind, _, inode = os.readlink(entry).partition(":")
            if kind == "socket":
                yield inode.strip("[]")


def _unix_sockets(pid: int) -> Iterator[tuple[str, str]]:
    # Num RefCount Protocol Flags Type St Inode Path
    for line in Path(f"/proc/{pid}/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        fields = line.split()
        yield fields[6], _KINDS.get(fields[4], f"unix {fields[4]}")


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int | None:
    found = _read(pid, "stat").rpartition(b")")[2].split()
    return int(found[1]) if found else None


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
