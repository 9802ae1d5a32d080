import json
import sys
import tracemalloc

import pytest

from herd.core.errors import FrameTooLarge, InvalidParams, InvalidRpc, ParseError
from herd.core.limits import DEFAULT_LIMITS, FRAME_DEPTH
from herd.rpc.frames import FrameDecoder, encode

LIMIT = 1_000


def decoded(data: bytes, limit: int = LIMIT):
    decoder = FrameDecoder(limit)
    frames = decoder.feed(data)
    decoder.end()
    return frames, decoder.fault


def nested(levels: int):
    frame = inner = {}
    for _ in range(levels - 1):
        inner["a"] = inner = {}
    return frame


class TestEncoding:
    @pytest.mark.requirement("A-frames-01")
    def test_a_frame_is_one_compact_utf_8_object_and_a_newline(self):
        frame = {"a": [1, None, True, "é\n\u2028😀"], "b": {}}

        data = encode(frame, LIMIT)

        assert data == '{"a":[1,null,true,"é\\n\u2028😀"],"b":{}}\n'.encode()
        assert decoded(b"\n \t\r\n" + data + b"\r\n\n") == ([frame], None)

    @pytest.mark.requirement("A-limits-01")
    def test_the_limit_is_65536_bytes_unless_set_and_leaves_the_newline_out(self):
        limit = DEFAULT_LIMITS.frame_bytes
        frame = {"a": "x" * (65_536 - len('{"a":""}'))}

        assert limit == 65_536
        assert len(encode(frame, limit)) == 65_537
        assert decoded(encode(frame, limit), limit) == ([frame], None)
        with pytest.raises(FrameTooLarge):
            encode({"a": frame["a"] + "x"}, limit)

    def test_bytes_are_counted_and_not_characters(self):
        with pytest.raises(FrameTooLarge):
            encode({"a": "é" * 6}, 19)
        assert encode({"a": "é" * 6}, 20)

    @pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "c\udc80", "\ude00\ud83dd"])
    def test_a_lone_surrogate_is_refused_in_a_value_and_in_a_key(self, text):
        for frame in ({"a": text}, {text: "a"}):
            with pytest.raises(InvalidParams, match="surrogate"):
                encode(frame, LIMIT)

    @pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
    def test_a_number_that_is_not_finite_is_refused(self, number):
        with pytest.raises(InvalidParams):
            encode({"a": [float(number)]}, LIMIT)

    @pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), {("a", "b"): 1}])
    def test_what_is_no_json_value_is_refused(self, value):
        with pytest.raises(InvalidRpc):
            encode({"a": value}, LIMIT)

    def test_an_object_within_itself_is_refused(self):
        frame = {}
        frame["a"] = frame

        with pytest.raises(InvalidParams):
            encode(frame, LIMIT)

    def test_an_integer_too_long_to_be_written_is_refused(self):
        with pytest.raises(InvalidParams):
            encode({"a": 10**5_000}, 100_000)

    def test_nothing_is_sent_that_the_other_side_would_refuse_for_its_depth(self):
        assert decoded(encode(nested(FRAME_DEPTH), LIMIT)) == ([nested(FRAME_DEPTH)], None)
        for frame in (nested(FRAME_DEPTH + 1), nested(5_000)):
            with pytest.raises(InvalidRpc):
                encode(frame, 100_000)

    def test_tuples_count_as_depth_too(self):
        value = ()
        for _ in range(FRAME_DEPTH):
            value = (value,)

        with pytest.raises(InvalidRpc):
            encode({"a": value}, LIMIT)


