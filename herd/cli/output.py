"""What a command writes: JSON or lines for people on standard output, refusals on standard error.

Bytes are written, not text, so that no locale changes a message. A command that confirms what it showed does
so after `flush` returned.
"""

import json
import os
import sys
from typing import Any

from herd.core.errors import HerdError
from herd.core.text import printable


def put(text: str) -> None:
    """Write one line, or several, to standard output."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace") + b"\n")


def put_json(value: Any) -> None:
    """Write a value as one line of JSON to standard output."""
    put(json.dumps(value, ensure_ascii=False))


def flush() -> None:
    """Hand everything written to whoever reads standard output.

    Raises:
        OSError: nobody does any more.
    """
    sys.stdout.buffer.flush()


def complain(refusal: HerdError, *, as_json: bool) -> None:
    """Write a refusal to standard error: code, message and what to do next."""
    if as_json:
        text = json.dumps(refusal.to_tool(), ensure_ascii=False)
    else:
        lines = (f"herd: {refusal.code}: {refusal.message}", f"  {refusal.next_step}")
        text = "\n".join(printable(line, None) for line in lines)
    sys.stderr.buffer.write(text.encode("utf-8", "replace") + b"\n")
    sys.stderr.buffer.flush()


def abandon_output() -> None:
    """Point standard output nowhere, after its reader left, so that the interpreter's own flush is silent."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
