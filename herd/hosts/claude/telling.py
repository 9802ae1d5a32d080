"""What the person before Claude Code is told of waiting mail: one line, which the model never sees.

Between two turns Claude Code runs no hook, so a count is told where one turn ends and where the next begins.
"""

from contextlib import suppress

from herd.coordinator.attention import Arrival
from herd.coordinator.coordinator import Coordinator
from herd.core.config import IDLE_NOTIFY
from herd.core.errors import HerdError
from herd.hosts.claude.events import PROMPT, SESSION_START, STOP, Event

_SHOWS_HELD_BACK = frozenset({SESSION_START, PROMPT})
_SHOWS_COUNT = frozenset({SESSION_START, PROMPT, STOP})


class Telling:
    """What one session's person has still to be told; nothing of a peer's text is in it.

    Attributes:
        held_back: How many messages wait to be let through, until that was told once.
    """

    def __init__(self) -> None:
        self.held_back = 0
        self._has_told = False

    def arrived(self, arrival: Arrival) -> None:
        """Take note of what waits."""
        self.held_back = 0 if self._has_told else arrival.held_back

    async def line(self, event: Event, coordinator: Coordinator, *, brought: int, waits: bool) -> str | None:
        """Give the line for the hook of an event; None where there is nothing to say.

        Args:
            event: What the hook was started for.
            coordinator: Coordinates the session.
            brought: How many messages this very hook brings to the model.
            waits: Whether mail may wait that was not handed over.
        """
        if event.of_subagent:
            return None
        if self.held_back and event.name in _SHOWS_HELD_BACK and not brought:
            held_back, self.held_back, self._has_told = self.held_back, 0, True
            look = f"herd inbox --session {coordinator.own.target} --accept"
            are = "messages are" if held_back > 1 else "message is"
            return f"Herd: {held_back} waiting {are} held back. At a terminal: {look}"
        if event.name not in _SHOWS_COUNT or coordinator.opening.idle != IDLE_NOTIFY:
            return None  # a woken session shows by its turn that something came
        if brought:
            come = "messages that waited come" if brought > 1 else "message that waited comes"
            return f"Herd: {brought} {come} with this prompt." if event.name == PROMPT else None
        count = await _waiting(coordinator) if waits else 0
        wait = "messages wait" if count > 1 else "message waits"
        return f"Herd: {count} {wait} for your next prompt." if count else None


async def _waiting(coordinator: Coordinator) -> int:
    with suppress(HerdError):
        return (await coordinator.attention.waits()).unread
    return 0
