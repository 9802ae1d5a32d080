"""What a benchmark found, as a table for people and as JSON for programs.

A figure stands beside the floor of the same run, the ratio of the two, and the bound that the ratio (or the
figure, where there is no floor or the bound bears a unit) shall keep. Bounds are shown and decide nothing: no
run is quiet enough. A check is different: a message lost is no matter of speed, so a failed check fails the
run.
"""

import os
import platform
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from herd.core.filesystems import filesystem_type
from herd.core.version import VERSION
from tests.bench.measuring import Timing

_NOISY = 1.3
"""A floor whose rounds differ by more than this factor was disturbed, and the ratio with it."""


class Floor(NamedTuple):
    """What the machine itself needs for the least that has to happen, measured in the same run."""

    name: str
    value: float
    spread: float = 1.0


class Figure(NamedTuple):
    """One measured value, in `unit`."""

    name: str
    value: float
    unit: str
    floor: Floor | None = None
    bound: float | None = None
    spread: float = 1.0
    absolute: bool = False
    """Whether the bound holds for the value itself, though there is a floor."""

    @property
    def ratio(self) -> float | None:
        """The figure over its floor."""
        return self.value / self.floor.value if self.floor else None

    @property
    def noisy(self) -> bool:
        """Whether the rounds of the figure or of its floor differ too much to be believed."""
        return max(self.spread, self.floor.spread if self.floor else 1.0) > _NOISY

    def as_json(self) -> dict[str, Any]:
        """Give every member, and what follows from them."""
        floor = self.floor._asdict() if self.floor else None
        return {**self._asdict(), "floor": floor, "ratio": self.ratio, "noisy": self.noisy}


class Check(NamedTuple):
    """Something that has to hold however slow the machine is; `fault` says what does not."""

    name: str
    fault: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Give name and fault."""
        return self._asdict()


Finding = Figure | Check


def timed_floor(name: str, timing: Timing) -> Floor:
    """Give a floor in milliseconds."""
    return Floor(name, timing.best * 1_000, timing.spread)


def timed_figure(name: str, timing: Timing, floor: Floor | None = None, bound: float | None = None) -> Figure:
    """Give a figure in milliseconds."""
    return Figure(name, timing.best * 1_000, "ms", floor, bound, timing.spread)


def surroundings(folder: str) -> dict[str, Any]:
    """Say where these figures come from; they hold nowhere else."""
    return {
        "herd": VERSION,
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_version()} ({platform.python_compiler()})",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "file_system": filesystem_type(folder),
    }


def put_surroundings(found: dict[str, Any]) -> None:
    """Print where the figures come from, and the heading of the table."""
    _put(", ".join(f"{name} {value}" for name, value in found.items()))
    _put("")
    _put(_row("", "figure", "floor", "ratio", "bound", ""))


def put_section(name: str) -> None:
    """Print the heading of one section."""
    _put(name)


def put(finding: Finding) -> None:
    """Print one line of the table."""
    if isinstance(finding, Check):
        _put(f"  {finding.name}: {finding.fault or 'yes'}")
        return
    floor = finding.floor
    _put(
        _row(
            finding.name,
            _amount(finding.value, finding.unit),
            _amount(floor.value, finding.unit) if floor else "",
            f"{finding.ratio:.2f}" if finding.ratio is not None else "",
            _bound(finding),
            " ".join(
                filter(None, (f"floor: {floor.name}" if floor else "", "NOISY" if finding.noisy else ""))
            ),
        )
    )


def failed(findings: Iterable[Finding]) -> bool:
    """Tell whether any check failed."""
    return any(isinstance(finding, Check) and finding.fault is not None for finding in findings)


def _row(name: str, figure: str, floor: str, ratio: str, bound: str, note: str) -> str:
    return f"  {name:<50} {figure:>13} {floor:>13} {ratio:>7} {bound:>9}  {note}".rstrip()


def _bound(figure: Figure) -> str:
    if figure.bound is None:
        return ""
    return f"<= {figure.bound:g}" + (f" {figure.unit}" if figure.absolute else "")


def _note(figure: Figure) -> str:
    floor = f"floor: {figure.floor.name}" if figure.floor else ""
    return f"{floor}; NOISY".removeprefix("; ") if figure.noisy else floor


def _amount(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}" if value < 1_000 else f"{value:.0f} {unit}"


def _put(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
