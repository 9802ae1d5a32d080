"""Taking samples so that two figures of one run can be divided by each other.

It owns the order of the samples and what is kept of them; it is ignorant of what is measured. The machine is
never quiet: cases take turns sample by sample, so that a disturbance meets all of them, and of several
rounds' medians the least disturbed one counts.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

ROUNDS = 3
"""Medians taken of each case; the best of them is the figure."""

Sample = Callable[[], float]
"""Does the thing once and gives the seconds it took, without what it had to prepare or to settle."""


class Timing(NamedTuple):
    """What became of one case."""

    medians: tuple[float, ...]
    """The median of each round, in seconds."""

    @property
    def best(self) -> float:
        """The least disturbed median, in seconds."""
        return min(self.medians)

    @property
    def spread(self) -> float:
        """The worst median over the best: near 1 on a quiet machine."""
        return max(self.medians) / self.best


def in_turn(cases: Mapping[str, Sample], *, samples: int, rounds: int = ROUNDS) -> dict[str, Timing]:
    """Sample several cases in turn.

    Args:
        cases: The cases by name, in the order of their turns.
        samples: Samples of each case in each round.
        rounds: How many medians each case gets.

    Returns:
        The timing of each case by its name.
    """
    medians: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(samples):
            for name, sample in cases.items():
                taken[name].append(sample())
        for name, seconds in taken.items():
            medians[name].append(statistics.median(seconds))
    return {name: Timing(tuple(found)) for name, found in medians.items()}


def percentile(values: Iterable[float], share: float) -> float:
    """Give the least of the values that at least `share` of them, from 0 to 1, do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def timed(work: Callable[[], object]) -> float:
    """Do a piece of work and give the seconds it took."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_timed(work: Callable[[], object]) -> float:
    """Do a piece of work that waits for nothing and give the CPU seconds it took.

    On a busy machine the clock would also count the slices that other processes got in between.
    """
    began = time.thread_time()
    work()
    return time.thread_time() - began
