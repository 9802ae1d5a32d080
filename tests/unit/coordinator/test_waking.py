"""When mail may wake an idle session: every combination, and the bounds over long random lives."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.coordinator.waking import Waiting, Waking, begun, may_wake, woken
from herd.core.limits import WAKE_OPEN_S, WAKES_COUNTED_S

NOW = 100_000.0
ACTIVITIES = (None, "idle", "working", "waiting", "away")
NEWS = {"nothing": 0, "told before": 7, "something new": 8}
OPENED = {"none open": None, "just opened": NOW, "open": NOW - WAKE_OPEN_S + 0.5, "failed": NOW - WAKE_OPEN_S}
SPENT = {
    "none": (),
    "one short of it": (NOW - 1,),
    "at the bound": (NOW - 2, NOW - 1),
    "at the bound, and older ones": (NOW - WAKES_COUNTED_S, NOW - WAKES_COUNTED_S + 0.5, NOW - 1),
    "over it an hour ago": (NOW - WAKES_COUNTED_S,) * 5,
}
MAY = {
    # Whoever is idle, or reports nothing, is woken by something new, and again by what a failed wake was for.
    (activity, news, opened, spent)
    for activity in (None, "idle")
    for news, opened in (
        ("something new", "none open"),
        ("something new", "failed"),
        ("told before", "failed"),
    )
    for spent in ("none", "one short of it", "over it an hour ago")
}


@pytest.mark.requirement("A-boundary-10", "H-inbox-12")
@pytest.mark.parametrize("case", list(itertools.product(ACTIVITIES, NEWS, OPENED, SPENT)), ids=str)
def test_every_combination(case):
    activity, news, opened, spent = case
    state = Waking(newest=7, opened=OPENED[opened], told=SPENT[spent])
    waiting = Waiting(unread=3, newest_waking=NEWS[news])

    assert may_wake(state, waiting, activity=activity, now=NOW, per_hour=2) == (case in MAY)
    assert not may_wake(state, waiting, activity=activity, now=NOW, per_hour=0)


def test_a_wake_is_remembered_and_the_next_turn_closes_it():
    state = woken(Waking(), Waiting(unread=2, newest_waking=9), NOW)

    assert state == Waking(newest=9, opened=NOW, told=(NOW,))
    assert begun(state) == Waking(newest=9, opened=None, told=(NOW,))


def test_wakes_of_an_hour_ago_are_forgotten():
    state = Waking(told=tuple(NOW - WAKES_COUNTED_S - number for number in range(1_000)))

    assert woken(state, Waiting(1, 1), NOW).told == (NOW,)


def test_what_is_given_back_is_older_than_the_wake_it_had_and_wakes_nobody():
    state = begun(woken(Waking(), Waiting(1, 9), NOW))

    assert not may_wake(state, Waiting(4, 9), activity="idle", now=NOW + 1_000, per_hour=20)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("passes"), st.floats(0, 2 * WAKES_COUNTED_S)),
        st.tuples(st.just("passes"), st.floats(0, 2 * WAKE_OPEN_S)),
        st.tuples(st.just("arrives"), st.booleans()),
        st.tuples(st.just("taken"), st.integers(0, 40)),
        st.tuples(st.just("reports"), st.sampled_from([one for one in ACTIVITIES if one])),
        st.tuples(st.just("turn ends"), st.none()),
    ),
    max_size=120,
)


@pytest.mark.requirement("A-boundary-10", "H-inbox-12")
@given(EVENTS, st.integers(0, 4))
def test_whatever_happens_the_bounds_hold(events, per_hour):
    state, now, newest, waits, activity = Waking(), 0.0, 0, {}, None
    wakes = []
    open_since = None
    for event, value in events:
        match event:
            case "passes":
                now += value
            case "arrives":
                newest += 1
                waits[newest] = value
            case "taken":
                waits.pop(value, None)
            case "reports":
                activity = value
                if value == "working":
                    state, open_since = begun(state), None
            case "turn ends":
                state, open_since = begun(state), None
        waiting = Waiting(len(waits), max((one for one, wakes_it in waits.items() if wakes_it), default=0))
        if not may_wake(state, waiting, activity=activity, now=now, per_hour=per_hour):
            continue
        state = woken(state, waiting, now)

        assert activity not in {"working", "waiting", "away"}
        assert any(waits.values())
        assert open_since is None or now - open_since >= WAKE_OPEN_S
        something_new = not wakes or waiting.newest_waking > wakes[-1][1]
        assert something_new or open_since is not None
        wakes.append((now, waiting.newest_waking))
        open_since = now
        for at, _ in wakes:
            assert sum(1 for other, _ in wakes if at <= other < at + WAKES_COUNTED_S) <= per_hour
