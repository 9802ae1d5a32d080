"""From a caller's words to the row that will be stored: ids, conversation, the verified sender.

It stores nothing and judges nobody.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from herd.coordinator.attaching import Attached, Attaching, sent_before
from herd.coordinator.listing import Recipient
from herd.coordinator.own import Own
from herd.coordinator.thread import Answered, Thread
from herd.coordinator.turn import Turn
from herd.core.clock import Clock
from herd.core.errors import (
    AutomaticReplyLimit,
    HerdError,
    InvalidParams,
    InvalidReply,
    MessageTooLarge,
)
from herd.core.identity import derived_message_id
from herd.core.limits import CONVERSATION_DEPTH, ENVELOPE_BYTES, Limits
from herd.core.moments import Moment
from herd.core.paths import Layout
from herd.mail import outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.parts import TEXT, Part, Parts
from herd.mail.receipts import PENDING, Receipt
from herd.mail.wire import Conversation, content_digest, require_fitting, size_of, surely_fits
from herd.presence.session_file import SessionFile, SessionFiles


class Submission(NamedTuple):
    """What a caller wants sent.

    `by_person`: a person wrote this very text, so nothing that was handed over has led to it.
    """

    target: str
    message: str
    reply_to: str | None = None
    topic: str | None = None
    no_reply_needed: bool = False
    expires_in_ms: int | None = None
    call_id: str | None = None
    by_person: bool = False
    files: tuple[str, ...] = ()
    branches: Collection[str] | None = None


class Draft(NamedTuple):
    """A message that is to be stored: its row, and what of it lies outside, by the number of the part."""

    row: Outgoing
    bodies: Mapping[int, bytes]


_CUSTODY = "0" * 36
"""Stands for the custody id of a mailbox that is not known yet: the envelope must fit with it, too."""

_VARIES_BYTES = 1_024
"""Bytes by which the envelope of a call that is made again may differ, since more is known by then."""


class Drafting:
    """Writes one session's drafts.

    Args:
        layout: The folders of this machine.
        own: The session.
        mailbox: Its mailbox, which holds what may be answered.
        thread: Its place in its conversations.
        turn: What was found in this turn already.
        attaching: Gives what `files` attach.
        limits: The bounds in force.
        clock: Says when.
    """

    def __init__(
        self,
        layout: Layout,
        own: Own,
        mailbox: Mailbox,
        thread: Thread,
        turn: Turn,
        attaching: Attaching,
        *,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._attaching = attaching
        self._limits = limits
        self._thread = thread
        self._files = SessionFiles(layout)
        self._turn = turn
        self._own = own
        self._mailbox = mailbox
        self._clock = clock

    def message_id(self, submission: Submission) -> str:
        """Give the id: the same for a call made twice, otherwise a new one."""
        if submission.call_id is not None:
            return derived_message_id(self._own.identity, submission.call_id)
        # Loaded at the first send, like everything that only sending needs.
        from uuid_utils import uuid7

        return str(uuid7())

    async def draft(self, message_id: str, submission: Submission, recipient: Recipient) -> Draft:
        """Give what to store.

        Raises:
            InvalidParams: it would be good for longer than a message may be.
            InvalidReply: it answers no message that came from that target.
            AutomaticReplyLimit: other sessions alone have led to it, for too many steps.
            InvalidParams: a file or result cannot be attached as it is.
            MessageIdConflict: it cannot, and the same call has sent its message before.
            MessageTooLarge: it is over its bound.
        """
        self._require_lifetime(submission.expires_in_ms)
        answered = await self._answered(submission.reply_to, recipient)
        correlation = answered.correlation_id if answered else message_id
        conversation = await self._conversation(message_id, submission, answered)
        file = self._file(recipient.key)
        now = Moment.now(self._clock)
        row = Outgoing(
            position=0,
            message_id=message_id,
            recipient=recipient.to,
            recipient_key=recipient.key,
            digest="",
            sender=self._own.as_sender()._asdict(),
            content=submission.message,
            topic=submission.topic,
            reply_to=submission.reply_to,
            correlation_id=correlation,
            conversation_id=conversation.id,
            depth=min(conversation.depth, CONVERSATION_DEPTH),
            no_reply_needed=submission.no_reply_needed,
            created_at=now.wall_ms,
            custody_id=file.custody_id if file else None,
            receipt=Receipt(message_id, recipient.to, None, PENDING, 0),
            run=self._own.run,
            instance_id=self._own.instance_id,
            lifetime_ms=submission.expires_in_ms,
            since=now.text(),
            to_run=recipient.run,
        )
        custody = _CUSTODY
        ids = (message_id, row.recipient, correlation, row.conversation_id, row.reply_to, custody, row.run)
        texts = (row.content, row.topic, self._own.session_target)
        plain = not submission.files and surely_fits(texts, ids)
        if plain and 4 * len(row.content) <= self._limits.message_bytes:
            return Draft(_digested(row, None), {})
        attached = Attached()
        if submission.files:
            attached = await self._attached(message_id, submission)
        return await self._packed(row, attached, repeatable=submission.call_id is not None)

    async def _attached(self, message_id: str, submission: Submission) -> Attached:
        try:
            return await self._attaching.attached(submission.files, submission.branches)
        except HerdError as fault:
            if submission.call_id is None:
                raise
            known = await self._mailbox.read(lambda connection: outbox.find(connection, message_id))
            if known is None:
                raise
            raise sent_before(message_id, known.receipt.state, fault) from fault

    async def _packed(self, row: Outgoing, attached: Attached, *, repeatable: bool) -> Draft:
        """Put the text into the envelope where it fits beside the other fields, else among the bodies."""
        text = row.content.encode()
        parts = Parts(None, attached.parts, attached.bindings)
        bodies = dict(enumerate(attached.data, TEXT + 1))
        if not await self._rides_inside(row, parts, len(text), repeatable=repeatable):
            self._require_payload(len(text))
            parts = parts._replace(body=Part.of(text))
            bodies[TEXT] = text
            row = row._replace(content="")
        parts.require_within(self._limits)
        outside = parts if bodies else None
        row = _digested(row, outside)._replace(parts=outside and outside.text())
        require_fitting(_with_custody(row).envelope(row.lifetime_ms))
        return Draft(row, bodies)

    async def _rides_inside(self, row: Outgoing, parts: Parts, size: int, *, repeatable: bool) -> bool:
        if size > self._limits.message_bytes:
            return False
        outside = parts.text() if parts.attachments else None
        whole = size_of(_with_custody(row._replace(parts=outside)).envelope(row.lifetime_ms))
        if repeatable and abs(whole - ENVELOPE_BYTES) <= _VARIES_BYTES:
            # The same call is the same message, and goes as it went: its digest tells how.
            known = await self._mailbox.read(lambda connection: outbox.find(connection, row.message_id))
            if known is not None and (known.content or known.parts):  # retention takes both
                return bool(known.content)
        return whole <= ENVELOPE_BYTES

    def _require_payload(self, size: int) -> None:
        most = self._limits.mailbox_payload_bytes
        if size > most:
            raise MessageTooLarge(f"the text has {size} bytes, more than mailbox_payload_bytes, {most}")

    def _require_lifetime(self, expires_in_ms: int | None) -> None:
        most = self._limits.max_expiry_ms
        if expires_in_ms is not None and expires_in_ms > most:
            raise InvalidParams(f"expires_in_ms: {expires_in_ms} is more than {most}", field="expires_in_ms")

    def _file(self, key: str) -> SessionFile | None:
        found, named = self._turn.found(), ("file", key)
        if named not in found:
            found[named] = self._files.read(key)
        file: SessionFile | None = found[named]
        return file

    async def _conversation(
        self, message_id: str, submission: Submission, answered: Answered | None
    ) -> Conversation:
        if submission.by_person:
            return Conversation.model_construct(
                id=answered.conversation_id if answered else message_id, depth=0
            )
        try:
            return self._thread.conversation(message_id, answered)
        except AutomaticReplyLimit:
            sent = await self._mailbox.read(lambda connection: outbox.find(connection, message_id))
            if sent is None:
                raise
            # The call is made again, and its message was queued within the limit.
            return Conversation.model_construct(id=sent.conversation_id, depth=sent.depth)

    async def _answered(self, reply_to: str | None, recipient: Recipient) -> Answered | None:
        if reply_to is None:
            return None
        found = await self._mailbox.read(
            lambda found: outbox.require_reply(found, reply_to, recipient.identity, self._own.run)
        )
        if found is None:
            raise InvalidReply("no message has come to this session yet")
        return Answered(*found)


def _digested(row: Outgoing, parts: Parts | None) -> Outgoing:
    digest = content_digest(row.content, row.topic, row.reply_to, row.correlation_id, parts)
    return row._replace(digest=digest)


def _with_custody(row: Outgoing) -> Outgoing:
    return row if row.custody_id is not None else row._replace(custody_id=_CUSTODY)
