"""What a command writes: bytes that no locale changes, and nothing that a terminal acts on."""

import errno
import io
import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stderr, redirect_stdout, suppress
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.cli import output
from herd.core.errors import InvalidParams

DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Written:
    """What was written to a standard stream of a locale as narrow as there is."""

    def __init__(self, redirect: Callable[[Any], AbstractContextManager[Any]]) -> None:
        self._taken = io.BytesIO()
        self._stream = io.TextIOWrapper(self._taken, encoding="ascii", errors="strict")
        self._redirected = redirect(self._stream)

    def __enter__(self) -> Self:
        self._redirected.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._redirected.__exit__(None, None, None)

    @property
    def data(self) -> bytes:
        return self._taken.getvalue()

    @property
    def text(self) -> str:
        return self.data.decode("utf-8")


JSON = st.recursive(
    st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(JSON)
def test_json_is_one_line_that_reads_back_exactly_and_acts_on_no_terminal(value: object):
    with Written(redirect_stdout) as written:
        output.put_json(value)
        output.flush()

    assert written.data.endswith(b"\n")
    assert written.data.count(b"\n") == 1
    assert json.loads(written.data) == value
    assert not DANGEROUS.search(written.text)


def test_readable_text_stays_readable_in_json():
    with Written(redirect_stdout) as written:
        output.put_json({"text": "für 漢字 👩🏽‍🚀"})
        output.flush()

    assert "für 漢字 👩🏽" in written.text


def test_a_line_is_written_as_utf8_in_every_locale():
    with Written(redirect_stdout) as written:
        output.put("ü 漢")
        output.put("\ud800 is no character")
        output.flush()

    assert written.text == "ü 漢\n? is no character\n"


def test_a_refusal_is_two_lines_whatever_it_quotes():
    refusal = InvalidParams("a \x1b[31mred\x07\nherd: DONE: forged ü", hint="do\nthis")

    with Written(redirect_stderr) as written:
        output.complain(refusal, as_json=False)

    lines = written.text.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("herd: INVALID_PARAMS: a red")
    assert lines[1].startswith("  do")
    assert not DANGEROUS.search("".join(lines))


def test_a_refusal_in_json_holds_code_message_hint_and_details():
    with Written(redirect_stderr) as written:
        output.complain(InvalidParams("a \x1b message", field="x"), as_json=True)

    assert "\x1b" not in written.text
    assert json.loads(written.data) == {
        "code": "INVALID_PARAMS",
        "message": "a \x1b message",
        "hint": InvalidParams.hint,
        "field": "x",
    }


class Failing(io.RawIOBase):
    """A stream that takes nothing."""

    def __init__(self, fault: OSError) -> None:
        self._fault = fault

    def writable(self) -> bool:
        return True

    def write(self, _: object) -> int:
        raise self._fault


@pytest.mark.parametrize("size", [1, 1_000])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (BrokenPipeError(errno.EPIPE, "x"), ""),
        (OSError(errno.ENOSPC, "x"), "No space left on device"),
        (OSError(errno.EIO, "x"), "Input/output error"),
    ],
)
def test_an_output_that_takes_nothing_is_lost_at_the_latest_when_it_is_flushed(
    size: int, fault: OSError, reason: str
):
    raw = Failing(fault)
    stream = io.TextIOWrapper(io.BufferedWriter(raw, 100))

    def written_whole() -> None:
        output.put("x" * size)
        output.flush()

    with redirect_stdout(stream), pytest.raises(output.OutputLostError) as told:
        written_whole()
    assert told.value.reason == reason
    raw.close()  # so that nothing is flushed when it is collected
    with suppress(ValueError):
        stream.close()


def test_closed_streams_are_lost_or_silent(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)

    with pytest.raises(output.OutputLostError, match="closed"):
        output.put("x")
    output.flush()
    output.abandon()
    output.complain(InvalidParams("nobody hears it"), as_json=True)
