"""The first answer of `herd mcp`, given before anything heavy is loaded.

Twenty sessions may start at once, and a host gives up on a server that is silent for long. So the process
takes its stdio over, answers `initialize` or `server/discover`, and only then loads the rest.
"""

import os
import stat
from typing import NamedTuple

from herd.mcp.lines import BadLine, Lines, encoded, parsed
from herd.mcp.protocol import first_answer

_READ_BYTES = 65_536


class Opened(NamedTuple):
    """Where the connection stands once the rest of Herd is loaded."""

    source: int
    """The descriptor that requests come from."""
    sink: int
    """The descriptor that answers go to."""
    left: bytes
    """What was read and not answered."""
    modern: bool | None
    """The era, None where no request has decided it."""
    ended: bool
    """Whether the input has ended already."""


def take_over() -> tuple[int, int]:
    """Take standard input and output for the protocol alone; what is printed goes to standard error."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def answer_first(source: int, sink: int) -> Opened:
    """Read up to the first request and answer it if that needs nothing more."""
    lines = Lines()
    while True:
        data = os.read(source, _READ_BYTES)
        whole = lines.feed(data)
        if not data:
            return Opened(source, sink, lines.rest(), None, ended=True)
        if whole:
            break
    answered, modern = _answer(whole[0], sink)
    unread = whole[1:] if answered else whole
    left = b"".join(line + b"\n" for line in unread if line is not None) + lines.rest()
    return Opened(source, sink, left, modern, ended=False)


def _answer(line: bytes | None, sink: int) -> tuple[bool, bool | None]:
    try:
        answer, modern = first_answer(parsed(line))
    except BadLine:
        return False, None
    if answer is None:
        return False, None
    _write(sink, encoded(answer))
    return True, modern


def _write(sink: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(sink, data) :]
        except BlockingIOError:  # a host may hand us a pipe that does not block
            _wait_writable(sink)


def _wait_writable(sink: int) -> None:
    import select  # only for such a pipe

    if not stat.S_ISREG(os.fstat(sink).st_mode):
        select.select([], [sink], [])
