"""Waking an idle session: once for what has come together, never against what its person did last.

`herd.coordinator.waking` says that mail may wake; this says whether this host can be woken now. Pure but for
what it is told to do.
"""

from collections.abc import Callable

from herd.coordinator.attention import Arrival
from herd.coordinator.waking import Waiting
from herd.hosts.claude.session_file import IDLE, State


class Waker:
    """Decides when the notice goes out.

    Args:
        wake: Sends it; called at most once for each wake that may be.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._wanted = False
        self._cut = False
        self._before: int | None = None
        self._ending = False

    def arrived(self, arrival: Arrival, state: State | None) -> bool:
        """Take note of mail; tells whether a wake that it allows is still open.

        Args:
            arrival: What waits.
            state: What the host's process does now.
        """
        if self._cut:
            # What was there when the person cut the turn off wakes nobody; what comes after it does.
            if self._before is None or arrival.unread <= self._before:
                return False
            self._cut = False
        self._wanted = self._wanted or arrival.wake
        self._try(state)
        return True

    def changed(self, state: State | None, *, unread: bool) -> None:
        """Take note that the host does something else now, and whether mail still waits."""
        self._wanted = self._wanted and unread
        self._try(state)

    def cut_off(self) -> None:
        """Take note that a person has cut a turn off."""
        self._cut, self._before, self._wanted = True, None, False

    def stands(self, waiting: Waiting) -> None:
        """Take note what waits now that a turn is over and everything in it settled."""
        self._before = waiting.unread

    def went_on(self) -> None:
        """Take note of a sign that the session is in use again."""
        self._cut = self._ending = False

    def ending(self) -> None:
        """Take note that the session ends."""
        self._ending, self._wanted = True, False

    def _try(self, state: State | None) -> None:
        if not self._wanted or self._ending or state is None:
            return
        if state.interactive and state.status == IDLE:
            self._wanted = False
            self._wake()
