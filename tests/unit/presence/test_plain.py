"""The quick reader of records gives what the careful one gives, or leaves the record to that one."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.core.identity import SessionName
from herd.presence.fields import Malformed, read_fields
from herd.presence.plain import plain_record
from herd.presence.record import Presence, Record, _read, encode
from tests.fakes.records import LEAD, record_of, shape_of

FULL = record_of(
    SessionName("pi", "a session", "2026-08-20T10:00:00Z"),
    Presence(
        role="manager",
        socket="/run/herdr.sock",
        cwd="/home/me/proj ect",
        name="api-worker",
        repo="herd",
        branch="main",
        workspace_label="left",
        activity="waiting",
        since=1_700_000_000_000,
        pane_id="p1",
        tab_id="t1",
        workspace_id="w1",
        scope="workspace",
        workspace="/home/me/proj ect",
        repository="/home/me/proj ect/.git",
        undrained_since=0,
        runs=True,
        group="/home/me/proj ect/.git",
    ),
)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-1, 10**19)
    | st.sampled_from([0, 1, 253_402_300_799_999, 253_402_300_800_000, 2**63 - 1, 2**63])
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.text('a \\"/\u00e9\0', max_size=6)
    | st.integers(125, 131).map(lambda length: "x" * length)
    | st.lists(st.sampled_from(["message.send", "message.receive", "other"]), max_size=4)
    | st.dictionaries(st.sampled_from(["pid", "id"]), st.integers(0, 3), max_size=2)
)


def careful(data: bytes) -> Record | None:
    try:
        return _read(read_fields(data))
    except Malformed:
        return None


def written(shape: Any) -> bytes:
    return json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def paths(shape: dict[str, Any]) -> list[tuple[str, ...]]:
    """Give the path of every field, objects among them."""
    inner = [
        (name, *path) for name, value in shape.items() if isinstance(value, dict) for path in paths(value)
    ]
    return [(name,) for name in shape] + inner


PATHS = paths(shape_of(FULL))


def holder(shape: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path[:-1]:
        shape = shape[name]
    return shape


@pytest.mark.parametrize("presence", [FULL.presence, LEAD, Presence("lead", "none"), None])
def test_what_our_writer_writes_of_plain_texts_is_read_quickly(presence: Presence | None):
    record = record_of(FULL.session, presence)

    assert plain_record(encode(record)) == record == careful(encode(record))


@given(st.sampled_from(PATHS), VALUES)
@example(("presence",), {})
@example(("presence", "name"), " ")
@example(("instance", "capabilities"), ["message.send"] * 2)
def test_whatever_stands_in_a_field_it_gives_what_the_careful_reader_gives_or_nothing(
    path: tuple[str, ...], value: Any
):
    shape = shape_of(FULL)
    holder(shape, path)[path[-1]] = value
    data = written(shape)

    assert plain_record(data) in (None, careful(data))


@given(st.sampled_from(PATHS), st.sampled_from(["without", "added", "last"]))
def test_a_record_with_other_fields_or_another_order_is_none_or_the_same(path: tuple[str, ...], how: str):
    shape = shape_of(FULL)
    fields = holder(shape, path)
    taken = fields.pop(path[-1])
    if how == "added":
        fields[f"{path[-1]}s"] = taken
    elif how == "last":
        fields[path[-1]] = taken
    data = written(shape)

    assert plain_record(data) in (None, careful(data))


@given(st.integers(0, 900), st.binary(max_size=2))
def test_no_bytes_in_any_place_are_read_as_another_record(place: int, put: bytes):
    data = encode(FULL)
    data = data[:place] + put + data[place + len(put) :]

    assert plain_record(data) in (None, careful(data))
