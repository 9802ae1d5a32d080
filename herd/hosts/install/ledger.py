"""What an installation changed and what was there before: one file for each host, and copies, in `backups/`.

    backups/HOST.json            the installation in force
    backups/HOST/restore-NAME    what the uninstaller gives back; in NAME stands a digest of the file's path
    backups/HOST/TIME-NAME       a copy of a file as it was before a change of ours, the newest few

They are written together with the host's files, all or none. It does not know what a host's files mean.
"""

import hashlib
import json
import os
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from herd.core.errors import RecoveryRequired
from herd.core.files import read_private
from herd.core.limits import BACKUPS_KEPT, HOST_FILE_BYTES, LEDGER_BYTES
from herd.core.paths import Layout
from herd.hosts.install.disk import Change
from herd.hosts.install.edits import Seam
from herd.hosts.install.found import Found, find
from herd.hosts.install.wanted import Put

LEDGER_VERSION = 1
"""Version of `backups/HOST.json`."""


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PutRecord(_Strict):
    """A `Put` on disk."""

    path: list[str]
    name: str | None
    value: Any
    lead: str
    tail: str
    comma: bool
    made: list[list[str]]


class FileRecord(_Strict):
    """What was done to one file."""

    part: str
    """Which of the host's files it is."""
    path: str
    """Its name; a link is not followed here."""
    sha256: str
    """Digest of what the installation left."""
    restore: str | None
    """The copy that the uninstaller gives back; None where there was no file."""
    puts: list[PutRecord]


class Ledger(_Strict):
    """One installation."""

    version: int = LEDGER_VERSION
    host: str
    command: str
    """The absolute path of the `herd` that was written into the host's files."""
    files: list[FileRecord]
    folders: list[str]
    """Folders that were made for the files, the outermost first."""

    def file(self, path: str) -> FileRecord | None:
        """Give the record of a file."""
        return next((one for one in self.files if one.path == path), None)


class Shelf(NamedTuple):
    """The folder of one host's backups."""

    folder: str
    host: str

    @property
    def ledger_file(self) -> str:
        """The file of the installation in force."""
        return os.path.join(self.folder, f"{self.host}.json")

    @property
    def copies(self) -> str:
        """The folder of the copies."""
        return os.path.join(self.folder, self.host)

    def ledger(self) -> Ledger | None:
        """Read the installation in force; None where there is none.

        Raises:
            RecoveryRequired: it is damaged, or of a newer version.
            UnsafeEndpoint: it is no private file of ours.
        """
        content = read_private(self.ledger_file, LEDGER_BYTES)
        if content is None:
            return None
        try:
            ledger = Ledger.model_validate_json(content)
        except ValidationError as fault:
            raise RecoveryRequired(
                f"{self.ledger_file} is damaged or of a newer version; no file was changed",
                hint="Move it away; Herd's entries are found without it, and the copies beside it stay.",
            ) from fault
        return ledger

    def knows(self, record: FileRecord | None, content: bytes | None) -> tuple[bool, bytes | None]:
        """Tell whether a file is still what the installation left, and if so what it was before.

        Without its copy it counts as changed: then Herd's entries are taken out one by one.
        """
        if record is None or content is None or digest(content) != record.sha256:
            return False, None
        if record.restore is None:
            return True, None
        before = read_private(os.path.join(self.copies, os.path.basename(record.restore)), HOST_FILE_BYTES)
        return before is not None, before

    def written(self, ledger: Ledger | None) -> list[Change]:
        """Give the change that writes the installation in force, or removes it where it is None."""
        found = find(self.ledger_file, LEDGER_BYTES)
        content = None if ledger is None else _bytes(ledger)
        return [] if content == found.content else [Change(found, content)]

    def kept(self, name: str, content: bytes | None) -> list[Change]:
        """Give the change that makes a copy hold something, or removes it where that is None."""
        found = find(os.path.join(self.copies, name))
        return [] if content == found.content else [Change(found, content)]

    def copied(self, path: str, found: Found) -> list[Change]:
        """Give the change that keeps a copy of a file as it is now."""
        if found.content is None:
            return []
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        name = f"{moment}-{short_name(path)}"
        return [Change(Found(os.path.join(self.copies, name), None), found.content)]

    def surplus(self, path: str) -> list[str]:
        """Give the copies of a file that are more than are kept, oldest first."""
        try:
            names = sorted(one for one in os.listdir(self.copies) if one.endswith(f"Z-{short_name(path)}"))
        except FileNotFoundError:
            return []
        return [os.path.join(self.copies, one) for one in names[:-BACKUPS_KEPT]]


def shelf_of(layout: Layout, host: str) -> Shelf:
    """Give the shelf of a host; nothing is made."""
    return Shelf(layout.backups, host)


def short_name(path: str) -> str:
    """Give a file's name for its copies, other for every path."""
    return f"{digest(os.fsencode(path))[:8]}-{os.path.basename(path)}"


def digest(content: bytes) -> str:
    """Give the SHA-256 of a file's content, as 64 hex digits."""
    return hashlib.sha256(content).hexdigest()


def record_of(put: Put) -> PutRecord:
    """Give a `Put` as it is stored."""
    return PutRecord(
        path=list(put.path),
        name=put.name,
        value=put.value,
        lead=put.seam.lead,
        tail=put.seam.tail,
        comma=put.seam.comma,
        made=[list(one) for one in put.made],
    )


def put_of(record: PutRecord) -> Put:
    """Give a stored `Put`."""
    seam = Seam(record.lead, record.tail, record.comma)
    return Put(tuple(record.path), record.name, record.value, seam, tuple(tuple(one) for one in record.made))


def _bytes(ledger: Ledger) -> bytes:
    return json.dumps(ledger.model_dump(), ensure_ascii=True, indent=1).encode() + b"\n"
