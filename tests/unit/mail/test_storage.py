"""The room of a mailbox: what is new is refused in time, and what is written later always finds room."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from herd.core.errors import QueueFull
from herd.core.limits import DEFAULT_LIMITS, RECEIPT_ROOM_BYTES
from herd.mail import acceptance, inbox, outbox, retention, storage
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, REPLIED
from tests.fakes.bounds import UNHURRIED
from tests.fakes.mail import (
    BOB,
    NOW,
    admission,
    envelope,
    everything,
    opened,
    outgoing,
    receipt,
    sender,
    tables,
)
from tests.fakes.records import layout_at, session_of

ROOM = 400_000
LIMITS = UNHURRIED._replace(inbox_messages=100_000, storage_bytes=ROOM)
Deed = Callable[[sqlite3.Connection, int, str], None]
LONGEST = "x" * 128
"""An id, or the name of evidence, of the greatest length."""


@pytest.fixture
def connection(home: Path) -> Iterator[sqlite3.Connection]:
    """Give a mailbox on a disk that has room for what the limit says and for not one page more."""
    with opened(layout_at(home), BOB) as mailbox:
        page = mailbox.execute("PRAGMA page_size").fetchone()[0]
        mailbox.execute(f"PRAGMA max_page_count = {ROOM // page}")
        yield mailbox


def take(connection: sqlite3.Connection, number: int, text: str) -> None:
    took = admission(inbox_messages=100_000, storage_bytes=ROOM)
    by = session_of(number % 7 + 10)
    message = envelope(f"{LONGEST[:100]}-{number}", text, by=by, topic="t" * 256, correlationId=LONGEST)
    acceptance.accept(connection, message, sender(by, "n" * 80), took)


def send(connection: sqlite3.Connection, number: int, text: str) -> None:
    outbox.enqueue(connection, outgoing(f"o{LONGEST[:100]}-{number}", text, topic="t" * 256), LIMITS)


def until_full(connection: sqlite3.Connection, text: str) -> tuple[int, int]:
    """Take messages in and send some, one transaction each, until neither goes; give how many did."""
    counts: dict[Deed, int] = {take: 0, send: 0}
    going: list[Deed] = [take, send]
    while going:
        for deed in list(going):
            before = everything(connection)
            connection.execute("BEGIN IMMEDIATE")
            refusal = refused(connection, deed, counts[deed], text)
            connection.execute("COMMIT")
            if refusal is None:
                counts[deed] += 1
            else:
                going.remove(deed)
                assert refusal.details["retry_after_ms"] > 0
                assert everything(connection) == before
    return counts[take], counts[send]


def refused(connection: sqlite3.Connection, deed: Deed, number: int, text: str) -> QueueFull | None:
    try:
        deed(connection, number, text)
    except QueueFull as refusal:
        return refusal
    return None


@pytest.mark.requirement("A-limits-06", "A-limits-20", "A-limits-19")
@pytest.mark.parametrize(
    "text", ["x", "x" * 1_024, "\u00e4" * (7_000 // 2)], ids=["tiny", "1 KiB", "longest"]
)
def test_a_full_mailbox_has_room_for_everything_that_is_still_to_be_written_in_it(connection, text):
    received, sent = until_full(connection, text)
    assert received > 5
    assert sent > 5
    assert storage.used(connection) + (received + sent) * RECEIPT_ROOM_BYTES <= ROOM

    for number in range(sent):
        message = f"o{LONGEST[:100]}-{number}"
        for state, more in (
            (ACCEPTED, {}),
            (DELIVERED, {"delivered_at": NOW}),
            (REPLIED, {"delivered_at": NOW, "replied_at": NOW}),
        ):
            row = outbox.record_receipt(
                connection, receipt(message, state, custody_id="c" * 64, **more), BOB.key, now_ms=NOW
            )
            assert row.receipt.state == state
    for number, row in enumerate(inbox.undelivered(connection)):
        inbox.count_handovers(connection, [row.sequence], NOW)
        if number % 2:
            (changed,) = inbox.confirm(connection, [row.sequence], LONGEST, NOW)
        else:
            changed = inbox.refuse(connection, row.sequence, "E" * 64, NOW)
        inbox.settle(connection, row.sequence, changed.receipt.cursor)

    retention.note_resolved(connection, admission().now)

    assert storage.unresolved(connection) == 0
    assert storage.used(connection) <= ROOM
    assert len(everything(connection)["inbox"]) == received
    assert len(everything(connection)["outbox"]) == sent


@pytest.mark.requirement("A-limits-06")
def test_what_is_known_is_answered_by_a_full_mailbox(connection):
    until_full(connection, "text")

    took = admission(inbox_messages=100_000, storage_bytes=ROOM)
    by = session_of(10)
    message = envelope(f"{LONGEST[:100]}-0", "text", by=by, topic="t" * 256, correlationId=LONGEST)
    assert not acceptance.accept(connection, message, sender(by), took).new
    assert (
        outbox.enqueue(
            connection, outgoing(f"o{LONGEST[:100]}-0", "text", topic="t" * 256), LIMITS
        ).receipt.state
        == PENDING
    )


def test_a_deleted_row_makes_room(connection):
    until_full(connection, "x" * 6_000)
    before = storage.used(connection)
    connection.execute("DELETE FROM outbox")

    assert storage.used(connection) < before - 6_000
    send(connection, 10_000, "x" * 6_000)


def test_a_mailbox_that_is_far_from_full_is_not_counted():
    with tables() as connection:
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        storage.require_room(connection, DEFAULT_LIMITS, 8_000)

    assert DEFAULT_LIMITS.storage_bytes == 10 * 1024 * 1024
    assert [one for one in asked if "count(*)" in one] == []


def test_counting_what_is_unresolved_reads_no_row():
    with tables() as connection:
        plans = [
            connection.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()[0][3]
            for query in (
                "SELECT count(*) FROM inbox WHERE state = 'accepted'",
                "SELECT count(*) FROM outbox WHERE state IN ('pending', 'accepted')",
                "SELECT * FROM outbox WHERE state = 'pending' AND state IN ('pending', 'accepted')",
            )
        ]

    assert all("inbox_waiting" in plan or "outbox_unresolved" in plan for plan in plans), plans
