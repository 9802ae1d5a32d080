"""Rows of an inbox as they are read from it, for what works on rows and needs no mailbox."""

from typing import Any

from herd.mail.inbox import Incoming, Sender
from herd.mail.receipts import ACCEPTED, Receipt


def incoming(content: str = "hello", number: int = 1, **changes: Any) -> Incoming:
    """Give a message accepted and never handed over; `number` is its place, and names it."""
    whole = {
        "sequence": number,
        "sender_key": "k",
        "message_id": f"m-{number}",
        "recipient": "lead:0000000000",
        "digest": "d",
        "sender": Sender("k", "lead:1111111111", "lead", "claude", "api"),
        "content": content,
        "topic": None,
        "reply_to": None,
        "correlation_id": f"m-{number}",
        "conversation_id": f"c-{number}",
        "depth": 0,
        "no_reply_needed": False,
        "created_at": 0,
        "handovers": 0,
        "evidence": None,
        "owed": False,
        "receipt": Receipt(f"m-{number}", "lead:0000000000", None, ACCEPTED, number, accepted_at=1),
    }
    return Incoming(**{**whole, **changes})
