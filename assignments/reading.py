"""The records as files: one of them read, and every canonical one found, or what is wrong in its place.

Names that are not canonical are passed over: nothing of Herd writes or reads them. Nothing is written here,
and what is wrong is told and left as it is. Blocks: call it in a thread.
"""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from assignments.evidence import Lacking
from assignments.record import Assignment, Place, decode, is_digest
from herd.core.errors import HerdError, NewerState, RecoveryRequired, SystemWant
from herd.core.files import open_checked_folder, read_private_at
from herd.core.limits import ASSIGNMENT_FILE_BYTES, ASSIGNMENT_REASON_CHARACTERS
from herd.core.paths import Layout
from herd.core.text import printable
from herd.presence.fields import Malformed
from herd.presence.stamps import Stamp, stamp_of

ENDING = ".json"
REPAIR = "`herd doctor --repair` sets a corrupt record aside, its bytes unchanged, on a person's word."
_VANISHED = "vanished while the records were read"


class Fault(NamedTuple):
    """A record or folder that proves nothing."""

    path: str
    reason: str
    """What is wrong, bounded."""
    place: Place | None = None
    """Where the record is meant to lie; None for a folder."""
    corrupt: bool = False
    """Whether it is the content that is wrong: then it may be set aside, on a person's word."""
    mend: str = "Run `herd doctor`: it says what is wrong there."
    """What to do."""

    @property
    def lacking(self) -> Lacking:
        """The same as evidence."""
        return Lacking(self.reason, self.path)


class Found(NamedTuple):
    """A record that was read, and the stamp of the file it was read from."""

    assignment: Assignment
    stamp: Stamp


class Folder(NamedTuple):
    """A folder of ours that is open."""

    path: str
    number: int
    stamp: Stamp
    """Taken before anything in it was looked at."""

    def names(self, ending: str = "") -> list[str]:
        """Give the canonical names in it, in order, without the ending that each of them has."""
        found = (name.removesuffix(ending) for name in os.listdir(self.number) if name.endswith(ending))
        return sorted(filter(is_digest, found))


def every_record(layout: Layout) -> Iterator[Assignment | Fault]:
    """Give every canonical record of every namespace, or what is wrong with it, in the order of their paths.

    Without the authority lock a record that ends meanwhile looks as if it had vanished.
    """
    if not os.path.lexists(layout.assignments):
        return
    for socket in _inside(layout.assignments):
        if isinstance(socket, Fault):
            yield socket
            continue
        for repo in _inside(f"{layout.assignments}/{socket}"):
            yield from [repo] if isinstance(repo, Fault) else _records(layout, socket, repo)


def _inside(path: str) -> list[str] | list[Fault]:
    try:
        with opened(path) as folder:
            return folder.names()
    except (HerdError, OSError) as fault:
        return [fault_of(path, fault)]


def _records(layout: Layout, socket: str, repo: str) -> Iterator[Assignment | Fault]:
    path = f"{layout.assignments}/{socket}/{repo}"
    try:
        with opened(path) as folder:
            for branch in folder.names(ENDING):
                found = read_in(folder, Place(socket, repo, branch))
                yield found if isinstance(found, Fault) else found.assignment
    except (HerdError, OSError) as fault:
        yield fault_of(path, fault)


@contextmanager
def opened(path: str) -> Iterator[Folder]:
    """Open a folder of ours.

    Raises:
        FileNotFoundError: there is none.
        HerdError: it is no private folder of ours, or the system is in want of something.
        OSError: it cannot be opened.
    """
    number = open_checked_folder(path)
    try:
        yield Folder(path, number, stamp_of(os.fstat(number)))
    finally:
        os.close(number)


def read_in(folder: Folder, place: Place) -> Found | Fault:
    """Read the record of a place in its open folder, or tell what is wrong with it."""
    name = place.branch + ENDING
    path = f"{folder.path}/{name}"
    try:
        found = read_private_at(folder.number, name, ASSIGNMENT_FILE_BYTES)
        if found is None:
            return Fault(path, _VANISHED, place)
        return Found(decode(found[0], place), stamp_of(found[1]))
    except Malformed as fault:
        return Fault(path, bounded(str(fault)), place, corrupt=True, mend=REPAIR)
    except (HerdError, OSError) as fault:
        # Of the file's content it says one thing alone: that there is too much of it.
        if isinstance(fault, RecoveryRequired) and not isinstance(fault, SystemWant):
            reason = f"is larger than {ASSIGNMENT_FILE_BYTES} bytes"
            return Fault(path, reason, place, corrupt=True, mend=REPAIR)
        found_at = fault_of(path, fault)
        # It was opened by its bare name, which leads nowhere from where a person types the command.
        return found_at._replace(place=place, mend=found_at.mend.replace(f" {name}", f" {shlex.quote(path)}"))


def fault_of(path: str, fault: Exception) -> Fault:
    """Give the fault that something is which could not be opened or listed."""
    if isinstance(fault, FileNotFoundError):
        return Fault(path, _VANISHED)
    reason = bounded(str(fault) if isinstance(fault, NewerState) else f"cannot be read: {fault}")
    return Fault(path, reason, mend=fault.next_step) if isinstance(fault, HerdError) else Fault(path, reason)


def bounded(reason: str) -> str:
    """Give a reason as it is shown: on one line, and no longer than its bound."""
    return printable(reason, ASSIGNMENT_REASON_CHARACTERS)
