"""Several messages from one sender to one recipient, handed into custody at once and in their order.

Each is judged, known again and counted as if it had come alone. The first one that is refused ends it: those
before it are in custody, and none behind it, so that none overtakes it. Here are the transaction and the
shapes of `peer.sendMany`; who asks and who answers is told elsewhere.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from herd.core.errors import HerdError, InvalidParams, InvalidRpc, from_wire
from herd.core.limits import SENT_TOGETHER
from herd.mail import acceptance
from herd.mail.inbox import Acceptance, Admission, Sender
from herd.mail.parts import Bodies
from herd.mail.receipts import Receipt
from herd.mail.wire import Envelope, Wire, checked, read_envelope, read_receipt, receipt_to_wire, size_of

_REQUEST_BYTES = 128
"""Bytes of a request's frame around its envelopes, at most; it has some 80."""


class Together(NamedTuple):
    """What handing messages in led to.

    Attributes:
        receipts: Those of the longest accepted beginning, in the order of the messages.
        refusal: Why the next one was refused; None where all were accepted. Nothing is said of those behind.
    """

    receipts: tuple[Receipt, ...]
    refusal: HerdError | None = None


class Taken(NamedTuple):
    """`Together` as the accepting side knows it: also which of the messages are new there."""

    accepted: tuple[Acceptance, ...]
    refusal: HerdError | None = None

    def told(self) -> Together:
        """Give what the sender may know of it."""
        return Together(tuple(one.receipt for one in self.accepted), self.refusal)


def accept_in_order(
    connection: sqlite3.Connection,
    envelopes: Sequence[Envelope],
    sender: Sender,
    admission: Admission,
    bodies: Bodies | None = None,
) -> Taken:
    """Take messages into custody up to the first one that is refused, as `acceptance.accept` tells.

    It does not raise the refusal, since that would undo what was accepted before.

    Args:
        connection: The recipient's mailbox.
        envelopes: The messages, all from one sender.
        sender: Who that is, as it was proved.
        admission: With what the mailbox admits them.
        bodies: Those of the message, where it is one: messages with bodies travel alone.
    """
    accepted: list[Acceptance] = []
    for envelope in envelopes:
        try:
            one = acceptance.accept(connection, envelope, sender, admission, bodies)
        except HerdError as refusal:
            return Taken(tuple(accepted), refusal)
        accepted.append(one)
    return Taken(tuple(accepted))


def fitting(envelopes: Iterable[Envelope], frame_bytes: int) -> list[Envelope]:
    """Give the first of these, as many as one request in one frame holds; one at least.

    No more of them are made than it takes to find that out.
    """
    left = frame_bytes - _REQUEST_BYTES
    going: list[Envelope] = []
    for envelope in envelopes:
        left -= size_of(envelope) + 1
        if left < 0 and going:
            return going
        going.append(envelope)
    return going


def read_envelopes(params: Mapping[str, Any]) -> list[Envelope]:
    """Read the params of `peer.sendMany`.

    Raises:
        InvalidParams: they are not 1 to `SENT_TOGETHER` envelopes to one recipient.
        UnsupportedProtocol, MessageTooLarge: as `read_envelope` says of any of them.
    """
    messages = params.get("messages")
    if set(params) != {"messages"} or not isinstance(messages, list):
        raise InvalidParams("messages is the only field, and a list", field="messages")
    if not 1 <= len(messages) <= SENT_TOGETHER:
        raise InvalidParams(f"messages has 1 to {SENT_TOGETHER} envelopes", field="messages")
    if not all(isinstance(one, dict) for one in messages):
        raise InvalidParams("messages holds something that is no envelope", field="messages")
    envelopes = [read_envelope(one) for one in messages]
    if any(one.to != envelopes[0].to for one in envelopes):
        raise InvalidParams("the messages have not all the same recipient", field="to")
    return envelopes


def together_to_wire(together: Together) -> dict[str, Any]:
    """Give the result of `peer.sendMany`."""
    result: dict[str, Any] = {"receipts": [receipt_to_wire(receipt) for receipt in together.receipts]}
    return result if together.refusal is None else {**result, "refusal": together.refusal.to_wire()}


class _Answer(Wire):
    receipts: list[dict[str, Any]]
    refusal: dict[str, Any] | None = None


def read_together(result: Any, envelopes: Sequence[Envelope]) -> Together:
    """Read what answered `peer.sendMany`.

    Raises:
        InvalidRpc: it has another shape, or does not say what became of these very messages: nothing in it is
            believed then.
    """
    try:
        answer = checked(_Answer, result)
        receipts = tuple(read_receipt(one) for one in answer.receipts)
    except InvalidParams as fault:
        raise InvalidRpc(f"the other side answered with no receipts: {fault.message}") from None
    asked = [(one.message_id, one.to) for one in envelopes[: len(receipts)]]
    if [(one.message_id, one.to) for one in receipts] != asked:
        raise InvalidRpc("the other side answered with the receipt of another message")
    if (answer.refusal is None) != (len(receipts) == len(envelopes)):
        raise InvalidRpc("the other side did not say what became of each message")
    return Together(receipts, None if answer.refusal is None else from_wire(answer.refusal))
