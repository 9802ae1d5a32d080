"""Receipts: the whole table, and that no order, delay or repetition of what is told makes a status less."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.mail.receipts import (
    ACCEPTED,
    DELIVERED,
    EXPIRED,
    MEANINGS,
    NEXT,
    PENDING,
    REJECTED,
    REPLIED,
    TOLD,
    UNKNOWN,
    Receipt,
    advanced,
    merged,
)

STATES = ("pending", "accepted", "delivered", "replied", "rejected", "expired", "unknown")
FINAL = ("replied", "rejected", "expired")

ALLOWED = {
    ("pending", "unknown"),
    *((before, after) for before in ("pending", "unknown") for after in STATES[1:6]),
    ("accepted", "delivered"),
    ("accepted", "replied"),
    ("accepted", "rejected"),
    ("accepted", "expired"),
    ("delivered", "replied"),
}
"""Every step there is, written out once more."""

PENDING_ROW = Receipt("m-1", "lead:0000000000", None, PENDING, 3)
TIMES = {"accepted_at": 10, "delivered_at": 20, "replied_at": 30}


def told(state: str, **changes: Any) -> Receipt:
    """Give a receipt as a custody tells it in that state, with the time of each step reached."""
    steps = {
        ACCEPTED: ["accepted_at"],
        DELIVERED: ["accepted_at", "delivered_at"],
        REPLIED: ["accepted_at", "delivered_at", "replied_at"],
        REJECTED: ["accepted_at"],
    }.get(state, [])
    code = {REJECTED: "ELIGIBILITY_DENIED", EXPIRED: "EXPIRED"}.get(state)
    whole = Receipt("m-1", "lead:0000000000", "custody", state, 77, outcome=code)
    reached: dict[str, Any] = {step: TIMES[step] for step in steps}
    return whole._replace(**reached)._replace(**changes)


@pytest.mark.requirement("A-receipts-01")
def test_a_message_has_one_of_seven_states_and_each_says_what_it_claims():
    assert set(NEXT) == set(STATES) == set(MEANINGS)
    assert all(after <= set(STATES) for after in NEXT.values())


def test_the_table_allows_exactly_the_steps_there_are():
    assert {(before, after) for before, states in NEXT.items() for after in states} == ALLOWED


@pytest.mark.requirement("A-receipts-02", "A-receipts-03")
@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
def test_a_receipt_changes_a_status_only_by_a_step_of_the_table(before: str, after: str):
    current, incoming = told(before, cursor=3), told(after)

    known = merged(current, incoming)

    if (before, after) in ALLOWED:
        assert known.state == after
    else:
        assert known is current


@pytest.mark.parametrize("after", STATES)
@pytest.mark.parametrize("before", STATES)
def test_a_step_of_our_own_obeys_the_same_table(before: str, after: str):
    current = told(before, cursor=3)

    known = advanced(current, after, 99, "A_CODE")

    if (before, after) in ALLOWED:
        assert (known.state, known.outcome) == (after, "A_CODE")
    else:
        assert known is current


@pytest.mark.parametrize(("state", "step"), [(ACCEPTED, 2), (DELIVERED, 3), (REPLIED, 4)])
def test_a_step_of_our_own_has_its_time_and_leaves_the_others(state: str, step: int):
    known = advanced(PENDING_ROW, state, 99)

    times = [known.accepted_at, known.delivered_at, known.replied_at]
    assert times[step - 2] == 99
    assert [time for time in times if time is not None] == [99]


@pytest.mark.parametrize("state", [REJECTED, EXPIRED, UNKNOWN])
def test_a_step_that_is_no_progress_has_no_time(state: str):
    known = advanced(told(PENDING), state, 99, "A_CODE")

    assert (known.accepted_at, known.delivered_at, known.replied_at) == (None, None, None)


def test_what_names_the_message_stays_whatever_the_receipt_says():
    incoming = told(ACCEPTED, message_id="other", to="lead:9999999999")

    known = merged(PENDING_ROW, incoming)

    assert (known.message_id, known.to, known.cursor) == ("m-1", "lead:0000000000", 3)
    assert known.custody_id == "custody"


def test_a_custody_once_known_is_not_forgotten():
    known = merged(told(ACCEPTED, cursor=3), told(DELIVERED, custody_id=None))

    assert known.custody_id == "custody"


@pytest.mark.parametrize("first", [10, 0])
def test_the_first_time_of_a_step_stands(first: int):
    known = merged(told(ACCEPTED, accepted_at=first), told(DELIVERED, accepted_at=5_000))

    assert (known.accepted_at, known.delivered_at) == (first, 20)


def test_a_state_that_is_the_senders_own_is_told_by_no_custody():
    assert set(TOLD) == set(STATES) - {"pending", "unknown"}


@pytest.mark.requirement("A-receipts-02", "A-receipts-03")
@given(st.lists(st.sampled_from(STATES), max_size=12))
def test_no_order_delay_or_repetition_makes_a_status_less(states: list[str]):
    known = PENDING_ROW
    for state in states:
        before, known = known, merged(known, told(state))
        if before.state in FINAL:
            assert known is before
        if before.state == DELIVERED:
            assert known.state in {DELIVERED, REPLIED}
        if before.state == ACCEPTED:
            assert known.state not in {PENDING, UNKNOWN}
        for step in TIMES:
            reached = getattr(before, step)
            assert reached is None or getattr(known, step) == reached
        assert merged(known, told(state)) is known, "told once more, it changes nothing"


@pytest.mark.requirement("A-receipts-02")
@given(
    st.data(), st.sampled_from([(ACCEPTED, DELIVERED, REPLIED), (ACCEPTED, DELIVERED), (ACCEPTED, REJECTED)])
)
def test_whatever_the_order_the_last_word_of_a_custody_is_what_is_known(
    data: st.DataObject, history: tuple[str, ...]
):
    sent = data.draw(st.lists(st.sampled_from(history), min_size=1, max_size=10))
    order = data.draw(st.permutations([*history, *sent]))

    known = PENDING_ROW
    for state in order:
        known = merged(known, told(state))

    assert known == told(history[-1], cursor=3)
