r"""The answer of `git worktree list --porcelain -z`, read strictly: whole and well-formed, or not at all.

Entries follow one another; an entry is attributes, each ended by a NUL, and one more NUL. An attribute is a
name, or a name, a space and a value. Names of attributes that a later git adds are let through.
"""

import os
import re
from typing import NamedTuple

_NUL = b"\0"
_HEAD = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = re.compile(rb"[a-z][a-z-]*|HEAD")
_BRANCHES = "refs/heads/"


class Malformed(ValueError):
    """It is no complete, well-formed list; the message says where."""


class Entry(NamedTuple):
    """One worktree as git lists it; the first of a list is the primary checkout, or the bare repository."""

    path: str
    """Absolute, as git has it."""
    head: str | None
    """The commit, 40 or 64 hexadecimal digits, all zero before the first one; None where it is bare."""
    branch: str | None = None
    """The branch that is checked out, without `refs/heads/`; None where it is detached or bare."""
    bare: bool = False
    detached: bool = False
    locked: bool = False
    prunable: bool = False


def entries_of(answer: bytes) -> tuple[Entry, ...]:
    """Read the whole list; it is never empty, and no path is in it twice.

    Raises:
        Malformed: something is cut off, doubled, missing or contradicts itself; nothing of the rest counts.
    """
    if not answer.endswith(_NUL * 2):
        raise Malformed("the list of worktrees is cut off")
    entries = tuple(_entry(block.split(_NUL)) for block in answer[:-2].split(_NUL * 2))
    if len({entry.path for entry in entries}) != len(entries):
        raise Malformed("the list names a worktree twice")
    return entries


def _entry(lines: list[bytes]) -> Entry:
    attributes: dict[bytes, bytes | None] = {}
    for line in lines:
        name, space, value = line.partition(b" ")
        if not _NAME.fullmatch(name):
            raise Malformed(f"an entry has {line[:40]!r} for an attribute")
        if name in attributes:
            raise Malformed(f"an entry has {name.decode()} twice")
        attributes[name] = value if space else None
    path = attributes.get(b"worktree")
    if not path or not path.startswith(b"/") or not lines[0].startswith(b"worktree "):
        raise Malformed("an entry does not begin with an absolute path")
    for name in (b"bare", b"detached"):
        if attributes.get(name) is not None:
            raise Malformed(f"an entry has a value for {name.decode()}")
    return _told(os.fsdecode(path), attributes)


def _told(path: str, attributes: dict[bytes, bytes | None]) -> Entry:
    head, branch = attributes.get(b"HEAD"), attributes.get(b"branch")
    bare, detached = b"bare" in attributes, b"detached" in attributes
    if (b"branch" in attributes) + bare + detached != 1:
        raise Malformed("an entry is not exactly one of bare, detached and on a branch")
    if bare != (b"HEAD" not in attributes):
        raise Malformed("an entry that is not bare has no HEAD, or one that is bare has one")
    if not bare and (head is None or not _HEAD.fullmatch(head)):
        raise Malformed("the HEAD of an entry is no commit")
    return Entry(
        path,
        head=None if head is None else head.decode(),
        branch=_branch(branch) if b"branch" in attributes else None,
        bare=bare,
        detached=detached,
        locked=b"locked" in attributes,
        prunable=b"prunable" in attributes,
    )


def _branch(ref: bytes | None) -> str:
    name = os.fsdecode(ref or b"")
    if not name.startswith(_BRANCHES) or name == _BRANCHES:
        raise Malformed("an entry is on something that is no branch")
    return name.removeprefix(_BRANCHES)
