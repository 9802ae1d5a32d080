"""What a session's own sends go on with, and where a conversation between sessions alone comes to an end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.coordinator.thread import Answered, Thread
from herd.core.errors import AutomaticReplyLimit
from tests.fakes.incoming import incoming

MOST = 8


def driven(*depths: int) -> Thread:
    """Give the place of a session that mail can drive, and that was handed messages of these depths."""
    thread = Thread(MOST)
    thread.driven = True
    thread.handed([incoming(number=number, depth=depth) for number, depth in enumerate(depths)])
    return thread


def said(thread: Thread, answered: Answered | None = None) -> tuple[str, int]:
    conversation = thread.conversation("new", answered)
    return conversation.id, conversation.depth


def answer(depth: int) -> Answered:
    return Answered("x", "answered", depth)


def test_what_a_person_asks_for_begins_a_conversation_of_its_own():
    assert said(driven()) == ("new", 0)


@pytest.mark.parametrize("depth", range(MOST))
def test_what_is_sent_after_a_hand_over_goes_on_with_it_reply_or_not(depth: int):
    assert said(driven(depth)) == ("c-0", depth + 1)
    assert said(driven(depth), answer(depth)) == ("answered", depth + 1)


@pytest.mark.parametrize("depths", [(3, 5), (5, 3), (5, 5, 1)])
def test_of_what_was_handed_over_together_the_deepest_counts(depths: tuple[int, ...]):
    assert said(driven(*depths))[1] == 6


def test_a_later_hand_over_counts_alone_so_that_a_person_s_word_elsewhere_begins_afresh_here_too():
    thread = driven(MOST)
    thread.handed([incoming(depth=0, number=9)])

    assert said(thread) == ("c-9", 1)


def test_a_hand_over_of_nothing_changes_nothing():
    thread = driven(MOST)
    thread.handed([])

    with pytest.raises(AutomaticReplyLimit):
        thread.conversation("new", None)


def test_an_answer_to_something_shallow_does_not_get_around_what_was_handed_over():
    assert said(driven(6), answer(0)) == ("answered", 7)


def test_an_answer_to_something_deeper_than_what_was_handed_over_counts_as_deep():
    assert said(driven(0), answer(6)) == ("answered", 7)


@pytest.mark.parametrize("answered", [None, answer(0), answer(MOST)])
def test_at_the_budget_everything_is_refused_by_its_own_code(answered: Answered | None):
    with pytest.raises(AutomaticReplyLimit) as refused:
        driven(MOST).conversation("new", answered)

    assert refused.value.code == "AUTOMATIC_REPLY_LIMIT"
    assert f"{MOST} messages" in refused.value.message


@pytest.mark.parametrize("answered", [None, answer(0), answer(MOST)])
def test_a_person_s_prompt_begins_afresh(answered: Answered | None):
    thread = driven(MOST)
    thread.prompted()

    assert said(thread, answered) == ("answered" if answered else "new", 0)


def test_a_hand_over_after_the_prompt_counts_again():
    thread = driven(MOST)
    thread.prompted()
    thread.handed([incoming(depth=MOST)])

    with pytest.raises(AutomaticReplyLimit):
        thread.conversation("new", None)


@given(st.lists(st.one_of(st.none(), st.integers(0, 64))))
def test_a_session_that_nothing_drives_is_never_refused(events: list[int | None]):
    thread = Thread(MOST)
    for event in events:
        if event is None:
            thread.prompted()
        else:
            thread.handed([incoming(depth=event)])
        assert said(thread) == ("new", 0)
        assert said(thread, answer(40)) == ("answered", 41)


@given(st.lists(st.one_of(st.none(), st.lists(st.integers(0, 20), min_size=1, max_size=3))))
def test_nothing_is_ever_sent_deeper_than_the_budget_allows(events: list[list[int] | None]):
    thread = driven()
    deepest = None
    for event in events:
        if event is None:
            thread.prompted()
        else:
            thread.handed([incoming(depth=depth) for depth in event])
        deepest = max(event) if event else None
        assert thread.awaits_prompt == (deepest is not None)
        try:
            depth = said(thread)[1]
        except AutomaticReplyLimit:
            assert deepest is not None
            assert deepest >= MOST
        else:
            assert depth == (0 if deepest is None else deepest + 1)
            assert depth <= MOST
