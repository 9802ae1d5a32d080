"""The inbox: accepted once, in the receiver's own order, delivered on evidence, owed until confirmed."""

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import CustodyChanged, MessageIdConflict, QueueFull
from herd.core.identity import peer_id_of
from herd.core.limits import DEFAULT_LIMITS, RETRY_WHEN_FULL_MS
from herd.mail import acceptance, inbox, outbox, shown
from herd.mail.inbox import Acceptance, Incoming, Sender
from herd.mail.receipts import ACCEPTED, DELIVERED, REJECTED, REPLIED, Receipt
from herd.mail.shown import Shown
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
    sender,
    tables,
    target,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with tables() as opened:
        yield opened


def accept(
    connection: sqlite3.Connection,
    message_id: str = "m-1",
    content: str = "hello",
    by: Sender | None = None,
    now_ms: int = NOW,
    **changes: Any,
) -> Acceptance:
    return acceptance.accept(
        connection,
        envelope(message_id, content, **changes),
        by or sender(),
        admission(CUSTODY, DEFAULT_LIMITS.inbox_messages, now_ms),
    )


def only(connection: sqlite3.Connection, message_id: str = "m-1") -> Incoming:
    (row,) = inbox.by_id(connection, message_id)
    return row


def handed_over(connection: sqlite3.Connection, message_id: str = "m-1") -> Incoming:
    inbox.count_handovers(connection, [only(connection, message_id).sequence], NOW)
    return only(connection, message_id)


# --- acceptance ------------------------------------------------------------------------------------


def test_an_accepted_message_has_a_receipt_of_this_custody(connection):
    acceptance = accept(connection)

    assert acceptance.new
    assert acceptance.receipt == Receipt("m-1", target(BOB), CUSTODY, ACCEPTED, 1, accepted_at=NOW)


def test_an_accepted_message_is_kept_whole(connection):
    changes: dict[str, Any] = {
        "topic": "build",
        "replyTo": "m-0",
        "correlationId": "m-0",
        "conversation": {"id": "c-1", "depth": 3},
        "noReplyNeeded": True,
    }
    outbox.enqueue(connection, outgoing("m-0", to=ALICE))
    accept(connection, content="a\0b\u6f22\r\n\x1b", **changes)

    row = only(connection)

    assert row.content == "a\0b\u6f22\r\n\x1b"
    assert (row.topic, row.reply_to, row.correlation_id) == ("build", "m-0", "m-0")
    assert (row.conversation_id, row.depth, row.no_reply_needed) == ("c-1", 3, True)
    assert row.sender == sender()
    assert (row.handovers, row.evidence, row.owed) == (0, None, True)


@pytest.mark.requirement("A-custody-05")
def test_a_message_that_comes_again_gets_the_first_receipt_and_adds_nothing(connection):
    first = accept(connection)
    before = everything(connection)

    again = accept(connection, now_ms=NOW + 1_000)

    assert again == Acceptance(first.receipt, new=False)
    assert everything(connection) == before


def test_a_message_that_comes_again_late_is_told_how_far_it_has_come(connection):
    accept(connection)
    inbox.confirm(connection, [handed_over(connection).sequence], "hook", NOW + 5)

    again = accept(connection)

    assert (again.receipt.state, again.receipt.delivered_at, again.new) == (DELIVERED, NOW + 5, False)


@pytest.mark.requirement("A-custody-06", "A-methods-15")
@pytest.mark.parametrize(
    "changes",
    [
        {"createdAt": 0},
        {"createdAt": NOW + 10**9},
        {"noReplyNeeded": True},
        {"conversation": {"id": "other", "depth": 7}},
        {"custodyId": CUSTODY},
    ],
)
def test_a_retry_with_other_labels_is_the_same_message(connection, changes):
    accept(connection)

    assert not accept(connection, by=sender(name="renamed"), **changes).new
    assert len(inbox.undelivered(connection)) == 1


