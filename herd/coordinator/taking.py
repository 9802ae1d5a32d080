"""Taking what a proved peer sends into custody: one verdict, one place in line, one commit for each request.

Which requests there are, and who may make them, is told in `peers`.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from herd.core.authority_lock import AuthorityHold
from herd.core.errors import HerdError
from herd.core.moments import Moment
from herd.mail import inbox, outbox
from herd.mail.body_wire import Piece
from herd.mail.inbox import Admission, Sender
from herd.mail.outbox import Outgoing
from herd.mail.parts import Bodies
from herd.mail.receipts import REPLIED
from herd.mail.routes import Progress
from herd.mail.steps import INBOX_AFTER, INBOX_BEFORE, SEVERAL_TAKEN_AFTER, SEVERAL_TAKEN_BEFORE
from herd.mail.together import Taken, Together, accept_in_order
from herd.mail.wire import Envelope
from roles.model import Party

if TYPE_CHECKING:
    import asyncio

    from herd.coordinator.peers import Inner


def lane(sender: Sender, message_id: str) -> str:
    """Give the name of the lane in which a message is taken, and asked for."""
    return f"{sender.key} {message_id}"


class _Committed(NamedTuple):
    """What was taken, and the messages of ours that it answers where they became replied."""

    taken: Taken
    replied: list[Outgoing]


class Taking:
    """Takes messages for one coordinator.

    Args:
        inner: Its parts.
    """

    def __init__(self, inner: "Inner") -> None:
        self._inner = inner

    async def take(
        self, envelopes: Sequence[Envelope], sender: Sender, party: Party, *, several: bool
    ) -> Together:
        """Take messages of one sender, in their order, up to the first one that is refused.

        Args:
            envelopes: They name this session as the recipient.
            sender: Who sends them, as its record proves it.
            party: The same, as the evidence that is judged.
            several: Whether they came in the request for several, be it one.

        Raises:
            HerdError: the sender may not write to this session, or nothing can be stored; nothing was taken.
        """
        # Before anything is waited for: a status asked behind this may not be answered in front of it, or a
        # sender takes back what is accepted a moment later.
        came = Moment.now(self._inner.clock)
        lanes = [lane(sender, envelope.message_id) for envelope in envelopes]
        await self._inner.taking.enter(*lanes)
        try:
            taken = await self._begun(envelopes, sender, party, lanes, came, several=several)
        except BaseException:
            self._inner.taking.leave(*lanes)
            raise
        return await taken

    async def knows(self, piece: Piece, sender: Sender, party: Party) -> bool:
        """Tell whether a message of which the first piece of a body has come was accepted before.

        Raises:
            HerdError: the sender may not write to this session, or it takes nothing now: better said before
                all the rest comes.
        """
        inner = self._inner
        inner.health.require()
        with await inner.authority.hold():
            closed = self._refusal(party)

        def look(connection: sqlite3.Connection) -> bool:
            if inbox.find(connection, sender.key, piece.message_id, piece.to) is not None:
                return True
            if closed is not None:
                raise closed
            inbox.require_place(connection, inner.limits, piece.described.size)
            return False

        return bool(await inner.mailbox.read(look))

    async def _begun(
        self,
        envelopes: Sequence[Envelope],
        sender: Sender,
        party: Party,
        lanes: Sequence[str],
        came: Moment,
        *,
        several: bool,
    ) -> "asyncio.Future[Together]":
        """Judge by the evidence as it is now and give the messages their place in the next commit.

        What follows the commit follows it whether or not the caller still waits: one that goes away must not
        leave a committed message that no reader is told of.
        """
        inner = self._inner
        closed: HerdError | None = None

        def committed(result: Callable[[], _Committed]) -> Together:
            together = self._committed(result, hold, lanes, several=several)
            if any(envelope.expires_in_ms is not None for envelope in envelopes):
                inner.expiring.look()
            if closed is not None and not together.receipts:
                raise closed
            return together

        hold = await inner.authority.hold()
        try:
            closed = self._refusal(party)
            if several:
                inner.step(SEVERAL_TAKEN_BEFORE)
            else:
                inner.step(INBOX_BEFORE)
            return await inner.mailbox.begin(self._acceptance(envelopes, sender, closed, came), committed)
        except BaseException:
            hold.release()
            raise

    def _refusal(self, party: Party) -> HerdError | None:
        """Give why nothing new is taken from a sender, for good; None where it is.

        Raises:
            HerdError: a refusal that may pass, or one to a session without a mailbox.
        """
        inner = self._inner
        try:
            inner.authority.require(party, inner.own.as_party())
        except HerdError as refusal:
            if refusal.may_pass or inner.mailbox.custody_id is None:
                raise
            return refusal
        return None

    def _committed(
        self, result: Callable[[], _Committed], hold: AuthorityHold, lanes: Sequence[str], *, several: bool
    ) -> Together:
        inner = self._inner
        try:
            with hold:
                taken, replied = result()
                if taken.accepted and several:
                    inner.step(SEVERAL_TAKEN_AFTER)
                elif taken.accepted:
                    inner.step(INBOX_AFTER)
        finally:
            inner.taking.leave(*lanes)
        if any(one.new for one in taken.accepted):
            inner.delivery.waits()
        for row in replied:
            inner.recorded(row)
            inner.progressed(Progress(row.receipt))
        return taken.told()

    def _acceptance(
        self, envelopes: Sequence[Envelope], sender: Sender, closed: HerdError | None, came: Moment
    ) -> Callable[[sqlite3.Connection], _Committed]:
        inner = self._inner
        now = Moment.now(inner.clock)
        bodies = self._bodies(envelopes[0], sender) if len(envelopes) == 1 else None

        def work(connection: sqlite3.Connection) -> _Committed:
            admission = Admission(
                inner.mailbox.custody_id or "",
                inner.limits,
                now,
                inner.own.instance_id,
                inner.rates,
                closed,
                came=came,
                driven=inner.thread.driven,
            )
            taken = accept_in_order(connection, envelopes, sender, admission, bodies)
            answered = [
                outbox.find(connection, envelope.reply_to)
                for envelope, one in zip(envelopes, taken.accepted, strict=False)
                if one.new and envelope.reply_to is not None
            ]
            return _Committed(taken, [row for row in answered if row and row.receipt.state == REPLIED])

        return work

    def _bodies(self, envelope: Envelope, sender: Sender) -> Bodies | None:
        """Give what has come of a message's bodies; None where it is not all of them, or there are none."""
        parts = envelope.parts
        return parts and self._inner.uploads.whole(sender.key, envelope.message_id, envelope.to, parts)