class TestDecoding:
    @pytest.mark.requirement("A-frames-03")
    def test_several_frames_of_one_read_come_in_order(self):
        frames = [{"n": number} for number in range(100)]
        data = b"".join(encode(frame, LIMIT) for frame in frames)

        assert decoded(data) == (frames, None)

    @pytest.mark.requirement("A-frames-02")
    def test_a_cut_inside_a_character_changes_nothing(self):
        data = encode({"a": "é😀€"}, LIMIT)

        for cut in range(len(data)):
            decoder = FrameDecoder(LIMIT)
            assert decoder.feed(data[:cut]) + decoder.feed(data[cut:]) == [{"a": "é😀€"}]
            assert decoder.fault is None

    @pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \t \r\n", b"\n\n\n"])
    def test_blank_lines_are_skipped(self, blank):
        assert decoded(blank + b"{}" + blank + b' {"a":1} ' + blank) == ([{}, {"a": 1}], None)

    @pytest.mark.requirement("A-errors-21")
    @pytest.mark.parametrize(
        "line",
        [
            b"\xff",
            b'{"a":"\xc3"}',
            b'{"a":"\xed\xa0\x80"}',  # a surrogate as UTF-8
            b'{"a":"\xc0\xaf"}',  # overlong
            b'{"a":"\xf4\x90\x80\x80"}',  # above U+10FFFF
            '{"a":1}'.encode("utf-16"),
            '{"a":1}'.encode("utf-16-le"),
            '{"a":1}'.encode("utf-32-be"),
            b'\xef\xbb\xbf{"a":1}',
            b"hello",
            b"{",
            b"{}{}",
            b"{'a':1}",
            b'{"a":1,}',
            b'{"a":"\x01"}',
            b'{"a":01}',
            b'{"a":NaN}',
            b'{"a":Infinity}',
            b'{"a":-Infinity}',
            b"\x00",
            b"\x0b",
            b"{}\x0c",
            b"\xc2\xa0",
            b'{"a":"\\x41"}',
            b'{"a":"\\ud83"}',
            '{"a":\u0661}'.encode(),  # a digit, but not one of JSON's
        ],
    )
    def test_what_is_not_strict_utf_8_or_not_json_is_a_parse_error(self, line):
        frames, fault = decoded(b'{"before":1}\n' + line + b'\n{"behind":1}\n')

        assert frames == [{"before": 1}]
        assert type(fault) is ParseError

    @pytest.mark.parametrize("line", [b"[]", b"[{}]", b"1", b'"{}"', b"null", b"true"])
    def test_json_that_is_no_object_is_invalid(self, line):
        frames, fault = decoded(line + b"\n{}\n")

        assert frames == []
        assert type(fault) is InvalidRpc

    @pytest.mark.parametrize("line", [b'{"a":1,"a":1}', b'{"b":{"a":1,"\\u0061":2}}'])
    def test_a_key_that_comes_twice_is_invalid(self, line):
        frames, fault = decoded(line + b"\n")

        assert frames == []
        assert type(fault) is InvalidRpc

    @pytest.mark.parametrize("number", [b"1e999", b"-1e400"])
    def test_a_number_beyond_every_float_is_invalid_and_never_infinite(self, number):
        frames, fault = decoded(b'{"a":' + number + b"}\n")

        assert frames == []
        assert type(fault) is InvalidRpc

    def test_a_long_integer_is_kept_exactly_or_refused(self):
        assert decoded(b'{"a":' + b"9" * 500 + b"}\n") == ([{"a": int("9" * 500)}], None)
        frames, fault = decoded(b'{"a":' + b"9" * 60_000 + b"}\n", 65_536)
        assert frames == []
        assert type(fault) is ParseError

    @pytest.mark.parametrize("opening", [b"[", b'{"a":'])
    def test_deep_nesting_is_a_parse_error_and_no_crash(self, opening):
        frames, fault = decoded(opening * 10_000 + b"\n", 65_536)

        assert frames == []
        assert type(fault) is ParseError

    def test_depth_is_bounded_alike_however_deep_the_caller_stands(self):
        line = json.dumps(nested(FRAME_DEPTH + 1)).encode() + b"\n"

        def standing(levels):
            return standing(levels - 1) if levels else type(decoded(line, 65_536)[1])

        assert standing(0) is standing(sys.getrecursionlimit() // 2) is ParseError

    def test_many_brackets_side_by_side_are_not_deep(self):
        frame = {"a": [[]] * 300, "b": "[" * 300}

        assert decoded(encode(frame, 65_536), 65_536) == ([frame], None)

    def test_a_lone_surrogate_that_is_escaped_is_json_and_left_to_the_reader(self):
        assert decoded(b'{"a":"\\ud800"}\n') == ([{"a": "\ud800"}], None)


class TestTheLimit:
    @pytest.mark.requirement("A-errors-23")
    def test_a_frame_above_the_limit_is_too_large_both_ways(self):
        line = b'{"a":"' + b"x" * LIMIT + b'"}'

        frames, fault = decoded(b"{}\n" + line + b"\n{}\n")

        assert frames == [{}]
        assert type(fault) is FrameTooLarge
        with pytest.raises(FrameTooLarge):
            encode({"a": "x" * LIMIT}, LIMIT)

    def test_a_frame_of_exactly_the_limit_passes_in_any_pieces(self):
        line = b'{"a":"' + b"x" * (LIMIT - 8) + b'"}'
        decoder = FrameDecoder(LIMIT)

        frames = [frame for byte in line + b"\n" for frame in decoder.feed(bytes([byte]))]

        assert len(line) == LIMIT
        assert frames == [json.loads(line)]

    def test_it_counts_raw_bytes_before_anything_is_parsed(self):
        decoder = FrameDecoder(10)

        assert decoder.feed(b"\xff" * 11) == []
        assert type(decoder.fault) is FrameTooLarge

    def test_blanks_count_too(self):
        assert type(decoded(b" " * (LIMIT + 1) + b"\n")[1]) is FrameTooLarge

    @pytest.mark.requirement("A-frames-04")
    def test_a_line_that_never_ends_costs_no_more_than_the_limit(self):
        decoder = FrameDecoder(100_000)
        piece = b"x" * 1_000
        with pytest.raises(FrameTooLarge):
            encode({"a": "x" * 100_000}, 100_000)
        tracemalloc.start()
        try:
            for _ in range(10_000):
                assert decoder.feed(piece) == []
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert type(decoder.fault) is FrameTooLarge
        assert peak < 250_000

    def test_it_holds_for_each_frame_alone(self):
        data = b'{"a":"xxxxx"}\n' * 1_000

        assert len(decoded(data, 13)[0]) == 1_000
        assert type(decoded(data, 12)[1]) is FrameTooLarge


class TestTheEnd:
    @pytest.mark.parametrize("data", [b"", b"{}\n", b"\n", b"{}\n  ", b" \r"])
    def test_a_stream_that_ends_between_frames_is_well(self, data):
        decoder = FrameDecoder(LIMIT)
        decoder.feed(data)

        assert decoder.end() is None

    @pytest.mark.parametrize("data", [b"{", b"{}", b"{}\n{}", b"\xc3"])
    def test_a_stream_that_ends_inside_a_frame_is_not(self, data):
        decoder = FrameDecoder(LIMIT)
        decoder.feed(data)

        assert type(decoder.end()) is ParseError
        assert decoder.feed(b"\n{}\n") == []

    def test_nothing_behind_a_bad_frame_is_looked_at(self):
        decoder = FrameDecoder(LIMIT)
        first = decoder.feed(b'{"a":1}\nbad\n{"b":1}\n')
        fault = decoder.fault

        assert first == [{"a": 1}]
        assert decoder.feed(b'{"c":1}\n' + b"x" * 10 * LIMIT) == []
        assert decoder.fault is fault is decoder.end()
