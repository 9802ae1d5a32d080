"""Herdr's answers: one that is whole is read, and one that lacks anything is refused, never read in part."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignments.worktrees.herdr_fake_world import HerdrWorld, Repository, Row, Workspace
from assignments.worktrees.herdr_wire import Group, Refused, Unreadable, group_of, protocol_of, result_of

ROWS = (Row("/r"), Row("/w", "fix", linked=True), Row("/gone", "gone", linked=True, prunable=True))
LISTED = HerdrWorld((Repository("/r/.git", ROWS),), (Workspace("w1", "/r"), Workspace("w2", "/w"))).result(
    "worktree.list", {}
)

WRONG = (
    st.none()
    | st.integers()
    | st.just("")
    | st.just("r")
    | st.just("/a\0b")
    | st.lists(st.integers(), max_size=1)
)

NEEDED = [
    ("source",),
    ("worktrees",),
    *(("source", name) for name in ("repo_key", "repo_root", "source_checkout_path")),
    *(
        ("worktrees", number, name)
        for number in range(len(ROWS))
        for name in ("path", "is_bare", "is_prunable", "is_linked_worktree")
    ),
]


def spoilt(where: tuple[Any, ...]) -> tuple[dict[str, Any], Any]:
    """Give a copy of the answer and what in it holds the last name of `where`."""
    copied = copy.deepcopy(LISTED)
    holder: Any = copied
    for name in where[:-1]:
        holder = holder[name]
    return copied, holder


def test_a_whole_answer_is_read():
    assert group_of(LISTED) == Group("/r/.git", frozenset({"/r", "/w"}), frozenset({"w1", "w2"}))


@pytest.mark.parametrize("where", NEEDED)
def test_an_answer_without_a_field_is_refused(where):
    answer, holder = spoilt(where)
    del holder[where[-1]]

    with pytest.raises(Unreadable):
        group_of(answer)


@given(st.sampled_from(NEEDED), WRONG)
def test_an_answer_with_something_else_in_a_field_is_refused(where, wrong):
    answer, holder = spoilt(where)
    holder[where[-1]] = wrong

    with pytest.raises(Unreadable):
        group_of(answer)


def test_rows_that_contradict_each_other_are_refused():
    for number, name, value in (
        (1, "path", "/r"),
        (1, "open_workspace_id", "w1"),
        (1, "open_workspace_id", ""),
        (1, "open_workspace_id", 2),
        (1, "is_linked_worktree", False),
        (0, "is_linked_worktree", True),
    ):
        answer, holder = spoilt(("worktrees", number, name))
        holder[name] = value
        with pytest.raises(Unreadable):
            group_of(answer)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["source", "worktrees", "type", "x"]), json_values))
def test_any_object_is_read_or_refused(answer):
    with pytest.raises(Unreadable):
        group_of(answer)


@given(st.dictionaries(st.sampled_from(["id", "result", "error"]), json_values))
def test_any_envelope_is_opened_or_refused(answer):
    try:
        opened = result_of(answer, "q", "pong")
    except Unreadable:
        return

    assert isinstance(opened, Refused) or opened["type"] == "pong"


def test_the_answer_to_another_question_is_refused():
    pong = {"type": "pong", "protocol": 22}
    assert result_of({"id": "q", "result": pong}, "q", "pong") == pong
    assert result_of({"id": "", "error": {"code": "invalid_request"}}, "q", "pong") == Refused(
        "invalid_request"
    )

    for answer in (
        {"id": "p", "result": pong},
        {"id": "", "result": pong},
        {"id": "p", "error": {"code": "c"}},
    ):
        with pytest.raises(Unreadable):
            result_of(answer, "q", "pong")


@pytest.mark.parametrize("protocol", [None, "22", 19, 23, 22.0, True])
def test_a_protocol_that_is_not_known_is_refused(protocol):
    with pytest.raises(Unreadable):
        protocol_of({"protocol": protocol})
    with pytest.raises(Unreadable):
        protocol_of({})
