"""Looking at a session of this user that is not running, by a visit that changes nothing."""

import sqlite3
from typing import Any

from herd.cli.context import Context
from herd.coordinator.adapter_api import shape_status
from herd.coordinator.delivery import shape_message
from herd.core.clock import SystemClock
from herd.core.errors import HerdError, SessionHeld, UnknownTarget
from herd.core.identity import target_of
from herd.core.limits import HANDOVERS
from herd.core.moments import Moment
from herd.core.text import printable
from herd.mail import inbox, outbox, whole
from herd.mail.inbox import Incoming
from herd.mail.lifetimes import is_over
from herd.mail.outbox import Outgoing
from herd.mail.visit import look
from herd.presence.entries import undrained_minutes
from herd.presence.registry import sleeping_keys
from herd.presence.session_file import SessionFile, read_session_file


def key_of(context: Context, target: str) -> str:
    """Give the session key of a session here that is not running, by its exact target.

    Raises:
        UnknownTarget: no session here has that target.
        HerdError: none has, and what is on record of one cannot be read.
        SessionHeld: it is running; only its own host reads it.
    """
    damaged: HerdError | None = None
    for key in sleeping_keys(context.layout):
        try:
            file = read_session_file(context.layout, key)
        except HerdError as fault:  # one bad file hides nobody else
            damaged = damaged or fault
            continue
        if file is not None and target_of(file.role, key) == target:
            _require_asleep(context, file, target)
            return key
    # Whether it is the damaged one that was meant cannot be told.
    raise damaged or UnknownTarget(f"no session here has the target {printable(target)}")


def _require_asleep(context: Context, file: SessionFile, target: str) -> None:
    if context.living(file.session) is not None:
        raise SessionHeld(
            f"{target} is running, and its own host reads its mailbox",
            hint="Run `herd inbox` inside that session.",
        )


def waiting_in(context: Context, target: str) -> dict[str, Any]:
    """Give what waits in a sleeping session's inbox, in the shape of `session.waiting`."""

    def work(connection: sqlite3.Connection, _: SessionFile) -> dict[str, Any]:
        now = Moment.now(SystemClock())
        messages = [_shape(row) for row in whole.undelivered(connection) if not is_over(row, now)]
        answer = {"messages": messages, "unreadable": whole.unreadable(connection), "more": False}
        set_aside = [row.message_id for row in inbox.lying(connection) if row.handovers >= HANDOVERS]
        return {**answer, "set_aside": set_aside} if set_aside else answer

    found = look(context.layout, key_of(context, target), work)
    return found or {"messages": [], "unreadable": [], "more": False}


def _shape(row: Incoming) -> dict[str, Any]:
    """Give a message with its whole text: no frame bounds what is read from the file itself."""
    shape = {**shape_message(row), "text": row.content}
    shape.pop("next_offset", None)
    return shape


def status_in(context: Context, key: str, message_id: str) -> dict[str, Any]:
    """Give the receipt of a message that a sleeping session sent; raises as `sent_in` does."""
    return status_of(context, sent_in(context, key, message_id))


def sent_in(context: Context, key: str, message_id: str) -> Outgoing:
    """Give a message that a sleeping session sent.

    Raises:
        UnknownTarget: it sent none of that id.
    """

    def work(connection: sqlite3.Connection, _: SessionFile) -> Outgoing:
        return outbox.required(connection, message_id)

    found = look(context.layout, key, work)
    if found is None:
        raise UnknownTarget(
            f"no message {printable(message_id)} was sent by that session",
            hint="Use the message_id that the send gave.",
        )
    return found


def status_of(context: Context, sent: Outgoing) -> dict[str, Any]:
    """Give the receipt of a sent message as it is shown."""
    running = context.registry.running(sent.recipient_key)
    now = SystemClock().wall_ms()
    return shape_status(sent, undrained=undrained_minutes(running, now, sent.receipt.accepted_at or 0))
