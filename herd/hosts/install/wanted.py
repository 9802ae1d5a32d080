"""What belongs into a JSON file of a host, put in and taken out again: pure, text in and text out.

Herd's entries are recognized by what they are, so they are found again after the host, a person or another
tool has rewritten the file; `Put` remembers how each one came in, so that it can leave without a trace.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from herd.core.errors import RecoveryRequired, ResourceBusy
from herd.hosts.install.edits import Misfit, Path, Seam, insert, remove, replace
from herd.hosts.install.spans import BOM, Document, Malformed, read

Names = tuple[str, ...]


class Wanted(NamedTuple):
    """One entry that is to be in the file."""

    path: Names
    """Where the object or list stands that holds it."""
    name: str | None
    """The member's name; None for a value of a list."""
    value: Any
    """What is put in where nothing of ours is there yet."""
    is_ours: Callable[[Any], bool]
    """Tells a value of ours, of whatever version, from one of others."""
    renewed: Callable[[Any], Any] = lambda present: present
    """Gives what a value of ours is to become, with what a person added to it."""
    without: Callable[[Any], Any] = lambda _: None
    """Gives what is left of a value of ours where others added to it; None for nothing."""
    is_common: bool = False
    """Whether a person may have written the very same entry, so that it is ours only if we put it in."""


class Put(NamedTuple):
    """How one entry came into a file."""

    path: Names
    name: str | None
    value: Any
    seam: Seam
    made: tuple[Names, ...]
    """The objects and lists that were made for it, the outermost first."""


def put_in(path: str, text: str, wanted: Sequence[Wanted]) -> tuple[str, list[Put]]:
    """Give the text with every entry in it, and how those that were missing came in.

    Args:
        path: The file's name, for refusals.
        text: Its content; blank where it is new or empty.
        wanted: The entries.

    Raises:
        RecoveryRequired: the text is no JSON, or holds something else where an entry belongs.
        ResourceBusy: an entry of others has the name that ours would have.
    """
    if not text.removeprefix(BOM).strip():
        text = BOM * text.startswith(BOM) + "{}\n"
    puts: list[Put] = []
    for one in wanted:
        with _named(path):
            text, put = _put_one(path, text, one)
        puts.extend(put)
    return text, puts


def take_out(path: str, text: str, wanted: Sequence[Wanted], puts: Sequence[Put]) -> str:
    """Give the text without any entry of ours and without what was made for them alone.

    Raises:
        RecoveryRequired: the text is no JSON.
    """
    if not text.removeprefix(BOM).strip():
        return text
    with _named(path):
        document = read(text)
        found = [one for one in wanted if _ours(document, one)]
        # Without a word of how anything came in, the common entries go with the others, or stay with none.
        unknown = not puts and not all(one.is_common for one in found)
        for put in reversed(puts):
            text = _take_put(text, wanted, put)
        for one in wanted:
            if unknown or not one.is_common:
                text = _take_rest(text, one)
        emptied = [one.path[:depth] for one in found if unknown for depth in range(1, len(one.path) + 1)]
        made_by_us = {*emptied, *(one for put in puts for one in put.made)}
        for made in sorted(made_by_us, key=len, reverse=True):
            text = _prune(text, made, None)
    return text


def is_blank(text: str) -> bool:
    """Tell whether a file holds nothing: no text, or one empty object."""
    return text.removeprefix(BOM).strip() in ("", "{}")


def departure(text: str) -> tuple[int, str] | None:
    """Give the line of the first comment or the first comma too many, and which of them it is."""
    found = read(text).departure if text.removeprefix(BOM).strip() else None
    return found and (text.count("\n", 0, found[0]) + 1, found[1])


class _named:  # noqa: N801 - reads as a word at its use
    """Turns what the text is not into a refusal that names the file and the line."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Malformed | Misfit):
            column = f", column {error.column}" if isinstance(error, Malformed) else ""
            raise RecoveryRequired(
                f"{self._path}, line {error.line}{column}: {error.reason}; no file was changed",
                hint="Mend that line, or move the file away, and run it again.",
            ) from error


def _put_one(path: str, text: str, one: Wanted) -> tuple[str, list[Put]]:
    document = read(text)
    depth = _depth(document, one.path)
    if depth < len(one.path):
        made = tuple(one.path[: number + 1] for number in range(depth, len(one.path)))
        value: Any = [one.value] if one.name is None else {one.name: one.value}
        for name in reversed(one.path[depth + 1 :]):
            value = {name: value}
        text, seam = insert(text, one.path[:depth], one.path[depth], value)
        return text, [Put(one.path, one.name, one.value, seam, made)]
    found = _ours(document, one)
    if found:
        return _renewed(text, one, found), []
    if one.name is not None and document.at((*one.path, one.name)) is not None:
        raise ResourceBusy(
            f"{path}: {'.'.join((*one.path, one.name))} is not Herd's; no file was changed",
            hint="Rename or remove that entry, and run it again.",
        )
    text, seam = insert(text, one.path, one.name, one.value)
    return text, [Put(one.path, one.name, one.value, seam, ())]


def _depth(document: Document, path: Names) -> int:
    """Tell how many steps of the path exist."""
    return next((number for number in range(len(path)) if document.at(path[: number + 1]) is None), len(path))


def _ours(document: Document, one: Wanted) -> list[str | int]:
    """Give the members' names or the positions at which entries of ours stand."""
    part = document.at(one.path)
    if part is None:
        return []
    value = document.value(part)
    if one.name is not None:
        there = isinstance(value, dict) and one.name in value and one.is_ours(value[one.name])
        return [one.name] if there else []
    if not isinstance(value, list):
        return []
    return [number for number, present in enumerate(value) if one.is_ours(present)]


def _renewed(text: str, one: Wanted, found: list[str | int]) -> str:
    spares = [] if one.is_common else found[1:]
    for spare in reversed(spares):  # a second one would do everything twice
        text = _take(text, one, spare, None)
    path: Path = (*one.path, found[0])
    document = read(text)
    part = document.at(path)
    present = None if part is None else document.value(part)
    renewed = one.renewed(present)
    return text if renewed == present else replace(text, path, renewed)


def _take_put(text: str, wanted: Sequence[Wanted], put: Put) -> str:
    document = read(text)
    for one in wanted:
        if (one.path, one.name) != (put.path, put.name):
            continue
        for entry in reversed(_ours(document, one)):
            part = document.at((*put.path, entry))
            if put.name is not None or (part is not None and document.value(part) == put.value):
                text = _take(text, one, entry, None if put.made else put.seam)
                document = read(text)
                break
    for made in reversed(put.made):
        text = _prune(text, made, put.seam if made == put.made[0] else None)
    return text


def _take_rest(text: str, one: Wanted) -> str:
    while found := _ours(read(text), one):
        text = _take(text, one, found[-1], None)
    return text


def _take(text: str, one: Wanted, entry: str | int, seam: Seam | None) -> str:
    document = read(text)
    part = document.at((*one.path, entry))
    left = None if part is None else one.without(document.value(part))
    if left is not None:
        return replace(text, (*one.path, entry), left)
    return remove(text, one.path, entry, seam)


def _prune(text: str, made: Names, seam: Seam | None) -> str:
    """Take out an object or list that was made for an entry of ours and is empty now."""
    document = read(text)
    part = document.at(made)
    if part is None or part.parts or (part.names is None and not part.is_list):
        return text
    return remove(text, made[:-1], made[-1], seam)
