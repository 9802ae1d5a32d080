"""Which workspace and repository a folder is of, read from its files: no git runs, and nothing is written.

A checkout belongs to a repository only if its own `.git` leads to the common directory and what is found
there leads back: otherwise anybody who writes a file `.git` would be in any repository. Blocks, though for an
instant: call it in a thread.
"""

import os
import stat
from typing import NamedTuple

from assignments.worktrees.groups import Ungrouped, Unproven
from herd.core.limits import GIT_FILE_BYTES, PLACE_ID_BYTES
from herd.core.text import printable
from herd.presence.scopes import Extent

_PARTS = ("objects", "refs")


class Checkout(NamedTuple):
    """A checkout that leads to its common directory, and to which that leads back."""

    top: str
    """The real path of its topmost folder."""
    common: str
    """The real path of the common directory: the key of its group."""
    linked: bool
    """Whether it is a linked worktree, and not the primary checkout."""


def extent_at(folder: str, scope: str) -> Extent:
    """Give what a session of that scope takes in and is taken in by while it works in a folder."""
    return Extent(scope, workspace_of(folder), common_directory(folder))


def workspace_of(folder: str) -> str | None:
    """Give the real path of a folder; None where there is none, or where a record could not hold it."""
    try:
        path = _folder(folder)
    except (OSError, ValueError):
        return None
    return path if _fits(path) else None


def common_directory(folder: str) -> str | None:
    """Give the real path of the common directory of a folder's repository.

    None outside a checkout, and where `.git` and the common directory do not lead to each other.
    """
    found = checkout_of(folder)
    return found.common if isinstance(found, Checkout) else None


def checkout_of(folder: str) -> Checkout | Ungrouped | Unproven:
    """Find the checkout a folder lies in; a symlink on the way to the folder changes nothing.

    It is `Ungrouped` only where every folder from there up was looked at and none has a `.git`. A `.git` that
    leads nowhere, or to where nothing leads back, is `Unproven`: it may be one that was moved by hand.
    """
    try:
        path = _folder(folder)
        top = _top(path)
        if top is None:
            return Ungrouped(f"no checkout is at {_shown(path)} or above it")
        common, linked = _common(top)
    except OSError as error:
        return Unproven(f"{_shown(error.filename or folder)}: {error.strerror or error}")
    except ValueError as error:
        return Unproven(f"no way there and back is found from {_shown(folder)}: {error}")
    if not _fits(top) or not _fits(common):
        return Unproven(f"the path {_shown(common)} cannot be kept in a record")
    return Checkout(top, common, linked)


def is_repository(path: str) -> bool:
    """Tell whether a folder looks like a common directory: it has `HEAD`, `objects` and `refs`."""
    return os.path.lexists(os.path.join(path, "HEAD")) and all(
        os.path.isdir(os.path.join(path, part)) for part in _PARTS
    )


def is_absent(path: str) -> bool:
    """Tell whether it is certain that nothing is at a path; of what may not be looked at nothing is certain.

    Raises:
        OSError: the path cannot be looked at.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return False


def _folder(folder: str) -> str:
    path = os.path.realpath(folder, strict=True)
    if not stat.S_ISDIR(os.stat(path).st_mode):
        raise ValueError("it is no folder")
    return path


def _top(folder: str) -> str | None:
    """Give the nearest folder, from this one up on its file system, that has a `.git`; so git looks, too."""
    device = os.stat(folder).st_dev
    while is_absent(os.path.join(folder, ".git")):
        if is_repository(folder) and os.path.basename(folder) != ".git":
            # git takes it for a repository of its own, so what is inside belongs to no checkout further up.
            raise ValueError(f"{_shown(folder)} is a repository without a checkout")
        above = os.path.dirname(folder)
        if above == folder or os.stat(above).st_dev != device:
            return None
        folder = above
    return folder


def _common(top: str) -> tuple[str, bool]:
    """Give the common directory of a checkout, and whether that is a linked worktree of it."""
    entry = os.path.join(top, ".git")
    mode = os.lstat(entry).st_mode
    if stat.S_ISDIR(mode):
        _require(is_repository(entry), "its .git is no repository")
        return entry, False  # it lies in its checkout, and so leads back
    _require(stat.S_ISREG(mode), "its .git is a link or no file")  # a link leads there, and nothing back
    word, _, path = _line(entry).partition(" ")
    _require(word == "gitdir:", "its .git names no repository")
    own = _real(top, path)
    if not is_absent(os.path.join(own, "commondir")):
        return _common_of_linked(own, entry), True
    _require(is_repository(own) and _worktree_of(own) == top, "its .git leads there, but nothing back")
    return own, False


def _common_of_linked(own: str, entry: str) -> str:
    """Give the common directory of a linked worktree, by its own folder in there."""
    common = _real(own, _line(os.path.join(own, "commondir")))
    registered = os.path.dirname(own) == os.path.join(common, "worktrees")
    folder, name = os.path.split(_line(os.path.join(own, "gitdir")))
    leads_back = name == ".git" and _real(own, folder) == os.path.dirname(entry)
    _require(registered and is_repository(common), "its .git leads to no entry of a repository")
    _require(leads_back, "the entry that its .git leads to does not lead back")
    return common


def _worktree_of(own: str) -> str | None:
    """Give the checkout that a directory outside of it names as its own, as that of a submodule does."""
    in_core = False
    for line in _text(os.path.join(own, "config")).splitlines():
        text = line.strip()
        if text.startswith("["):
            in_core = text.lower() == "[core]"
        elif in_core:
            name, _, value = text.partition("=")
            if name.strip().lower() == "worktree":
                return _real(own, value.strip().strip('"'))
    return None


def _require(holds: bool, reason: str) -> None:  # noqa: FBT001 - the condition comes first, as in an assert
    if not holds:
        raise ValueError(reason)


def _real(base: str, path: str) -> str:
    return os.path.realpath(os.path.join(base, path), strict=True)


def _line(path: str) -> str:
    return _text(path).removesuffix("\n").removesuffix("\r")


def _text(path: str) -> str:
    # Whoever makes a FIFO of it, or a huge file, must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("a file of its repository is no regular file")
        data = os.read(descriptor, GIT_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > GIT_FILE_BYTES:
        raise ValueError("a file of its repository is too large")
    return os.fsdecode(data)


def _fits(path: str) -> bool:
    """Tell whether a record can hold a path as it is: two paths must not become one text by being cut."""
    odd = any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in path)
    return not odd and len(path.encode()) <= PLACE_ID_BYTES


def _shown(path: str | bytes) -> str:
    return printable(os.fsdecode(path))
