r"""`:name` references in what a person writes: where one stands, and what it names.

Pure, and the one parser for all: command lines, the adapter API, and through it every host. It knows no peer;
that a text holds a reference means nothing until a person has selected whom it is.

A reference is a colon with a name right behind it, at the start of the text or behind whitespace, `(`, `[` or
`{`. A name is `[A-Za-z][A-Za-z0-9_-]{0,63}`, which a `peer-` id is as well, or an exact target. What follows
it is no letter, digit, `_`, `-`, `:`, `/`, `\`, `@` or `=`, and no dot with one of the first three behind it.
A line that begins with `/` or `!` is a command of the host; like code spans, fenced code and addresses, it
holds no reference.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

# Quantifiers are possessive or bounded, and every scan is linear: a text of a frame's size costs milliseconds
# whatever it holds.
_REFERENCE = re.compile(
    r"(?<![^\s(\[{]):"
    r"(?P<name>(?:lead|manager):[0-9a-hjkmnp-tv-z]{10}|[A-Za-z][A-Za-z0-9_-]{0,63}+)"
    r"(?![\w:/\\@=-])(?!\.\w)"
)
_ADDRESS = re.compile(r"(?:://|(?<!\w)www\.)\S*+")
_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")
_FENCE = re.compile(r"[ \t]*+(?P<marks>`{3,}+(?!.*`)|~{3,}+)")
_TICKS = re.compile(r"`++")
_COMMAND = ("/", "!")

_Span = tuple[int, int]


class Reference(NamedTuple):
    """A name in a text; `start` is where its colon stands and `end` is behind it, in characters."""

    name: str
    start: int
    end: int


def parse(text: str) -> list[Reference]:
    """Give the references of a text in their order; the rest of it is plain text."""
    found = [Reference(match["name"], *match.span()) for match in _REFERENCE.finditer(text)]
    if not found:
        return []
    plain = _joined([*_plain_lines(text), *(match.span() for match in _ADDRESS.finditer(text))])
    starts = [start for start, _ in plain]
    return [one for one in found if not _lies_in(plain, starts, one.start)]


def named_by(text: str) -> str | None:
    """Give the name where a text is one reference and nothing else, else None."""
    found = parse(text)
    return found[0].name if found and found[0].end - found[0].start == len(text) else None


def _lies_in(spans: list[_Span], starts: list[int], at: int) -> bool:
    before = bisect_right(starts, at) - 1
    return before >= 0 and at < spans[before][1]


def _joined(spans: list[_Span]) -> list[_Span]:
    """Sort spans and join those that overlap."""
    joined: list[_Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _plain_lines(text: str) -> Iterator[_Span]:
    """Give the spans of command lines, of fenced code, and of code within paragraphs."""
    paragraph = fenced = 0
    fence = ""
    for line in _LINE.finditer(text):
        start, end = line.span()
        marks = _FENCE.match(text, start, end)
        if fence:
            if marks is not None and _closes(marks, fence, text[marks.end() : end]):
                yield fenced, end
                fence, paragraph = "", end
            continue
        if marks is not None:
            yield from _code_spans(text, paragraph, start)
            fence, fenced = marks["marks"], start
        elif not line[0].strip():
            yield from _code_spans(text, paragraph, start)
            paragraph = end
        elif line[0].startswith(_COMMAND):
            yield start, end
    # A fence that nobody closed goes to the end, as every reader of Markdown has it.
    yield from [(fenced, len(text))] if fence else _code_spans(text, paragraph, len(text))


def _closes(marks: re.Match[str], fence: str, rest: str) -> bool:
    return marks["marks"].startswith(fence) and not rest.strip()


def _code_spans(text: str, start: int, end: int) -> Iterator[_Span]:
    """Give the code of a paragraph: from a run of backticks to the next run of the same length."""
    runs = [match.span() for match in _TICKS.finditer(text, start, end)]
    of_length: dict[int, list[int]] = {}
    for number, (first, last) in enumerate(runs):
        of_length.setdefault(last - first, []).append(number)
    number = 0
    while number < len(runs):
        first, last = runs[number]
        first += _is_escaped(text, start, first)  # a backslash takes one backtick out of an opening run alone
        same = of_length.get(last - first, [])
        behind = bisect_right(same, number)
        if first < last and behind < len(same):
            yield first, runs[same[behind]][1]
            number = same[behind]
        number += 1


def _is_escaped(text: str, start: int, at: int) -> bool:
    count = 0
    while at - count > start and text[at - count - 1] == "\\":
        count += 1
    return count % 2 == 1
