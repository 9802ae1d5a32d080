"""What a message has left: counted by moments, which neither a set clock nor another boot turns back."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.moments import Moment
from herd.mail.lifetimes import is_over, left_ms

HOUR = 3_600_000
MOMENTS = st.builds(
    Moment, st.sampled_from(["one", "two", ""]), st.integers(0, 10**12), st.integers(0, 4 * 10**12)
)


class Message(NamedTuple):
    lifetime_ms: int | None
    since: str | None


def lived(lifetime_ms, at):
    return Message(lifetime_ms, at.text())


@pytest.mark.requirement("A-limits-25", "A-limits-13")
@pytest.mark.parametrize("shift", [0, -15 * 60_000, 15 * 60_000, -HOUR * 24 * 365, HOUR * 24 * 365])
def test_within_a_boot_the_boot_clock_counts_which_sleep_does_not_stop_and_nobody_sets(shift):
    begun = Moment("boot", 5_000, 10**12)
    message = lived(10_000, begun)

    assert left_ms(message, Moment("boot", 14_999, 10**12 + shift)) == 1
    assert not is_over(message, Moment("boot", 14_999, 10**12 + shift))
    assert is_over(message, Moment("boot", 15_000, 10**12 + shift))


@pytest.mark.requirement("A-limits-25")
def test_from_one_boot_to_another_the_wall_clock_counts_and_never_less_than_nothing():
    message = lived(10_000, Moment("boot", 5_000_000, 10**12))

    assert left_ms(message, Moment("another", 3, 10**12 + 9_000)) == 1_000
    assert is_over(message, Moment("another", 3, 10**12 + 10_000))
    assert left_ms(message, Moment("another", 3, 10**12 - HOUR)) == 10_000
    assert left_ms(lived(10_000, Moment("", 5, 10**12)), Moment("", 5, 10**12 + 4_000)) == 6_000


@pytest.mark.requirement("A-limits-11")
@given(now=MOMENTS, since=MOMENTS)
def test_without_a_lifetime_it_is_never_over(now, since):
    assert left_ms(lived(None, since), now) is None
    assert not is_over(lived(None, since), now)


@given(now=MOMENTS, since=MOMENTS, lifetime=st.integers(1, HOUR))
def test_it_never_has_more_left_than_it_was_given(now, since, lifetime):
    left = left_ms(lived(lifetime, since), now)

    assert left is not None
    assert left <= lifetime
    assert is_over(lived(lifetime, since), now) == (left <= 0)


@pytest.mark.parametrize("since", [None, "", "x", "boot x 1", "boot 1"])
def test_a_moment_that_cannot_be_read_ends_nothing(since):
    assert left_ms(Message(5, since), Moment("boot", 10**9, 10**12)) == 5
