"""The writing side of one session's record: instance, presence generation, enrichment, withdrawal.

Every generation has a claim with a new id. The claim stands in two places, the record and the owner record
inside the session's lock file, and a presence counts only while both agree. So retiring it is one small
write into a file that already has its blocks, which also works when the disk is full.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from herd.core.build import Build
from herd.core.errors import HerdError
from herd.core.files import read_private, replace_private
from herd.core.identity import SessionName
from herd.core.limits import PROTOCOL_VERSION, RECORD_BYTES
from herd.core.locks import HeldLock, Owner
from herd.core.paths import Layout
from herd.presence.fields import Malformed
from herd.presence.record import Presence, Record, decode, encode


class Instance(NamedTuple):
    """What stays the same over one coordinator's life, except where its socket lies."""

    session: SessionName
    kind: str
    pid: int
    start: str
    host_pid: int
    host_start: str
    instance_id: str
    endpoint: str
    public_key: str
    capabilities: tuple[str, ...]
    build: Build


def _unused_id() -> str:
    import uuid  # no reader of records needs it

    return str(uuid.uuid4())


class Publisher:
    """Owns one session's record; the caller holds the session lock for as long as this object lives.

    Args:
        layout: The folders of this machine.
        lock: The held session lock, whose content becomes the owner record.
        instance: The coordinator that publishes.
        new_id: Gives the id of each new claim; never gives one twice.
    """

    def __init__(
        self,
        layout: Layout,
        lock: HeldLock,
        instance: Instance,
        new_id: Callable[[], str] = _unused_id,
    ) -> None:
        self._path = layout.record(instance.session.key)
        self._lock = lock
        self._instance = instance
        self._new_id = new_id
        self._claim = Owner(instance.pid, instance.start, None)
        self._presence: Presence | None = None
        self._on_record = self._claim  # the claim in what was last written, whatever was retired since

    @property
    def claim(self) -> Owner:
        """The present claim; its id is None while nothing is published."""
        return self._claim

    @property
    def presence(self) -> Presence | None:
        """What is published now."""
        return self._presence

    @property
    def on_record(self) -> bool:
        """Whether anything stands where the record belongs, by one stat.

        Nobody but its owner writes there; what cannot be looked at is not called gone.
        """
        try:
            os.lstat(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def announce(self) -> None:
        """Put the instance on record without a presence, so that handshakes can check it."""
        self._retire_claim()
        self._write(self._claim, None)

    def publish(self, presence: Presence) -> Owner:
        """Begin a new generation that lists the session.

        Returns:
            The new claim; hand it to `enrich` so that a late look-up cannot touch a later generation.

        Raises:
            OSError, HerdError: it could not be written; nothing is published then.
        """
        self._retire_claim()
        claim = self._claim._replace(id=self._new_id())
        self._write(claim, presence)
        # Last, so that a reader never finds the new claim beside the old record as valid.
        self._lock.write_owner(claim)
        self._claim, self._presence = claim, presence
        return claim

    def enrich(self, claim: Owner, change: Callable[[Presence], Presence]) -> bool:
        """Rewrite the presence of the generation `claim`, keeping its claim; False where it is over."""
        if self._presence is None or claim != self._claim or not self._is_ours():
            return False
        presence = change(self._presence)
        self._write(claim, presence)
        self._presence = presence
        return True

    def withdraw(self) -> None:
        """End the generation: its claim first, then the presence inside the record where that is still ours.

        Raises:
            OSError, HerdError: the record could not be rewritten; the claim is retired all the same, so the
                presence left behind is not valid.
        """
        self._retire_claim()
        if self._is_ours():
            self._write(self._claim, None)

    def move(self, endpoint: str) -> None:
        """Remember that the instance now listens elsewhere; the next write tells it."""
        self._instance = self._instance._replace(endpoint=endpoint)

    def remove(self) -> None:
        """End the record itself, where it is still this instance's."""
        self._retire_claim()
        if self._is_ours():
            os.unlink(self._path)

    def _retire_claim(self) -> None:
        self._presence = None
        self._claim = self._claim._replace(id=None)
        self._lock.write_owner(self._claim)

    def _is_ours(self) -> bool:
        """Tell whether the record is the one that was last written here: this instance's, with that claim."""
        try:
            data = read_private(self._path, RECORD_BYTES)
            record = None if data is None else decode(data, self._instance.session.key)
        except (Malformed, HerdError):
            return False
        ours = (self._instance.instance_id, self._on_record)
        return record is not None and (record.instance_id, record.claim) == ours

    def _write(self, claim: Owner, presence: Presence | None) -> None:
        one = self._instance
        record = Record(
            session=one.session,
            kind=one.kind,
            claim=claim,
            host_pid=one.host_pid,
            host_start=one.host_start,
            instance_id=one.instance_id,
            protocol=PROTOCOL_VERSION,
            endpoint=one.endpoint,
            public_key=one.public_key,
            capabilities=one.capabilities,
            build=one.build,
            presence=presence,
        )
        replace_private(self._path, encode(record), durable=False)
        self._on_record = claim
