"""The look at the assignment records: each that is corrupt or cannot be read keeps every verdict open."""

import os
from collections.abc import Collection
from typing import NamedTuple

from assignments.reading import Fault, every_record
from herd.cli.looking.finding import Finding, Findings, lasting
from herd.core.errors import RecoveryRequired
from herd.core.paths import Layout

_ONE_OF_THEM = (
    "Decide which of them holds, and remove the other file; until then nothing is proven of that session."
)


class _Seen(NamedTuple):
    """What the records are, without what they say."""

    faults: list[Fault]
    paths: dict[str, list[str]]
    """The paths of the sound ones, by the key of the session that each names."""


def assignments(layout: Layout, named: Collection[str]) -> Findings:
    """Look at every record of every namespace; nothing where none was ever made.

    Args:
        layout: The folders of this machine.
        named: Paths that another look has named as wrong.
    """
    if not os.path.lexists(layout.assignments):
        return
    # What looks as if it had vanished may have ended just now.
    seen = lasting(lambda: _look(layout), lambda seen: any(not one.corrupt for one in seen.faults))
    for fault in seen.faults:
        if not any(fault.path == path or fault.path.startswith(f"{path}/") for path in named):
            detail = f"{RecoveryRequired.code}: {fault.path} {fault.reason}"
            yield Finding("assignment", ok=False, detail=detail, next_step=fault.mend)
    for paths in seen.paths.values():
        if len(paths) > 1:
            detail = f"one session is named by {len(paths)} records: {', '.join(paths)}"
            yield Finding("assignment", ok=False, detail=detail, next_step=_ONE_OF_THEM)
    if not seen.faults:
        count = sum(map(len, seen.paths.values()))
        yield Finding("assignments", ok=True, detail=f"{count} on record, each of them whole")


def _look(layout: Layout) -> _Seen:
    seen = _Seen([], {})
    for found in every_record(layout):
        if isinstance(found, Fault):
            seen.faults.append(found)
        else:
            seen.paths.setdefault(found.session.key, []).append(layout.assignment(*found.place))
    return seen
