"""Edits of JSON text that leave every character of others alone: an entry in, an entry out, a value replaced.

An entry is a member of an object or a value of a list. What was put around it is told as `Seam`; with that
the entry comes out again to the character, whatever the layout, comments and line ends are. Every result is
read again before it is given, and has to mean what was asked for.
"""

import re
from typing import Any, NamedTuple

from herd.hosts.install.spans import Document, Part, place, read
from herd.hosts.install.style import Style

Path = tuple[str | int, ...]
"""Where a value stands: names of members and positions in lists, from the root."""

_SAME_LINE = re.compile(r"(?:[ \t]*+(?://[^\r\n]*+|/\*(?:[^*\r\n]|\*(?!/))*+\*/))*+")
_BETWEEN = re.compile(r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_REST_OF_LINE = re.compile(r"[ \t]*+(?=\r?\n)")
_INDENT = re.compile(r"[ \t]*+")


class Seam(NamedTuple):
    """What an insertion put around an entry."""

    lead: str
    """The text right before it."""
    tail: str
    """The text right after it."""
    comma: bool
    """Whether a comma was put behind the entry before it, too."""


class Misfit(Exception):
    """Something in the text is of another type than the edit needs; `line` counts from 1."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def insert(text: str, path: Path, name: str | None, value: Any) -> tuple[str, Seam]:
    """Add an entry at the end of an object or list, in the layout that is found there.

    Args:
        text: The whole text.
        path: Where the object or list stands.
        name: The new member's name; None for a list.
        value: The new value.

    Raises:
        Misfit: there is no such object or list; nothing may be inserted where the name is taken.
        Malformed: the text is no JSON.
    """
    document = read(text)
    held = _container(document, path, name)
    style = Style(document)
    if held.parts:
        edited, seam = _appended(style, held, name, value)
    else:
        edited, seam = _filled(style, held, name, value)
    entry = document.value(held)
    changed = [*entry, value] if name is None else {**entry, name: value}
    return _meaning(edited, document, path, changed), seam


def remove(text: str, path: Path, entry: str | int, seam: Seam | None = None) -> str:
    """Take an entry out of an object or list.

    Args:
        text: The whole text.
        path: Where the object or list stands.
        entry: The member's name or the position in the list.
        seam: What was put around it, if that is known and may still stand there.

    Raises:
        Misfit: there is no such entry.
        Malformed: the text is no JSON.
    """
    document = read(text)
    held = _container(document, path, None if isinstance(entry, int) else "")
    number = held.number_of(entry) if isinstance(entry, str) else entry
    if number is None or not 0 <= number < len(held.parts):
        raise Misfit(place(text, held.start)[0], f"there is no {entry!r} to remove")
    cuts = (seam and _exact_cuts(text, held, number, seam)) or _careful_cuts(text, held, number)
    changed: Any = document.value(held)
    changed.pop(entry)
    return _meaning(_without(text, cuts), document, path, changed)


def replace(text: str, path: Path, value: Any) -> str:
    """Put another value in the place of one, in the layout of its surroundings.

    Raises:
        Misfit: nothing stands at that path.
        Malformed: the text is no JSON.
    """
    document = read(text)
    part = document.at(path)
    if part is None:
        raise Misfit(1, f"there is no {_shown(path)} to replace")
    style = Style(document)
    multiline = "\n" in text[part.start : part.end] or (not style.is_flat and bool(value))
    rendered = style.rendered(value, style.indent_at(part.start) if multiline else None)
    return _meaning(text[: part.start] + rendered + text[part.end :], document, path, value)


def _appended(style: Style, held: Part, name: str | None, value: Any) -> tuple[str, Seam]:
    text, last = style.text, len(held.parts) - 1
    end = held.parts[last].end
    indent = style.own_line(held.begins(last))
    lead = _blank_before(style, held, last) if indent is None else style.newline + indent
    entry = style.entry(name, value, indent)
    comma = held.trailing_comma is None
    at = after = end if held.trailing_comma is None else held.trailing_comma + 1
    if indent is not None:
        at = _SAME_LINE.match(text, after).end()  # type: ignore[union-attr] # a remark stays beside its value
    seam = Seam(lead, "" if comma else ",", comma)
    return text[:after] + "," * comma + text[after:at] + lead + entry + seam.tail + text[at:], seam


def _blank_before(style: Style, held: Part, last: int) -> str:
    if last:
        between = style.text[held.parts[last - 1].end : held.begins(last)]
        if between[:1] == "," and not between[1:].strip(" \t"):
            return between[1:]
    return style.blank


def _filled(style: Style, held: Part, name: str | None, value: Any) -> tuple[str, Seam]:
    text = style.text
    if style.is_flat:
        seam = Seam("", "", comma=False)
        at, indent = held.start + 1, None
    else:
        base = style.indent_at(held.start)
        indent = base + (style.unit or "  ")
        at = _SAME_LINE.match(text, held.start + 1).end()  # type: ignore[union-attr] # matches nothing, too
        closes_itself = "\n" in text[at : held.end]
        seam = Seam(style.newline + indent, "" if closes_itself else style.newline + base, comma=False)
    return text[:at] + seam.lead + style.entry(name, value, indent) + seam.tail + text[at:], seam


Cuts = list[tuple[int, int]]


def _exact_cuts(text: str, held: Part, number: int, seam: Seam) -> Cuts | None:
    """Give what an insertion added, if it still stands there and nothing has come to lean on it."""
    start, end = held.begins(number) - len(seam.lead), held.parts[number].end + len(seam.tail)
    if text[start : held.begins(number)] != seam.lead or text[end - len(seam.tail) : end] != seam.tail:
        return None
    is_last = number == len(held.parts) - 1
    if seam.tail == ",":
        return [(start, end)]
    if not is_last or held.trailing_comma is not None:
        return None
    if not seam.comma:
        return [(start, end)] if number == 0 else None
    before = held.parts[number - 1].end if number else held.start
    return [(before, before + 1), (start, end)] if number and text[before] == "," else None


def _careful_cuts(text: str, held: Part, number: int) -> Cuts:
    """Give an entry, one comma, and the line it stood on if nothing else stands there."""
    begin, end = held.begins(number), held.parts[number].end
    line = text.rfind("\n", 0, begin) + 1
    own_line = line > held.start and not text[line:begin].strip(" \t")
    if number < len(held.parts) - 1 or held.trailing_comma is not None:
        comma = _BETWEEN.match(text, end).end()  # type: ignore[union-attr] # matches nothing, too
        if text[end:comma].strip():
            return [(begin, end), (comma, comma + 1)]
        rest = _REST_OF_LINE.match(text, comma + 1)
        if own_line and rest:
            return [(line, text.index("\n", rest.end()) + 1)]
        return [(begin, _INDENT.match(text, comma + 1).end())]  # type: ignore[union-attr]
    cuts = []
    if own_line and _REST_OF_LINE.match(text, end):
        begin = line - (2 if text[line - 2 : line] == "\r\n" else 1)
    if number:
        before = held.parts[number - 1].end
        comma = _BETWEEN.match(text, before).end()  # type: ignore[union-attr]
        cuts.append((comma, comma + 1))
        if comma < begin and not text[comma + 1 : begin].strip(" \t"):
            begin = comma + 1
    elif not (text[held.start + 1 : begin] + text[end : held.end - 1]).strip():
        return [(held.start + 1, held.end - 1)]
    return [*cuts, (begin, end)]


def _without(text: str, cuts: Cuts) -> str:
    for start, end in reversed(cuts):
        text = text[:start] + text[end:]
    return text


def _container(document: Document, path: Path, name: str | None) -> Part:
    part = document.at(path)
    wanted = "a list" if name is None else "an object"
    if part is None:
        raise Misfit(1, f"there is no {_shown(path)}")
    if (not part.is_list) if name is None else part.names is None:
        raise Misfit(place(document.text, part.start)[0], f"{_shown(path)} is not {wanted}")
    if name and part.number_of(name) is not None:
        raise Misfit(place(document.text, part.start)[0], f"{_shown((*path, name))} is there already")
    return part


def _shown(path: Path) -> str:
    return ".".join(str(step) for step in path) or "the whole file"


def _meaning(edited: str, document: Document, path: Path, changed: Any) -> str:
    """Give the edited text, once it was read again and means what was asked for."""
    after = read(edited)
    if after.value(after.root) != _changed(document.value(document.root), path, changed):
        raise AssertionError(f"an edit of {_shown(path)} would have changed something else")
    return edited


def _changed(value: Any, path: Path, changed: Any) -> Any:
    if not path:
        return changed
    copied: Any = dict(value) if isinstance(value, dict) else list(value)
    copied[path[0]] = _changed(value[path[0]], path[1:], changed)
    return copied