@pytest.mark.requirement("A-custody-06", "A-errors-27")
@pytest.mark.parametrize(
    "changes", [{"content": "other"}, {"topic": "t"}, {"replyTo": "m-0"}, {"correlationId": "m-0"}]
)
def test_a_known_id_with_other_content_is_a_conflict_and_the_first_message_stands(connection, changes):
    accept(connection)
    before = everything(connection)

    with pytest.raises(MessageIdConflict):
        accept(connection, **{"content": "hello", **changes})

    assert everything(connection) == before


@pytest.mark.requirement("A-errors-27")
def test_one_id_from_two_senders_or_to_two_recipients_is_no_conflict(connection):
    exact = peer_id_of("instance-1")

    assert accept(connection).new
    assert accept(connection, content="other", by=sender(CAROL)).new
    assert accept(connection, content="more", to=exact).new
    assert [row.content for row in inbox.by_id(connection, "m-1")] == ["hello", "other", "more"]


@pytest.mark.requirement("A-custody-18")
def test_a_message_that_may_lie_in_another_custody_is_not_taken(connection):
    accept(connection, "m-0")
    before = everything(connection)

    with pytest.raises(CustodyChanged):
        accept(connection, custodyId="another")

    assert everything(connection) == before
    assert accept(connection, custodyId=CUSTODY).new


@pytest.mark.requirement("A-custody-18")
def test_even_a_known_message_is_not_answered_for_another_custody(connection):
    accept(connection)

    with pytest.raises(CustodyChanged):
        accept(connection, custodyId="another")


def filled(connection: sqlite3.Connection) -> None:
    for number in range(DEFAULT_LIMITS.inbox_messages):
        accept(connection, f"m-{number}", str(number))


@pytest.mark.requirement("A-limits-03", "A-limits-19", "A-limits-21")
def test_the_33rd_message_is_refused_with_a_time_to_come_back_and_nothing_makes_room_for_it(connection):
    filled(connection)
    before = everything(connection)

    with pytest.raises(QueueFull) as caught:
        accept(connection, "m-33")

    assert caught.value.details["retry_after_ms"] == RETRY_WHEN_FULL_MS
    assert everything(connection) == before
    assert len(before["inbox"]) == 32


@pytest.mark.requirement("A-custody-07")
def test_a_full_inbox_answers_what_it_knows(connection):
    filled(connection)

    assert accept(connection, "m-7", "7") == Acceptance(
        only(connection, "m-7").receipt._replace(custody_id=CUSTODY), new=False
    )
    with pytest.raises(MessageIdConflict):
        accept(connection, "m-7", "eight")


def test_delivering_one_makes_room_for_one(connection):
    filled(connection)
    inbox.confirm(connection, [handed_over(connection, "m-5").sequence], "hook", NOW)

    assert inbox.waiting(connection) == 31
    assert accept(connection, "m-33").new
    with pytest.raises(QueueFull):
        accept(connection, "m-34")


def test_messages_that_were_rejected_at_delivery_leave_room_too(connection):
    filled(connection)
    inbox.refuse(connection, only(connection, "m-5").sequence, "ELIGIBILITY_DENIED", NOW)

    assert accept(connection, "m-33").new


@pytest.mark.requirement("A-order-04", "A-methods-15")
def test_the_order_is_that_of_acceptance_whatever_the_messages_say_of_their_time(connection):
    for number, created in enumerate([5, 3, 9, 0]):
        accept(connection, f"m-{number}", by=sender(ALICE if number % 2 else CAROL), createdAt=created)

    waiting = inbox.undelivered(connection)

    assert [row.message_id for row in waiting] == ["m-0", "m-1", "m-2", "m-3"]
    assert [row.sequence for row in waiting] == [1, 2, 3, 4]


@pytest.mark.requirement("A-order-04")
def test_a_sequence_is_never_given_twice_and_refusals_take_none(connection):
    accept(connection)
    with pytest.raises(MessageIdConflict):
        accept(connection, content="other")
    connection.execute("BEGIN")
    accept(connection, "m-2")
    connection.execute("ROLLBACK")
    accept(connection, "m-3")
    connection.execute("DELETE FROM inbox WHERE message_id = 'm-3'")

    accept(connection, "m-4")

    assert [row.sequence for row in inbox.undelivered(connection)] == [1, 3]


