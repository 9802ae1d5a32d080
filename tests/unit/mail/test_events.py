"""The journal: one entry for each change, with the state that was reached, in the same transaction."""

import sqlite3
from collections.abc import Iterator

import pytest

from herd.core.errors import InvalidParams
from herd.mail import acceptance, counter, events, inbox, outbox
from herd.mail.events import Event
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, REJECTED, REPLIED
from tests.fakes.mail import (
    ALICE,
    BOB,
    CUSTODY,
    NOW,
    admission,
    envelope,
    outgoing,
    receipt,
    sender,
    tables,
    target,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with tables() as opened:
        yield opened


def told(connection: sqlite3.Connection, cursor: int = 0) -> list[tuple[str, str, str]]:
    return [(one.kind, one.message_id, one.state) for one in events.after(connection, cursor, 100)]


@pytest.mark.requirement("A-events-04")
def test_each_state_of_a_sent_message_is_an_entry_and_none_that_was_not_reached(connection):
    row = outbox.enqueue(connection, outgoing("m-1", correlation_id="c-1"))
    assert told(connection) == []
    for state in (ACCEPTED, DELIVERED, ACCEPTED, REPLIED, REJECTED):  # two of them come late
        outbox.record_receipt(connection, receipt(state=state, outcome="X"), BOB.key, now_ms=NOW + 5)

    found = events.after(connection, 0, 100)
    assert [one.state for one in found] == [ACCEPTED, DELIVERED, REPLIED]
    assert {(one.kind, one.target, one.correlation_id, one.at) for one in found} == {
        ("receipt", row.recipient, "c-1", NOW + 5)
    }
    assert found[-1].cursor == outbox.required(connection, "m-1").receipt.cursor


def test_what_was_refused_taken_back_or_expired_is_an_entry(connection):
    for number in (1, 2):
        outbox.enqueue(connection, outgoing(f"m-{number}"))
    outbox.reject(connection, "m-1", "CANCELLED", NOW)
    outbox.expire(connection, "m-2", NOW)
    outbox.expire(connection, "m-1", NOW)

    assert told(connection) == [("receipt", "m-1", REJECTED), ("receipt", "m-2", EXPIRED)]
    assert events.after(connection, 0, 1)[0].outcome == "CANCELLED"


def test_mail_is_an_entry_when_it_comes_and_when_it_ends_undelivered(connection):
    for number in (1, 2, 3):
        acceptance.accept(connection, envelope(f"m-{number}", expiresInMs=5), sender(), admission())
    acceptance.accept(connection, envelope("m-1"), sender(), admission())
    inbox.confirm(connection, [1], "test", NOW)
    inbox.refuse(connection, 2, "ELIGIBILITY_DENIED", NOW)
    inbox.expire(connection, 3, NOW + 6)

    came = [("message", f"m-{number}", ACCEPTED) for number in (1, 2, 3)]
    assert told(connection) == [*came, ("message", "m-2", REJECTED), ("message", "m-3", EXPIRED)]
    (ended,) = events.expired_after(connection, 0, 10)
    assert (ended.message_id, ended.target, ended.at) == ("m-3", target(ALICE), NOW + 6)
    assert events.expired_after(connection, ended.cursor, 10) == []


def test_reading_on_gives_each_once_in_order(connection):
    for number in range(7):
        acceptance.accept(connection, envelope(f"m-{number}"), sender(), admission(CUSTODY))
    cursor, seen = 0, list[Event]()
    while some := events.after(connection, cursor, 3):
        seen += some
        cursor = some[-1].cursor

    assert [one.message_id for one in seen] == [f"m-{number}" for number in range(7)]


@pytest.mark.requirement("A-events-07")
def test_a_cursor_past_the_last_event_is_refused(connection):
    acceptance.accept(connection, envelope(), sender(), admission())
    last = counter.last_cursor(connection)

    assert events.require_cursor(connection, last) == last
    with pytest.raises(InvalidParams, match="past the last event"):
        events.require_cursor(connection, last + 1)


def test_what_is_older_than_retention_goes_from_the_oldest_on(connection):
    for number, now_ms in enumerate((NOW, NOW + 10, NOW + 20)):
        acceptance.accept(connection, envelope(f"m-{number}"), sender(), admission(now_ms=now_ms))
    events.prune(connection, NOW + 10, 1)
    assert [one.message_id for one in events.after(connection, 0, 9)] == ["m-1", "m-2"]
    events.prune(connection, NOW + 10, 9)

    assert [one.message_id for one in events.after(connection, 0, 9)] == ["m-2"]


def test_the_count_of_an_exchange_uses_an_index_however_much_mail_there_is(connection):
    for table in ("inbox", "outbox"):
        plan = connection.execute(
            f"EXPLAIN QUERY PLAN SELECT entered, depth FROM {table} WHERE correlation_id = 'x'"
            " AND message_id <> 'x' AND (depth > 0 OR reply_to IS NOT NULL)"
        ).fetchall()
        assert f"{table}_exchange" in str(plan)
