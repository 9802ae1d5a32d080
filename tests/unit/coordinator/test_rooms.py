"""How much one hand-over carries: bounds that are never exceeded, and no message in front of another."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.coordinator.rooms import AnswerRoom, Room, TextRoom
from herd.coordinator.shapes import shape_message
from herd.core.limits import (
    ANSWER_BYTES,
    DRAIN_BYTES,
    DRAIN_CHARACTERS,
    DRAIN_GREATEST_CHARACTERS,
    DRAIN_LEAST_CHARACTERS,
    READ_BYTES,
)
from herd.mail.header import shown_to_model, waiting_line
from herd.mail.inbox import Incoming, Sender
from herd.rpc.frames import encode
from tests.fakes.incoming import incoming


def rows(*contents: str) -> list[Incoming]:
    return [incoming(content, number) for number, content in enumerate(contents, 1)]


def taken(room: Room, given_rows: list[Incoming]) -> int:
    """Ask row by row as a hand-over does, and give how many found a place."""
    for count, one in enumerate(given_rows):
        if not room.takes(one):
            return count
    return len(given_rows)


def shown(one: Incoming) -> str:
    return shown_to_model(shape_message(one))


def line(one: Incoming) -> str:
    return waiting_line(shape_message(one))


CONTENTS = st.one_of(
    st.text(min_size=1, max_size=600),
    st.integers(1, 3_000).map(lambda count: "x" * count),
    st.integers(1, 3_000).map(lambda count: "\x85" * count),
)
BOUNDS = st.integers(DRAIN_LEAST_CHARACTERS, DRAIN_GREATEST_CHARACTERS)


@given(st.lists(CONTENTS, max_size=12), BOUNDS, st.sets(st.integers(1, 12)))
def test_the_text_is_never_longer_than_its_bound_and_keeps_the_order(contents, most, announced):
    given_rows = rows(*contents)
    room = TextRoom(most, announced)
    count = taken(room, given_rows)
    parts = [shown(one) for one in given_rows[:count]]
    if room.announces is not None:
        assert room.announces == given_rows[count].sequence not in announced
        assert len(shown(given_rows[count])) > most
        parts.append(line(given_rows[count]))

    assert room.text() == "\n\n".join(parts)
    assert len(room.text()) <= most


@given(st.lists(CONTENTS, min_size=1, max_size=12), BOUNDS)
def test_whatever_waits_comes_whole_over_several_texts(contents, most):
    given_rows = [one for one in rows(*contents) if len(shown(one)) <= most]
    left, texts = given_rows, []
    while left:
        room = TextRoom(most, ())
        count = taken(room, left)
        assert count, "the first row fits, and so each text takes one at least"
        left = left[count:]
        texts.append(room.text())

    assert "\n\n".join(texts) == "\n\n".join(map(shown, given_rows))


@pytest.mark.parametrize("spare", [0, 1])
def test_the_bound_is_exact_for_one_and_for_two(spare: int):
    first, second = rows("x" * 900, "y" * 900)
    both = len(shown(first)) + 2 + len(shown(second))

    assert taken(TextRoom(len(shown(first)) - 1 + spare, ()), [first]) == spare
    assert taken(TextRoom(both - 1 + spare, ()), [first, second]) == 1 + spare


def test_a_message_longer_than_the_bound_is_announced_and_what_is_behind_it_waits():
    given_rows = rows("short", "\x85" * 2_000, "behind")
    room = TextRoom(DRAIN_CHARACTERS, ())

    assert taken(room, given_rows) == 1
    assert room.text() == f"{shown(given_rows[0])}\n\n{line(given_rows[1])}"
    assert room.announces == 2


def test_what_was_announced_before_is_not_announced_again_and_still_keeps_its_place():
    given_rows = rows("\x85" * 2_000, "behind")
    room = TextRoom(DRAIN_CHARACTERS, {1})

    assert taken(room, given_rows) == 0
    assert (room.text(), room.announces) == ("", None)


def test_an_announcement_that_finds_no_place_is_made_by_the_next_text():
    first, second = rows("x", "\x85" * 2_000)
    first = first._replace(content="x" * (DRAIN_LEAST_CHARACTERS - len(shown(first)) + 1))
    room = TextRoom(DRAIN_LEAST_CHARACTERS, ())

    assert (taken(room, [first, second]), room.announces) == (1, None)
    after = TextRoom(DRAIN_LEAST_CHARACTERS, ())
    assert (taken(after, [second]), after.announces) == (0, 2)


def test_the_line_for_a_long_message_holds_nothing_that_its_sender_wrote():
    sender = Sender("k", "lead:1111111111", "lead", "claude", "a name")
    one = incoming("secret words", sender=sender, topic="a topic")

    assert line(one) == (
        "A message from lead:1111111111 waits that is too long to stand here: "
        "call peer_messages with message_id m-1."
    )


def test_a_text_that_one_answer_cannot_hold_is_announced_under_any_bound():
    room = TextRoom(10 * READ_BYTES, ())
    one = incoming("x" * (READ_BYTES + 1))

    assert taken(room, [one]) == 0
    assert room.text() == line(one)


@pytest.mark.parametrize("letter", ["x", "\x85", "\u202e", "\x1b", "\n", '"', "\\", "\U000e0041", "漢"])
def test_the_longest_text_that_can_be_sent_fits_into_the_greatest_bound(letter: str):
    one = incoming(letter * (7_000 // len(letter.encode())))
    room = TextRoom(DRAIN_GREATEST_CHARACTERS, ())
    fits = len(shown(one)) <= DRAIN_GREATEST_CHARACTERS

    assert taken(room, [one]) == fits
    assert len(room.text()) <= DRAIN_GREATEST_CHARACTERS
    if fits:
        assert json.loads(room.text().split("\n")[2]) == one.content


def test_a_read_always_takes_its_first_row_and_then_what_fits():
    half = "x" * (READ_BYTES // 2)
    around = 2 * len(shown(incoming("")).encode())

    assert taken(AnswerRoom(), rows("x" * (3 * READ_BYTES), "y")) == 1
    assert taken(AnswerRoom(), rows(half[:-around], half[:-around], "z" * READ_BYTES)) == 2
    assert taken(AnswerRoom(), rows(half, half)) == 1


def test_a_read_carries_no_more_than_its_bound_with_everything_around_the_texts():
    many = rows(*["m" * 700] * 32)
    count = taken(AnswerRoom(), many)
    shapes = [shape_message(row) for row in many[:count]]

    assert 1 < count < 32
    assert len(json.dumps(shapes)) <= READ_BYTES
    assert sum(len(shown_to_model(shape).encode()) for shape in shapes) <= READ_BYTES


WORST = ["\n", '"', "\\", "\x01", "\x7f", "\x85", "\u202e", "\U000e0041", "漢", "\U0001f469", "x"]


@pytest.mark.parametrize("letter", WORST)
def test_any_part_of_a_long_text_fits_into_a_frame_as_it_is_and_as_a_model_is_shown_it(letter: str):
    text, parts = letter * 30_000, [""]
    while (offset := len("".join(parts))) < len(text):
        shape = shape_message(incoming(text), offset)
        for told in (shape, {"text": shown_to_model(shape)}):
            encode(told, ANSWER_BYTES + 2_048)
        parts.append(shape["text"])
        assert shape["text"]
        assert shape.get("next_offset", len(text)) == len("".join(parts))

    assert "".join(parts) == text


@pytest.mark.parametrize("letter", WORST)
def test_the_text_of_a_drain_fits_into_a_frame_whatever_its_characters_take(letter: str):
    many = rows(*[letter * (7_000 // len(letter.encode()) // 8)] * 40)
    room = TextRoom(DRAIN_GREATEST_CHARACTERS, ())

    assert taken(room, many) > 0
    encode({"text": room.text()}, DRAIN_BYTES + 16)
