"""`message_peer`: from a caller's words to a committed row, and what that row reached at once.

Resolve, judge under the authority lock, commit under it, carry. Nothing is queued that was refused, and
nothing that was queued is forgotten.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from herd.coordinator.attaching import Attaching
from herd.coordinator.authority import Authority, Share
from herd.coordinator.carrier import LocalCarrier
from herd.coordinator.drafting import Draft, Drafting, Submission
from herd.coordinator.health import Health
from herd.coordinator.lanes import Lanes
from herd.coordinator.listing import Listing, Recipient
from herd.coordinator.own import Own
from herd.coordinator.queueing import Queued, queue
from herd.coordinator.runs.others import ListedRuns
from herd.coordinator.thread import Thread
from herd.core.clock import Clock
from herd.core.errors import PeerOffline
from herd.core.identity import is_peer_id
from herd.core.limits import SEND_WAIT_MS, Limits
from herd.core.paths import Layout
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import PENDING, REJECTED
from herd.mail.routes import Progress, Routes
from herd.mail.steps import OUTBOX_AFTER, OUTBOX_BEFORE, Step, no_step
from herd.presence.registry import names_of
from herd.presence.session_file import read_session_file
from roles.evidence import party_on_file, party_on_record
from roles.model import Party

__all__ = ["Sending", "Sent", "Submission"]


class Sent(NamedTuple):
    """What a send reached within its wait."""

    row: Outgoing
    running: bool


class _Told:
    """One call that waits for what becomes of its message."""

    def __init__(self) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.progress: Progress | None = None

    def look(self, queued: "asyncio.Future[Outgoing]") -> None:
        """End the wait where nothing will become of the message: it was refused, or was settled before."""
        if queued.cancelled() or queued.exception() or queued.result().receipt.state != PENDING:
            self.end()

    def end(self) -> None:
        """End the wait."""
        if not self.over.done():
            self.over.set_result(None)


class Sending:
    """The sending side of one session.

    Args:
        layout: The folders of this machine.
        authority: Asked before anything is queued.
        own: This session.
        mailbox: Its mailbox.
        listing: Resolves targets.
        others: The runs of this session and of others.
        health: Whether this session may send now.
        carrier: Told which messages no attempt has begun for.
        routes: Has what was queued carried.
        evidenced: Told the received rows of which a reply is the evidence that the host has them.
        mortal: Told that a message with a lifetime is queued.
        thread: The session's place in its conversations.
        attaching: Gives what `files` attach.
        limits: The bounds in force.
        clock: Says when.
        step: The fault-test seam.
    """

    def __init__(
        self,
        layout: Layout,
        authority: Authority,
        own: Own,
        mailbox: Mailbox,
        listing: Listing,
        others: ListedRuns,
        health: Health,
        carrier: LocalCarrier,
        routes: Routes,
        thread: Thread,
        attaching: Attaching,
        limits: Limits,
        *,
        evidenced: Callable[[list[Incoming]], None],
        mortal: Callable[[], None],
        clock: Clock,
        step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._authority = authority
        self._own = own
        self._mailbox = mailbox
        self._listing = listing
        self._others = others
        self._health = health
        self._carrier = carrier
        self._routes = routes
        self._evidenced = evidenced
        self._mortal = mortal
        self._thread = thread
        self._limits = limits
        self._clock = clock
        self._step = step
        self._drafting = Drafting(
            layout, own, mailbox, thread, authority.turn, attaching, limits=limits, clock=clock
        )
        self._lanes = Lanes()
        self._waiting: dict[str, list[_Told]] = {}

    def progressed(self, progress: Progress) -> None:
        """Tell whoever waits for a message what became of it."""
        for told in self._waiting.get(progress.receipt.message_id, []):
            told.progress = told.progress or progress
            told.end()

    def settled(self, row: Outgoing) -> None:
        """Tell whoever still waits for a message that it is settled by now, however that became known.

        A call that is made again while the receipt of the first one is being written down finds its message
        pending, and no attempt at it will tell that call anything.
        """
        if row.message_id in self._waiting:
            running = self._carrier.running(row.recipient_key) is not None
            self.progressed(Progress(row.receipt, running))

    async def send(
        self, submission: Submission, *, command: bool, queued: Callable[[], None] | None = None
    ) -> Sent:
        """Queue a message and give what it reached within `SEND_WAIT_MS`.

        Args:
            submission: What to send.
            command: Whether a person's command line asks: it may name anything that resolves now.
            queued: Told that the message is queued, before anything that became of it is.

        Raises:
            HerdError: it was refused, and nothing was queued; where `queued` was told, by its recipient.
        """
        self._health.require()
        message_id = self._drafting.message_id(submission)
        # Before it is queued: some refusals come without anything being waited for.
        told = _Told()
        waiting = self._waiting.setdefault(message_id, [])
        waiting.append(told)
        try:
            begun = await self._queued(message_id, submission, command=command)
            return await self._reached(begun, told, queued)
        finally:
            waiting.remove(told)
            if not waiting:
                self._waiting.pop(message_id, None)

    async def require_allowed(self, key: str) -> None:
        """Judge whether this session may write to another one now; nothing is queued.

        Raises:
            EligibilityDenied, EligibilityUnverified: by the verdict.
            HerdError: this session is unhealthy, or nothing can be judged now.
        """

        async def attempt() -> None:
            with await self._authority.share() as hold:
                self._require_allowed(key, hold)

        await self._authority.fresh(attempt)

    async def _queued(
        self, message_id: str, submission: Submission, *, command: bool
    ) -> "asyncio.Future[Outgoing]":
        """Give a message its place in line; the future ends with its row once that is committed."""
        # Up to the commit's place in line, so that the order is that of the calls.
        await self._lanes.enter(submission.target)
        try:
            recipient = await self._resolved(submission, command=command)
            draft = await self._drafting.draft(message_id, submission, recipient)
            return await self._authority.fresh(lambda: self._judged(draft))
        finally:
            self._lanes.leave(submission.target)

    async def _resolved(self, submission: Submission, *, command: bool) -> Recipient:
        if command:
            recipient = await self._listing.typed(submission.target)
        else:
            found, named = self._authority.turn.found(), ("shown", submission.target)
            if named not in found:
                found[named] = await self._listing.shown(submission.target)
            recipient = found[named]
        return await self.alive(recipient) if is_peer_id(recipient.to) else recipient

    async def alive(self, recipient: Recipient) -> Recipient:
        """Check that what a peer id names is there: an instance by its record, a run by one question to it.

        Raises:
            PeerOffline: nobody runs the session that it was of.
            TargetEnded: that instance or run is over.
            HerdError: the run receives no messages, or its coordinator could not be asked.
        """
        record = self._carrier.running(recipient.key)
        if record is None:
            raise PeerOffline(f"the instance that {recipient.to} was of is over")
        if recipient.to in names_of(record):
            return recipient
        await self._others.require_receiving(record, recipient.to)
        return recipient._replace(run=True)

    async def _judged(self, draft: Draft) -> "asyncio.Future[Outgoing]":
        hold = await self._authority.share()
        try:
            return await self._begun(draft, hold)
        except BaseException:
            hold.release()
            raise

    async def _begun(self, draft: Draft, hold: Share) -> "asyncio.Future[Outgoing]":
        """Judge by the evidence as it is now and give the row its place in the next commit.

        What follows the commit follows it whether or not the caller still waits: one that goes away must not
        leave a committed row that no route knows of.
        """
        now = self._clock.wall_ms()
        automatic = self._thread.driven and draft.row.depth > 0
        self._require_allowed(draft.row.recipient_key, hold, reply=draft.row.reply_to is not None)
        self._step(OUTBOX_BEFORE)
        return await self._mailbox.begin(
            lambda connection: queue(connection, draft, self._limits, now, automatic=automatic),
            lambda result: self._committed(result, hold),
        )

    def _require_allowed(self, key: str, hold: Share, *, reply: bool = False) -> None:
        self._health.require()
        if (key, reply) not in hold.allowed and key != self._own.key:
            hold.ruling.require(self._own.as_party(), self._party(key), reply=reply)
            hold.allowed.add((key, reply))

    def _committed(self, result: Callable[[], Queued], hold: Share) -> Outgoing:
        with hold:
            queued = result()
            self._step(OUTBOX_AFTER)
        row = queued.row
        if queued.new:
            self._carrier.begin(row.message_id, queued.bodies)
            if row.lifetime_ms is not None:
                self._mortal()
        self._evidenced(queued.evidenced)
        if row.receipt.state == PENDING and (queued.new or not self._routes.has(row)):
            self._routes.add(row)
        return row

    def _party(self, key: str) -> Party:
        """Read the target's evidence as it is now, just before the commit."""
        record = self._carrier.running(key)
        if record is not None:
            return party_on_record(record, self._own.socket)
        return party_on_file(key, lambda one: read_session_file(self._layout, one))

    async def _reached(
        self, begun: "asyncio.Future[Outgoing]", told: _Told, queued: Callable[[], None] | None
    ) -> Sent:
        # The wait is begun while the disk is busy with the commit. Afterwards this task would stand in the
        # way of the processor that the recipient needs.
        begun.add_done_callback(told.look)
        call_off = self._clock.after(SEND_WAIT_MS / 1000, told.end)
        try:
            await told.over
        finally:
            call_off()
        row = await begun
        if queued is not None:
            queued()
        progress = told.progress
        if row.receipt.state != PENDING or progress is None:
            return Sent(row, running=self._carrier.running(row.recipient_key) is not None)
        if progress.receipt.state == REJECTED and progress.refusal is not None:
            raise progress.refusal
        return Sent(row._replace(receipt=progress.receipt), progress.running)