def test_whoever_wrote_to_a_session_may_be_answered_by_it(connection):
    accept(connection, by=sender(ALICE, "api-worker"))

    assert shown.find(connection, target(ALICE)) == Shown(target(ALICE), ALICE.key, "api-worker")


def test_a_refused_sender_was_not_shown(connection):
    with pytest.raises(CustodyChanged):
        accept(connection, custodyId="another")

    assert shown.every(connection) == {}


def test_a_message_is_found_by_sender_id_and_exact_recipient(connection):
    accept(connection)

    assert inbox.find(connection, ALICE.key, "m-1", target(BOB)) == only(connection)
    assert inbox.find(connection, CAROL.key, "m-1", target(BOB)) is None
    assert inbox.find(connection, ALICE.key, "m-2", target(BOB)) is None
    assert inbox.find(connection, ALICE.key, "m-1", target(CAROL)) is None


# --- hand-over and evidence ------------------------------------------------------------------------


def test_handing_over_is_counted_and_delivers_nothing(connection):
    accept(connection)
    before = only(connection)

    row = handed_over(connection)

    assert row == before._replace(handovers=1)
    assert row.receipt.state == ACCEPTED


def test_a_second_hand_over_without_evidence_is_the_last_that_nobody_asks_for(connection):
    accept(connection)
    allowed = [inbox.may_be_handed_over(only(connection))]
    allowed += [inbox.may_be_handed_over(handed_over(connection)) for _ in range(3)]

    assert allowed == [True, True, False, False]
    assert only(connection).receipt.state == ACCEPTED


def test_evidence_delivers_once_and_is_kept(connection):
    accept(connection)
    number = handed_over(connection).sequence

    (changed,) = inbox.confirm(connection, [number], "hook 7", NOW + 5)

    assert changed == only(connection)
    assert (changed.receipt.state, changed.receipt.delivered_at, changed.evidence) == (
        DELIVERED,
        NOW + 5,
        "hook 7",
    )
    assert changed.receipt.cursor == 2
    assert inbox.undelivered(connection) == []
    assert not inbox.may_be_handed_over(changed)


@pytest.mark.requirement("A-receipts-04")
def test_evidence_that_comes_again_changes_nothing_and_is_no_event(connection):
    accept(connection)
    number = handed_over(connection).sequence
    inbox.confirm(connection, [number], "hook", NOW + 5)
    before = everything(connection)

    assert inbox.confirm(connection, [number, number], "reply", NOW + 9) == []
    assert everything(connection) == before


def test_evidence_for_what_is_not_there_changes_nothing(connection):
    assert inbox.confirm(connection, [1, 2], "hook", NOW) == []
    assert inbox.refuse(connection, 1, "ELIGIBILITY_DENIED", NOW) is None


@pytest.mark.requirement("A-receipts-08")
def test_a_denial_at_delivery_rejects_and_names_its_code(connection):
    accept(connection)

    changed = inbox.refuse(connection, only(connection).sequence, "ELIGIBILITY_DENIED", NOW + 5)

    assert changed == only(connection)
    assert changed.receipt == Receipt(
        "m-1", target(BOB), None, REJECTED, 2, accepted_at=NOW, outcome="ELIGIBILITY_DENIED"
    )
    assert inbox.undelivered(connection) == []


@pytest.mark.requirement("A-receipts-03")
@pytest.mark.parametrize("state", [DELIVERED, REPLIED])
def test_nothing_rejects_what_was_delivered(connection, state):
    accept(connection)
    connection.execute("UPDATE inbox SET state = ?", (state,))
    before = everything(connection)

    assert inbox.refuse(connection, 1, "ELIGIBILITY_DENIED", NOW) is None
    assert everything(connection) == before


