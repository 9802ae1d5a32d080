"""Messages and receipts as tools, command lines and `session.*` show them: our own spelling, nothing hidden.

Pure. Absent fields are left out.
"""

import json
from typing import Any

from herd.core.clock import shown_time
from herd.core.errors import HerdError
from herd.core.identity import TERMINAL, target_of
from herd.core.limits import ANSWER_BYTES, READ_BYTES
from herd.core.text import quoted
from herd.mail.events import Event
from herd.mail.inbox import Incoming
from herd.mail.outbox import Outgoing
from herd.mail.parts import Part, Parts
from herd.mail.receipts import ACCEPTED, PENDING

UTF8_BYTES = 4
"""Bytes of one character, at most."""

_TOLD_BYTES = 14
"""Bytes of one character at most, where a frame carries a text as a model is shown it."""


def shape_message(row: Incoming, offset: int = 0) -> dict[str, Any]:
    """Give a message as `peer_messages` shows it: from the verified sender, the text as it came."""
    role = TERMINAL if row.sender.host == TERMINAL else row.sender.role
    sender = {"target": row.sender.target, "name": row.sender.name or row.sender.host, "role": role}
    if row.sender.run is not None:
        sender["run_of"] = target_of(row.sender.role, row.sender.key)
    optional: dict[str, Any] = {
        "topic": row.topic,
        "reply_to": row.reply_to,
        "correlation_id": row.correlation_id if row.correlation_id != row.message_id else None,
        "again": True if row.handovers > 0 and row.receipt.state == ACCEPTED else None,
        "no_reply_needed": row.no_reply_needed or None,
        "attachments": _attachments(row) or None,
    }
    text = _beginning(row.content[offset:])
    if offset + len(text) < len(row.content):
        optional["next_offset"] = offset + len(text)
    return {
        "message_id": row.message_id,
        "from": sender,
        "text": text,
        "received_at": shown_time(row.receipt.accepted_at),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _beginning(text: str) -> str:
    """Give the beginning of a text that one answer holds, as it is and as a model is shown it."""
    text = text.encode()[:READ_BYTES].decode("utf-8", "ignore")
    if len(text) * _TOLD_BYTES <= ANSWER_BYTES or size_of(quoted(text)) <= ANSWER_BYTES:
        return text
    # What each character takes stands for itself, so the longest beginning that fits is found by halving.
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if size_of(quoted(text[:middle])) <= ANSWER_BYTES:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def shape_waiting(row: Incoming) -> dict[str, Any]:
    """Give a message as `session.waiting` shows it: of a text that is cut, how long it is, too."""
    shape = shape_message(row)
    return {**shape, "characters": len(row.content)} if "next_offset" in shape else shape


def shape_attachment(row: Incoming, part: Part, text: str, offset: int = 0) -> dict[str, Any]:
    """Give one attached file as `peer_messages` shows it: in the place of its message's text."""
    shape = shape_message(row._replace(content=text), offset)
    del shape["attachments"]
    return {**shape, "attachment": {"name": part.name, "bytes": part.size}}


def _attachments(row: Incoming) -> list[dict[str, Any]]:
    if row.parts is None:
        return []
    parts = Parts.read(row.parts) or Parts()
    return [{"name": one.name, "bytes": one.size} for one in parts.attachments]


def shape_receipt(row: Outgoing) -> dict[str, Any]:
    """Give a receipt as `peer_messages` shows it."""
    receipt = row.receipt
    at = receipt.replied_at or receipt.delivered_at or receipt.accepted_at
    optional = {"at": shown_time(at), "outcome": receipt.outcome}
    return {
        "message_id": row.message_id,
        "target": row.recipient,
        "status": receipt.state,
        **{name: value for name, value in optional.items() if value is not None},
    }


def shape_event(event: Event) -> dict[str, Any]:
    """Give an entry of the journal as `peer_update` carries it."""
    shape = {**event._asdict(), "cursor": str(event.cursor), "at": shown_time(event.at)}
    return {name: value for name, value in shape.items() if value is not None}


def shape_expired(event: Event) -> dict[str, Any]:
    """Give a message that expired here before it was delivered, as `peer_messages` tells it."""
    return {"message_id": event.message_id, "from": event.target, "at": shown_time(event.at)}


def shape_status(
    row: Outgoing, refusal: HerdError | None = None, undrained: int | None = None
) -> dict[str, Any]:
    """Give a receipt as `session.status` and `herd status` show it.

    Args:
        row: The outbox row.
        refusal: The last refusal, for a message that is still pending and was refused.
        undrained: The minutes for which the recipient's host has left it lying, where it has.
    """
    receipt = row.receipt
    waits = refusal if receipt.state == PENDING else None
    outcome = receipt.outcome if waits is None else waits.code
    times = {
        step: shown_time(getattr(receipt, step)) for step in ("accepted_at", "delivered_at", "replied_at")
    }
    lying = undrained if receipt.state == ACCEPTED else None
    shape = {**receipt._asdict(), **times, "outcome": outcome, "undrained_minutes": lying}
    if waits is not None:
        shape["hint"] = waits.next_step
    return {name: value for name, value in shape.items() if value is not None}


def size_of(shape: dict[str, Any] | str) -> int:
    """Give the bytes that a shape, or a text, takes in a frame."""
    return len(json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode())
