"""The rate of one sender: a burst, then so many a second, whoever counts and whatever it remembers."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import RateLimited
from herd.core.limits import DEFAULT_LIMITS, RATE_ROWS, RATE_SENDERS
from herd.core.moments import Moment
from herd.mail import inbox
from herd.mail.inbox import Admission
from herd.mail.rates import Bucket, Rates, filled, missing_ms, replayed
from herd.mail.together import accept_in_order
from tests.fakes.mail import ALICE, CAROL, CUSTODY, NOW, envelope, everything, sender, tables

LIMITS = DEFAULT_LIMITS._replace(inbox_messages=1_000)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with tables() as opened:
        yield opened


def at(ms: int, boot: str = "a-boot") -> Moment:
    return Moment(boot, ms, NOW + ms)


def refused(rates: Rates, connection: sqlite3.Connection, key: str, now: Moment) -> int:
    with pytest.raises(RateLimited) as caught:
        rates.take(connection, key, now)
    return int(caught.value.details["retry_after_ms"])


def burst(rates: Rates, connection: sqlite3.Connection, key: str, now: Moment, count: int = 20) -> None:
    for _ in range(count):
        rates.take(connection, key, now)


@pytest.mark.requirement("A-limits-08", "A-errors-12")
def test_the_21st_message_of_one_instant_is_refused_and_no_other_sender_notices(connection):
    assert (DEFAULT_LIMITS.rate_burst, DEFAULT_LIMITS.rate_per_second) == (20, 10)
    rates = Rates(LIMITS)
    burst(rates, connection, "alice", at(0))

    assert refused(rates, connection, "alice", at(0)) == 100
    burst(rates, connection, "carol", at(0))


@pytest.mark.requirement("A-limits-07", "A-limits-22")
def test_a_token_comes_back_when_it_was_said_to_and_not_before(connection):
    rates = Rates(LIMITS)
    burst(rates, connection, "alice", at(0))

    assert refused(rates, connection, "alice", at(30)) == 70
    assert refused(rates, connection, "alice", at(99)) == 1
    rates.take(connection, "alice", at(100))
    assert refused(rates, connection, "alice", at(100)) == 100
    burst(rates, connection, "alice", at(1_100), count=10)
    assert refused(rates, connection, "alice", at(1_100)) == 100


@pytest.mark.requirement("A-limits-07")
def test_a_quiet_sender_gets_a_burst_and_no_more(connection):
    rates = Rates(LIMITS)
    burst(rates, connection, "alice", at(0))
    burst(rates, connection, "alice", at(3_600_000))

    assert refused(rates, connection, "alice", at(3_600_000)) == 100


@given(
    rate=st.integers(1, 5_000),
    burst_of=st.integers(1, 50),
    pauses=st.lists(st.integers(0, 3_000), max_size=80),
)
def test_no_span_holds_more_than_a_burst_and_its_share_and_waiting_as_told_always_helps(
    rate, burst_of, pauses
):
    limits = LIMITS._replace(rate_per_second=rate, rate_burst=burst_of)
    bucket, now, taken = Bucket(0), 0, []
    for pause in pauses:
        now += pause
        bucket = filled(bucket, at(now), limits)
        wait = missing_ms(bucket, limits)
        if wait:
            assert missing_ms(filled(bucket, at(now + wait), limits), limits) == 0
            assert missing_ms(filled(bucket, at(now + wait - 1), limits), limits) == 1
        else:
            bucket = bucket._replace(level=bucket.level - 1_000)
            taken.append(now)
    for first, begin in enumerate(taken):
        for last, end in enumerate(taken[first:], first):
            assert last - first + 1 <= burst_of + (end - begin) * rate / 1_000


def test_the_wall_clock_moves_nothing_within_a_boot_and_a_step_back_gives_nothing():
    whole = filled(Bucket(0), at(0), LIMITS)._replace(level=0)

    assert missing_ms(filled(whole, Moment("a-boot", 50, 0), LIMITS), LIMITS) == 50
    assert missing_ms(filled(whole, Moment("a-boot", 50, NOW * 2), LIMITS), LIMITS) == 50
    assert missing_ms(filled(whole, Moment("another", 50, NOW - 5), LIMITS), LIMITS) == 100
    assert missing_ms(filled(whole, Moment("another", 0, NOW + 50), LIMITS), LIMITS) == 50


def test_what_was_taken_is_known_again_from_its_moments():
    assert replayed([], LIMITS) == Bucket(0)
    assert replayed([at(0)] * 20, LIMITS).level == 0
    assert replayed([at(0)] * 20 + [at(1_000)] * 4, LIMITS).level == 6_000


# --- in a mailbox ------------------------------------------------------------------------------------


def admission(now: Moment, rates: Rates | None = None) -> Admission:
    return Admission(CUSTODY, LIMITS, now, rates=rates)


def several(connection: sqlite3.Connection, first: int, count: int, now: Moment, rates: Rates | None = None):
    envelopes = [envelope(f"m-{number}") for number in range(first, first + count)]
    return accept_in_order(connection, envelopes, sender(), admission(now, rates))


@pytest.mark.requirement("A-limits-08", "A-limits-22")
@pytest.mark.parametrize("counted", [True, False], ids=["remembered", "from the rows"])
def test_messages_that_come_together_are_cut_at_the_first_without_a_token(connection, counted):
    rates = Rates(LIMITS) if counted else None
    taken = several(connection, 0, 25, at(0), rates)

    assert len(taken.accepted) == 20
    assert isinstance(taken.refusal, RateLimited)
    assert taken.refusal.details == {"retry_after_ms": 100}
    assert len(several(connection, 20, 5, at(300), rates).accepted) == 3


@pytest.mark.requirement("A-limits-07")
@pytest.mark.parametrize("counted", [True, False], ids=["remembered", "from the rows"])
def test_what_is_known_already_costs_nothing_and_is_answered_without_a_token(connection, counted):
    rates = Rates(LIMITS) if counted else None
    several(connection, 0, 10, at(0), rates)
    for _ in range(3):
        again = several(connection, 0, 10, at(0), rates)
        assert (len(again.accepted), again.refusal) == (10, None)
    assert len(several(connection, 10, 20, at(0), rates).accepted) == 10

    again = several(connection, 0, 20, at(0), rates)
    assert (len(again.accepted), again.refusal) == (20, None)


def test_what_is_refused_for_another_reason_costs_nothing(connection):
    rates = Rates(LIMITS)
    full = admission(at(0), rates)._replace(limits=LIMITS._replace(inbox_messages=1))
    several(connection, 0, 1, at(0), rates)
    for number in range(30):
        assert accept_in_order(connection, [envelope(f"n-{number}")], sender(), full).refusal is not None

    assert len(several(connection, 1, 25, at(0), rates).accepted) == 19


def test_what_is_refused_leaves_the_mailbox_as_it_is(connection):
    several(connection, 0, 20, at(0))
    before = everything(connection)

    assert several(connection, 20, 1, at(0)).accepted == ()
    assert everything(connection) == before


def test_neither_a_restart_nor_forgetting_gives_another_burst(connection):
    rates = Rates(LIMITS)
    several(connection, 0, 20, at(0), rates)
    for number in range(RATE_SENDERS):
        rates.take(connection, f"other-{number}", at(0))
    assert len(rates) == RATE_SENDERS

    assert refused(rates, connection, ALICE.key, at(0)) == 100
    assert refused(Rates(LIMITS), connection, ALICE.key, at(10)) == 90
    Rates(LIMITS).take(connection, CAROL.key, at(0))


def test_a_row_whose_moment_is_unreadable_keeps_nobody_out(connection):
    several(connection, 0, 20, at(0))
    connection.execute("UPDATE inbox SET since = 'x' WHERE sequence <= 10")
    connection.execute("UPDATE inbox SET since = NULL WHERE sequence = 11")

    assert len(several(connection, 20, 20, at(0)).accepted) == 11


def test_rows_far_back_are_not_looked_at(connection):
    several(connection, 0, 20, at(0))
    connection.execute("UPDATE inbox SET sequence = sequence + ? WHERE sequence = 20", (RATE_ROWS,))

    assert len(inbox.by_id(connection, "m-19")) == 1
    assert len(several(connection, 20, 25, at(0), Rates(LIMITS)).accepted) == 19
