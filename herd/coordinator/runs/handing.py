"""What was handed down to one run and is not confirmed yet: bounded in number, and taken back when overdue.

A run's process may be gone without its channel being so. What it does not confirm in time is as if it had
never come: accepted, and given again.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from herd.coordinator.tasks import Tasks
from herd.core.clock import Clock
from herd.core.errors import QueueFull
from herd.core.limits import HANDED_DOWN_S, RETRY_WHEN_FULL_MS


class _Answer(NamedTuple):
    numbers: frozenset[int]
    due: float


class HandedDown:
    """Watches over the messages that one run holds without evidence.

    Args:
        is_held: Tells whether a message is still held.
        give_back: Takes messages back, so that they are given again.
        tasks: Runs the watching.
        clock: Says when.
        most: Answers with messages that may be unconfirmed at once.
    """

    def __init__(
        self,
        is_held: Callable[[int], bool],
        give_back: Callable[[Iterable[int]], None],
        tasks: Tasks,
        *,
        clock: Clock,
        most: int,
    ) -> None:
        self._is_held = is_held
        self._give_back = give_back
        self._tasks = tasks
        self._clock = clock
        self._most = most
        self._answers: list[_Answer] = []
        self._watching = False

    def require_room(self) -> None:
        """Let pass what may hand down one more answer.

        Raises:
            QueueFull: too many are unconfirmed.
        """
        self._forget_settled()
        if len(self._answers) >= self._most:
            raise QueueFull(
                f"{self._most} answers with messages wait already for this run to confirm them",
                hint="Confirm or release what was read.",
                retry_after_ms=RETRY_WHEN_FULL_MS,
            )

    def handed(self, numbers: Iterable[int]) -> None:
        """Note that these messages were handed down in one answer just now."""
        again = frozenset(numbers)
        self._answers = [one._replace(numbers=one.numbers - again) for one in self._answers]
        self._forget_settled()
        self._answers.append(_Answer(again, self._clock.elapsed() + HANDED_DOWN_S))
        if not self._watching:
            self._watching = True
            self._tasks.create_task(self._watch())

    def _forget_settled(self) -> None:
        self._answers = [one for one in self._answers if any(map(self._is_held, one.numbers))]

    async def _watch(self) -> None:
        try:
            while self._answers:
                first = self._answers[0]
                await self._clock.sleep(first.due - self._clock.elapsed())
                self._forget_settled()
                now = self._clock.elapsed()
                overdue = [one for one in self._answers if one.due <= now]
                self._answers = [one for one in self._answers if one.due > now]
                for answer in overdue:
                    self._give_back(answer.numbers)
        finally:
            self._watching = False
