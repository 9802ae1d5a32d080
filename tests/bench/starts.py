"""Section start: what a session costs before it does anything, and while it does nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.floors import PASS
from tests.bench.measuring import Sample, in_turn
from tests.bench.processes import Cost, cost, cpu_until_now, memory, wake_ups
from tests.bench.report import Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop, send, session, target
from tests.fakes.herd_session import environment

_SAMPLES = 5
_SETTLED_S = 1.0
_WATCHED_S = 2.0
_WAKE_UPS_BOUND = 2.0
_MEMORY_BOUND_MIB = 45.0


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    yield from _starting(workshop.home())
    yield from _idling(workshop.home())


def _starting(home: Path) -> Iterator[Finding]:
    def started() -> Cost:
        began = time.perf_counter()
        with session(home, "started") as one:
            spent = Cost(cpu_until_now(one.pid), time.perf_counter() - began)
            one.end()
        return spent

    def passed() -> Cost:
        return cost(PASS, environment(home))

    wall: dict[str, Sample] = {"floor": lambda: passed().wall, "start": lambda: started().wall}
    cpu: dict[str, Sample] = {"floor": lambda: passed().cpu, "start": lambda: started().cpu}
    for name, cases in (("`herd session`, exec to first answer", wall), ("the same, CPU", cpu)):
        found = in_turn(cases, samples=_SAMPLES)
        yield timed_figure(name, found["start"], timed_floor("python -c pass", found["floor"]))


def _idling(home: Path) -> Iterator[Finding]:
    with session(home, "one") as one, session(home, "other") as other:
        yield from _memory("new", other.pid)
        one.request("session.list")
        send(one, target(other))
        message = other.request("session.read", wait_ms=5_000)["messages"][0]["message_id"]
        other.request("session.confirm", message_ids=[message], evidence="bench")
        one.request("session.read", wait_ms=5_000)
        yield from _memory("in contact", other.pid)
        time.sleep(_SETTLED_S)
        before = wake_ups(one.pid), wake_ups(other.pid)
        time.sleep(_WATCHED_S)
        after = wake_ups(one.pid), wake_ups(other.pid)
    woken = max(late - early for early, late in zip(before, after, strict=True))
    yield Figure(f"wake-ups of an idle one in {_WATCHED_S:g} s", woken, "", bound=_WAKE_UPS_BOUND)


def _memory(which: str, pid: int) -> Iterator[Finding]:
    held = memory(pid)
    yield Figure(f"an idle one, {which}: PSS", held.proportional, "MiB", bound=_MEMORY_BOUND_MIB)
    yield Figure(f"an idle one, {which}: private pages", held.private, "MiB")
