"""The lines of an MCP client's stdin: split, bounded at 1 MiB, each read as strict UTF-8 JSON.

Unlike a peer's stream this one goes on after a bad line: the host is our own parent, and a server that ended
over one line would take the session's mail with it.
"""

import json
import math
from typing import Any

from herd.core.limits import MCP_FRAME_BYTES


class BadLine(ValueError):
    """A line that is too long, no UTF-8 or no JSON; the text says which."""


class Lines:
    """Splits bytes into lines without keeping more than one bounded line."""

    def __init__(self, limit: int = MCP_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Give the lines completed by more bytes; None stands for one that was too long and is dropped."""
        lines: list[bytes | None] = []
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._take(part)
            lines.append(None if self._skipping else bytes(self._buffer))
            self._buffer.clear()
            self._skipping = False
        self._take(rest)
        return [line for line in lines if line is None or line.strip()]

    def rest(self) -> bytes:
        """Give what is not a whole line yet."""
        return bytes(self._buffer)

    def _take(self, part: bytes) -> None:
        if self._skipping:
            return
        if len(self._buffer) + len(part) > self._limit:
            self._skipping = True
            self._buffer.clear()
        else:
            self._buffer += part


def parsed(line: bytes | None) -> Any:
    """Read one line.

    Raises:
        BadLine: it is too long, no UTF-8 or no JSON.
    """
    if line is None:
        raise BadLine(f"the line is longer than {MCP_FRAME_BYTES} bytes")
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except UnicodeDecodeError:
        raise BadLine("the line is no UTF-8") from None
    except (ValueError, RecursionError):
        raise BadLine("the line is no JSON") from None


def _refuse(constant: str) -> float:
    """Refuse NaN and the infinities: Python reads them, JSON has none, and an answer may repeat what came."""
    raise ValueError(constant)


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


def encoded(frame: dict[str, Any]) -> bytes:
    """Give a frame's bytes, its newline among them; a lone surrogate is escaped rather than refused."""
    try:
        return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"
    except UnicodeEncodeError:
        return json.dumps(frame, separators=(",", ":")).encode("ascii") + b"\n"
