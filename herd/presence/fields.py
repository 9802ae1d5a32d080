"""A reader of one JSON file that accepts each field once, checked, and then nothing else.

Records and session files are read by it instead of by pydantic, because `herd peers` reads them and
importing pydantic alone would cost more than the whole command may.
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from herd.core.limits import LABEL_CHARACTERS
from herd.core.text import printable


class Malformed(ValueError):
    """A file of ours that says something other than its schema; the text completes "<path> ..."."""


def read_fields(data: bytes) -> "Fields":
    """Read a whole file.

    Raises:
        Malformed: it is not one JSON object in UTF-8 that names each of its fields once.
    """
    try:
        # Decoded here, since json.loads would guess UTF-16 or UTF-32 and pass over a byte order mark.
        parsed = _DECODER.decode(data.decode())
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("is not JSON") from None
    return Fields(parsed)


class Fields:
    """The fields of one object, taken one by one.

    Args:
        value: The parsed JSON; anything but an object is malformed.
        where: The dotted path of the object, for messages.
    """

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise Malformed(f"has no object at {where or 'its top'}")
        self._left: dict[str, Any] = dict(value)
        self._where = where

    def has(self, name: str) -> bool:
        """Tell whether the field is there and not taken yet."""
        return name in self._left

    def end(self) -> None:
        """Refuse whatever was not taken."""
        for name in self._left:
            raise Malformed(f"has an unknown field {self._path(printable(name))}")

    def inner(self, name: str) -> "Fields":
        """Take a field that is an object itself."""
        return Fields(self._take(name), self._path(name))

    def objects(self, name: str, *, most: int) -> "list[Fields]":
        """Take a list of at most `most` objects, where the field is there at all; else an empty one."""
        if not self.has(name):
            return []
        value = self._take(name)
        if not isinstance(value, list) or len(value) > most:
            raise Malformed(f"has no list of at most {most} objects in {self._path(name)}")
        return [Fields(one, f"{self._path(name)}[{number}]") for number, one in enumerate(value)]

    def integer(self, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """Take an integer of `least` to `most`."""
        value = self._take(name)
        if type(value) is not int or not least <= value <= most:
            raise Malformed(f"has no integer from {least} to {most} in {self._path(name)}")
        return value

    def text(self, name: str, *, least: int = 1, most: int = LABEL_CHARACTERS) -> str:
        """Take a text of `least` to `most` characters without NUL."""
        value = self._left.get(name)
        if type(value) is str and least <= len(value) <= most and value.isascii() and "\0" not in value:
            del self._left[name]  # nearly every text, at a third of what the general way costs
            return value
        return self._text(name, self._take(name), least, most)

    def text_or_null(self, name: str, *, most: int = LABEL_CHARACTERS) -> str | None:
        """Take a text, or null."""
        value = self._take(name)
        return None if value is None else self._text(name, value, 1, most)

    def optional_text(self, name: str, *, most: int = LABEL_CHARACTERS) -> str | None:
        """Take a text that says something, where the field is there at all."""
        if not self.has(name):
            return None
        value = self.text(name, most=most)
        if not value.strip():
            raise Malformed(f"has a blank {self._path(name)}")
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        """Take one of some texts."""
        value = self._take(name)
        if not isinstance(value, str) or value not in choices:
            raise Malformed(f"has none of {', '.join(choices)} in {self._path(name)}")
        return value

    def texts(self, name: str, choices: Sequence[str], *, most: int) -> list[str]:
        """Take a list of at most `most` different texts out of `choices`."""
        value = self._take(name)
        known = isinstance(value, list) and all(isinstance(item, str) and item in choices for item in value)
        if not known or len(value) > most or len(set(value)) != len(value):
            raise Malformed(f"has no list of known texts in {self._path(name)}")
        return list(value)

    def true(self, name: str) -> bool:
        """Take a field that is true wherever it stands."""
        if self._take(name) is not True:
            raise Malformed(f"has something else than true in {self._path(name)}")
        return True

    def _text(self, name: str, value: Any, least: int, most: int) -> str:
        if not isinstance(value, str) or not least <= len(value) <= most or "\0" in value:
            raise Malformed(f"has no text of {least} to {most} characters in {self._path(name)}")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise Malformed(f"has a lone surrogate in {self._path(name)}")
        return value

    def _take(self, name: str) -> Any:
        if name not in self._left:
            raise Malformed(f"lacks the field {self._path(name)}")
        return self._left.pop(name)

    def _path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        # Readers that keep the first of two would see another record than those that keep the last.
        raise Malformed("names a field twice")
    return fields


def _no_number(name: str) -> NoReturn:
    raise Malformed(f"has {name}, which is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_each_once, parse_constant=_no_number)
"""Made once: `json.loads` makes a new decoder at every call that names a hook."""
