"""`sessions/<session key>/session.json`: what is durable about a session besides its mail.

It binds the folder to its session, and holds the kind (fixed at the first start), the last role, group and
Herdr socket, the last scope and the ids of where the session was, and the custody id of the mailbox once
there is one.
It is written only under the session's mailbox lock, or before the session's first record.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from herd.core.errors import NewerState, RecoveryRequired
from herd.core.files import private_folder, read_private, replace_private
from herd.core.identity import SessionName
from herd.core.limits import CWD_CHARACTERS, PLACE_ID_BYTES, SESSION_FILE_BYTES, SESSION_VERSION
from herd.core.paths import Layout
from herd.presence.fields import Fields, Malformed, read_fields
from herd.presence.scopes import ANYWHERE, SCOPES, Extent
from herd.presence.stamps import Stamp, stamp_at

_FIRST_VERSION = 1
"""The version that knew no scopes: what it says of a session is that nothing narrows it."""

_SECOND_VERSION = 2
"""The last version that knew no socket."""

_amending = threading.Lock()


class SessionFile(NamedTuple):
    """What `session.json` says."""

    session: SessionName
    kind: str = "ordinary"
    role: str = "lead"
    group: str | None = None
    custody_id: str | None = None
    extent: Extent = ANYWHERE
    socket: str | None = None


def read_session_file(layout: Layout, key: str) -> SessionFile | None:
    """Read a session's file; None where the session was never started.

    Raises:
        RecoveryRequired: it is malformed, or names another session than its folder does.
        NewerState: a newer Herd wrote it.
        UnsafeEndpoint: it is not a private file of ours.
    """
    path = layout.session_file(key)
    data = read_private(path, SESSION_FILE_BYTES)
    if data is None:
        return None
    try:
        return _decode(data, key, path)
    except Malformed as fault:
        raise RecoveryRequired(f"{path} {fault}", path=path) from None


class SessionFiles:
    """Session files as `read_session_file` gives them, read again only where one has changed.

    Args:
        layout: The folders of this machine.
        now_ns: The clock that the file system stamps with, in nanoseconds.
    """

    def __init__(self, layout: Layout, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._layout = layout
        self._now_ns = now_ns
        self._known: dict[str, tuple[Stamp, SessionFile]] = {}

    def read(self, key: str) -> SessionFile | None:
        """Give a session's file; see `read_session_file`."""
        now_ns = self._now_ns()
        stamp = stamp_at(self._layout.session_file(key))
        known = self._known.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        self._known.pop(key, None)
        file = read_session_file(self._layout, key)
        # The stamp was taken before the file was read: what changes in between is told by the next look.
        if file is not None and stamp is not None and stamp.settled(now_ns):
            self._known[key] = stamp, file
        return file


def write_session_file(layout: Layout, file: SessionFile) -> None:
    """Replace a session's file durably, making its folder where it is the session's first."""
    key = file.session.key
    private_folder(layout.session_folder(key))
    shape = {
        "version": SESSION_VERSION,
        **file.session._asdict(),
        "kind": file.kind,
        "role": file.role,
        "group": file.group,
        "custody_id": file.custody_id,
        **file.extent._asdict(),
        "socket": file.socket,
    }
    data = json.dumps(shape, ensure_ascii=False, indent=2).encode() + b"\n"
    replace_private(layout.session_file(key), data)


def amend_session_file(layout: Layout, file: SessionFile, **changes: Any) -> SessionFile:
    """Change some fields of a session's file as it stands now, and give it as it is then.

    Two threads of the process that holds the session's mailbox lock change different fields: the one must not
    bring back what the other has changed.

    Args:
        layout: The folders of this machine.
        file: What to write where the file is not there.
        changes: The fields and their new values; a file that has them already is not written.
    """
    with _amending:
        found = read_session_file(layout, file.session.key)
        changed = (found or file)._replace(**changes)
        if changed != found:
            write_session_file(layout, changed)
    return changed


def _decode(data: bytes, key: str, path: str) -> SessionFile:
    fields = read_fields(data)
    version = fields.integer("version", least=1)
    if version > SESSION_VERSION:
        raise NewerState(f"{path} has version {version}, and this Herd knows {SESSION_VERSION}", path=path)
    session = SessionName(fields.text("host"), fields.text("session_id"), fields.text("created", least=0))
    file = SessionFile(
        session=session,
        kind=fields.one_of("kind", ("ordinary", "managed")),
        role=fields.one_of("role", ("lead", "manager", "chief", "agent")),
        group=fields.text_or_null("group", most=PLACE_ID_BYTES),
        custody_id=fields.text_or_null("custody_id"),
        extent=ANYWHERE if version == _FIRST_VERSION else _extent(fields),
        socket=None if version <= _SECOND_VERSION else fields.text_or_null("socket", most=CWD_CHARACTERS),
    )
    fields.end()
    if session.key != key:
        raise Malformed("names another session than its folder does")
    return file


def _extent(fields: Fields) -> Extent:
    ids = [fields.text_or_null(name, most=PLACE_ID_BYTES) for name in ("workspace", "repository")]
    return Extent(fields.one_of("scope", SCOPES), *ids)
