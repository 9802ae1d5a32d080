"""What the kernel says of processes: what one cost from start to end, and what an idle one holds and does."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """What one process took, in seconds."""

    cpu: float
    wall: float


class Memory(NamedTuple):
    """What one process holds, in MiB."""

    proportional: float
    """Its own pages, and its share of those it shares (PSS)."""
    private: float
    anonymous: float
    """What no file backs: the one that does not move with what other processes map."""


def cost(arguments: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run a program to its end, its output thrown away.

    Raises:
        RuntimeError: it did not end with status 0.
    """
    began = time.perf_counter()
    silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(arguments[0], list(arguments), dict(environment), file_actions=silent)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{' '.join(arguments)} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(used.ru_utime + used.ru_stime, wall)


def cpu_until_now(pid: int) -> float:
    """Give the CPU seconds that all threads of a running process have used so far."""
    # What clock_getcpuclockid(3) gives: the kernel's name for the scheduler's clock of that process.
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int) -> Memory:
    """Read what a process holds."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]:
        name, kilobytes, *_ = line.split()
        found[name] = int(kilobytes) / 1_024
    private = found["Private_Clean:"] + found["Private_Dirty:"]
    return Memory(found["Pss:"], private, found["Anonymous:"])


def descriptors(pid: int) -> int:
    """Count what a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@contextmanager
def on_two_cores() -> Iterator[None]:
    """Let this process, and what it starts meanwhile, run on two cores however many there are."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def wake_ups(pid: int) -> int:
    """Count how often the threads of a process have gone to sleep since they began."""
    switches = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text(encoding="utf-8").splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                switches += int(line.split()[1])
    return switches
