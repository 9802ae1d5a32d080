"""The scan of every canonical record of every socket namespace, kept while nothing changes.

What was read before is used again only after it was looked at: by the generation file, which every change of
ours raises, and by the stamps of the folders, which show what others did. Of an earlier generation nothing is
used whose own file has not been looked at in this one. A file that is written in place, without a rename,
shows in neither; so each file is looked at again every `ASSIGNMENTS_LOOKED_AT_S`. The texts of the work are
not kept.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from assignments.evidence import NOTHING_ASSIGNED, Held, Lacking, Scan
from assignments.reading import ENDING, Fault, Folder, fault_of, opened, read_in
from assignments.record import Assignment, Place
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.errors import HerdError, SystemWant
from herd.core.limits import ASSIGNMENTS_LOOKED_AT_S
from herd.core.paths import Layout
from herd.presence.stamps import Stamp, stamp_at

_Holder = tuple[str, Held]


class _Record(NamedTuple):
    """What was read of one record."""

    stamp: Stamp
    settled: bool
    holder: _Holder


class _Names(NamedTuple):
    """What was found in one folder: canonical names, and of records what they prove."""

    stamp: Stamp
    settled: bool
    names: tuple[str, ...]
    holders: tuple[_Holder, ...] = ()


class _LackingError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


class Scans:
    """Gives the scan of one data root; one object may be used from every thread.

    Args:
        layout: The folders of this machine.
        lock: The authority lock.
        now_ns: The clock that the file system stamps with, in nanoseconds.
        elapsed: Seconds that never go back.
    """

    def __init__(
        self,
        layout: Layout,
        lock: AuthorityLock,
        now_ns: Callable[[], int] = time.time_ns,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._now_ns = now_ns
        self._elapsed = elapsed
        self._looked_at = 0.0
        self._mutex = threading.Lock()
        self._generation: int | None = None
        self._scan: Scan | None = None
        self._folders: dict[str, _Names] = {}
        self._records: dict[Place, _Record] = {}

    def current(self, hold: AuthorityHold) -> Scan | None:
        """Give the scan if nothing has changed since it was made; else None, and `scan` is to be called.

        It costs one stat a folder and never waits, so it may be called on the event loop.

        Args:
            hold: The caller's hold of the authority lock, shared or alone, for as long as it uses the scan.
        """
        self._require(hold)
        if not self._mutex.acquire(blocking=False):
            return None
        try:
            return self._unchanged()
        except (HerdError, OSError):
            return None
        finally:
            self._mutex.release()

    def scan(self, hold: AuthorityHold) -> Scan:
        """Give the scan, and read for it what has changed. Blocks: call it in a thread.

        A corrupt, vanishing or unreadable record or folder makes it lack; that raises nothing.

        Args:
            hold: See `current`.

        Raises:
            SystemWant: the disk or the kernel keeps the generation from being read, for want of something.
        """
        self._require(hold)
        with self._mutex:
            try:
                return self._unchanged() or self._made()
            except SystemWant:
                raise
            except (HerdError, OSError) as fault:
                self._scan = None
                return Scan({}, Lacking(fault_of("", fault).reason, self._layout.authority_generation))

    def _require(self, hold: AuthorityHold) -> None:
        if not hold.covers(self._layout.authority_lock):
            raise RuntimeError("the records are judged by only under the authority lock")

    def _unchanged(self) -> Scan | None:
        if self._scan is None or self._lock.generation() != self._generation:
            return None
        if self._folders and self._elapsed() - self._looked_at > ASSIGNMENTS_LOOKED_AT_S:
            return None
        for path, known in self._folders.items():
            if not known.settled or stamp_at(path) != known.stamp:
                return None
        if not self._folders and stamp_at(self._layout.assignments) is not None:
            return None
        return self._scan

    def _made(self) -> Scan:
        generation = self._lock.generation()
        same, folders, records = generation == self._generation, self._folders, self._records
        self._generation, self._scan, self._folders, self._records = generation, None, {}, {}
        self._looked_at = self._elapsed()
        held: dict[str, tuple[Held, ...]] = {}
        try:
            for key, one in self._holders(folders if same else {}, records):
                held[key] = (*held.get(key, ()), one)
        except _LackingError as lack:
            # What was read well is not read again, and what was not reached keeps what is known of it.
            self._records = {**records, **self._records}
            return Scan({}, lack.fault.lacking)
        self._scan = Scan(held) if held else NOTHING_ASSIGNED
        return self._scan

    def _holders(self, folders: dict[str, _Names], records: dict[Place, _Record]) -> Iterator[_Holder]:
        root = self._layout.assignments
        if stamp_at(root) is None:
            return
        for socket in self._names(root, folders):
            namespace = f"{root}/{socket}"
            for repo in self._names(namespace, folders):
                yield from self._repository(f"{namespace}/{repo}", (socket, repo), folders, records)

    def _names(self, path: str, folders: dict[str, _Names]) -> tuple[str, ...]:
        known = self._known(path, folders)
        if known is None:
            now_ns = self._now_ns()
            with _opened(path) as folder:
                names = tuple(folder.names())
            known = _Names(folder.stamp, folder.stamp.settled(now_ns), names)
        self._folders[path] = known
        return known.names

    def _repository(
        self, path: str, above: tuple[str, str], folders: dict[str, _Names], records: dict[Place, _Record]
    ) -> tuple[_Holder, ...]:
        known = self._known(path, folders)
        now_ns = self._now_ns()
        with _opened(path) as folder:
            names = tuple(folder.names(ENDING)) if known is None else known.names
            found = [self._read(folder, Place(*above, branch), now_ns, records) for branch in names]
        settled = folder.stamp.settled(now_ns) and all(one.settled for one in found)
        known = _Names(folder.stamp, settled, names, tuple(one.holder for one in found))
        self._folders[path] = known
        return known.holders

    def _known(self, path: str, folders: dict[str, _Names]) -> _Names | None:
        known = folders.get(path)
        return known if known is not None and known.settled and stamp_at(path) == known.stamp else None

    def _read(self, folder: Folder, place: Place, now_ns: int, records: dict[Place, _Record]) -> _Record:
        known = records.get(place)
        if (
            known is None
            or not known.settled
            or stamp_at(place.branch + ENDING, folder.number) != known.stamp
        ):
            found = read_in(folder, place)
            if isinstance(found, Fault):
                raise _LackingError(found)
            known = _Record(found.stamp, found.stamp.settled(now_ns), _holder(found.assignment))
        self._records[place] = known
        return known


def _holder(assignment: Assignment) -> _Holder:
    return assignment.session.key, Held(assignment.socket, assignment.repo, assignment.branch)


@contextmanager
def _opened(path: str) -> Iterator[Folder]:
    try:
        with opened(path) as folder:
            yield folder
    except (HerdError, OSError) as fault:
        raise _LackingError(fault_of(path, fault)) from fault
