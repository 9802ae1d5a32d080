"""The first answer of `herd mcp`, given before anything heavy is loaded.

Twenty sessions may start at once, and a host gives up on a server that is silent for long. So the process
takes its stdio over, answers `initialize` or `server/discover`, and only then loads the rest. Whatever else
comes first is left to the server.
"""

import fcntl
import os
from typing import NamedTuple

from herd.core.errors import UnsafeEndpoint
from herd.mcp.lines import BadLine, Lines, encoded, parsed
from herd.mcp.protocol import PARSE_ERROR, First, ProtocolError, failure, first_answer

_READ_BYTES = 65_536


class Opened(NamedTuple):
    """Where the connection stands once the rest of Herd is to be loaded."""

    source: int
    """The descriptor that requests come from."""
    sink: int
    """The descriptor that answers go to."""
    left: bytes
    """What was read and not answered."""
    modern: bool | None
    """The era, None where no request has decided it."""
    ended: bool
    """Whether the client is gone already."""


def take_over() -> tuple[int, int]:
    """Take standard input and output for the protocol alone; what is printed goes to standard error.

    Raises:
        UnsafeEndpoint: one of them is closed.
    """
    source, sink = _above_standard(0, "input"), _above_standard(1, "output")
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:
        os.dup2(nothing, 1)  # standard error is closed
    os.close(nothing)
    return source, sink


def _above_standard(number: int, name: str) -> int:
    # A copy among 0 to 2 would be taken for standard error, or overwritten, where that is closed.
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    except OSError as error:
        raise UnsafeEndpoint(
            f"standard {name} cannot be used: {error.strerror}",
            hint="An agent's host starts this command; it needs standard input and output.",
        ) from None


def answer_first(source: int, sink: int) -> Opened:
    """Read and answer until a request has decided the era, or until something comes that needs the server."""
    lines = Lines()
    waiting: list[bytes | None] = []
    try:
        while True:
            while not waiting:
                data = _read(source)
                if not data:
                    return Opened(source, sink, b"", None, ended=True)
                waiting = lines.feed(data)
            first = _first(waiting[0])
            if first.answer is None:
                return Opened(source, sink, _joined(waiting, lines), None, ended=False)
            _write(sink, encoded(first.answer))
            del waiting[0]
            if first.modern is not None:
                return Opened(source, sink, _joined(waiting, lines), first.modern, ended=False)
    except BrokenPipeError:
        return Opened(source, sink, b"", None, ended=True)


def _first(line: bytes | None) -> First:
    try:
        return first_answer(parsed(line))
    except BadLine as fault:
        return First(failure(None, ProtocolError(PARSE_ERROR, str(fault))), None)


def _joined(waiting: list[bytes | None], lines: Lines) -> bytes:
    # A line that is too long spans several reads, so it can only be the first of one, and was answered then.
    return b"".join(line + b"\n" for line in waiting if line is not None) + lines.rest()


def _read(source: int) -> bytes:
    while True:
        try:
            return os.read(source, _READ_BYTES)
        except BlockingIOError:  # a host may hand us a pipe that does not block
            _wait(source, reading=True)
        except OSError:
            return b""  # a terminal that is gone


def _write(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:
            _wait(sink, reading=False)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UnsafeEndpoint(
                f"standard output cannot be written: {error.strerror}",
                hint="An agent's host starts this command and reads its answers.",
            ) from None


def _wait(number: int, *, reading: bool) -> None:
    import select  # only for such a pipe

    waiting = select.poll()
    waiting.register(number, select.POLLIN if reading else select.POLLOUT)
    waiting.poll()
