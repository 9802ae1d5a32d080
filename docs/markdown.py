"""The little Markdown that the reference pages are made of; it knows nothing of what they describe."""

import re
from collections.abc import Iterable, Sequence

_CODE_SPAN = re.compile(r"(`[^`]*`)")


class Undocumented(ValueError):
    """Something that belongs on a page says nowhere what it means."""


def cell(text: str) -> str:
    """Give a text as one table cell: on one line, no bar ends the cell, nothing outside code is HTML."""
    one_line = " ".join(text.split()).replace("|", r"\|")
    pieces = _CODE_SPAN.split(one_line)
    return "".join(piece if piece.startswith("`") else _without_tags(piece) for piece in pieces)


def _without_tags(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Give a Markdown table; every cell is escaped here."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def page(title: str, *parts: str) -> str:
    """Put a page together from its parts."""
    note = "<!-- Written by docs/generate.py; change the code it describes. -->"
    return "\n\n".join([f"# {title}", note, *parts]) + "\n"
