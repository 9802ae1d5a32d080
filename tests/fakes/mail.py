"""Messages, senders and mailboxes that are right in every field, for tests to spoil or to send.

It owns examples and the opening of a mailbox under its lock; it holds no rule of the mail itself.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any

from herd.core.errors import HerdError
from herd.core.identity import SessionName, target_of
from herd.core.locks import HeldLock
from herd.core.moments import Moment
from herd.core.paths import Layout
from herd.mail.database import Work
from herd.mail.inbox import Admission, Sender
from herd.mail.mailbox import Mailbox
from herd.mail.mailbox_file import open_mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, PENDING, Receipt
from herd.mail.steps import Step, no_step
from herd.mail.tables import SCRIPTS
from herd.mail.wire import Envelope, content_digest, read_envelope
from herd.presence.session_file import SessionFile, read_session_file, write_session_file
from tests.fakes.bounds import UNHURRIED
from tests.fakes.records import session_of

ALICE = session_of(1)
"""The session that sends, in most tests."""

BOB = session_of(2, host="pi")
"""The session that receives, in most tests."""

CAROL = session_of(3, host="codex")

NOW = 1_800_000_000_000
CUSTODY = "custody-of-bob"


def target(session: SessionName) -> str:
    return target_of("lead", session.key)


def sender(session: SessionName = ALICE, name: str | None = "api-worker") -> Sender:
    """Give what an acceptance verified about a session."""
    return Sender(session.key, target(session), "lead", session.host, name)


def params(
    message_id: str = "m-1", content: str = "hello", *, by: SessionName = ALICE, **changes: Any
) -> dict[str, Any]:
    """Give the params of `peer.send` to Bob; a field given as None is left out."""
    whole = {
        "version": 1,
        "messageId": message_id,
        "from": {"session": target(by)},
        "to": target(BOB),
        "content": content,
        "createdAt": NOW,
        "correlationId": message_id,
        "conversation": {"id": message_id, "depth": 0},
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def envelope(
    message_id: str = "m-1", content: str = "hello", *, by: SessionName = ALICE, **changes: Any
) -> Envelope:
    return read_envelope(params(message_id, content, by=by, **changes))


def outgoing(
    message_id: str = "m-1", content: str = "hello", to: SessionName = BOB, **changes: Any
) -> Outgoing:
    """Give a message of Alice's as it is handed to the outbox."""
    correlation_id = changes.pop("correlation_id", message_id)
    topic, reply_to = changes.pop("topic", None), changes.pop("reply_to", None)
    recipient = changes.pop("recipient", target(to))
    row = Outgoing(
        position=0,
        message_id=message_id,
        recipient=recipient,
        recipient_key=to.key,
        digest=content_digest(content, topic, reply_to, correlation_id),
        sender=sender(ALICE)._asdict(),
        content=content,
        topic=topic,
        reply_to=reply_to,
        correlation_id=correlation_id,
        conversation_id=message_id,
        depth=0,
        no_reply_needed=False,
        created_at=NOW,
        custody_id=None,
        receipt=Receipt(message_id, recipient, None, PENDING, 0),
    )
    return row._replace(**changes)


def admission(
    custody_id: str = CUSTODY, inbox_messages: int = 32, now_ms: int = NOW, **limits: int
) -> Admission:
    """Give with what Bob's mailbox admits a message."""
    chosen = UNHURRIED._replace(inbox_messages=inbox_messages, **limits)
    return Admission(custody_id, chosen, Moment("a-boot", now_ms, now_ms))


def receipt(message_id: str = "m-1", state: str = ACCEPTED, **changes: Any) -> Receipt:
    """Give a receipt of Bob's custody."""
    return Receipt(message_id, target(BOB), CUSTODY, state, 1, accepted_at=NOW)._replace(**changes)


@contextmanager
def tables() -> Iterator[sqlite3.Connection]:
    """Give the tables of a mailbox without a file."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for script in SCRIPTS:
            connection.executescript(script)
        yield connection


def rows(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()


def everything(connection: sqlite3.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Give all that a mailbox holds, to compare."""
    return {table: rows(connection, table) for table in ("inbox", "outbox", "shown", "counter")}


def started_once(layout: Layout, session: SessionName) -> SessionFile:
    """Give a session its folder and file, as its first start does, unless it has them."""
    file = read_session_file(layout, session.key)
    if file is None:
        file = SessionFile(session)
        write_session_file(layout, file)
    return file


@contextmanager
def opened(layout: Layout, session: SessionName) -> Iterator[sqlite3.Connection]:
    """Open a session's mailbox under its lock, made where there is none."""
    with HeldLock.acquire(layout.mailbox_lock(session.key)):
        connection, _ = open_mailbox(layout, started_once(layout, session))
        with closing(connection):
            yield connection


@asynccontextmanager
async def mailbox_of(
    layout: Layout, session: SessionName, *, step: Step = no_step, health: Any = lambda _: None
) -> AsyncIterator[Mailbox]:
    """Hold a session's mailbox as its coordinator does."""
    with HeldLock.acquire(layout.mailbox_lock(session.key)):
        mailbox = Mailbox(layout, started_once(layout, session), health=health, step=step)
        try:
            await mailbox.open()
            yield mailbox
        finally:
            await mailbox.close()


def inside(layout: Layout, session: SessionName, work: Work[Any]) -> Any:
    """Look into the mailbox of a session that nobody has open."""
    with opened(layout, session) as connection:
        return work(connection)


def refused(error: HerdError) -> Work[Any]:
    """Give a transaction that is refused after it has written."""

    def work(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE counter SET value = value + 1000")
        raise error

    return work
