"""Folders of sessions that were not started for long and hold nothing: which they are, and their removal."""

import os
import shutil
import time

from herd.core.errors import HerdError, LockTimeout
from herd.core.limits import OLD_SESSION_S
from herd.core.locks import HeldLock, probe
from herd.core.paths import Layout
from herd.presence.registry import sleeping_keys
from herd.presence.session_file import read_session_file

_OF_A_SESSION = frozenset({"session.json", "token"})


def remove_empty_folders(layout: Layout, *, now_s: float | None = None) -> int:
    """Remove them, each under its session's locks; gives how many.

    One that a managed session left stays: that it is managed stands nowhere else.
    """
    now_s = time.time() if now_s is None else now_s
    return sum(_removed(layout, key, now_s) for key in sleeping_keys(layout))


def _removed(layout: Layout, key: str, now_s: float) -> bool:
    folder = layout.session_folder(key)
    if not _is_old_and_empty(layout, key, now_s) or probe(layout.session_lock(key)).held:
        return False
    try:
        with HeldLock.acquire(layout.session_lock(key)), HeldLock.acquire(layout.mailbox_lock(key)):
            if not _is_old_and_empty(layout, key, now_s):
                return False
            shutil.rmtree(folder)
    except (LockTimeout, HerdError):
        return False  # it has just been started
    return True


def _is_old_and_empty(layout: Layout, key: str, now_s: float) -> bool:
    folder = layout.session_folder(key)
    try:
        names = set(os.listdir(folder))
        file = read_session_file(layout, key)
        age_s = now_s - max(os.lstat(os.path.join(folder, name)).st_mtime for name in names)
    except (OSError, HerdError, ValueError):
        return False
    if file is None or file.kind != "ordinary" or file.custody_id is not None:
        return False
    return names <= _OF_A_SESSION and age_s >= OLD_SESSION_S
