"""JSON as text with places: which characters hold which member, so that an edit touches nothing else.

Comments and trailing commas are read too, since people write them; the first departure from strict JSON is
told. It is pure, and knows nothing of files or of what the members mean.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from herd.core.limits import HOST_FILE_DEPTH

_BLANK = re.compile(r"[ \t\r\n]*+")
_COMMENT = re.compile(r"//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+"')
_PLAIN = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+")
_WORD = re.compile(r"[A-Za-z0-9_.+-]")
_LONGEST_NUMBER = 4_000

BOM = "\ufeff"
"""What some editors put in front of a text."""


class Malformed(Exception):
    """The text is no JSON; `line` and `column` count from 1."""

    def __init__(self, text: str, at: int, reason: str) -> None:
        self.line, self.column = place(text, at)
        self.reason = reason
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


@dataclass(frozen=True, slots=True)
class Part:
    """A value where it stands: `text[start:end]`."""

    start: int
    end: int
    parts: tuple["Part", ...] = ()
    """The values in it, in the order of the text; of several members of one name the last one counts."""
    names: tuple[tuple[int, str], ...] | None = None
    """Where each member begins, and its name; None for what is no object."""
    trailing_comma: int | None = None
    """Where the comma after the last value stands."""
    is_list: bool = False

    def begins(self, number: int) -> int:
        """Tell where the entry of that number begins: with a member's name, or with a list's value."""
        return self.names[number][0] if self.names is not None else self.parts[number].start

    def number_of(self, name: str) -> int | None:
        """Give the number of the member that counts under that name."""
        names = [one for _, one in self.names or ()]
        return len(names) - 1 - names[::-1].index(name) if name in names else None


@dataclass(slots=True)
class Document:
    """A whole text that was read."""

    text: str
    root: Part
    departure: tuple[int, str] | None = None
    """Where the text first is no strict JSON, and what stands there."""

    def value(self, part: Part) -> Any:
        """Give a part as Python has it."""
        if part.names is not None:
            return {name: self.value(one) for (_, name), one in zip(part.names, part.parts, strict=True)}
        if part.is_list:
            return [self.value(one) for one in part.parts]
        return json.loads(self.text[part.start : part.end])

    def at(self, path: tuple[str | int, ...]) -> Part | None:
        """Give what stands at a path of names and list positions; None where there is nothing."""
        part: Part | None = self.root
        for step in path:
            if part is None:
                return None
            number = part.number_of(step) if isinstance(step, str) else step
            there = number is not None and 0 <= number < len(part.parts)
            part = part.parts[number] if there and number is not None else None
        return part


def place(text: str, at: int) -> tuple[int, int]:
    """Give the line and the column of a place, both counted from 1."""
    before = text[:at].removeprefix(BOM)
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def read(text: str) -> Document:
    """Read a text that is one JSON value, with comments and trailing commas at will.

    Raises:
        Malformed: it is not; the first place where it fails is told.
    """
    return _Reader(text).document()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = len(BOM) if text.startswith(BOM) else 0
        self._departure: tuple[int, str] | None = None

    def document(self) -> Document:
        self._skip()
        root = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._wrong("something follows the end of the value")
        return Document(self._text, root, self._departure)

    def _value(self, depth: int) -> Part:
        if depth > HOST_FILE_DEPTH:
            raise self._wrong(f"more than {HOST_FILE_DEPTH} values lie inside one another")
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._object(depth)
            case "[":
                return self._list(depth)
            case '"':
                return self._string()
        found = _PLAIN.match(self._text, self._at)
        if found is None or _WORD.match(self._text, found.end()):
            raise self._wrong("a value is expected")
        if found.end() - found.start() > _LONGEST_NUMBER:
            raise self._wrong("the number is too long")
        return self._taken(found.end())

    def _string(self) -> Part:
        found = _STRING.match(self._text, self._at)
        if found is None:
            raise self._wrong("a string does not end, or holds what no string may")
        return self._taken(found.end())

    def _taken(self, end: int) -> Part:
        part = Part(self._at, end)
        self._at = end
        return part

    def _object(self, depth: int) -> Part:
        start = self._at
        names, parts = [], []
        comma = None
        for _ in self._entries("}"):
            if self._text[self._at : self._at + 1] != '"':
                raise self._wrong("a member's name in quotation marks, or }, is expected")
            name = self._string()
            names.append((name.start, json.loads(self._text[name.start : name.end])))
            self._skip()
            self._expect(":")
            self._skip()
            parts.append(self._value(depth + 1))
            comma = self._comma("}")
        return Part(start, self._at, tuple(parts), tuple(names), comma)

    def _list(self, depth: int) -> Part:
        start = self._at
        parts = []
        comma = None
        for _ in self._entries("]"):
            parts.append(self._value(depth + 1))
            comma = self._comma("]")
        return Part(start, self._at, tuple(parts), None, comma, is_list=True)

    def _entries(self, closing: str) -> Iterator[None]:
        self._at += 1
        self._skip()
        while self._text[self._at : self._at + 1] != closing:
            yield
        self._at += 1

    def _comma(self, closing: str) -> int | None:
        """Pass what stands between two entries; give where a comma with nothing behind it stands."""
        self._skip()
        if self._text[self._at : self._at + 1] == closing:
            return None
        at = self._at
        self._expect(",", f", or {closing}")
        self._skip()
        if self._text[self._at : self._at + 1] != closing:
            return None
        self._departs(at, "a comma with nothing behind it")
        return at

    def _skip(self) -> None:
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr] # matches anywhere
            if self._text[self._at : self._at + 1] != "/":
                return
            found = _COMMENT.match(self._text, self._at)
            if found is None:
                raise self._wrong("a comment does not end, or is none")
            self._departs(self._at, "a comment")
            self._at = found.end()

    def _expect(self, character: str, shown: str = "") -> None:
        if self._text[self._at : self._at + 1] != character:
            raise self._wrong(f"{shown or character} is expected")
        self._at += 1

    def _departs(self, at: int, what: str) -> None:
        if self._departure is None or at < self._departure[0]:
            self._departure = (at, what)

    def _wrong(self, reason: str) -> Malformed:
        ended = self._at >= len(self._text)
        return Malformed(self._text, self._at, f"{reason}, and the file ends here" if ended else reason)
