"""What became of a message that this session sent, and taking back one that nobody has."""

from collections.abc import Callable
from contextlib import suppress

from herd.coordinator.carrier import LocalCarrier
from herd.core.clock import Clock
from herd.core.errors import DeliveryUnknown, HerdError, MessageIdConflict, ScopeDenied, UnknownTarget
from herd.mail import outbox
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, Receipt
from herd.mail.routes import Routes

CANCELLED = "CANCELLED"
"""The outcome of a message that its sender took back before any mailbox had it."""

_MAY_BE_MORE_BY_NOW = frozenset({PENDING, ACCEPTED, DELIVERED})


class Asking:
    """Asks after sent messages: the outbox first, and then the recipient's custody.

    Args:
        mailbox: The session's own.
        carrier: Reaches the recipients.
        routes: Where pending messages wait.
        recorded: Told each row of which more is written down now.
        clock: Says when.
        run: Whose messages: a run's; None for the session's own.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        carrier: LocalCarrier,
        routes: Routes,
        *,
        recorded: Callable[[Outgoing], None],
        clock: Clock,
        run: str | None = None,
    ) -> None:
        self._run = run
        self._mailbox = mailbox
        self._carrier = carrier
        self._routes = routes
        self._recorded = recorded
        self._clock = clock

    async def status(self, message_id: str) -> tuple[Outgoing, HerdError | None]:
        """Give what is known of a message, and the last refusal where it is still pending.

        Raises:
            UnknownTarget: this session sent no such message.
        """
        row = await self._sent(message_id, self._run)
        if row.receipt.state in _MAY_BE_MORE_BY_NOW:
            with suppress(HerdError):  # what is stored stands while the recipient cannot be asked
                row = await self._learnt(row)
                self._recorded(row)
        return row, self._routes.refusal(row) if row.receipt.state == PENDING else None

    async def cancel(self, message_id: str) -> Outgoing:
        """Take back a message that no mailbox has.

        Raises:
            UnknownTarget: this session sent no such message.
            DeliveryUnknown: it may have been accepted and the recipient cannot be asked now; it stays.
            MessageIdConflict: it is settled already, so there is nothing to take back.
        """
        row = await self._sent(message_id, self._run)
        if row.receipt.state == PENDING:
            async with self._routes.held(row):
                row = await self._taken_back(row)
            # Before its route runs again: nothing has been awaited since it was let go.
            self._recorded(row)
        if row.receipt.outcome != CANCELLED:
            raise MessageIdConflict(
                f"message {message_id} is {row.receipt.state} already",
                hint="It cannot be taken back any more.",
            )
        return row

    async def expire(self, row: Outgoing) -> bool:
        """End a pending message whose lifetime is over, unless a mailbox has it.

        Returns:
            Whether its fate is known now: what may have been accepted stays until its recipient can be asked.
        """
        async with self._routes.held(row):
            row = await self._sent(row.message_id, row.run)
            if row.receipt.state == PENDING:
                try:
                    receipt = await self._elsewhere(row)
                except HerdError:
                    return False
                row = await (self._expired(row) if receipt is None else self._recorded_as(row, receipt))
        self._recorded(row)
        return True

    async def _sent(self, message_id: str, run: str | None) -> Outgoing:
        row = await self._mailbox.read(lambda connection: outbox.required(connection, message_id, run))
        if row is None:
            raise UnknownTarget(
                "this session has sent no message yet", hint="Use the message_id that the send gave."
            )
        return row

    async def _learnt(self, row: Outgoing) -> Outgoing:
        """Ask the recipient, whose last word may have been lost."""
        return await self._recorded_as(row, await self._carrier.status(row))

    async def _recorded_as(self, row: Outgoing, receipt: Receipt) -> Outgoing:
        now = self._clock.wall_ms()
        return await self._mailbox.run(
            lambda connection: outbox.record_receipt(connection, receipt, row.recipient_key, now_ms=now)
        )

    async def _elsewhere(self, row: Outgoing) -> Receipt | None:
        """Give what the recipient's mailbox says of a pending message; None where surely none has it.

        Raises:
            HerdError: it may have been accepted, and the recipient cannot be asked now.
        """
        if self._carrier.untouched(row.message_id):
            return None
        try:
            return await self._carrier.status(row)
        except (UnknownTarget, MessageIdConflict, ScopeDenied):
            return None  # asked, and it has no such message, or another of that id

    async def _taken_back(self, row: Outgoing) -> Outgoing:
        try:
            receipt = await self._elsewhere(row)
        except HerdError as fault:
            raise DeliveryUnknown(
                f"message {row.message_id} may have been accepted, and its recipient cannot be asked: "
                f"{fault.message}"
            ) from fault
        if receipt is not None:
            return await self._recorded_as(row, receipt)
        now = self._clock.wall_ms()
        return await self._mailbox.run(
            lambda connection: outbox.reject(connection, row.message_id, CANCELLED, now)
        )

    async def _expired(self, row: Outgoing) -> Outgoing:
        now = self._clock.wall_ms()
        return await self._mailbox.run(lambda connection: outbox.expire(connection, row.message_id, now))
