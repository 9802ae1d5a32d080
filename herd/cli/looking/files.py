"""The look at every file and folder of Herd on this machine: whether each is this user's alone.

Herd refuses what is not, one at a time and where it meets it; here all of it is named, with the command that
mends it. Names that are none of Herd's are passed over: nothing of Herd opens them.
"""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from herd.cli.looking.finding import Finding, Findings
from herd.core.paths import Layout
from herd.presence.record import Record

_FOLDER, _FILE, _SOCKET = stat.S_IFDIR, stat.S_IFREG, stat.S_IFSOCK
_WORDS = {_FOLDER: "folder", _FILE: "file", _SOCKET: "socket"}
_KEY = "[0-9a-f]{64}"
_ANY = "[^.].*"  # what begins with a dot is unfinished, and never opened under that name


class _Rule(NamedTuple):
    """What the names of a folder stand for."""

    names: str
    kind: int
    inside: "tuple[_Rule, ...]" = ()
    linked: bool = False


_SESSION = (_Rule("session\\.json|token|mailbox\\.sqlite3(-wal)?", _FILE),)
_COPIES = (_Rule(_ANY, _FILE),)
_RECORDS = (_Rule(f"{_KEY}\\.json", _FILE),)
_BELOW = (
    _Rule("peers", _FOLDER, _RECORDS),
    _Rule("assignments", _FOLDER, (_Rule(_KEY, _FOLDER, (_Rule(_KEY, _FOLDER, _RECORDS),)),)),
    _Rule("locks", _FOLDER, (_Rule(f"{_KEY}(\\.mailbox|\\.assignment)?\\.lock|authority\\..*", _FILE),)),
    _Rule("run", _FOLDER, (_Rule(".*\\.sock", _SOCKET),)),
    _Rule("hooks", _FOLDER, (_Rule(_ANY, _FILE, linked=True),)),
    _Rule("sessions", _FOLDER, (_Rule(_KEY, _FOLDER, _SESSION),)),
    _Rule("backups", _FOLDER, (_Rule(".*\\.json", _FILE), _Rule("[^.]*", _FOLDER, _COPIES))),
)


def files(layout: Layout, records: Sequence[Record], named: set[str]) -> Findings:
    """Look at every one below the folder of this machine, and name each that Herd refuses.

    Args:
        layout: The folders of this machine.
        records: Those of running sessions; a socket of theirs may lie elsewhere.
        named: Gets the path of each that is wrong.
    """
    elsewhere = [one.endpoint for one in records if os.path.dirname(one.endpoint) != layout.run]
    wrong = [
        *_within(layout.root, _BELOW),
        *(fault for path in elsewhere for fault in _judged(os.path.dirname(path), _FOLDER)),
        *(fault for path in elsewhere for fault in _judged(path, _SOCKET)),
    ]
    for path, finding in wrong:
        named.add(path)
        yield finding
    if not wrong:
        yield Finding("files", ok=True, detail="every file and folder is yours alone")


def missing_folders(layout: Layout) -> Findings:
    """Name each folder of this machine that is not there."""
    for path in (layout.peers, layout.locks, layout.run, layout.sessions, layout.hooks):
        if not os.path.lexists(path):
            yield Finding(
                "folder", ok=True, detail=f"{path} is not there; the next start of a session makes it"
            )


def _within(folder: str, rules: Sequence[_Rule]) -> Iterator[tuple[str, Finding]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # gone meanwhile, or refused to us: then its own mode or owner is named
        return
    for name in names:
        rule = next((rule for rule in rules if re.fullmatch(rule.names, name, re.DOTALL)), None)
        if rule is None:
            continue
        path = os.path.join(folder, name)
        yield from _judged(path, rule.kind, linked=rule.linked)
        if rule.inside and not os.path.islink(path):
            yield from _within(path, rule.inside)


def _judged(path: str, kind: int, *, linked: bool = False) -> Iterator[tuple[str, Finding]]:
    try:
        found = os.lstat(path)
    except OSError:  # it ended meanwhile; a folder that may not be entered is named itself
        return
    fault = _fault(found, kind, linked=linked)
    if fault is None:
        return
    detail, command = fault
    mend = f"If it was always yours alone: {command} {shlex.quote(path)}" if command else None
    step = mend or "Ask who put it there, and put the right thing in its place; Herd leaves it as it is."
    yield path, Finding(_WORDS[kind], ok=False, detail=f"{path} {detail}", next_step=step)


def _fault(found: os.stat_result, kind: int, *, linked: bool) -> tuple[str, str | None] | None:
    if stat.S_IFMT(found.st_mode) != kind:
        what = "is a symlink" if stat.S_ISLNK(found.st_mode) else f"is no {_WORDS[kind]}"
        return what, None
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to {os.geteuid()}", None
    wanted = 0o700 if kind == _FOLDER else 0o600
    if stat.S_IMODE(found.st_mode) != wanted:
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, not {wanted:04o}", f"chmod {wanted:o}"
    if kind == _FILE and found.st_nlink > 1 and not linked:
        return "has a second name, a hard link", None
    return None