def test_nothing_delivers_what_was_rejected(connection):
    accept(connection)
    inbox.refuse(connection, 1, "ELIGIBILITY_DENIED", NOW)

    assert inbox.confirm(connection, [1], "hook", NOW) == []
    assert only(connection).receipt.state == REJECTED


# --- receipts owed ---------------------------------------------------------------------------------


def test_every_accepted_message_owes_its_sender_a_receipt(connection):
    accept(connection, "m-1")
    accept(connection, "m-2", by=sender(CAROL))

    assert [row.message_id for row in inbox.owed(connection)] == ["m-1", "m-2"]
    assert [row.message_id for row in inbox.owed(connection, CAROL.key)] == ["m-2"]
    assert inbox.owed(connection, BOB.key) == []


def test_what_is_owed_comes_in_the_order_of_the_changes(connection):
    for number in range(3):
        accept(connection, f"m-{number}")
    inbox.confirm(connection, [1], "hook", NOW)

    assert [row.message_id for row in inbox.owed(connection, ALICE.key)] == ["m-1", "m-2", "m-0"]


def test_a_confirmed_receipt_is_owed_no_more_until_it_changes(connection):
    accept(connection)
    inbox.settle(connection, 1, only(connection).receipt.cursor)
    assert inbox.owed(connection) == []

    inbox.confirm(connection, [1], "hook", NOW)

    assert [row.receipt.state for row in inbox.owed(connection)] == [DELIVERED]


def test_a_confirmation_of_an_older_receipt_leaves_the_newer_one_owed(connection):
    accept(connection)
    older = only(connection).receipt.cursor
    inbox.confirm(connection, [1], "hook", NOW)

    inbox.settle(connection, 1, older)

    assert [row.receipt.state for row in inbox.owed(connection)] == [DELIVERED]


# --- any history -----------------------------------------------------------------------------------

ACTIONS = st.tuples(
    st.sampled_from(["accept", "other content", "hand over", "confirm", "refuse", "settle"]),
    st.integers(0, 3),
)


@pytest.mark.requirement("A-custody-05", "A-receipts-03")
@given(st.lists(ACTIONS, max_size=30))
def test_in_any_history_each_message_is_there_once_in_order_and_its_state_only_rises(
    actions: list[tuple[str, int]],
):
    ranks = {ACCEPTED: 0, DELIVERED: 1, REJECTED: 1}
    accepted: list[str] = []
    with tables() as connection:
        for action, number in actions:
            before = {row.message_id: row for name in accepted for row in inbox.by_id(connection, name)}
            cursor = connection.execute("SELECT value FROM counter").fetchone()[0]
            act(connection, action, number, accepted)
            after = {row.message_id: row for name in accepted for row in inbox.by_id(connection, name)}
            for name, row in before.items():
                now = after[name]
                assert (now.sequence, now.content, now.digest) == (row.sequence, row.content, row.digest)
                assert now.receipt.state == row.receipt.state or (
                    ranks[now.receipt.state] > ranks[row.receipt.state] and now.receipt.cursor > cursor
                )
        held = [row[0] for row in connection.execute("SELECT message_id FROM inbox ORDER BY sequence")]
        cursors = [row[0] for row in connection.execute("SELECT cursor FROM inbox")]
    assert held == accepted
    assert len(set(cursors)) == len(cursors)


def act(connection: sqlite3.Connection, action: str, number: int, accepted: list[str]) -> None:
    name = f"m-{number}"
    match action:
        case "accept" | "other content":
            with suppress(MessageIdConflict):
                if accept(connection, name, "hello" if action == "accept" else "other").new:
                    accepted.append(name)
        case "hand over":
            inbox.count_handovers(connection, [number], NOW)
        case "confirm":
            inbox.confirm(connection, [number], "hook", NOW)
        case "refuse":
            inbox.refuse(connection, number, "ELIGIBILITY_DENIED", NOW)
        case "settle":
            inbox.settle(connection, number, number)
