"""How a message reaches the custody of a session: over the connection to its coordinator, or by a visit.

Both are the same custody, and one contract suite holds them to it. A carrier decides which one there is now.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Protocol

from herd.core.clock import Clock
from herd.core.errors import (
    FrameTooLarge,
    HerdError,
    InvalidParams,
    InvalidRpc,
    MessageTooLarge,
    MethodNotFound,
    ScopeDenied,
    UnknownTarget,
    UnsupportedProtocol,
)
from herd.core.limits import DEFAULT_LIMITS, Limits
from herd.core.moments import Moment
from herd.core.paths import Layout
from herd.mail import inbox, outbox
from herd.mail.inbox import Admission, Admitted, Sender
from herd.mail.parts import Bodies
from herd.mail.rates import Rates
from herd.mail.receipts import Receipt
from herd.mail.steps import BODIES_AFTER, BODIES_BEFORE, Step, no_step
from herd.mail.together import Together, accept_in_order, read_together
from herd.mail.uploading import Requester, upload
from herd.mail.visit import VisitWork, look, visit
from herd.mail.wire import Envelope, read_receipt, receipt_to_wire
from herd.presence.session_file import SessionFile

_ONE_BY_ONE = (MethodNotFound, InvalidParams, MessageTooLarge, UnsupportedProtocol, FrameTooLarge)
"""Refusals that lie with a request for several, or with one of its messages: an older side knows no such one,
and a message that was made wrong must not keep its neighbours from going."""


class Reach(Protocol):
    """The custody of one exact session, for one sender."""

    running: bool
    """Whether a coordinator of that session answers now."""

    async def accept(self, envelope: Envelope, bodies: Bodies | None = None) -> Receipt:
        """Hand a message into custody; returns after its commit there.

        Args:
            envelope: The message.
            bodies: What of it lies outside its envelope; it is accepted with them or not at all.

        Raises:
            HerdError: a refusal; `may_pass` tells whether trying again can help.
        """
        ...

    async def accept_together(self, envelopes: Sequence[Envelope]) -> Together:
        """Hand messages to one recipient into custody in their order, up to the first one that is refused.

        None has a body.

        Each is judged as `accept` judges it. Those that a connection carries must be `fitting` its frames.

        Raises:
            HerdError: the attempt was refused as a whole, or nothing is known of any of them: what was
                accepted nevertheless gets its first receipt when it comes again.
        """
        ...

    async def status(self, message_id: str, to: str, digest: str | None = None) -> Receipt:
        """Ask for the receipt of a message that this sender may have handed in.

        Args:
            message_id: The message.
            to: Its exact recipient.
            digest: Its content digest, so that another message of that id is not taken for it.

        Raises:
            UnknownTarget: that custody has no message of that id.
            ScopeDenied: it has one that this sender did not send to that recipient.
            MessageIdConflict: it has one of other content.
        """
        ...

    async def offer(self, receipt: Receipt, digest: str | None = None) -> None:
        """Tell the receipt of a message that session sent to this one; returns once it is recorded.

        Args:
            receipt: The receipt.
            digest: The content digest of the message, so that another of that id does not get its receipt.

        Raises:
            ScopeDenied: that session sent no such message to this one.
            MessageIdConflict: it has sent another one under that id since, its own records lost.
        """
        ...


class ConnectionReach:
    """A session whose coordinator answers on an authenticated connection.

    Args:
        connection: The connection.
        limits: The bounds in force.
        run: The run of this side's session that sends or asks, by its peer id, where one does.
        step: The fault-test seam.
    """

    running = True

    def __init__(
        self,
        connection: Requester,
        limits: Limits = DEFAULT_LIMITS,
        *,
        run: str | None = None,
        step: Step = no_step,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._run = run
        self._step = step

    async def accept(self, envelope: Envelope, bodies: Bodies | None = None) -> Receipt:
        """See `Reach.accept`; the bodies go first, so that the message finds them there."""
        if bodies is not None:
            self._step(BODIES_BEFORE)
            await upload(self._connection, envelope.message_id, envelope.to, bodies, self._limits)
            self._step(BODIES_AFTER)
        result = await self._connection.request("peer.send", envelope.to_wire())
        return _receipt_of(result, envelope.message_id, envelope.to)

    async def accept_together(self, envelopes: Sequence[Envelope]) -> Together:
        """See `Reach.accept_together`; where the request itself is refused, they go one by one."""
        messages = [envelope.to_wire() for envelope in envelopes]
        try:
            result = await self._connection.request("peer.sendMany", {"messages": messages})
        except _ONE_BY_ONE:
            return await self._accept_one_by_one(envelopes)
        return read_together(result, envelopes)

    async def _accept_one_by_one(self, envelopes: Sequence[Envelope]) -> Together:
        receipts: list[Receipt] = []
        for envelope in envelopes:
            try:
                receipts.append(await self.accept(envelope))
            except HerdError as refusal:
                return Together(tuple(receipts), refusal)
        return Together(tuple(receipts))

    async def status(self, message_id: str, to: str, digest: str | None = None) -> Receipt:
        """See `Reach.status`."""
        params = {"messageId": message_id, "to": to} | ({} if digest is None else {"digest": digest})
        if self._run is not None:
            params["run"] = self._run
        return _receipt_of(await self._connection.request("peer.status", params), message_id, to)

    async def offer(self, receipt: Receipt, digest: str | None = None) -> None:
        """See `Reach.offer`."""
        params = {"receipt": receipt_to_wire(receipt)} | ({} if digest is None else {"digest": digest})
        await self._connection.request("peer.receipt", params)


class VisitReach:
    """A session that no coordinator holds now.

    Args:
        layout: The folders of this machine.
        key: The session key of the one to reach.
        sender: Who hands in or tells, as its own records prove it.
        admit: Judges whether the sender may write to that session, and gives what is held until the commit,
            with what it found; raises to refuse.
        limits: The bounds in force.
        clock: Says when.
    """

    running = False

    def __init__(
        self,
        layout: Layout,
        key: str,
        sender: Sender,
        admit: Callable[[], AbstractContextManager[Admitted | None]],
        *,
        limits: Limits,
        clock: Clock,
    ) -> None:
        self._layout = layout
        self._key = key
        self._sender = sender
        self._admit = admit
        self._limits = limits
        self._clock = clock

    async def accept(self, envelope: Envelope, bodies: Bodies | None = None) -> Receipt:
        """See `Reach.accept`: all at once, in one transaction."""
        together = await self._accepted([envelope], bodies)
        if together.refusal is not None:
            raise together.refusal
        return together.receipts[0]

    async def accept_together(self, envelopes: Sequence[Envelope]) -> Together:
        """See `Reach.accept_together`: one visit, one transaction."""
        return await self._accepted(envelopes, None)

    async def _accepted(self, envelopes: Sequence[Envelope], bodies: Bodies | None) -> Together:
        def work(
            connection: sqlite3.Connection,
            file: SessionFile,
            admitted: Admitted,
        ) -> Together:
            now, rates = Moment.now(self._clock), Rates(self._limits)
            inbox.expire_due(connection, now)  # or what is over would keep the room of what comes
            custody_id = file.custody_id or ""
            admission = Admission(
                custody_id, self._limits, now, None, rates, admitted.closed, admitted.replies
            )
            sender = admitted.noted(self._sender)
            return accept_in_order(connection, envelopes, sender, admission, bodies).told()

        def judged() -> Together:
            if bodies is not None:
                bodies.require_right()
            # The verdict's lock comes before the visited mailbox's, and is held across the commit.
            with ExitStack() as held:
                try:
                    admitted = held.enter_context(self._admit())
                except HerdError as refusal:
                    if refusal.may_pass:
                        raise
                    return self._known(partial(work, admitted=Admitted(refusal, replies=False)), refusal)
                through = partial(work, admitted=admitted or Admitted())
                return visit(self._layout, self._key, through)

        return await asyncio.to_thread(judged)

    def _known(self, work: VisitWork[Together], refusal: HerdError) -> Together:
        """Give what is known of messages that are refused now, where the first of them came before."""
        known = look(self._layout, self._key, work)
        if known is None or not known.receipts:
            raise refusal
        return known

    async def status(self, message_id: str, to: str, digest: str | None = None) -> Receipt:
        """See `Reach.status`."""

        def work(connection: sqlite3.Connection, file: SessionFile) -> Receipt:
            inbox.expire_due(connection, Moment.now(self._clock))
            row = inbox.asked(connection, self._sender.identity, message_id, to, digest)
            return row.receipt._replace(custody_id=file.custody_id)

        receipt = await asyncio.to_thread(look, self._layout, self._key, work)
        if receipt is None:
            raise UnknownTarget(f"message {message_id} has not reached that session")
        return receipt

    async def offer(self, receipt: Receipt, digest: str | None = None) -> None:
        """See `Reach.offer`."""

        def work(connection: sqlite3.Connection, _: SessionFile) -> bool:
            now = self._clock.wall_ms()
            outbox.record_receipt(connection, receipt, self._sender.key, digest, now_ms=now)
            return True

        if not await asyncio.to_thread(look, self._layout, self._key, work):
            raise ScopeDenied(f"message {receipt.message_id} was not sent by that session")


def _receipt_of(result: dict[str, Any], message_id: str, to: str) -> Receipt:
    """Read the receipt that answers a request; one about another message is no answer."""
    try:
        receipt = read_receipt(result)
    except InvalidParams as fault:
        raise InvalidRpc(f"the other side answered with no receipt: {fault.message}") from None
    if (receipt.message_id, receipt.to) != (message_id, to):
        raise InvalidRpc("the other side answered with the receipt of another message")
    return receipt
