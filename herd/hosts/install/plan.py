"""What an installation is about to do, to be shown or carried out."""

import difflib
import os
from typing import NamedTuple

from herd.hosts.install.disk import Change

CREATED, EDITED, RESTORED, REMOVED, UNCHANGED = "created", "edited", "restored", "removed", "unchanged"


class Outcome(NamedTuple):
    """What becomes of one file of the host."""

    path: str
    what: str
    """One of `CREATED`, `EDITED`, `RESTORED`, `REMOVED`, `UNCHANGED`."""
    before: bytes | None
    after: bytes | None
    remarks: tuple[str, ...] = ()

    def diff(self) -> str:
        """Give the change as a unified diff; empty where there is none."""
        sides = [one.decode("utf-8", "replace").splitlines(keepends=True) for one in self._sides()]
        names = [self.path if one is not None else os.devnull for one in (self.before, self.after)]
        lines = difflib.unified_diff(sides[0], sides[1], names[0], names[1])
        return "".join(
            one if one.endswith("\n") else f"{one}\n\\ No newline at end of file\n" for one in lines
        )

    def _sides(self) -> tuple[bytes, bytes]:
        return self.before or b"", self.after or b""


class Plan(NamedTuple):
    """What is to be done."""

    outcomes: list[Outcome]
    """The host's files."""
    changes: list[Change]
    """Everything that is written, backups first."""
    folders: list[str]
    """Folders to make."""
    emptied: list[str]
    """Folders that go if nothing is in them, the innermost first."""
