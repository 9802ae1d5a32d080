import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import HerdError, InvalidRpc
from herd.rpc import messages
from herd.rpc.frames import FrameDecoder, encode

LIMIT = 65_536

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, values, max_size=6)


def fed(pieces, limit: int = LIMIT):
    decoder = FrameDecoder(limit)
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    decoder.end()
    return frames, type(decoder.fault)


@st.composite
def divided(draw, data: bytes):
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.lists(objects, max_size=5), st.data())
@pytest.mark.requirement("A-frames-02")
def test_any_division_of_the_bytes_gives_the_same_frames(frames, data):
    stream = b"".join(encode(frame, LIMIT) for frame in frames)

    assert fed(data.draw(divided(stream))) == (frames, type(None))
    assert fed(stream[at : at + 1] for at in range(len(stream))) == (frames, type(None))


@given(
    st.binary(max_size=200) | st.lists(st.sampled_from([b"{}", b"\n", b"x", b"\xc3", b" "])).map(b"".join),
    st.data(),
)
def test_any_bytes_in_any_division_give_the_same_frames_and_the_same_fault(stream, data):
    whole = fed([stream], 20)

    assert fed(data.draw(divided(stream)), 20) == whole
    assert fed((stream[at : at + 1] for at in range(len(stream))), 20) == whole


@given(objects)
def test_a_frame_has_exactly_one_newline_and_comes_back_equal(frame):
    data = encode(frame, LIMIT)

    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")
    assert fed([data]) == ([frame], type(None))


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.floats(), st.lists)))
def test_every_object_is_encoded_or_refused(frame):
    try:
        data = encode(frame, LIMIT)
    except HerdError:
        return

    assert json.loads(data) == frame


@given(
    st.dictionaries(
        st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "more"]),
        values | st.sampled_from(["2.0", "peer.send", {"code": 1, "message": "m"}]),
    )
)
@pytest.mark.requirement("A-errors-22")
def test_every_object_is_one_of_the_four_messages_or_invalid(frame):
    try:
        message = messages.parse(frame)
    except InvalidRpc:
        return

    assert frame["jsonrpc"] == "2.0"
    assert isinstance(message, messages.Request | messages.Notification | messages.Success | messages.Failure)
