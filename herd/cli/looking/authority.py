"""The look at the authority lock: whether somebody keeps it, and whether its count of changes is a number.

Without either nobody is judged, so nothing goes to anybody. Nothing is counted up here, and nothing made.
"""

import os
import shlex
import time
from fcntl import LOCK_EX

from herd.cli.looking.finding import Finding, Findings
from herd.core.authority_lock import AuthorityLock
from herd.core.errors import RecoveryRequired
from herd.core.limits import DOCTOR_LOCK_S, LOOK_AGAIN_MS
from herd.core.lock_files import looked_at
from herd.core.paths import Layout

LOCKS = "/proc/locks"
_FLOCK = "FLOCK"
_FOUND = (
    "Look at it (`ps -o pid,stat,args -p {pids}`): let it go on where it is stopped (`kill -CONT`), or end"
    " it; the lock is free as soon as it has ended."
)
_HIDDEN = (
    "Find who has it open (`lsof {path}`, or `fuser`), let it go on where it is stopped, or end it; the lock"
    " is free as soon as it has ended. Never remove the file: two would then hold the lock."
)


def authority(layout: Layout) -> Findings:
    """Look at both; nothing where no authority has changed yet.

    Args:
        layout: The folders of this machine.

    Raises:
        UnsafeEndpoint: a file of the lock is not this user's alone.
        SystemWant: the disk or the kernel is in want of something.
    """
    for path in (layout.authority_gate, layout.authority_lock):
        holders = _kept(path)
        if holders is not None:
            who = f"process {' and '.join(map(str, holders))}" if holders else "somebody"
            pids = ",".join(map(str, holders))
            yield Finding(
                "authority",
                ok=False,
                detail=f"{who} holds {path} for longer than a verdict takes: nobody is judged, or changed",
                next_step=_FOUND.format(pids=pids) if holders else _HIDDEN.format(path=shlex.quote(path)),
            )
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    try:
        lock.generation()
    except RecoveryRequired as refusal:
        yield Finding("authority", ok=False, detail=refusal.message, next_step=refusal.next_step)


def _kept(path: str) -> list[int] | None:
    """Give who may hold a lock that is never free for `DOCTOR_LOCK_S`; None where it is free.

    Whoever judges holds it for milliseconds; the same processes at every look are named, others are not.
    """
    give_up = time.monotonic() + DOCTOR_LOCK_S
    named: set[int] | None = None
    while True:
        try:
            seen = looked_at(path, lambda number: _holders(os.fstat(number)), operation=LOCK_EX)
        except FileNotFoundError:
            return None
        if seen is None:
            return None
        named = seen if named is None else named & seen
        if time.monotonic() >= give_up:
            return sorted(named)
        time.sleep(LOOK_AGAIN_MS / 1000)


def _holders(found: os.stat_result) -> set[int]:
    """Give what the kernel tells of the processes that took a flock of a file; it may tell of none.

    Only a hint: a child may have inherited the lock, and a process of another namespace has no number here.
    """
    file = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open(LOCKS, encoding="ascii", errors="replace") as told:
            lines = [line.split() for line in told]
    except OSError:  # no Linux, or hidden
        return set()
    # A waiter has an arrow behind its number, and so one word more.
    taken = [line[4] for line in lines if line[1:2] == [_FLOCK] and line[5:6] == [file]]
    return {int(pid) for pid in taken if pid.isdigit()} - {0}
