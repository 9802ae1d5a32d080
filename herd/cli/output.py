"""What a command writes: JSON or lines for people on standard output, refusals on standard error.

Bytes are written, not text, so that no locale changes a message. A command that confirms what it showed does
so after `flush` returned. A stream may be closed, full or without a reader: that is `OutputLostError`.
"""

import errno
import json
import os
import sys
from typing import Any, BinaryIO

from herd.core.errors import HerdError
from herd.core.limits import LINE_CHARACTERS
from herd.core.text import printable


class OutputLostError(Exception):
    """Standard output did not take all of it; `reason` says why, and is empty where its reader has left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def put(text: str) -> None:
    """Write one line, or several, to standard output.

    Raises:
        OutputLostError: it cannot be written.
    """
    _write(text.encode("utf-8", "replace") + b"\n")


def put_json(value: Any) -> None:
    """Write a value as one line of JSON to standard output; see `put`.

    What a terminal may act on stands as an escape, from which a JSON reader gets it back exactly.
    """
    put(_json(value))


def flush() -> None:
    """Hand everything written to whoever reads standard output.

    Raises:
        OutputLostError: it did not take all of it.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()  # of the text that argparse wrote, too
    except OSError as fault:
        raise _lost(fault) from fault


def remark(text: str) -> None:
    """Write one line to standard error, where somebody may still read it."""
    complain_of(f"herd: {printable(text, LINE_CHARACTERS)}")


def complain(refusal: HerdError, *, as_json: bool) -> None:
    """Write a refusal to standard error: code, message and what to do next, each on one line."""
    if as_json:
        text = _json(refusal.to_tool())
    else:
        lines = (f"herd: {refusal.code}: {refusal.message}", f"  {refusal.next_step}")
        text = "\n".join(printable(line, LINE_CHARACTERS) for line in lines)
    complain_of(text)


def complain_of(text: str) -> None:
    """Write a line to standard error, if that is open: there is nowhere else to say it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.buffer.write(text.encode("utf-8", "replace") + b"\n")
        sys.stderr.buffer.flush()
    except OSError:
        return


def abandon() -> None:
    """Point standard output nowhere, after it was lost, so that the interpreter's own flush is silent."""
    if sys.stdout is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _write(data: bytes) -> None:
    try:
        _stdout().write(data)
    except OSError as fault:
        raise _lost(fault) from fault


def _stdout() -> BinaryIO:
    if sys.stdout is None:
        raise OutputLostError("it is closed")
    return sys.stdout.buffer


def _lost(fault: OSError) -> OutputLostError:
    return OutputLostError("" if fault.errno == errno.EPIPE else os.strerror(fault.errno or 0))


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Such characters stand only inside JSON's strings, where an escape means the same.
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(one: str) -> str:
    return one if one.isprintable() else json.dumps(one)[1:-1]
