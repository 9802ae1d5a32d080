"""Moments: what has passed between two of them, whatever was done to the clocks."""

import pytest

from herd.core.clock import FakeClock
from herd.core.moments import Moment

QUARTER_MS = 15 * 60 * 1000


def test_within_a_boot_only_the_boot_clock_counts():
    clock = FakeClock()
    earlier = Moment.now(clock)
    clock.advance(5)
    clock.shift_wall(-QUARTER_MS)

    assert Moment.now(clock).since(earlier) == 5_000


def test_from_one_boot_to_another_the_wall_clock_counts():
    assert Moment("b", 10, 9_000).since(Moment("a", 700_000, 2_000)) == 7_000


@pytest.mark.parametrize(
    "later",
    [Moment("a", 1_000, 50_000), Moment("b", 9_000, 1_000), Moment("", 9_000, 1_000)],
    ids=["the boot clock", "a wall clock set back over a boot", "no boot id"],
)
def test_a_span_is_never_less_than_zero(later):
    assert later.since(Moment("a", 2_000, 40_000)) == 0


def test_without_a_boot_id_two_moments_are_of_no_common_boot():
    assert Moment("", 9_000, 3_000).since(Moment("", 1_000, 1_000)) == 2_000


def test_it_is_stored_and_read_again():
    moment = Moment.now(FakeClock())

    assert Moment.read(moment.text()) == moment
    with pytest.raises(ValueError, match="unpack"):
        Moment.read("yesterday")
