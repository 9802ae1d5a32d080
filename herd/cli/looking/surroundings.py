"""The looks at what every session stands on: build, settings, machine, data root and its disk."""

import os
import sqlite3
from collections.abc import Callable, Mapping

from herd.cli.looking.finding import Finding, Findings, tried
from herd.core import config
from herd.core.build import running_build
from herd.core.config import Settings
from herd.core.files import checked_folder
from herd.core.filesystems import filesystem_type, require_local_locks
from herd.core.limits import DISK_FREE_BYTES
from herd.core.paths import Layout, layout_below

_FREE = "Free space or mend the disk: until then nothing is accepted there, and what is there is kept."


def build() -> Finding:
    """Say which Herd this is."""
    here = running_build()
    detail = f"{here.version} · {here.sha256[:12]}, SQLite {sqlite3.sqlite_version}"
    return Finding("build", ok=True, detail=detail)


def settings(environ: Mapping[str, str], found: list[Settings]) -> Findings:
    """Read the settings and put them into `found`."""
    read = config.load(environ)
    found.append(read)
    off = "" if read.enabled else "; `enabled = false` switches Herd off"
    there = "read" if os.path.exists(read.config_file) else "not there, so the defaults hold"
    yield Finding("settings", ok=True, detail=f"{read.config_file} {there}{off}")


def machine(source: str) -> Finding:
    """Say by what this machine's folder is named."""
    if source == "machine-id":
        return Finding("machine", ok=True, detail="named by its machine id")
    detail = (
        "it has no machine id, so its host name names its folder: machines that share a home need two names"
    )
    return Finding("machine", ok=True, detail=detail)


def data_root(home: str, machine_id: str, found: list[Layout]) -> Findings:
    """Look at the data root and the folder of this machine; where that is a folder, put it into `found`.

    Raises:
        UnsafeEndpoint: the data root is given by no absolute path.
        UnsupportedPlatform: the file system has no local locks.
    """
    layout = layout_below(home, machine_id)
    require_local_locks(layout.root)
    if not os.path.lexists(layout.root):
        yield _absent(home, layout.root)
        return
    if os.path.isdir(layout.root) and not os.path.islink(layout.root):
        found.append(layout)
    wrong = [fault for path in (home, layout.root) for fault in tried("data root", lambda: _folder(path))]  # noqa: B023
    yield from wrong
    if not wrong:
        kind = filesystem_type(layout.root) or "a file system of unknown type"
        yield Finding("data root", ok=True, detail=f"{layout.root} on {kind}")


def _folder(path: str) -> Findings:
    checked_folder(path)
    yield from ()


def _absent(home: str, root: str) -> Finding:
    if os.path.lexists(home):
        checked_folder(home)
    there = home
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK):
        return Finding("data root", ok=True, detail=f"{root} is not there yet; the first session makes it")
    return Finding(
        "data root",
        ok=False,
        detail=f"{root} cannot be made: {there} is no folder in which you may make one",
        next_step="Set HERD_HOME to a place of yours.",
    )


def disk(root: str, ask: Callable[[str], os.statvfs_result] = os.statvfs) -> Findings:
    """Look whether the disk of the data root can be written.

    Args:
        root: A folder on it.
        ask: Gives what the kernel knows of a file system.

    Raises:
        OSError: the kernel does not say.
    """
    state = ask(root)
    free = state.f_bavail * state.f_frsize  # to this user: some blocks are kept for root alone
    least = f"{DISK_FREE_BYTES // 1_048_576} MiB"
    if state.f_flag & os.ST_RDONLY:
        detail = f"{root} lies on a disk that is mounted read-only: no session can start or accept there"
        yield Finding("disk", ok=False, detail=detail, next_step="Mount it for writing.")
    elif free < DISK_FREE_BYTES:
        detail = f"{root} lies on a disk with {free // 1024:,} KiB free for you, less than {least}"
        yield Finding("disk", ok=False, detail=detail, next_step=_FREE)
    elif state.f_files and not state.f_favail:
        detail = f"{root} lies on a disk that takes no more files"
        yield Finding("disk", ok=False, detail=detail, next_step=_FREE)
    else:
        yield Finding("disk", ok=True, detail=f"it can be written, and at least {least} are free")
