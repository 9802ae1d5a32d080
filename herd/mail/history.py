"""What a mailbox tells of its messages over time, in both directions and without a word of their texts."""

import json
import sqlite3
from typing import Any

from herd.core.clock import shown_time
from herd.core.identity import peer_id_of
from herd.core.limits import HISTORY_MESSAGES

_IN = (
    "SELECT 'in', message_id, sender, topic, reply_to, state, outcome, run, instance_id, accepted_at,"
    " handovers, handed_at, evidence, delivered_at, replied_at, stripped, NULL FROM inbox"
)
_OUT = (
    "SELECT 'out', message_id, recipient, topic, reply_to, state, outcome, run, instance_id, created_at,"
    " NULL, NULL, NULL, delivered_at, replied_at, stripped, accepted_at FROM outbox"
)
_LEFT = "(state IN ('pending', 'accepted', 'unknown') OR outcome = 'TARGET_ENDED')"


def history(
    connection: sqlite3.Connection,
    *,
    most: int = HISTORY_MESSAGES,
    skip: int = 0,
    left_by_others_than: str | None = None,
) -> list[dict[str, Any]]:
    """Give the newest messages, sent and received, the oldest of them first.

    Args:
        connection: The mailbox.
        most: How many at most.
        skip: How many of the newest are left out.
        left_by_others_than: Only what is not resolved and came, or was sent, in another life than that
            instance's; and what came for a run of it that has ended.

    Returns:
        For each `direction` (`in` or `out`), `message_id`, `peer` (its target), `state`, `stored_at` (when
        this mailbox had it), and where they apply `name`, `topic`, `reply_to`, `outcome`, `instance` (the
        peer id of the instance it was with), `run`, `accepted_at` (of what was sent), `handed_over` (how
        often), `handed_over_at` (the last time), `seen_at`, `evidence`, `replied_at`, `text_removed`.
    """
    chosen: str = ""
    values: tuple[str, ...] = ()
    if left_by_others_than is not None:
        chosen = f" WHERE {_LEFT} AND (instance_id IS NOT ? OR outcome = 'TARGET_ENDED')"
        values = (left_by_others_than,)
    rows = connection.execute(
        f"SELECT * FROM ({_IN}{chosen} UNION ALL {_OUT}{chosen}) ORDER BY 10 DESC, 2 DESC LIMIT ? OFFSET ?",
        (*values, *values, most, skip),
    ).fetchall()
    return [_shape(row) for row in reversed(rows)]


def _shape(row: tuple[Any, ...]) -> dict[str, Any]:
    direction, message_id, peer, topic, reply_to, state, outcome, run, instance_id = row[:9]
    stored_at, handovers, handed_at, evidence, delivered_at, replied_at, stripped, accepted_at = row[9:]
    target, name = _party(peer) if direction == "in" else (peer, None)
    shape = {
        "direction": direction,
        "message_id": message_id,
        "peer": target,
        "name": name,
        "state": state,
        "outcome": outcome,
        "topic": topic,
        "reply_to": reply_to,
        "instance": None if instance_id is None else peer_id_of(instance_id),
        "run": run,
        "stored_at": shown_time(stored_at),
        "accepted_at": shown_time(accepted_at),
        "handed_over": handovers or None,
        "handed_over_at": shown_time(handed_at),
        "seen_at": shown_time(delivered_at),
        "evidence": evidence,
        "replied_at": shown_time(replied_at),
        "text_removed": bool(stripped) or None,
    }
    return {field: value for field, value in shape.items() if value is not None}


def _party(stored: str) -> tuple[str, str | None]:
    try:
        sender = json.loads(stored)
        return str(sender["target"]), sender.get("name")
    except (ValueError, TypeError, KeyError):  # the row cannot be read; that it is there can be told
        return "unknown", None
