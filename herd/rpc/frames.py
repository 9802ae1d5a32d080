"""Frames: UTF-8 JSON objects, one a line, bounded before they are parsed.

It owns the division of a byte stream into objects and back, and is ignorant of JSON-RPC, of sockets and of
what an object means. Nothing here waits or opens anything.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from herd.core.errors import FrameTooLarge, HerdError, InvalidParams, InvalidRpc, ParseError
from herd.core.limits import FRAME_DEPTH

_NEWLINE = b"\n"
_LEAVES = frozenset({str, int, float, bool, type(None)})
"""What nearly every value is, and what nests nothing: told without asking an abstract class."""

_BLANK = b" \t\r"
_COUNTED_BYTES = 8_192


def encode(frame: Mapping[str, Any], limit: int) -> bytes:
    """Give the bytes of one frame, its newline included.

    Args:
        frame: JSON values only.
        limit: Bytes that the frame may have without its newline.

    Raises:
        FrameTooLarge: the frame has more than `limit` bytes; it was not cut.
        InvalidParams: a text in it has a lone surrogate, or a number is not finite.
        InvalidRpc: it holds something that is no JSON value, or nests too deeply.
    """
    try:
        text = _ENCODER.encode(frame)
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParams("a text in the frame has a lone surrogate, which no UTF-8 can carry") from None
    except ValueError as error:
        raise InvalidParams(f"the frame holds a value that JSON cannot carry: {error}") from None
    except (TypeError, RecursionError) as error:
        raise InvalidRpc(f"the frame is not made of JSON values: {type(error).__name__}") from None
    if len(data) > limit:
        raise FrameTooLarge(f"the frame has {len(data)} bytes, more than {limit}")
    if _nests_too_deeply(data, frame):
        raise InvalidRpc(f"the frame nests more than {FRAME_DEPTH} levels deep")
    return data + _NEWLINE


class FrameDecoder:
    """Cuts a stream of bytes into frames, the same ones however the bytes are divided.

    After one bad frame it is spent: `fault` says why, and nothing behind the bad frame is looked at.

    Args:
        limit: Bytes that one frame may have without its newline; never more than that is kept.
    """

    def __init__(self, limit: int) -> None:
        self.fault: HerdError | None = None
        self._limit = limit
        self._kept = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Take the next bytes and give the frames they complete, in order.

        Frames before a bad one are still given; `fault` is set then and stays.
        """
        frames: list[dict[str, Any]] = []
        start = 0
        while self.fault is None and start < len(data):
            found = data.find(_NEWLINE, start)
            end = len(data) if found < 0 else found
            try:
                self._keep(data, start, end)
                if found >= 0:
                    self._complete(frames)
            except HerdError as error:
                self.fault = error
                self._kept.clear()
            start = end + 1
        return frames

    def end(self) -> HerdError | None:
        """Say what is wrong with the stream if it ends here: the fault, or a frame left unfinished."""
        if self.fault is None and self._kept.strip(_BLANK):
            self.fault = ParseError("the stream ended inside a frame, before its newline")
            self._kept.clear()
        return self.fault

    def _keep(self, data: bytes, start: int, end: int) -> None:
        # Counted before the copy: a peer that never sends a newline costs `limit` bytes and no more.
        if len(self._kept) + end - start > self._limit:
            raise FrameTooLarge(f"the frame has more than {self._limit} bytes")
        self._kept += memoryview(data)[start:end]

    def _complete(self, frames: list[dict[str, Any]]) -> None:
        line = bytes(self._kept)
        self._kept.clear()
        if line.strip(_BLANK):
            frames.append(_parsed(line))


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        # Decoded first: json.loads would guess UTF-16 or UTF-32 from the bytes.
        value = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ParseError(f"the frame is not UTF-8 at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the frame is not JSON that can be read: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise InvalidRpc("the frame is no JSON object")
    # Whether Python's own reader gives up depends on how deep its caller stands; this bound does not.
    if _nests_too_deeply(line, value):
        raise ParseError(f"the frame nests more than {FRAME_DEPTH} levels deep")
    return value


def _nests_too_deeply(line: bytes, value: Mapping[str, Any]) -> bool:
    # The usual case, told without a walk; of a long line, which mostly is one long text, the walk is shorter.
    if len(line) <= _COUNTED_BYTES and line.count(b"{") + line.count(b"[") <= FRAME_DEPTH:
        return False
    level: list[Any] = [value]
    for _ in range(FRAME_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
            if type(inner) not in _LEAVES and isinstance(inner, Mapping | list | tuple)
        ]
        if not level:
            return False
    return bool(level)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers that take different ones of two equal keys see two different messages.
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidRpc("an object in the frame has the same key twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InvalidRpc("a number in the frame is too large to be read")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ParseError(f"the frame holds {name}, which is not JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
"""Made once, as the decoder: `json.dumps` makes a new one at every call with options."""

_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse_constant)
