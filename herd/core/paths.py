"""Where state lies: the folder of this machine below the data root, and every name in it.

It makes and checks the folders and refuses places where state could not be safe; what the files hold is
their owners' business.
"""

import hashlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from herd.core.errors import InvalidParams, UnsafeEndpoint, UnsupportedPlatform
from herd.core.files import private_folder, resolved_folder
from herd.core.filesystems import MOUNTINFO, require_local_locks
from herd.core.identity import is_session_key
from herd.core.limits import MACHINE_ID_BYTES

MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
"""Where a machine's id stands, the first that holds one counts."""

_DIGITS = 12


class Layout(NamedTuple):
    """The paths below one machine's folder; all of them absolute.

    Those asked for at every look at a session are joined by hand: `os.path.join` takes five times as long.
    """

    root: str
    """The folder of this machine."""

    @property
    def peers(self) -> str:
        """The folder of the instance records."""
        return os.path.join(self.root, "peers")

    @property
    def locks(self) -> str:
        """The folder of the lock files, which are never unlinked."""
        return os.path.join(self.root, "locks")

    @property
    def run(self) -> str:
        """The folder of the sockets whose path fits."""
        return os.path.join(self.root, "run")

    @property
    def sessions(self) -> str:
        """The folder of the sessions' own folders."""
        return os.path.join(self.root, "sessions")

    @property
    def backups(self) -> str:
        """The folder of what the installer found in the hosts' files; made by the first installation."""
        return os.path.join(self.root, "backups")

    @property
    def hooks(self) -> str:
        """The folder of the flags that a host's hooks look for."""
        return os.path.join(self.root, "hooks")

    @property
    def results(self) -> str:
        """The folder of the last numbers given to agents' results; made with the first one."""
        return os.path.join(self.root, "results")

    @property
    def assignments(self) -> str:
        """The folder of the assignment records, with one for each Herdr socket; made with the first one."""
        return f"{self.root}/assignments"

    @property
    def results_lock(self) -> str:
        """The lock under which a result gets its number."""
        return os.path.join(self.locks, "results.lock")

    @property
    def authority_lock(self) -> str:
        """The lock under which peers are authorized and authority changes."""
        return os.path.join(self.locks, "authority.lock")

    @property
    def authority_gate(self) -> str:
        """The lock before the authority lock, for which readers and writers queue."""
        return os.path.join(self.locks, "authority.gate")

    @property
    def authority_generation(self) -> str:
        """The count of changes of authority."""
        return os.path.join(self.locks, "authority.generation")

    def record(self, key: str) -> str:
        """Give the instance record of a session."""
        return f"{self.root}/peers/{_checked(key)}.json"

    def session_lock(self, key: str) -> str:
        """Give the lock of whoever coordinates a session."""
        return f"{self.root}/locks/{_checked(key)}.lock"

    def mailbox_lock(self, key: str) -> str:
        """Give the lock of whoever has a session's mailbox open."""
        return os.path.join(self.locks, f"{_checked(key)}.mailbox.lock")

    def session_folder(self, key: str) -> str:
        """Give the folder of a session."""
        return f"{self.root}/sessions/{_checked(key)}"

    def session_file(self, key: str) -> str:
        """Give the file with what a session durably is."""
        return f"{self.session_folder(key)}/session.json"

    def token(self, key: str) -> str:
        """Give the file with the token of a session's own programs."""
        return os.path.join(self.session_folder(key), "token")

    def result_number(self, agent: str) -> str:
        """Give the file with the last number of an agent's results, by the SHA-256 of its name as hex."""
        return os.path.join(self.results, f"{_checked(agent)}.json")

    def assignment(self, socket: str, repo: str, branch: str) -> str:
        """Give the record of an assignment, by the SHA-256 of its socket, repository and branch as hex."""
        return f"{self.assignments}/{_checked(socket)}/{_checked(repo)}/{_checked(branch)}.json"

    def assignment_lock(self, socket: str, repo: str, branch: str) -> str:
        """Give the lock of whoever changes that assignment, or needs it to stay as it is."""
        place = "/".join(map(_checked, (socket, repo, branch)))
        return f"{self.locks}/{hashlib.sha256(place.encode()).hexdigest()}.assignment.lock"

    def mailbox(self, key: str) -> str:
        """Give the database with a session's mail."""
        return os.path.join(self.session_folder(key), "mailbox.sqlite3")


def open_layout(
    home: str, *, machine: str | None = None, mountinfo: str = MOUNTINFO, platform: str = sys.platform
) -> Layout:
    """Make or check the folders of this machine below the data root.

    Args:
        home: The data root, absolute.
        machine: The machine's id, as `machine_id` gives it; None asks it.
        mountinfo: The kernel's mount table.
        platform: The name of the platform, as `sys.platform` has it.

    Raises:
        UnsupportedPlatform: the platform is neither Linux nor macOS, or the file system has no local locks;
            nothing was made.
        UnsafeEndpoint: a folder is relative, a link, somebody else's, not 0700, or cannot be made.
    """
    if platform not in ("linux", "darwin"):
        raise UnsupportedPlatform(
            f"platform {platform!r} cannot verify who owns a socket; nothing was opened"
        )
    if not home.startswith("/"):
        raise UnsafeEndpoint(f"data root {home!r} is not absolute")
    root = os.path.join(home, machine_folder(machine_id()[0] if machine is None else machine))
    require_local_locks(root, mountinfo)
    private_folder(home)
    layout = Layout(private_folder(root))
    for folder in (layout.peers, layout.locks, layout.run, layout.sessions, layout.hooks):
        private_folder(folder)
    return layout


def layout_below(home: str, machine: str | None = None) -> Layout:
    """Give the paths that `open_layout` would, and neither make nor check anything.

    Raises:
        UnsafeEndpoint: the data root is given by no absolute path that ends in a name.
    """
    named = machine_folder(machine_id()[0] if machine is None else machine)
    return Layout(os.path.join(resolved_folder(home), named))


def machine_folder(machine: str) -> str:
    """Give the name of a machine's folder: 12 hex digits of SHA-256 over its id without surrounding space."""
    return hashlib.sha256(machine.strip().encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def machine_id(files: Sequence[str] = MACHINE_ID_FILES) -> tuple[str, str]:
    """Give the id of this machine and where it comes from.

    Args:
        files: Files that may hold the id, the first that does counts.

    Returns:
        The id and `machine-id`; the host name and `hostname` where no file holds one (macOS, bare
        containers), which two machines that share a home must then not have in common.
    """
    for path in files:
        found = _machine_id_in(path)
        if found:
            return found, "machine-id"
    return os.uname().nodename, "hostname"


def _machine_id_in(path: str) -> str:
    try:
        with open(path, "rb") as file:
            found = file.read(MACHINE_ID_BYTES).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if found == "uninitialized" else found  # what an image holds before its first start


def _checked(key: str) -> str:
    # A key that came from elsewhere must never choose another path.
    if not is_session_key(key):
        raise InvalidParams(f"{key[:80]!r} is no session key of 64 hex digits")
    return key
