"""`message_peer`: from a caller's words to a committed row, and what that row reached at once.

Resolve, judge under the authority lock, commit under it, carry. Nothing is queued that was refused, and
nothing that was queued is forgotten.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from herd.coordinator.authority import Authority
from herd.coordinator.carrier import LocalCarrier
from herd.coordinator.health import Health
from herd.coordinator.lanes import Lanes
from herd.coordinator.listing import Listing, Recipient
from herd.coordinator.own import Own
from herd.coordinator.tasks import Tasks
from herd.core.clock import Clock
from herd.core.errors import (
    DeliveryUnknown,
    EligibilityUnverified,
    HerdError,
    MessageIdConflict,
    UnknownTarget,
)
from herd.core.identity import derived_message_id
from herd.core.limits import CONVERSATION_DEPTH, SEND_WAIT_MS
from herd.core.paths import Layout
from herd.mail import inbox, outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import PENDING, REJECTED, Receipt
from herd.mail.routes import Progress, Routes
from herd.mail.steps import OUTBOX_AFTER, OUTBOX_BEFORE, Step, no_step
from herd.mail.wire import content_digest, require_fitting
from herd.presence.registry import Registry
from herd.presence.session_file import read_session_file
from roles.model import Party, require

CANCELLED = "CANCELLED"
"""The outcome of a message that its sender took back before any mailbox had it."""


class Submission(NamedTuple):
    """What a caller wants sent."""

    target: str
    message: str
    reply_to: str | None = None
    topic: str | None = None
    no_reply_needed: bool = False
    call_id: str | None = None


class Sent(NamedTuple):
    """What a send reached within its wait."""

    row: Outgoing
    running: bool


class Sending:
    """The sending side of one session.

    Args:
        layout: The folders of this machine.
        registry: Where records are read.
        authority: Asked before anything is queued.
        own: This session.
        mailbox: Its mailbox.
        listing: Resolves targets.
        health: Whether this session may send now.
        routes: Carries what was queued.
        tasks: Finishes what a caller that went away had begun.
        clock: Says when.
        step: The fault-test seam.
    """

    def __init__(
        self,
        layout: Layout,
        registry: Registry,
        authority: Authority,
        own: Own,
        mailbox: Mailbox,
        listing: Listing,
        health: Health,
        routes: Routes,
        tasks: Tasks,
        *,
        clock: Clock,
        step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._registry = registry
        self._authority = authority
        self._own = own
        self._mailbox = mailbox
        self._listing = listing
        self._health = health
        self._routes = routes
        self._tasks = tasks
        self._clock = clock
        self._step = step
        self._lanes = Lanes()
        self._waiting: dict[str, list[asyncio.Future[Progress]]] = {}

    def progressed(self, progress: Progress) -> None:
        """Tell whoever waits for a message what became of it."""
        for future in self._waiting.get(progress.receipt.message_id, []):
            if not future.done():
                future.set_result(progress)

    async def send(self, submission: Submission, *, command: bool) -> Sent:
        """Queue a message and give what it reached within `SEND_WAIT_MS`.

        Args:
            submission: What to send.
            command: Whether a person's command line asks: it may name anything that resolves now.

        Raises:
            HerdError: it was refused, and nothing was queued.
        """
        self._health.require()
        # A caller that goes away must not leave a committed row that no route knows of.
        row = await self._tasks.finish(self._queued(submission, command=command))
        return await self._reached(row)

    async def _queued(self, submission: Submission, *, command: bool) -> Outgoing:
        # Up to the commit's place in line, so that the order is that of the calls.
        async with self._lanes.lane(submission.target):
            recipient = await self._resolved(submission, command=command)
            draft = await self._draft(submission, recipient)
            require_fitting(draft.envelope())
            hold = await self._authority.hold()
            try:
                committed = await self._started(draft)
            except BaseException:
                hold.release()
                raise
        with hold:
            row = await committed()
            self._step(OUTBOX_AFTER)
        if row.receipt.state == PENDING and not self._routes.has(row):
            self._routes.add(row)
        return row

    async def cancel(self, message_id: str, carrier: LocalCarrier) -> Outgoing:
        """Take back a message that no mailbox has.

        Raises:
            UnknownTarget: this session sent no such message.
            DeliveryUnknown: it may have been accepted and the recipient cannot be asked now; it stays.
            MessageIdConflict: it is settled already, so there is nothing to take back.
        """
        row = await self._mailbox.run(lambda connection: outbox.required(connection, message_id))
        if row.receipt.state == PENDING:
            row = await self._taken_back(row, carrier)
        if row.receipt.outcome != CANCELLED:
            raise MessageIdConflict(
                f"message {message_id} is {row.receipt.state} already",
                hint="It cannot be taken back any more.",
            )
        return row

    async def _taken_back(self, row: Outgoing, carrier: LocalCarrier) -> Outgoing:
        async with self._routes.held(row):
            try:
                receipt = await carrier.status(row)
            except UnknownTarget:
                now = self._clock.wall_ms()
                row = await self._mailbox.run(
                    lambda connection: outbox.reject(connection, row.message_id, CANCELLED, now)
                )
            except HerdError as fault:
                raise DeliveryUnknown(
                    f"message {row.message_id} may have been accepted, and its recipient cannot be asked: "
                    f"{fault.message}"
                ) from fault
            else:
                row = await self._mailbox.run(
                    lambda connection: outbox.record_receipt(connection, receipt, row.recipient_key)
                )
        self._routes.settled_elsewhere(row)
        self.progressed(Progress(row.receipt))
        return row

    async def _resolved(self, submission: Submission, *, command: bool) -> Recipient:
        if command:
            return self._listing.named(submission.target)
        return await self._listing.shown(submission.target)

    async def _draft(self, submission: Submission, recipient: Recipient) -> Outgoing:
        message_id = self._message_id(submission)
        correlation, conversation, depth = message_id, message_id, 0
        if submission.reply_to is not None:
            reply_to = submission.reply_to
            correlation, conversation, received = await self._mailbox.run(
                lambda connection: outbox.require_reply(connection, reply_to, recipient.key)
            )
            depth = min(received + 1, CONVERSATION_DEPTH)
        file = read_session_file(self._layout, recipient.key)
        return Outgoing(
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

    def _message_id(self, submission: Submission) -> str:
        if submission.call_id is not None:
            return derived_message_id(self._own.key, submission.call_id)
        from uuid_utils.compat import (
            uuid7,
        )  # loaded at the first send, like everything that only sending needs

        return str(uuid7())

    async def _started(self, draft: Outgoing) -> Callable[[], Awaitable[Outgoing]]:
        """Judge by the evidence as it is now and give the row its place in the next commit."""
        now = self._clock.wall_ms()

        def work(connection: sqlite3.Connection) -> Outgoing:
            if draft.reply_to is not None:
                # Naming the message's id is evidence that this session's host has it.
                answered = [row.sequence for row in inbox.by_id(connection, draft.reply_to) if row.handovers]
                inbox.confirm(connection, answered, "reply", now)
            return outbox.enqueue(connection, draft)

        self._health.require()
        require(self._authority.judge.verdict(self._own.as_party(), self._party(draft.recipient_key)))
        self._step(OUTBOX_BEFORE)
        return await self._mailbox.start(work)

    def _party(self, key: str) -> Party:
        """Read the target's evidence as it is now, just before the commit."""
        record = self._registry.record(key)
        if record is not None and self._registry.lives(record):
            if record.presence is None:
                raise EligibilityUnverified(
                    "that session is on record and not listed: it is starting, ending, suspended or unhealthy"
                )
            return Party(key, record.presence.role, record.kind)
        file = read_session_file(self._layout, key)
        return Party(key, file.role if file else None, file.kind if file else None)

    async def _reached(self, row: Outgoing) -> Sent:
        if row.receipt.state != PENDING:
            return Sent(row, running=True)
        future: asyncio.Future[Progress] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(row.message_id, [])
        waiting.append(future)
        try:
            async with asyncio.timeout(SEND_WAIT_MS / 1000):
                progress = await future
        except TimeoutError:
            return Sent(row, running=True)
        finally:
            waiting.remove(future)
        if progress.receipt.state == REJECTED and progress.refusal is not None:
            raise progress.refusal
        return Sent(row._replace(receipt=progress.receipt), progress.running)
