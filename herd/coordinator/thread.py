"""What a session's own sends go on with: the conversation it was handed last, until a person writes.

This is what lets a ring of sessions that always answer come to an end: every hand-over carries its depth on
into what is sent after it, and only a person's prompt, told by the host's own event, begins afresh.
"""

from collections.abc import Iterable
from typing import NamedTuple

from herd.core.errors import AutomaticReplyLimit
from herd.mail.inbox import Incoming
from herd.mail.wire import Conversation


class Answered(NamedTuple):
    """What a reply answers: its correlation id, its conversation, and the depth it came at."""

    correlation_id: str
    conversation_id: str
    depth: int


class Thread:
    """One session's place in its conversations.

    Args:
        most: Greatest depth of what is sent without a person.

    Attributes:
        driven: Whether mail can make this session act: an adapter hands it messages unasked, and tells of its
            person's prompts. Without one nobody could begin afresh, and nothing happens by itself either.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._handed: Conversation | None = None
        self.driven = False

    @property
    def awaits_prompt(self) -> bool:
        """Whether a person's next prompt changes anything here."""
        return self._handed is not None

    def handed(self, rows: Iterable[Incoming]) -> None:
        """Note what was handed over together; the deepest of these conversations counts.

        What was handed over before does not: it may have ended at the bound, and what comes now may have
        begun with a person's word in another session.
        """
        deepest = max(rows, key=lambda row: row.depth, default=None)
        if deepest is not None:
            self._handed = Conversation.model_construct(id=deepest.conversation_id, depth=deepest.depth)

    def prompted(self) -> None:
        """Note that a person has written in the session."""
        self._handed = None

    def conversation(self, message_id: str, answered: Answered | None) -> Conversation:
        """Give the conversation and depth of a message that is sent now.

        Args:
            message_id: The message's own id, which names a conversation that begins with it.
            answered: What it answers, if anything.

        Raises:
            AutomaticReplyLimit: nobody but other sessions has led to it, for more steps than are allowed.
        """
        begun = answered.conversation_id if answered else message_id
        if not self.driven:
            return Conversation.model_construct(id=begun, depth=answered.depth + 1 if answered else 0)
        if self._handed is None:
            return Conversation.model_construct(id=begun, depth=0)
        depth = max(self._handed.depth, answered.depth if answered else 0) + 1
        if depth > self._most:
            raise AutomaticReplyLimit(
                f"{self._most} messages have followed one another between sessions without a person's word"
            )
        return Conversation.model_construct(
            id=answered.conversation_id if answered else self._handed.id, depth=depth
        )
