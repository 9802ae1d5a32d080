"""`herd assignments`: which session carries which branch, and whether it works on it now."""

import argparse
import os
from typing import Any

from assignments.reading import Fault, every_record
from assignments.record import Assignment
from assignments.status import Surroundings, Worker, status_of
from assignments.store import recovery
from herd.cli import output
from herd.cli.context import open_context
from herd.core.errors import RecoveryRequired
from herd.core.identity import target_of
from herd.core.text import printable
from herd.presence.record import Presence, Record
from roles.model import LEAD

HELP = "show which session carries which branch"
DESCRIPTION = (
    "Show the assignments of every repository and Herdr socket. Whether one is active, paused or in conflict"
    " is told from the sessions that run now; git and Herdr are not asked."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.set_defaults(needs_session=False)


def run(options: argparse.Namespace) -> int:
    """Show them; what is wrong with a record is told after those that are sound.

    Raises:
        RecoveryRequired: a record or folder proves nothing; it may be one that is missing from the list.
    """
    context = open_context()
    listed = {record.key: record for record in context.registry.listed()}
    entries, faults = [], []
    for found in every_record(context.layout):
        if isinstance(found, Fault):
            faults.append(found)
        else:
            entries.append(_entry(found, listed))
    if options.json:
        output.put_json({"assignments": entries})
    else:
        _put(entries)
    if faults:
        raise _refusal(faults)
    return 0


def _refusal(faults: list[Fault]) -> RecoveryRequired:
    """Give one refusal that names them all, with every step that mends one."""
    first = recovery(faults[0])
    message = "; ".join(recovery(fault).message for fault in faults)
    steps = " ".join(dict.fromkeys(fault.mend for fault in faults))
    return RecoveryRequired(message, hint=steps, **first.details)


def _entry(assignment: Assignment, listed: dict[str, Record]) -> dict[str, Any]:
    record = listed.get(assignment.session.key)
    name = record.presence.name if record is not None and record.presence is not None else None
    workers = [
        Worker(key, one.presence.socket, _place(assignment, one.presence))
        for key, one in listed.items()
        if one.presence is not None and one.presence.role == LEAD
    ]
    entry = {
        "repo": assignment.repo,
        "branch": assignment.branch,
        "target": target_of(LEAD, assignment.session.key),
        "name": name,
        "status": status_of(assignment, Surroundings(workers, assignment.checkout)),
        "socket": assignment.socket,
        "checkout": assignment.checkout,
    }
    return {field: value for field, value in entry.items() if value is not None}


def _place(assignment: Assignment, presence: Presence) -> str | None:
    """Give where a session works: the assignment's checkout where its folder lies there, else its folder."""
    folder = presence.workspace
    if folder is None or assignment.checkout is None:
        return folder
    inside = folder == assignment.checkout or folder.startswith(assignment.checkout.rstrip(os.sep) + os.sep)
    return assignment.checkout if inside else folder


def _put(entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        name = f" {printable(entry['name'])}" if "name" in entry else ""
        output.put(f"{entry['status']:<8} {printable(entry['branch'])} of {printable(entry['repo'])}")
        output.put(f"         {entry['target']}{name}, socket {printable(entry['socket'])}")
    if not entries:
        output.put("nothing is assigned")
