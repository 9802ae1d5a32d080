"""The registry: which sessions are on record on this machine, and which of them live.

It reads `peers/` and the locks, never writes, never connects and never starts a process. Whoever is found
here is a hint: the handshake with the socket is what proves a peer. One bad file hides nobody: it is left
out, left in place, and told to `herd doctor`.
"""

import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from herd.core.errors import HerdError
from herd.core.files import open_checked_folder, read_private_at
from herd.core.identity import is_session_key, peer_id_of, target_of
from herd.core.limits import RECORD_BYTES
from herd.core.locks import Owner, probe
from herd.core.paths import Layout
from herd.presence.fields import Malformed
from herd.presence.record import Record, decode
from herd.presence.stamps import Stamp, stamp_at, stamp_of

_SUFFIX = ".json"


class Fault(NamedTuple):
    """A file in `peers/` that is no record: its path and what is wrong with it."""

    path: str
    reason: str


class _Known(NamedTuple):
    record: Record
    stamp: Stamp
    settled: bool


class Registry:
    """The records of one data root, with those already parsed kept by their stamp.

    Args:
        layout: The folders of this machine.
        now_ns: The clock that the file system stamps with, in nanoseconds.
    """

    def __init__(self, layout: Layout, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._layout = layout
        self._now_ns = now_ns
        self._known: dict[str, _Known] = {}
        self._faults: dict[str, Fault] = {}

    @property
    def faults(self) -> list[Fault]:
        """What the last scan, and reads of single records since, found malformed."""
        return list(self._faults.values())

    def listed(self) -> list[Record]:
        """Give every record whose session may be listed now, by session key.

        A record counts while its session's kernel lock is held and its claim is the one that the lock's
        owner record shows; a lock that cannot be verified counts as neither held nor free.
        """
        return [record for record in self.scan() if self.is_listed(record)]

    def scan(self) -> list[Record]:
        """Read every well-formed record, dead ones too, and note the malformed ones in `faults`.

        Raises:
            UnsafeEndpoint: `peers/` is no private folder of ours.
            OSError: it cannot be read.
        """
        self._faults = {}
        folder = self._opened()
        if folder is None:
            return []
        try:
            found = {name[: -len(_SUFFIX)] for name in os.listdir(folder) if name.endswith(_SUFFIX)}
            keys = sorted(filter(is_session_key, found))
            records = [record for key in keys if (record := self._read(folder, key)) is not None]
        finally:
            os.close(folder)
        self._known = {key: known for key, known in self._known.items() if key in found}
        return records

    def record(self, key: str) -> Record | None:
        """Read one session's current record; None where it is absent or malformed.

        Raises:
            UnsafeEndpoint: `peers/` is no private folder of ours.
            OSError: it cannot be read.
        """
        folder = self._opened()
        if folder is None:
            return None
        try:
            return self._read(folder, key)
        finally:
            os.close(folder)

    def owner(self, record: Record) -> Owner | None:
        """Give the owner record of the session's lock while it is held, else None."""
        try:
            return probe(self._layout.session_lock(record.key), record.claim).owner
        except (HerdError, OSError):
            return None  # unverifiable is not free, and nobody is listed on it

    def lives(self, record: Record) -> bool:
        """Tell whether the very instance in this record lives: its lock is held by its process.

        The claim's id is not compared, since an unhealthy coordinator has withdrawn it and still lives.
        """
        owner = self.owner(record)
        return owner is not None and (owner.pid, owner.start) == (record.claim.pid, record.claim.start)

    def running(self, key: str) -> Record | None:
        """Read the record of one session's running instance; None where none runs.

        Raises as `record` does.
        """
        record = self.record(key)
        return record if record is not None and self.lives(record) else None

    def is_listed(self, record: Record) -> bool:
        """Tell whether the record holds a presence of the generation that its session's lock shows."""
        return record.presence is not None and self.owner(record) == record.claim

    def instance(self, instance_id: str) -> Record | None:
        """Find the record of an instance; None where none or more than one session claims it."""
        keys = [key for key, known in self._known.items() if known.record.instance_id == instance_id]
        if len(keys) == 1:
            current = self.record(keys[0])
            if current is not None and current.instance_id == instance_id:
                return current
        found = [record for record in self.scan() if record.instance_id == instance_id]
        return found[0] if len(found) == 1 else None

    def stamp(self, key: str) -> Stamp | None:
        """Give the stamp of a session's record by one stat; None where there is none."""
        return stamp_at(self._layout.record(key))

    def _opened(self) -> int | None:
        try:
            return open_checked_folder(self._layout.peers)
        except FileNotFoundError:
            return None

    def _read(self, folder: int, key: str) -> Record | None:
        name = key + _SUFFIX
        known = self._known.get(key)
        now_ns = self._now_ns()
        try:
            if known is not None and known.settled and stamp_at(name, folder) == known.stamp:
                return known.record
            self._known.pop(key, None)
            self._faults.pop(key, None)
            found = read_private_at(folder, name, RECORD_BYTES)
            if found is None:
                return None
            record = decode(found[0], key)
        except (Malformed, HerdError, OSError) as fault:
            self._faults[key] = Fault(f"{self._layout.peers}/{name}", str(fault))
            return None
        stamp = stamp_of(found[1])
        self._known[key] = _Known(record, stamp, settled=stamp.settled(now_ns))
        return record


def names_of(record: Record) -> tuple[str, str]:
    """Give the exact names of a record's session: its target in its present role, and its peer id."""
    role = record.presence.role if record.presence else "lead"
    return target_of(role, record.key), peer_id_of(record.instance_id)


def sleeping_keys(layout: Layout) -> Iterator[str]:
    """Give the keys of every session that has a folder, running or not."""
    try:
        names = os.listdir(layout.sessions)
    except FileNotFoundError:
        return
    yield from sorted(filter(is_session_key, names))
