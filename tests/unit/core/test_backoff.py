import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.backoff import pause_ms
from herd.core.limits import RETRY_FIRST_MS, RETRY_GREATEST_MS

almost_one = 1 - 2**-53
attempts = st.integers(min_value=1, max_value=10**30)
jitters = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.mark.parametrize(
    ("attempt", "whole"), [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (6, 1000), (10**18, 1000)]
)
def test_the_pause_doubles_until_the_greatest(attempt, whole):
    assert pause_ms(attempt, almost_one, first_ms=100, greatest_ms=1000) == whole
    assert pause_ms(attempt, 0.0, first_ms=100, greatest_ms=1000) == whole // 2


def test_jitter_scales_evenly_between_half_and_whole():
    assert [pause_ms(1, jitter, first_ms=1000) for jitter in (0, 0.25, 0.5, 0.75)] == [500, 625, 750, 875]


def test_the_defaults_are_the_bounds_of_the_limits():
    assert pause_ms(1, almost_one) == RETRY_FIRST_MS
    assert pause_ms(1000, almost_one) == RETRY_GREATEST_MS


@given(attempts, jitters, st.integers(1, 10**6), st.integers(1, 10**9), st.integers(0, 10**9))
def test_no_pause_leaves_its_bounds(attempt, jitter, first, greatest, at_least):
    whole = min(first << min(attempt - 1, 64), greatest)
    pause = pause_ms(attempt, jitter, first_ms=first, greatest_ms=greatest, at_least_ms=at_least)

    assert isinstance(pause, int)
    assert max(whole / 2, at_least) <= pause <= max(whole, at_least)


@given(attempts, jitters)
def test_a_later_try_never_waits_less_at_the_same_jitter(attempt, jitter):
    assert pause_ms(attempt + 1, jitter) >= pause_ms(attempt, jitter)


def test_a_pause_is_never_nothing():
    assert pause_ms(1, 0.0, first_ms=1) == 1


def test_what_the_other_side_asked_for_overrides_even_the_greatest_pause():
    assert pause_ms(1, 0.5, greatest_ms=1000, at_least_ms=5000) == 5000


@pytest.mark.parametrize(("attempt", "jitter"), [(0, 0.5), (-3, 0.5), (1, 1.0), (1, -0.1), (1, float("nan"))])
def test_values_out_of_range_are_a_fault_of_the_caller(attempt, jitter):
    with pytest.raises(ValueError, match="out of range"):
        pause_ms(attempt, jitter)
