"""Section steady: how long twenty sessions wait for the authority lock, each judging 25 times a second.

Once with nobody who changes authority and once with one who does so every 50 ms; beside both stands one that
judges alone, whose wait is nothing but the system calls and the machine's own delays.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from herd.core.paths import Layout, open_layout
from tests.bench.measuring import ROUNDS, Timing, percentile
from tests.bench.report import Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop

_JUDGES = 20
_VERDICT_EVERY_S = 1 / 25
_CHANGE_EVERY_S = 0.05
_HELD_S = 0.0005
_RUN_S = 3.0
_SHARE = 0.95

_BOUND_MS = 5.0

_PROGRAM = Path(__file__).with_name("judging.py")

Waits = dict[str, list[float]]
"""The seconds waited by each kind of taker in one round."""


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    layout = open_layout(str(workshop.home()))
    with ExitStack() as running:
        judges = [running.enter_context(_taker(layout, "shared", _VERDICT_EVERY_S)) for _ in range(_JUDGES)]
        writer = running.enter_context(_taker(layout, "exclusive", _CHANGE_EVERY_S))
        rounds = [_round(judges, writer) for _ in range(ROUNDS)]
    yield from told(rounds)


def told(rounds: Sequence[Waits]) -> Iterator[Figure]:
    """Give the figures of several rounds, each by its least disturbed one."""
    p95 = {kind: Timing(tuple(percentile(found[kind], _SHARE) for found in rounds)) for kind in rounds[0]}
    floor = timed_floor("one that judges alone", p95["alone"])
    names = {
        "judges": f"lock wait of {_JUDGES} x {1 / _VERDICT_EVERY_S:g}/s, p95",
        "judges beside it": f"the same, a change every {_CHANGE_EVERY_S * 1_000:g} ms, p95",
        "writer": "lock wait of who changes, p95",
    }
    for kind, name in names.items():
        yield timed_figure(name, p95[kind], floor, _BOUND_MS)._replace(absolute=True)


def _round(judges: list["_Taker"], writer: "_Taker") -> Waits:
    alone = _run(judges[:1])
    unhindered = _run(judges)
    *beside, changes = _run([*judges, writer])
    return {
        "alone": alone[0],
        "judges": [wait for one in unhindered for wait in one],
        "judges beside it": [wait for one in beside for wait in one],
        "writer": changes,
    }


def _run(takers: Sequence["_Taker"]) -> list[list[float]]:
    for one in takers:
        one.begin()
    return [one.waits() for one in takers]


class _Taker:
    """One process that takes the lock."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self) -> None:
        assert self._process.stdin is not None, "it was asked for"
        self._process.stdin.write(f"{_RUN_S}\n")
        self._process.stdin.flush()

    def waits(self) -> list[float]:
        found: list[float] = json.loads(self.line())
        return found

    def line(self) -> str:
        assert self._process.stdout is not None, "it was asked for"
        return self._process.stdout.readline()


@contextmanager
def _taker(layout: Layout, kind: str, every_s: float) -> Iterator[_Taker]:
    paths = (layout.authority_lock, layout.authority_gate, layout.authority_generation)
    words = [sys.executable, str(_PROGRAM), *paths, kind, str(every_s), str(_HELD_S)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            taker = _Taker(process)
            taker.line()
            yield taker
        finally:
            process.kill()
