"""How a text is cut into pieces that fit into frames."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.mail.cutting import cut, is_inside, written_bytes

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
_LONGEST = 6
"""Bytes of one character in JSON, at most."""


def written(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


@given(TEXTS)
@example('\x00\x1f\x7f\x80"\\/\b\f\n\r\t\u2028é漢😀')
def test_what_json_makes_of_a_text_is_told_to_the_byte(text: str):
    assert written_bytes(text.encode()) == written(text)


@given(TEXTS, st.integers(1, 60))
def test_the_pieces_are_the_text_and_each_is_whole_characters_that_fit(text: str, most: int):
    data = text.encode()
    pieces = list(cut(data, 0, most))

    assert b"".join(piece for _, piece in pieces) == data
    assert [start for start, _ in pieces] == [data.find(piece, start) for start, piece in pieces]
    for _, piece in pieces:
        shown = piece.decode()
        assert len(shown) == 1 or written(shown) <= max(most, _LONGEST)


@given(TEXTS.filter(bool), st.data())
def test_it_goes_on_from_any_character(text: str, data: st.DataObject):
    first = data.draw(st.integers(0, len(text)))
    start = len(text[:first].encode())

    assert b"".join(piece for _, piece in cut(text.encode(), start, 7)) == text[first:].encode()


def test_a_text_without_anything_special_is_cut_at_the_bound():
    assert [len(piece) for _, piece in cut(b"x" * 100, 0, 30)] == [30, 30, 30, 10]
    assert list(cut(b"", 0, 30)) == []


@pytest.mark.parametrize(("place", "inside"), [(0, False), (1, True), (2, False), (3, False)])
def test_a_byte_begins_a_character_or_goes_on_with_one(place: int, inside: bool):
    assert is_inside("éa".encode(), place) == inside
