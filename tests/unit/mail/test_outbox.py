"""The outbox: a message is there once, what is known of it only grows, and only its recipient tells it."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import InvalidReply, MessageIdConflict, ScopeDenied, UnknownTarget
from herd.mail import acceptance, outbox
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, PENDING, REJECTED, REPLIED, Receipt
from herd.mail.wire import read_envelope
from tests.fakes.mail import (
    ALICE,
    BOB,
    CAROL,
    CUSTODY,
    NOW,
    admission,
    envelope,
    everything,
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


# --- a message enters ------------------------------------------------------------------------------


def test_a_new_message_is_pending_and_whole(connection):
    row = outbox.enqueue(
        connection, outgoing(content="a\0b\u6f22", topic="build", no_reply_needed=True, depth=2)
    )

    assert row == outbox.find(connection, "m-1")
    assert row.receipt == Receipt("m-1", target(BOB), None, PENDING, 1)
    assert (row.content, row.topic, row.no_reply_needed, row.depth) == ("a\0b\u6f22", "build", True, 2)
    assert row.sender == sender()._asdict()
    assert row.route == target(BOB)


def test_a_stored_message_travels_as_an_envelope_that_any_receiver_reads(connection):
    row = outbox.enqueue(connection, outgoing(topic="build", reply_to="m-0", correlation_id="m-0"))

    sent = row.envelope().to_wire()

    assert read_envelope(sent).to_wire() == sent
    assert "custodyId" not in sent
    assert (sent["from"], sent["to"]) == ({"session": target(ALICE)}, target(BOB))


def test_the_same_call_made_again_is_the_same_row(connection):
    first = outbox.enqueue(connection, outgoing())
    before = everything(connection)

    again = outbox.enqueue(connection, outgoing(created_at=NOW + 5_000, no_reply_needed=True, position=9))

    assert again == first
    assert everything(connection) == before


def test_the_same_call_made_again_late_tells_how_far_the_message_has_come(connection):
    outbox.enqueue(connection, outgoing())
    outbox.record_receipt(connection, receipt(state=DELIVERED), BOB.key, now_ms=NOW)

    assert outbox.enqueue(connection, outgoing()).receipt.state == DELIVERED


@pytest.mark.requirement("A-errors-27")
@pytest.mark.parametrize(
    "other",
    [
        outgoing(content="other"),
        outgoing(topic="t"),
        outgoing(reply_to="m-0", correlation_id="m-0"),
        outgoing(to=CAROL),
        outgoing(recipient="peer-" + "0" * 32),
    ],
)
def test_a_known_id_with_other_content_or_recipient_is_a_conflict(connection, other):
    outbox.enqueue(connection, outgoing())
    before = everything(connection)

    with pytest.raises(MessageIdConflict):
        outbox.enqueue(connection, other)

    assert everything(connection) == before


def test_pending_messages_come_in_the_order_of_sending_whatever_their_clock_said(connection):
    for number, created in enumerate([9, 1, 5]):
        outbox.enqueue(connection, outgoing(f"m-{number}", created_at=created))
    outbox.reject(connection, "m-1", "SCOPE_DENIED", NOW)

    assert [row.message_id for row in outbox.pending(connection)] == ["m-0", "m-2"]


def test_what_was_never_sent_is_unknown_and_the_hint_says_which_id_to_use(connection):
    assert outbox.find(connection, "m-1") is None
    with pytest.raises(UnknownTarget) as caught:
        outbox.required(connection, "x" * 5_000)

    assert "message_id" in caught.value.next_step
    assert len(caught.value.message) < 300


# --- receipts --------------------------------------------------------------------------------------


def test_a_receipt_of_the_recipient_is_learnt_with_its_custody(connection):
    outbox.enqueue(connection, outgoing())

    row = outbox.record_receipt(connection, receipt(cursor=99), BOB.key, now_ms=NOW)

    assert row == outbox.find(connection, "m-1")
    assert row.receipt == Receipt("m-1", target(BOB), CUSTODY, ACCEPTED, 2, accepted_at=NOW)
    assert row.custody_id == CUSTODY
    assert outbox.pending(connection) == []


@pytest.mark.requirement("A-custody-18")
def test_what_is_sent_again_goes_to_the_custody_that_was_known_first(connection):
    outbox.enqueue(connection, outgoing(custody_id=CUSTODY))

    assert outbox.required(connection, "m-1").envelope().to_wire()["custodyId"] == CUSTODY


@pytest.mark.requirement("A-methods-10")
@pytest.mark.parametrize(
    ("told", "by"),
    [
        (receipt(), CAROL.key),
        (receipt(), ALICE.key),
        (receipt(to=target(CAROL)), BOB.key),
        (receipt("m-2"), BOB.key),
        (receipt("m-2"), CAROL.key),
    ],
)
def test_nobody_but_the_recipient_can_change_a_row(connection, told, by):
    outbox.enqueue(connection, outgoing())
    before = everything(connection)

    with pytest.raises(ScopeDenied):
        outbox.record_receipt(connection, told, by, now_ms=NOW)

    assert everything(connection) == before


@pytest.mark.requirement("A-custody-18")
def test_a_receipt_of_another_custody_than_the_known_one_changes_nothing(connection):
    outbox.enqueue(connection, outgoing(custody_id=CUSTODY))
    before = everything(connection)

    with pytest.raises(ScopeDenied):
        outbox.record_receipt(connection, receipt(custody_id="another"), BOB.key, now_ms=NOW)

    assert everything(connection) == before


@pytest.mark.requirement("A-receipts-04")
def test_each_change_is_an_event_and_a_repeated_receipt_is_none(connection):
    outbox.enqueue(connection, outgoing())
    cursors = []
    for state in (ACCEPTED, ACCEPTED, DELIVERED, ACCEPTED, DELIVERED, REPLIED, REPLIED):
        row = outbox.record_receipt(connection, receipt(state=state), BOB.key, now_ms=NOW)
        cursors.append(row.receipt.cursor)

    assert cursors == [2, 2, 3, 3, 3, 4, 4]
    assert connection.execute("SELECT value FROM counter").fetchone()[0] == 4


@pytest.mark.requirement("A-receipts-02", "A-receipts-03")
@pytest.mark.parametrize("late", [ACCEPTED, REJECTED, EXPIRED])
@pytest.mark.parametrize("state", [DELIVERED, REPLIED])
def test_a_late_receipt_changes_nothing_that_is_delivered_or_replied(connection, state, late):
    outbox.enqueue(connection, outgoing())
    outbox.record_receipt(connection, receipt(state=state, delivered_at=NOW + 1), BOB.key, now_ms=NOW)
    before = everything(connection)

    row = outbox.record_receipt(connection, receipt(state=late, outcome="SCOPE_DENIED"), BOB.key, now_ms=NOW)

    assert row.receipt.state == state
    assert everything(connection) == before


@pytest.mark.requirement("A-receipts-08")
def test_a_definitive_refusal_rejects_with_its_code(connection):
    outbox.enqueue(connection, outgoing())

    row = outbox.reject(connection, "m-1", "SCOPE_DENIED", NOW)

    assert row == outbox.find(connection, "m-1")
    assert (row.receipt.state, row.receipt.outcome) == (REJECTED, "SCOPE_DENIED")
    assert row.receipt.accepted_at is None


@pytest.mark.requirement("A-receipts-03")
@pytest.mark.parametrize("state", [ACCEPTED, DELIVERED, REPLIED, REJECTED, EXPIRED])
def test_a_refusal_of_an_earlier_attempt_undoes_nothing_that_is_known(connection, state):
    outbox.enqueue(connection, outgoing())
    outbox.record_receipt(connection, receipt(state=state, outcome="FIRST"), BOB.key, now_ms=NOW)
    before = everything(connection)

    row = outbox.reject(connection, "m-1", "LATER", NOW)

    assert row.receipt.state == state
    assert everything(connection) == before


@pytest.mark.requirement("A-receipts-03")
def test_the_recipients_own_denial_at_delivery_rejects_what_was_accepted(connection):
    outbox.enqueue(connection, outgoing())
    outbox.record_receipt(connection, receipt(), BOB.key, now_ms=NOW)

    denied = receipt(state=REJECTED, outcome="ELIGIBILITY_DENIED")
    row = outbox.record_receipt(connection, denied, BOB.key, now_ms=NOW)

    assert (row.receipt.state, row.receipt.outcome) == (REJECTED, "ELIGIBILITY_DENIED")
    assert row.receipt.accepted_at == NOW


def test_refusing_what_was_never_sent_is_refused(connection):
    with pytest.raises(UnknownTarget):
        outbox.reject(connection, "m-1", "SCOPE_DENIED", NOW)


def test_changes_come_in_the_order_in_which_they_happened_and_no_more_than_asked(connection):
    for number in range(4):
        outbox.enqueue(connection, outgoing(f"m-{number}"))
    for number in (2, 0, 1):
        outbox.record_receipt(connection, receipt(f"m-{number}"), BOB.key, now_ms=NOW)

    assert [row.message_id for row in outbox.changed_after(connection, 0, 50)] == ["m-2", "m-0", "m-1"]
    assert [row.message_id for row in outbox.changed_after(connection, 0, 2)] == ["m-2", "m-0"]
    last = outbox.changed_after(connection, 0, 2)[-1].receipt.cursor
    assert [row.message_id for row in outbox.changed_after(connection, last, 50)] == ["m-1"]


@given(st.permutations([ACCEPTED, DELIVERED, REPLIED, REJECTED, ACCEPTED, DELIVERED]), st.integers(0, 6))
def test_whatever_comes_in_whatever_order_the_row_keeps_the_furthest_step_that_was_allowed(
    states: list[str], refused_after: int
):
    rank = [PENDING, ACCEPTED, DELIVERED, REPLIED]
    with tables() as connection:
        outbox.enqueue(connection, outgoing())
        known = PENDING
        for number, state in enumerate(states):
            if number == refused_after:
                outbox.reject(connection, "m-1", "A_CODE", NOW)
                known = REJECTED if known == PENDING else known
            row = outbox.record_receipt(
                connection, receipt(state=state, outcome="A_CODE"), BOB.key, now_ms=NOW
            )
            if state == REJECTED:
                known = REJECTED if known in {PENDING, ACCEPTED} else known
            elif known != REJECTED and rank.index(state) > rank.index(known):
                known = state
            assert row.receipt.state == known


# --- answers ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-reply-01")
def test_an_answer_takes_over_the_correlation_and_conversation_of_what_it_answers(connection):
    asked = envelope("m-7", correlationId="m-5", conversation={"id": "c-1", "depth": 4})
    acceptance.accept(connection, asked, sender(ALICE), admission(CUSTODY, 32, NOW))

    assert outbox.require_reply(connection, "m-7", ALICE.key) == ("m-5", "c-1", 4)


@pytest.mark.parametrize(
    ("message_id", "key"), [("m-7", CAROL.key), ("m-8", ALICE.key), ("x" * 999, BOB.key)]
)
def test_only_a_message_that_came_from_that_very_session_can_be_answered(connection, message_id, key):
    acceptance.accept(connection, envelope("m-7"), sender(ALICE), admission(CUSTODY, 32, NOW))

    with pytest.raises(InvalidReply):
        outbox.require_reply(connection, message_id, key)
