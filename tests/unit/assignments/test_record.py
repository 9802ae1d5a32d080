"""The assignment record: what it keeps, what it refuses, and that nothing but a whole one is read as one."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignments.record import Assignment, Attachment, Place, decode, encode, place_of
from herd.core.errors import InvalidParams, NewerState
from herd.core.identity import SessionName
from herd.core.limits import ASSIGNMENT_FILE_BYTES, ASSIGNMENT_PAYLOAD_BYTES, ATTACHMENTS
from herd.mail.parts import Binding
from herd.presence.fields import Malformed
from tests.fakes.assignments import assignment_of, bytes_of, shape_of

FULL = assignment_of(
    socket="/run/user/1000/herdr.sock",
    session=SessionName("pi", "session-1", "2026-01-02T03:04:05Z"),
    checkout="/home/me/project.work",
    attachments=(Attachment("plan.md", "First the spring.\n"), Attachment("result:scout#2", "")),
    bindings=(Binding("result:scout#2", "result:0d5a"),),
)
LEAST = assignment_of()


@pytest.mark.parametrize("assignment", [FULL, LEAST])
def test_a_record_is_what_was_written(assignment: Assignment):
    data = encode(assignment)

    assert json.loads(data) == shape_of(assignment)
    assert decode(data, assignment.place) == assignment
    assert decode(bytes_of(shape_of(assignment)), assignment.place) == assignment


def test_its_place_is_the_hash_of_socket_repository_and_branch():
    hashed = [hashlib.sha256(text.encode()).hexdigest() for text in (FULL.socket, FULL.repo, FULL.branch)]

    assert FULL.place == Place(*hashed)
    assert place_of("none", "/ü", "b") == Place(
        *(hashlib.sha256(text.encode()).hexdigest() for text in ("none", "/ü", "b"))
    )


@pytest.mark.requirement("H-assign-02")
def test_it_keeps_the_intent_and_has_no_field_for_anything_that_is_observed():
    assert set(json.loads(encode(FULL))) == {
        *("version", "id", "socket", "repo", "branch", "session", "text", "created_at"),
        *("checkout", "attachments", "bindings"),
    }
    for field in ("status", "workspace", "workspace_id", "manager", "manager_id", "managed", "mark"):
        with pytest.raises(Malformed, match=f"unknown field {field}"):
            decode(bytes_of({**shape_of(FULL), field: "active"}), FULL.place)


SPOILT: dict[str, tuple[Any, str]] = {
    "version": (0, "version"),
    "id": ("00000000-0000-4000-8000-00000000000G", "UUID"),
    "socket": ("herdr.sock", "socket"),
    "repo": ("project/.git", "repo"),
    "branch": ("", "branch"),
    "session": ({"host": "Claude", "session_id": "1", "created": ""}, "session"),
    "text": (" \n", "blank text"),
    "created_at": (-1, "created_at"),
    "checkout": ("work", "checkout"),
    "attachments": ([{"name": "a"}] * (ATTACHMENTS + 1), "at most 32 objects"),
    "bindings": ([{"ref": "a", "canonical": "b", "more": 1}], r"unknown field bindings\[0\]\.more"),
}


@pytest.mark.parametrize("field", SPOILT)
def test_one_wrong_or_missing_field_makes_it_corrupt(field: str):
    value, said = SPOILT[field]
    with pytest.raises(Malformed, match=said):
        decode(bytes_of({**shape_of(FULL), field: value}), FULL.place)
    for wrong in (None, [], {}, 1.5, True, "\ud800", "a\0b"):
        if field in {"attachments", "bindings"} and wrong == []:
            continue
        with pytest.raises(Malformed):
            decode(bytes_of({**shape_of(FULL), field: wrong}), FULL.place)
    shape = {name: one for name, one in shape_of(FULL).items() if name != field}
    if field in {"checkout", "attachments", "bindings"}:
        assert decode(bytes_of(shape), FULL.place) == FULL._replace(**{field: getattr(LEAST, field)})
    else:
        with pytest.raises(Malformed, match=field):
            decode(bytes_of(shape), FULL.place)


@pytest.mark.parametrize("changed", ["socket", "repo", "branch"])
def test_one_that_lies_at_another_place_is_corrupt(changed: str):
    shape = {**shape_of(FULL), changed: "/elsewhere"}

    with pytest.raises(Malformed, match="than its path does"):
        decode(bytes_of(shape), FULL.place)


def test_one_of_a_newer_herd_is_not_corrupt():
    with pytest.raises(NewerState, match="version 2"):
        decode(bytes_of({**shape_of(FULL), "version": 2, "mood": "good"}), FULL.place)


@pytest.mark.parametrize(
    "assignment",
    [
        assignment_of(text="x" * (ASSIGNMENT_PAYLOAD_BYTES + 1)),
        assignment_of(text="ü" * (ASSIGNMENT_PAYLOAD_BYTES // 2) + "x"),
        assignment_of(text="x", attachments=(Attachment("a", "y" * ASSIGNMENT_PAYLOAD_BYTES),)),
    ],
    ids=["text", "letters of two bytes", "with an attachment"],
)
def test_a_payload_beyond_its_bound_is_refused_on_both_sides(assignment: Assignment):
    with pytest.raises(InvalidParams, match=f"more than {ASSIGNMENT_PAYLOAD_BYTES} bytes"):
        encode(assignment)
    with pytest.raises(Malformed):
        decode(bytes_of(shape_of(assignment)), assignment.place)


def test_a_payload_at_its_bound_is_taken_unless_its_file_is_beyond_its_own():
    whole = assignment_of(text="x" * ASSIGNMENT_PAYLOAD_BYTES)
    escaped = assignment_of(text="x\x01" * (ASSIGNMENT_PAYLOAD_BYTES // 2))

    assert decode(encode(whole), whole.place) == whole
    with pytest.raises(InvalidParams, match=f"larger than {ASSIGNMENT_FILE_BYTES} bytes"):
        encode(escaped)


def test_what_is_no_text_is_refused_by_the_field_s_name():
    with pytest.raises(InvalidParams, match="lone surrogate in text"):
        encode(assignment_of(text="half \ud83d"))
    with pytest.raises(InvalidParams, match="branch"):
        encode(assignment_of(branch="a\0b"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_a_record_or_malformed(data: bytes):
    with pytest.raises(Malformed):
        decode(data, FULL.place)


@given(st.sampled_from([*SPOILT, "more"]), _JSON)
def test_any_value_in_any_field_is_read_as_written_or_refused(field: str, value: Any):
    data = json.dumps({**shape_of(FULL), field: value}).encode()

    try:
        found = decode(data, FULL.place)
    except (Malformed, NewerState):
        return
    assert decode(encode(found), FULL.place) == found
    assert field not in {"more", "socket", "repo", "branch"} or value == shape_of(FULL)[field]


@given(st.data())
def test_a_record_with_some_bytes_changed_is_another_whole_one_or_refused(data: st.DataObject):
    spoilt = bytearray(encode(FULL))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(spoilt) - 1))
        spoilt[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))

    try:
        found = decode(bytes(spoilt), FULL.place)
    except (Malformed, NewerState):
        return
    assert found.place == FULL.place
    assert decode(encode(found), FULL.place) == found


@given(
    text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
        str.strip
    ),
    branch=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=50
    ),
)
def test_every_text_and_branch_comes_back(text: str, branch: str):
    assignment = assignment_of(text=text, branch=branch)

    assert decode(encode(assignment), assignment.place) == assignment
