"""Which process is which: start tokens, ancestors, the controlling terminal.

A pid alone names nobody, since pids are reused; with its start token it names one process for good. Tokens
judge only processes that hold no lock of ours: for the others the kernel's lock decides (`herd.core.locks`).
This module is ignorant of sessions and hosts.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from herd.core.errors import RecoveryRequired
from herd.core.limits import ANCESTORS

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_STAT_BYTES = 4_096
_PARENT = 1  # fields of /proc/<pid>/stat, counted after the name
_STARTED = 19


class _Stat(NamedTuple):
    parent: int
    ticks: int


def start_token(pid: int) -> str | None:
    """Give what tells a process from all that had its pid before; None where there is no such process.

    On Linux: boot id, pid namespace and start in clock ticks since the boot, joined by colons. Elsewhere the
    time of creation. A process that has ended and was not yet waited for still has one.

    Raises:
        RecoveryRequired: /proc is missing, hides this process, or counts pids in another namespace than ours.
    """
    return _linux_token(pid) if sys.platform == "linux" else _portable_token(pid)


def ancestors(pid: int | None = None) -> list[tuple[int, str]]:
    """List the ancestors of a process up to process 1, nearest first, each with its start token.

    Ancestry can show that a process belongs to another, never that it does not: a launcher that has ended, or
    one that is hidden from us, ends the list early.

    Args:
        pid: The process, itself not in the list; this one where it is None.

    Raises:
        RecoveryRequired: /proc is missing, or counts pids in another namespace than ours.
    """
    start = os.getpid() if pid is None else pid
    return _linux_ancestors(start) if sys.platform == "linux" else _portable_ancestors(start)


def has_controlling_terminal() -> bool:
    """Tell whether this process has a controlling terminal, wherever its standard streams lead."""
    try:
        number = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(number)
    return True


def _linux_token(pid: int) -> str | None:
    origin = _origin()
    try:
        stat = _stat(pid)
    except PermissionError as error:
        raise RecoveryRequired(f"/proc/{pid}/stat may not be read, so process {pid} is not proven") from error
    return None if stat is None else f"{origin}:{stat.ticks}"


def _linux_ancestors(pid: int) -> list[tuple[int, str]]:
    origin = _origin()
    return [(ancestor, f"{origin}:{ticks}") for ancestor, ticks in chain(pid, _visible_stat)]


def chain(pid: int, look: Callable[[int], _Stat | None]) -> list[tuple[int, int]]:
    """Follow the parents of a process: the pid and the start of each, as far as `look` shows them."""
    found: list[tuple[int, int]] = []
    child = look(pid)
    while child is not None and child.parent > 0 and len(found) < ANCESTORS:
        parent = look(child.parent)
        # A parent that ended between the two looks may have left its pid to a younger process; no parent is
        # younger than its child.
        if parent is None or parent.ticks > child.ticks:
            break
        found.append((child.parent, parent.ticks))
        child = parent
    return found


@cache
def boot_id() -> str:
    """Give the id of this boot.

    Raises:
        OSError: the system names none.
    """
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def _origin() -> str:
    """Give what makes pids and ticks comparable: the boot and the pid namespace they are counted in."""
    try:
        named, boot = os.readlink("/proc/self"), boot_id()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError as error:
        raise RecoveryRequired("/proc cannot be read, so no process is proven") from error
    # A new pid namespace under the old /proc: its numbers are other processes' than ours.
    if named != str(os.getpid()):
        raise RecoveryRequired("/proc belongs to another pid namespace than ours, so no process is proven")
    return f"{boot}:{namespace}"


def _stat(pid: int) -> _Stat | None:
    try:
        number = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return parsed_stat(os.read(number, _STAT_BYTES))
    except ProcessLookupError:  # it ended after the file was opened
        return None
    finally:
        os.close(number)


def _visible_stat(pid: int) -> _Stat | None:
    try:
        return _stat(pid)
    except PermissionError:  # hidden by a mount option of /proc
        return None


def parsed_stat(text: bytes) -> _Stat:
    """Read the parent's pid and the start from a line of /proc/<pid>/stat.

    A process chooses its own name, the second field, in parentheses: only the last parenthesis surely ends
    it.
    """
    fields = text[text.rindex(b")") + 1 :].split()
    return _Stat(int(fields[_PARENT]), int(fields[_STARTED]))


def _portable_token(pid: int) -> str | None:
    from psutil import AccessDenied, NoSuchProcess, Process  # a dependency only where there is no /proc

    try:
        return f"created:{Process(pid).create_time()!r}"
    except (NoSuchProcess, ValueError):
        return None
    except AccessDenied as error:
        raise RecoveryRequired(f"process {pid} may not be looked at, so it is not proven") from error


def _portable_ancestors(pid: int) -> list[tuple[int, str]]:
    from psutil import Error, Process  # a dependency only where there is no /proc

    try:
        parents = Process(pid).parents()[:ANCESTORS]
    except (Error, ValueError):
        return []
    found: list[tuple[int, str]] = []
    for parent in parents:
        try:
            found.append((parent.pid, f"created:{parent.create_time()!r}"))
        except Error:
            break
    return found
