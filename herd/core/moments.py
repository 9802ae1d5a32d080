"""Moments that decide, kept over restarts: how long ago something was, whatever was done to the clocks since.

Within one boot the boot clock counts, which nobody can set and which counts while the machine is suspended;
from one boot to another only the wall clock is left. Pure, but for asking a clock.
"""

from functools import cache
from typing import NamedTuple, Self

from herd.core.clock import Clock
from herd.core.processes import boot_id


class Moment(NamedTuple):
    """An instant of this machine.

    Attributes:
        boot: The id of the boot; empty where the system names none.
        elapsed_ms: Milliseconds of that boot.
        wall_ms: Milliseconds since the epoch, as the wall clock had it.
    """

    boot: str
    elapsed_ms: int
    wall_ms: int

    @classmethod
    def now(cls, clock: Clock) -> Self:
        """Give the present one."""
        return cls(_boot(), int(clock.elapsed() * 1000), clock.wall_ms())

    @classmethod
    def read(cls, text: str) -> Self:
        """Give one back as `text` wrote it.

        Raises:
            ValueError: it is none of ours.
        """
        boot, elapsed_ms, wall_ms = text.split(" ")
        return cls(boot, int(elapsed_ms), int(wall_ms))

    def text(self) -> str:
        """Give it as it is stored."""
        return f"{self.boot} {self.elapsed_ms} {self.wall_ms}"

    def since(self, earlier: "Moment") -> int:
        """Give the milliseconds from an earlier moment to this one, never less than zero."""
        same_boot = self.boot == earlier.boot != ""
        passed = self.elapsed_ms - earlier.elapsed_ms if same_boot else self.wall_ms - earlier.wall_ms
        return max(passed, 0)


@cache
def _boot() -> str:
    try:
        return boot_id()
    except OSError:
        return ""
