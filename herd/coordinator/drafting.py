"""From a caller's words to the row that will be stored: ids, conversation, the verified sender.

It stores nothing and judges nobody.
"""

from typing import NamedTuple

from herd.coordinator.listing import Recipient
from herd.coordinator.own import Own
from herd.core.clock import Clock
from herd.core.errors import InvalidReply
from herd.core.identity import derived_message_id
from herd.core.limits import CONVERSATION_DEPTH
from herd.core.paths import Layout
from herd.mail import outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import PENDING, Receipt
from herd.mail.wire import content_digest, require_fitting
from herd.presence.session_file import read_session_file


class Submission(NamedTuple):
    """What a caller wants sent."""

    target: str
    message: str
    reply_to: str | None = None
    topic: str | None = None
    no_reply_needed: bool = False
    call_id: str | None = None


class Drafting:
    """Writes one session's drafts.

    Args:
        layout: The folders of this machine.
        own: The session.
        mailbox: Its mailbox, which holds what may be answered.
        clock: Says when.
    """

    def __init__(self, layout: Layout, own: Own, mailbox: Mailbox, *, clock: Clock) -> None:
        self._layout = layout
        self._own = own
        self._mailbox = mailbox
        self._clock = clock

    def message_id(self, submission: Submission) -> str:
        """Give the id: the same for a call made twice, otherwise a new one."""
        if submission.call_id is not None:
            return derived_message_id(self._own.key, submission.call_id)
        # Loaded at the first send, like everything that only sending needs.
        from uuid_utils.compat import uuid7

        return str(uuid7())

    async def draft(self, message_id: str, submission: Submission, recipient: Recipient) -> Outgoing:
        """Give the row to store.

        Raises:
            InvalidReply: it answers no message that came from that target.
            MessageTooLarge: it is over its bound.
        """
        correlation, conversation, depth = message_id, message_id, 0
        if submission.reply_to is not None:
            correlation, conversation, received = await self._answered(submission.reply_to, recipient)
            depth = min(received + 1, CONVERSATION_DEPTH)
        file = read_session_file(self._layout, recipient.key)
        row = Outgoing(
            position=0,
            message_id=message_id,
            recipient=recipient.to,
            recipient_key=recipient.key,
            digest=content_digest(submission.message, submission.topic, submission.reply_to, correlation),
            sender=self._own.as_sender()._asdict(),
            content=submission.message,
            topic=submission.topic,
            reply_to=submission.reply_to,
            correlation_id=correlation,
            conversation_id=conversation,
            depth=depth,
            no_reply_needed=submission.no_reply_needed,
            created_at=self._clock.wall_ms(),
            custody_id=file.custody_id if file else None,
            receipt=Receipt(message_id, recipient.to, None, PENDING, 0),
        )
        require_fitting(row.envelope())
        return row

    async def _answered(self, reply_to: str, recipient: Recipient) -> tuple[str, str, int]:
        """Give correlation id, conversation id and depth of the message that is answered."""
        found = await self._mailbox.read(
            lambda connection: outbox.require_reply(connection, reply_to, recipient.key)
        )
        if found is None:
            raise InvalidReply("no message has come to this session yet")
        return found
