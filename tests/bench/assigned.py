"""Section authority: a scan of a thousand assignments on ten sockets, read for the first time and again.

Everything here waits for nothing but the processor, so CPU time is what is compared. Under the least that
there is to do, every record is read and parsed.
"""

import os
from collections.abc import Iterator

from assignments import record, store
from assignments.record import Assignment
from assignments.scan import Scans
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.identity import SessionName, session_key
from herd.core.paths import Layout, open_layout
from tests.bench.floors import parse_all
from tests.bench.measuring import Sample, cpu_timed, in_turn
from tests.bench.report import Check, Finding, timed_figure, timed_floor
from tests.bench.workshop import TEXT, Workshop

_SOCKETS = _REPOSITORIES = _BRANCHES = 10
_RECORDS = _SOCKETS * _REPOSITORIES * _BRANCHES
_SAMPLES = 12

_COLD_BOUND = 3.0
_WARM_BOUND = 0.5


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    layout = open_layout(str(workshop.home()))
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    with lock.exclusive() as hold:
        for number in range(_RECORDS):
            store.write(layout, hold, _assignment(number))
    kept = Scans(layout, lock)
    with lock.shared() as hold:
        # Over and over: what was written a moment ago is looked at again until its stamp has settled.
        while kept.current(hold) is None:
            found = len(kept.scan(hold).held)
        yield Check(f"all {_RECORDS} records are read", None if found == _RECORDS else f"{found} of them are")
        yield from _timed(layout, lock, hold, kept)


def _timed(layout: Layout, lock: AuthorityLock, hold: AuthorityHold, kept: Scans) -> Iterator[Finding]:
    cases: dict[str, Sample] = {
        "floor": lambda: cpu_timed(lambda: _read_all(layout)),
        "cold": lambda: _cold(layout, lock, hold),
        "warm": lambda: cpu_timed(lambda: kept.scan(hold)),
        "current": lambda: cpu_timed(lambda: kept.current(hold)),
    }
    found = in_turn(cases, samples=_SAMPLES)
    floor = timed_floor("files read and parsed", found["floor"])
    name = f"{_RECORDS} assignments on {_SOCKETS} sockets"
    yield timed_figure(f"{name}, cold, CPU", found["cold"], floor, _COLD_BOUND)
    yield timed_figure(f"{name}, unchanged, CPU", found["warm"], floor, _WARM_BOUND)
    yield timed_figure("the same, on the event loop, CPU", found["current"], floor, _WARM_BOUND)


def _cold(layout: Layout, lock: AuthorityLock, hold: AuthorityHold) -> float:
    """Scan as a new process does, which has neither read a record nor computed a hash before."""
    session_key.cache_clear()
    record.digest.cache_clear()
    return cpu_timed(lambda: Scans(layout, lock).scan(hold))


def _read_all(layout: Layout) -> None:
    for folder, _, names in os.walk(layout.assignments):
        if names:
            parse_all(folder)


def _assignment(number: int) -> Assignment:
    above, branch = divmod(number, _BRANCHES)
    socket, repo = divmod(above, _REPOSITORIES)
    return Assignment(
        id=f"00000000-0000-4000-8000-{number:012x}",
        socket=f"/run/user/1000/herdr-{socket}.sock",
        repo=f"/home/somebody/projects/project-{repo}/.git",
        branch=f"work/{branch}",
        session=SessionName("bench", f"session-{number}"),
        text=TEXT,
        created_at=1_700_000_000_000,
    )
