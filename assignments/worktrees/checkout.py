"""Which workspace and repository a folder is of, read from its files: no git runs, and nothing is written.

A checkout belongs to a repository only if its own `.git` leads to the common directory and what is found
there leads back: otherwise anybody who writes a file `.git` would be in any repository. Blocks, though for an
instant: call it in a thread.
"""

import os
import stat

from herd.core.limits import GIT_FILE_BYTES, PLACE_ID_BYTES
from herd.presence.scopes import Extent

_PARTS = ("objects", "refs")


def extent_at(folder: str, scope: str) -> Extent:
    """Give what a session of that scope takes in and is taken in by while it works in a folder."""
    return Extent(scope, workspace_of(folder), common_directory(folder))


def workspace_of(folder: str) -> str | None:
    """Give the real path of a folder; None where there is none, or where a record could not hold it."""
    try:
        path = os.path.realpath(folder, strict=True)
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return None
    return path if is_folder and _fits(path) else None


def common_directory(folder: str) -> str | None:
    """Give the real path of the common directory of a folder's repository.

    None outside a checkout, and where `.git` and the common directory do not lead to each other.
    """
    try:
        top = _top(os.path.realpath(folder, strict=True))
        common = None if top is None else _common(top)
    except (OSError, ValueError):
        return None
    return common if common is not None and _fits(common) else None


def _top(folder: str) -> str | None:
    """Give the nearest folder, from this one up on its file system, that has a `.git`; so git looks, too."""
    device = os.stat(folder).st_dev
    while not os.path.lexists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder or os.stat(above).st_dev != device:
            return None
        folder = above
    return folder


def _common(top: str) -> str | None:
    entry = os.path.join(top, ".git")
    mode = os.lstat(entry).st_mode
    if stat.S_ISDIR(mode):
        return entry if _is_repository(entry) else None  # it lies in its checkout, and so leads back
    if not stat.S_ISREG(mode):
        return None  # a link leads there, and nothing back
    word, _, path = _line(entry).partition(" ")
    if word != "gitdir:":
        return None
    own = _real(top, path)
    if os.path.lexists(os.path.join(own, "commondir")):
        return _common_of_linked(own, entry)
    return own if _is_repository(own) and _worktree_of(own) == top else None


def _common_of_linked(own: str, entry: str) -> str | None:
    """Give the common directory of a linked worktree, by its own folder in there."""
    common = _real(own, _line(os.path.join(own, "commondir")))
    registered = os.path.dirname(own) == os.path.join(common, "worktrees")
    folder, name = os.path.split(_line(os.path.join(own, "gitdir")))
    leads_back = name == ".git" and _real(own, folder) == os.path.dirname(entry)
    return common if registered and leads_back and _is_repository(common) else None


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


def _is_repository(path: str) -> bool:
    return os.path.lexists(os.path.join(path, "HEAD")) and all(
        os.path.isdir(os.path.join(path, part)) for part in _PARTS
    )


def _real(base: str, path: str) -> str:
    return os.path.realpath(os.path.join(base, path), strict=True)


def _line(path: str) -> str:
    return _text(path).removesuffix("\n").removesuffix("\r")


def _text(path: str) -> str:
    # Whoever makes a FIFO of it, or a huge file, must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        data = os.read(descriptor, GIT_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > GIT_FILE_BYTES:
        raise ValueError("it is too large")
    return os.fsdecode(data)


def _fits(path: str) -> bool:
    """Tell whether a record can hold a path as it is: two paths must not become one text by being cut."""
    odd = any(letter < " " or "\ud800" <= letter <= "\udfff" for letter in path)
    return not odd and len(path.encode()) <= PLACE_ID_BYTES
