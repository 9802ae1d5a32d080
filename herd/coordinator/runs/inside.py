"""The custody of this very session, for its runs and for what it writes to them: no connection, no visit."""

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from herd.coordinator.taking import Taking, lane
from herd.core.errors import ScopeDenied, UnknownTarget
from herd.mail import inbox, outbox
from herd.mail.inbox import Incoming, Sender
from herd.mail.parts import Bodies
from herd.mail.receipts import Receipt
from herd.mail.routes import Progress
from herd.mail.together import Together
from herd.mail.wire import Envelope

if TYPE_CHECKING:
    from herd.coordinator.peers import Inner


class InsideReach:
    """A session and its runs among themselves: the same custody as everybody's, asked without a way to it.

    Args:
        inner: The parts of the coordinator.
        sender: Which of them sends or asks.
    """

    running = True

    def __init__(self, inner: "Inner", sender: Sender) -> None:
        self._inner = inner
        self._sender = sender

    async def accept(self, envelope: Envelope, bodies: Bodies | None = None) -> Receipt:
        """See `Reach.accept`."""
        taken = await self._take([envelope], bodies, several=False)
        if taken.refusal is not None:
            raise taken.refusal
        return taken.receipts[0]

    async def accept_together(self, envelopes: Sequence[Envelope]) -> Together:
        """See `Reach.accept_together`."""
        return await self._take(envelopes, None, several=True)

    async def status(self, message_id: str, to: str, digest: str | None = None) -> Receipt:
        """See `Reach.status`."""

        def work(connection: sqlite3.Connection) -> Incoming:
            return inbox.asked(connection, self._sender.identity, message_id, to, digest)

        async with self._inner.taking.lane(lane(self._sender, message_id)):
            row = await self._inner.mailbox.read(work)
        if row is None:
            raise UnknownTarget(f"message {message_id} has not come here")
        return row.receipt._replace(custody_id=self._inner.mailbox.custody_id)

    async def offer(self, receipt: Receipt, digest: str | None = None) -> None:
        """See `Reach.offer`."""
        inner = self._inner
        now = inner.clock.wall_ms()
        row = await inner.mailbox.read(
            lambda found: outbox.record_receipt(found, receipt, inner.own.key, digest, now_ms=now)
        )
        if row is None:
            raise ScopeDenied(f"message {receipt.message_id} was not sent by this session")
        inner.recorded(row)
        inner.progressed(Progress(row.receipt))

    async def _take(self, envelopes: Sequence[Envelope], bodies: Bodies | None, *, several: bool) -> Together:
        inner = self._inner
        inner.health.require()
        party = inner.own.as_party()
        return await Taking(inner).take(envelopes, self._sender, party, several=several, bodies=bodies)
