"""One record on disk: read, written, removed and set aside, each change whole or not at all.

The functions that change something take the hold of the authority lock under which they do so, and refuse
any other; who may change what, and when, is `assignments.lifecycle`'s. Blocks: call it in a thread.
"""

import os
import uuid

from assignments.reading import ENDING, Fault, fault_of, opened, read_in
from assignments.record import Assignment, Place, encode
from assignments.steps import (
    ASIDE_AFTER,
    ASIDE_BEFORE,
    REMOVE_AFTER,
    REMOVE_BEFORE,
    WRITE_AFTER,
    WRITE_BEFORE,
    Step,
    no_step,
)
from herd.core.authority_lock import AuthorityHold
from herd.core.errors import AssignmentConflict, HerdError, RecoveryRequired
from herd.core.files import open_checked_folder, private_folder, replace_private
from herd.core.paths import Layout

_ASIDE = ".aside"


def look(layout: Layout, place: Place) -> Assignment | Fault | None:
    """Look at the record of a place; None where there is none, or the fault that it is."""
    path = os.path.dirname(layout.assignment(*place))
    try:
        with opened(path) as folder:
            if not os.path.lexists(layout.assignment(*place)):
                return None
            found = read_in(folder, place)
    except FileNotFoundError:
        return None
    except (HerdError, OSError) as fault:
        return fault_of(path, fault)
    return found if isinstance(found, Fault) else found.assignment


def read(layout: Layout, place: Place) -> Assignment | None:
    """Read the record of a place; None where there is none.

    Raises:
        RecoveryRequired: it is corrupt or cannot be read; the message has its path and a bounded reason, and
            the file stays as it is.
    """
    found = look(layout, place)
    if isinstance(found, Fault):
        raise recovery(found)
    return found


def recovery(fault: Fault) -> RecoveryRequired:
    """Give the refusal that names a record or folder which proves nothing, and what to do."""
    return RecoveryRequired(f"{fault.path} {fault.reason}", hint=fault.mend, path=fault.path)


def write(layout: Layout, hold: AuthorityHold, assignment: Assignment, step: Step = no_step) -> None:
    """Put a record in its place, durably: whoever reads finds the old one or the new one, whole.

    Raises:
        InvalidParams: it is beyond a bound, or no valid record; not a byte was written.
        UnsafeEndpoint: a folder on its way is not ours alone.
        OSError: it could not be written.
    """
    _require_alone(layout, hold)
    data = encode(assignment)
    path = layout.assignment(*assignment.place)
    folder = os.path.dirname(path)
    for made in (layout.assignments, os.path.dirname(folder), folder):
        private_folder(made)
    step(WRITE_BEFORE)
    replace_private(path, data, step=step)
    step(WRITE_AFTER)


def remove(layout: Layout, hold: AuthorityHold, assignment: Assignment, step: Step = no_step) -> None:
    """Remove exactly this record, durably.

    Raises:
        AssignmentConflict: another one, or none, is there.
        RecoveryRequired: what is there proves nothing.
        OSError: it could not be removed.
    """
    _require_alone(layout, hold)
    if read(layout, assignment.place) != assignment:
        raise AssignmentConflict(f"the assignment of {assignment.branch} is not the one it was")
    path = layout.assignment(*assignment.place)
    step(REMOVE_BEFORE)
    os.unlink(path)
    step(REMOVE_AFTER)
    _sync(os.path.dirname(path))


def set_aside(layout: Layout, hold: AuthorityHold, place: Place, step: Step = no_step) -> str:
    """Give a corrupt record a name that is not canonical, its bytes unchanged.

    Returns:
        The path under which it lies from then on, beside the old one.

    Raises:
        AssignmentConflict: there is none, or it is sound, or its content is not what is wrong with it.
        OSError: it could not be renamed.
    """
    _require_alone(layout, hold)
    path = layout.assignment(*place)
    found = look(layout, place)
    if not isinstance(found, Fault) or not found.corrupt:
        what = found.reason if isinstance(found, Fault) else "is not there" if found is None else "is sound"
        raise AssignmentConflict(f"{path} {what}, so it was not set aside")
    aside = f"{path.removesuffix(ENDING)}.{uuid.uuid4().hex}{_ASIDE}"
    step(ASIDE_BEFORE)
    os.rename(path, aside)
    step(ASIDE_AFTER)
    _sync(os.path.dirname(path))
    return aside


def _require_alone(layout: Layout, hold: AuthorityHold) -> None:
    if not (hold.exclusive and hold.covers(layout.authority_lock)):
        raise RuntimeError("an assignment is changed only under the authority lock, held alone")


def _sync(folder: str) -> None:
    number = open_checked_folder(folder)
    try:
        os.fsync(number)
    finally:
        os.close(number)
