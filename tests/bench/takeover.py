"""Section mcp: how soon a server on standby serves, once the one that held its session got SIGKILL.

What is timed ends with the first tool call that is not answered SESSION_HELD any more. The floor is the
kernel's part: a killed holder's lock wakes a bare process that waits for it.
"""

import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.floors import lock_left
from tests.bench.measuring import ROUNDS, Timing
from tests.bench.report import Check, Figure, Finding, timed_figure, timed_floor
from tests.bench.servers import call, server
from tests.bench.workshop import Workshop
from tests.fakes.herd_mcp import HerdMcp

_SAMPLES = 8
_SETTLED_S = 0.2
_ASKED_EACH_S = 0.001
_WAIT_S = 30.0

_BOUND_MS = 100.0


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home, refusals = workshop.home(), set[str]()
    floors: list[float] = []
    taken: list[list[float]] = []
    for _ in range(ROUNDS):
        kernel, ours = [], []
        for _ in range(_SAMPLES):
            kernel.append(lock_left(str(workshop.folder / "left.lock")))
            ours.append(_taken_over(home, refusals))
        floors.append(statistics.median(kernel))
        taken.append(ours)
    floor = timed_floor("a bare flock, from the kill", Timing(tuple(floors)))
    medians = Timing(tuple(map(statistics.median, taken)))
    p50 = timed_figure("takeover after SIGKILL, p50", medians, floor, _BOUND_MS)
    yield p50._replace(absolute=True)
    worst = max(map(max, taken)) * 1_000
    yield Figure(f"the same, worst of {ROUNDS * _SAMPLES}", worst, "ms", bound=_BOUND_MS)
    other = ", ".join(sorted(refusals))
    yield Check("nothing but SESSION_HELD was refused meanwhile", other or None)


def _taken_over(home: Path, refusals: set[str]) -> float:
    with server(home, "held") as holder, server(home, "held") as standby:
        holder.open()
        _ask_until(holder, held=False)
        standby.open()
        _ask_until(standby, held=True)
        time.sleep(_SETTLED_S)
        began = time.perf_counter()
        os.kill(holder.pid, signal.SIGKILL)
        result = _ask_until(standby, held=False)
        elapsed = time.perf_counter() - began
        if result["isError"]:
            refusals.add(str(result["structuredContent"]["code"]))
        standby.end()
    return elapsed


def _ask_until(one: HerdMcp, *, held: bool) -> dict[str, Any]:
    give_up = time.monotonic() + _WAIT_S
    while is_held(result := call(one, "list_peers")) is not held:
        if time.monotonic() > give_up:
            raise TimeoutError(f"a server's session was {'not ' if held else ''}held for {_WAIT_S:g} s")
        time.sleep(_ASKED_EACH_S)
    return result


def is_held(result: dict[str, Any]) -> bool:
    """Tell whether a tool's result says that another process holds the session."""
    return bool(result["isError"]) and result["structuredContent"]["code"] == "SESSION_HELD"
