"""An MCP client's lines: split however they come, bounded, strict UTF-8 and JSON, and written so as well."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.limits import MCP_FRAME_BYTES
from herd.mcp.lines import BadLine, Lines, encoded, parsed


def fed(lines: Lines, data: bytes, cuts: list[int]) -> list[bytes | None]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    return [line for piece in pieces for line in lines.feed(piece)]


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line and line.strip())),
    st.binary(max_size=20).filter(lambda rest: b"\n" not in rest),
    st.lists(st.integers(0, 400)),
)
def test_lines_come_out_whole_however_they_were_cut(whole: list[bytes], rest: bytes, cuts: list[int]):
    lines = Lines()

    assert fed(lines, b"".join(line + b"\n" for line in whole) + rest, cuts) == whole
    assert lines.rest() == rest


@given(st.lists(st.integers(0, 30), max_size=6), st.lists(st.integers(0, 200)))
def test_a_line_over_the_bound_is_dropped_alone(sizes: list[int], cuts: list[int]):
    lines = Lines(limit=10)
    data = b"".join(b"x" * size + b"\n" for size in sizes)
    wanted = [b"x" * size if size <= 10 else None for size in sizes if size]

    assert fed(lines, data, cuts) == wanted


def test_a_line_that_never_ends_is_not_kept():
    lines = Lines(limit=100)
    for _ in range(1_000):
        assert lines.feed(b"x" * 99) == []
        assert len(lines.rest()) <= 100

    assert lines.feed(b"\nnext\n") == [None, b"next"]


@pytest.mark.requirement("D-mcp-05")
def test_the_bound_is_one_mebibyte_apart_from_the_newline():
    assert MCP_FRAME_BYTES == 1_048_576
    assert Lines().feed(b"x" * MCP_FRAME_BYTES + b"\n") == [b"x" * MCP_FRAME_BYTES]
    assert Lines().feed(b"x" * (MCP_FRAME_BYTES + 1) + b"\n") == [None]


def test_lines_of_nothing_but_space_are_none():
    assert Lines().feed(b"\n\r\n \t\n\x0b\n") == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (None, "longer than 1048576 bytes"),
        (b"\xff", "no UTF-8"),
        (b'"\xed\xa0\x80"', "no UTF-8"),
        (b'"\xc0\xaf"', "no UTF-8"),
        (b"\xef\xbb\xbf{}", "no JSON"),
        (b"{", "no JSON"),
        (b"{} {}", "no JSON"),
        (b"'x'", "no JSON"),
        (b"NaN", "no JSON"),
        (b'{"x":[-Infinity]}', "no JSON"),
        (b"1e400", "no JSON"),
        (b"-1e400", "no JSON"),
        (b"1" * 5_000, "no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_line_of_json_is_named(line: bytes | None, told: str):
    with pytest.raises(BadLine, match=told):
        parsed(line)


@pytest.mark.parametrize("value", [{}, [], "x", 0, 1.5, True, None, {"é": ["\u2028", "😀"]}, 2**70])
def test_any_json_is_read(value: object):
    assert parsed(json.dumps(value, ensure_ascii=False).encode() + b"\r") == value


frames = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.requirement("D-mcp-04")
@given(st.dictionaries(st.text(), frames, max_size=5))
def test_a_frame_is_one_line_of_strict_utf_8_that_reads_back_the_same(frame: dict[str, object]):
    data = encoded(frame)

    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    assert json.loads(data.decode("utf-8")) == frame
    assert Lines().feed(data) == [data[:-1]]


@pytest.mark.requirement("D-mcp-04")
@pytest.mark.parametrize("text", [chr(0xD800), f"a{chr(0xDFFF)}b", chr(0xD83D)])
def test_half_a_character_is_escaped_rather_than_written_or_refused(text: str):
    data = encoded({"id": text})

    assert data.isascii()
    assert json.loads(data.decode("utf-8")) == {"id": text}


def test_no_number_that_json_lacks_is_read_so_none_is_repeated():
    assert math.isinf(json.loads("1e400"))  # what the standard library would let through
    with pytest.raises(BadLine):
        parsed(b"1e400")
