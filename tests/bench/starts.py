"""Section start: what a session costs before it does anything, and while it does nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.floors import PASS
from tests.bench.measuring import Sample, in_turn
from tests.bench.processes import cost, cpu_until_now, memory, wake_ups
from tests.bench.report import Figure, Finding, Floor
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
    used: list[float] = []

    def started() -> float:
        began = time.perf_counter()
        with session(home, "started") as one:
            one.ready()
            elapsed = time.perf_counter() - began
            used.append(cpu_until_now(one.pid))
            one.end()
        return elapsed

    bare: list[float] = []

    def passed() -> float:
        spent = cost(PASS, environment(home))
        bare.append(spent.cpu)
        return spent.wall

    cases: dict[str, Sample] = {"floor": passed, "start": started}
    found = in_turn(cases, samples=_SAMPLES)
    floor = Floor("python -c pass", found["floor"].best * 1_000, found["floor"].spread)
    start = found["start"]
    yield Figure("`herd session`, exec to first answer", start.best * 1_000, "ms", floor, spread=start.spread)
    cpu = Floor("python -c pass", min(bare) * 1_000)
    yield Figure("the same, CPU", min(used) * 1_000, "ms", cpu)


def _idling(home: Path) -> Iterator[Finding]:
    with session(home, "one").ready() as one, session(home, "other").ready() as other:
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
