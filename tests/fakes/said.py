"""What the files, and the worktrees as they were told, make of a message: read and judged apart from Herd.

The rules are written out here once more, over the JSON of the records and of the session files.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from assignments.worktrees.groups import Grouped, Membership, Ungrouped
from herd.core.identity import SessionName
from herd.core.paths import Layout

ALLOWED, DENIED, UNVERIFIED = "allowed", "denied", "unverified"


class Side(NamedTuple):
    """One session as its files and the worktrees show it."""

    kind: str
    socket: str
    group: Membership | None
    records: list[dict[str, Any]]

    @property
    def bound(self) -> bool:
        """Whether it is not free to write to whoever is."""
        return self.kind == "managed" or bool(self.records)


def said(layout: Layout, names: Mapping[str, SessionName], groups: Mapping[str, Membership | None]) -> str:
    """Say what the files make of a message now.

    Args:
        layout: The folders of the machine.
        names: The sender and the recipient, in this order, by what they are called.
        groups: What each was said to be in.
    """
    try:
        paths = sorted(Path(layout.assignments).glob("*/*/*.json"))
        records = [json.loads(path.read_bytes()) for path in paths]
    except ValueError:
        return UNVERIFIED
    return _ruled(*(_side(layout, name, groups[who], records) for who, name in names.items()))


def _side(layout: Layout, name: SessionName, group: Membership | None, records: list[dict[str, Any]]) -> Side:
    file = json.loads(Path(layout.session_file(name.key)).read_bytes())
    mine = [one for one in records if SessionName(**one["session"]) == name]
    return Side(file["kind"], file["socket"], group, mine)


def _ruled(*sides: Side) -> str:
    if any(len(one.records) > 1 for one in sides):
        return UNVERIFIED
    if not any(one.bound for one in sides):
        return ALLOWED
    if any(one.bound and not one.records for one in sides) or len({one.socket for one in sides}) > 1:
        return DENIED
    keys = {one.group.key if isinstance(one.group, Grouped) else one.group for one in sides}
    named = {(record["socket"], record["repo"]) for one in sides for record in one.records}
    if any(isinstance(one.group, Ungrouped) for one in sides):
        return DENIED
    if any(not isinstance(one.group, Grouped) for one in sides):
        return UNVERIFIED
    return ALLOWED if len(keys) == 1 and named == {(sides[0].socket, *keys)} else DENIED
