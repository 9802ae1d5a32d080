"""Receipts: what a sender may know of its message, and the only ways in which that may change.

Pure. The table below is the whole rule: a state is replaced only by one listed for it, so no receipt that
comes late, twice or out of order makes a status less than it was.
"""

from typing import Any, NamedTuple

PENDING = "pending"
ACCEPTED = "accepted"
DELIVERED = "delivered"
REPLIED = "replied"
REJECTED = "rejected"
EXPIRED = "expired"
UNKNOWN = "unknown"

TARGET_ENDED = "TARGET_ENDED"
"""The outcome of an accepted message whose recipient, a run, ended before it read it."""

NEXT: dict[str, frozenset[str]] = {
    PENDING: frozenset({ACCEPTED, DELIVERED, REPLIED, REJECTED, EXPIRED, UNKNOWN}),
    UNKNOWN: frozenset({ACCEPTED, DELIVERED, REPLIED, REJECTED, EXPIRED}),
    ACCEPTED: frozenset({DELIVERED, REPLIED, REJECTED, EXPIRED}),
    DELIVERED: frozenset({REPLIED}),
    REPLIED: frozenset(),
    REJECTED: frozenset(),
    EXPIRED: frozenset(),
}
"""For each state the states that may follow it."""

TOLD = frozenset({ACCEPTED, DELIVERED, REPLIED, REJECTED, EXPIRED})
"""The states that a custody can tell of a message; the other two are a sender's own, before any has it."""

MEANINGS: dict[str, str] = {
    PENDING: "the sender's outbox has it; no mailbox of the recipient is known to have it",
    ACCEPTED: "the recipient's mailbox has it durably; nothing is said about anyone having read it",
    DELIVERED: "there is evidence that the recipient's host has it",
    REPLIED: "its correlated reply was accepted by the sender's mailbox; nothing is said about work done",
    REJECTED: "it was refused for good, and `outcome` is the code; it will not be tried again",
    EXPIRED: "the lifetime its sender set ran out before it was delivered",
    UNKNOWN: "a carrier that cannot be asked again took it; it may or may not have arrived",
}
"""What each state claims, and nothing more."""


class Receipt(NamedTuple):
    """One message's state as one mailbox knows it.

    Times are milliseconds since the epoch on the recipient's clock, None for steps not reached.
    """

    message_id: str
    to: str
    custody_id: str | None
    state: str
    cursor: int
    accepted_at: int | None = None
    delivered_at: int | None = None
    replied_at: int | None = None
    outcome: str | None = None


def merged(current: Receipt, incoming: Receipt) -> Receipt:
    """Give what is known after `incoming` was learnt; `current` itself where that may not change it.

    The cursor stays the current one: it counts the events of the mailbox that holds the row, and the caller
    assigns the next where something changed.
    """
    if incoming.state == current.state == ACCEPTED and incoming.outcome is not None:
        return current._replace(outcome=current.outcome or incoming.outcome)
    if incoming.state not in NEXT[current.state]:
        return current
    return incoming._replace(
        message_id=current.message_id,
        to=current.to,
        cursor=current.cursor,
        custody_id=incoming.custody_id or current.custody_id,
        accepted_at=_first(current.accepted_at, incoming.accepted_at),
        delivered_at=_first(current.delivered_at, incoming.delivered_at),
        replied_at=_first(current.replied_at, incoming.replied_at),
    )


def is_told_at_once(receipt: Receipt) -> bool:
    """Tell whether a receipt says more than the answer to the send did: that the message was accepted."""
    return receipt.state != ACCEPTED or receipt.outcome is not None


def advanced(current: Receipt, state: str, now_ms: int, outcome: str | None = None) -> Receipt:
    """Give the receipt after a step that this mailbox made at `now_ms`; unchanged where not allowed."""
    if state not in NEXT[current.state]:
        return current
    step: dict[str, Any] = {"state": state}
    if state in {ACCEPTED, DELIVERED, REPLIED}:
        step[f"{state}_at"] = now_ms
    if outcome is not None:
        step["outcome"] = outcome
    return current._replace(**step)


def _first(known: int | None, told: int | None) -> int | None:
    return told if known is None else known
