"""Trying again when somebody comes back: a watch on the records, open only while something waits."""

from collections.abc import Callable

from herd.core.clock import Clock
from herd.core.limits import RETRY_GREATEST_MS
from herd.core.watch import FolderWatch

_QUIET_S = 2 * RETRY_GREATEST_MS / 1000
"""Seconds without a new wait after which nothing waits any more: whatever does says so at every pause."""


class Waiting:
    """Wakes what waits for a peer at each change of presence.

    The watch outlives the change that it tells: a session comes back in several steps, and what is tried
    after the first of them may be too early. An idle session has none, so it does not wake up for others.

    Args:
        peers: The folder of the records.
        retry: Tries again whatever waits; where nothing does, it does nothing.
        clock: Says how long ago something began to wait.
    """

    def __init__(self, peers: str, retry: Callable[[], None], *, clock: Clock) -> None:
        self._peers = peers
        self._retry = retry
        self._clock = clock
        self._begun = 0.0
        self._watch: FolderWatch | None = None

    @property
    def watches(self) -> bool:
        """Whether changes are told now."""
        return self._watch is not None

    def begin(self) -> None:
        """Note that something waits from now on."""
        self._begun = self._clock.elapsed()
        if self._watch is None:
            try:
                self._watch = FolderWatch(self._peers, self._changed)
            except OSError:
                return  # watches are used up, or the folder is gone: the pauses between tries remain

    def end(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _changed(self, _: str | None) -> None:
        if self._clock.elapsed() - self._begun > _QUIET_S:
            self.end()
        else:
            self._retry()
