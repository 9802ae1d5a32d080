"""Taking what a proved peer sends into custody: one verdict, one place in line, one commit for each request.

Which requests there are, and who may make them, is told in `peers`.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from herd.coordinator.evidence import Ruling
from herd.coordinator.own import Own
from herd.core.errors import HerdError, TargetEnded
from herd.core.moments import Moment
from herd.mail import acceptance, inbox, outbox
from herd.mail.body_wire import Piece
from herd.mail.inbox import Admission, Admitted, Sender
from herd.mail.outbox import Outgoing
from herd.mail.parts import Bodies
from herd.mail.receipts import REPLIED, Receipt
from herd.mail.routes import Progress
from herd.mail.steps import INBOX_AFTER, INBOX_BEFORE, SEVERAL_TAKEN_AFTER, SEVERAL_TAKEN_BEFORE
from herd.mail.together import Taken, Together, accept_in_order
from herd.mail.wire import Envelope, digest_of
from herd.presence.scopes import limited
from roles.model import Party

if TYPE_CHECKING:
    import asyncio

    from herd.coordinator.peers import Inner
    from herd.coordinator.runs.directories import Proved
    from herd.coordinator.runs.live import LiveRun


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
        self,
        envelopes: Sequence[Envelope],
        sender: Sender,
        party: Party,
        *,
        several: bool,
        proof: "Callable[[], Awaitable[Proved]] | None" = None,
        bodies: Bodies | None = None,
    ) -> Together:
        """Take messages of one sender, in their order, up to the first one that is refused.

        Args:
            envelopes: They name this session, or one run of it, as the recipient.
            sender: Who sends them, as its record proves it.
            party: The same, as the evidence that is judged.
            several: Whether they came in the request for several, be it one.
            proof: Proves the run of the sender's session that they are from; None where they are its own.
            bodies: What lies outside a single message's envelope, where it did not come by uploads.

        Raises:
            HerdError: the sender may not write to this session, or nothing can be stored; nothing was taken.
        """
        # Before anything is waited for: a status asked behind this may not be answered in front of it, or a
        # sender takes back what is accepted a moment later.
        came = Moment.now(self._inner.clock)
        lanes = [lane(sender, envelope.message_id) for envelope in envelopes]
        await self._inner.taking.enter(*lanes)
        try:
            if proof is not None:
                sender, scope = await proof()
                party = party._replace(extent=limited(party.extent, scope))
            begin = partial(
                self._begun, envelopes, sender, party, lanes, came, several=several, bodies=bodies
            )
            taken = await self._inner.authority.fresh(begin)
        except TargetEnded as over:
            try:
                return await self._known(envelopes, sender, over)
            finally:
                self._inner.taking.leave(*lanes)
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

        async def attempt() -> Admitted:
            with await inner.authority.hold() as ruling:
                return self._admitted(party, inner.own, ruling)

        closed = (await inner.authority.fresh(attempt)).closed

        def look(connection: sqlite3.Connection) -> bool:
            if inbox.find(connection, sender.key, piece.message_id, piece.to) is not None:
                return True
            if closed is not None:
                raise closed
            run = None if piece.to in inner.own.names else piece.to
            acceptance.require_place(connection, inner.limits, piece.described.size, run=run)
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
        bodies: Bodies | None,
    ) -> "asyncio.Future[Together]":
        """Judge by the evidence as it is now and give the messages their place in the next commit.

        What follows the commit follows it whether or not the caller still waits: one that goes away must not
        leave a committed message that no reader is told of.
        """
        inner = self._inner
        admitted = Admitted()

        def committed(result: Callable[[], _Committed]) -> Together:
            together = self._committed(result, hold, lanes, waits, several=several)
            if any(envelope.expires_in_ms is not None for envelope in envelopes):
                inner.expiring.look()
            if admitted.closed is not None and not together.receipts:
                raise together.refusal or admitted.closed
            return together

        hold = await inner.authority.hold()
        try:
            # As late as can be: a run that lives now has its end written down behind what is begun here.
            live = self._recipient(envelopes[0].to)
            waits = (live or inner).delivery.waits
            admitted = self._admitted(party, (live or inner).own, hold)
            if several:
                inner.step(SEVERAL_TAKEN_BEFORE)
            else:
                inner.step(INBOX_BEFORE)
            coming = bodies if bodies is not None or several else self._bodies(envelopes[0], sender)
            acceptance = self._acceptance(envelopes, sender, admitted, came, live, coming)
            return await inner.mailbox.begin(acceptance, committed)
        except BaseException:
            hold.release()
            raise

    def _admitted(self, party: Party, own: Own, ruling: Ruling) -> Admitted:
        """Judge a sender; where it is refused for good, tell why nothing new is taken from it.

        Raises:
            HerdError: a refusal that may pass, or one to a session without a mailbox.
        """
        inner = self._inner
        if party.key == own.key:
            return Admitted()  # those inside a session write to each other
        try:
            return ruling.admitted(party, own.as_party())
        except HerdError as refusal:
            if refusal.may_pass or inner.mailbox.custody_id is None:
                raise
            return Admitted(refusal, replies=False)

    def _recipient(self, to: str) -> "LiveRun | None":
        """Give the run that messages are for; None for the session itself.

        Raises:
            TargetEnded: it is a run that is over, or another instance of this session.
            CapabilityDenied: that run receives no messages.
        """
        return None if to in self._inner.own.names else self._inner.runs.require_receiving(to)

    async def _known(self, envelopes: Sequence[Envelope], sender: Sender, over: TargetEnded) -> Together:
        """Answer for a recipient that is over: what it had accepted before stays accepted."""

        def work(connection: sqlite3.Connection) -> list[Receipt]:
            receipts: list[Receipt] = []
            for one in envelopes:
                row = inbox.find(connection, sender.identity, one.message_id, one.to)
                if row is None or row.digest != digest_of(one):
                    break
                receipts.append(row.receipt._replace(custody_id=self._inner.mailbox.custody_id))
            return receipts

        receipts = await self._inner.mailbox.read(work) or []
        if not receipts:
            raise over
        return Together(tuple(receipts), None if len(receipts) == len(envelopes) else over)

    def _committed(
        self,
        result: Callable[[], _Committed],
        hold: Ruling,
        lanes: Sequence[str],
        waits: Callable[[], None],
        *,
        several: bool,
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
            waits()
        for row in replied:
            inner.recorded(row)
            inner.progressed(Progress(row.receipt))
        return taken.told()

    def _acceptance(
        self,
        envelopes: Sequence[Envelope],
        sender: Sender,
        admitted: Admitted,
        came: Moment,
        live: "LiveRun | None",
        bodies: Bodies | None,
    ) -> Callable[[sqlite3.Connection], _Committed]:
        inner = self._inner
        now = Moment.now(inner.clock)

        def work(connection: sqlite3.Connection) -> _Committed:
            admission = Admission(
                inner.mailbox.custody_id or "",
                inner.limits,
                now,
                inner.own.instance_id,
                inner.rates,
                admitted.closed,
                admitted.replies,
                came=came,
                driven=(live or inner).thread.driven,
                run=live.run.peer_id if live else None,
            )
            taken = accept_in_order(connection, envelopes, admitted.noted(sender), admission, bodies)
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
