"""How a JSON text is laid out, so that what is put into it looks like the rest.

It is pure, and guesses from what is there: a text without any line gets none.
"""

import json
import re
from typing import Any

from herd.hosts.install.spans import BOM, Document, Part

_INDENT = re.compile(r"[ \t]*+")


class Style:
    """How a document is laid out; `newline`, `unit` of indentation, `blank` after a comma in one line."""

    def __init__(self, document: Document) -> None:
        self.text = text = document.text
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.is_flat = "\n" not in text and bool(document.root.parts)
        self.blank = "" if self.is_flat and not re.search(r"[:,] ", text) else " "
        self.unit = self._unit(document.root)

    def _unit(self, root: Part) -> str:
        if not root.parts:
            return "  "
        own = self.own_line(root.begins(0))
        return own.removeprefix(self.indent_at(root.start)) if own else "  "

    def _line_start(self, at: int) -> int:
        return self.text.rfind("\n", 0, at) + 1

    def indent_at(self, at: int) -> str:
        """Give the blanks at the beginning of the line."""
        start = self._line_start(at)
        start += self.text.startswith(BOM, start)
        return self.text[start : _INDENT.match(self.text, start).end()]  # type: ignore[union-attr]

    def own_line(self, at: int) -> str | None:
        """Give the blanks before a line's first word, if that begins at this place."""
        start = self._line_start(at)
        before = self.text[start:at]
        return before if start and not before.strip(" \t") else None

    def rendered(self, value: Any, indent: str | None) -> str:
        """Give a value as text: on lines of that indentation, or on one line where it is None."""
        if indent is None:
            return json.dumps(value, ensure_ascii=False, separators=(f",{self.blank}", f":{self.blank}"))
        lines = json.dumps(value, ensure_ascii=False, indent=self.unit or "  ").split("\n")
        return f"{self.newline}{indent}".join(lines)

    def entry(self, name: str | None, value: Any, indent: str | None) -> str:
        """Give a member or a list's value as text."""
        if name is None:
            return self.rendered(value, indent)
        blank = " " if indent is not None else self.blank
        return f"{json.dumps(name, ensure_ascii=False)}:{blank}{self.rendered(value, indent)}"
