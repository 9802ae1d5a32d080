"""Which sessions of this machine can bear a target, told by the names of their files alone.

A target is computed from the session key, and the key is the name of a session's record and folder. So who
surely bears none needs no reading, and as long as no name comes or goes, no listing either. Whether one that
can bear a target does bear it, and who may be written to, is decided elsewhere.
"""

import os
import time
from collections.abc import Callable

from herd.core.files import open_checked_folder
from herd.core.identity import is_session_key, target_of
from herd.core.paths import Layout
from herd.presence.stamps import Stamp, stamp_at

_SUFFIX = ".json"


class Bearers:
    """The keys behind the targets of one machine.

    Args:
        layout: The folders of this machine.
        now_ns: The clock that the file system stamps with, in nanoseconds.
    """

    def __init__(self, layout: Layout, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._layout = layout
        self._now_ns = now_ns
        self._stamps: tuple[Stamp | None, ...] = ()
        self._found: dict[str, frozenset[str]] = {}

    def of(self, target: str) -> frozenset[str]:
        """Give the key of every session here, running or not, that can bear a target.

        Raises:
            UnsafeEndpoint: a folder is not private to this user.
        """
        now_ns = self._now_ns()
        stamps = tuple(stamp_at(folder) for folder in (self._layout.peers, self._layout.sessions))
        if stamps != self._stamps:
            self._found.clear()
            self._stamps = stamps
        found = self._found.get(target)
        if found is None:
            role = target.partition(":")[0]
            found = frozenset(key for key in self._keys() if target_of(role, key) == target)
            if all(stamp is not None and stamp.settled(now_ns) for stamp in stamps):
                self._found[target] = found
        return found

    def _keys(self) -> set[str]:
        names = {name.removesuffix(_SUFFIX) for name in _names(self._layout.peers)}
        return {name for name in names.union(_names(self._layout.sessions)) if is_session_key(name)}


def _names(folder: str) -> list[str]:
    try:
        number = open_checked_folder(folder)
    except FileNotFoundError:
        return []
    try:
        return os.listdir(number)
    finally:
        os.close(number)
