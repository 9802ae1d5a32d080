"""The look at one session: whether it runs, is listed, holds what it must, and what lies in its mailbox."""

import os
from collections.abc import Collection
from typing import NamedTuple

from herd.cli.looking.finding import Finding, Findings, lasting, tried
from herd.cli.looking.running import running
from herd.cli.looking.sleeping import sleeping
from herd.core.errors import HerdError
from herd.core.identity import target_of
from herd.core.locks import LockState, probe
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.core.text import printable
from herd.presence.record import Record
from herd.presence.registry import Registry, names_of
from herd.presence.session_file import SessionFile, read_session_file

_AGAIN = "End that session and start it again; its accepted mail is kept."


class _State(NamedTuple):
    """A session as its record and its locks show it."""

    record: Record | None
    on_file: bool
    """Whether there is a file where its record has to be."""
    session: LockState
    mailbox: LockState
    lives: bool
    """Whether the record's instance holds the session's lock."""
    listed: bool
    process: bool
    """Whether the record's process lives, whatever it holds."""

    @property
    def passing(self) -> bool:
        """Whether this may be a step of a start or an end rather than what stays."""
        if self.lives:
            return not (self.listed and self.mailbox.held)
        return self.session.held or self.process


def session(layout: Layout, key: str, named: Collection[str]) -> Findings:
    """Look at a session that has a folder or a living instance here.

    Args:
        layout: The folders of this machine.
        key: The session key.
        named: Paths that another look has named as wrong.

    Raises:
        HerdError: what is on record of it cannot be used.
    """
    state = lasting(lambda: _state(layout, key), lambda seen: seen.passing)
    record = state.record
    if state.lives and record is not None:
        label = label_of(record)
        yield from tried("session", lambda: _durable(layout, key, label), label, named=named)
        if not state.mailbox.held:
            yield _unlocked(layout.mailbox_lock(key), label, record.claim.pid)
        yield from tried(
            "session", lambda: running(layout, record, label, listed=state.listed), label, named=named
        )
        return
    file = read_session_file(layout, key)
    label = _name(file, key)
    if state.session.held:
        if layout.record(key) not in named:
            yield _without_record(layout, key, state, label)
    elif state.process and record is not None:
        yield _unlocked(layout.session_lock(key), label_of(record), record.claim.pid)
    elif file is not None:
        yield from tried("session", lambda: sleeping(layout, file, label), label, named=named)
    elif os.path.lexists(layout.mailbox(key)):
        yield Finding(
            "session",
            ok=False,
            detail=f"{layout.session_file(key)} is missing, although its session has a mailbox",
            next_step="Bring it back from a backup; until then nobody can read or write that mailbox.",
        )


def label_of(record: Record) -> str:
    """Give what a session with a record is called."""
    return f"{names_of(record)[0]} ({record.session.host} {printable(record.session.session_id, 40)})"


def _name(file: SessionFile | None, key: str) -> str:
    if file is None:
        return f"the session with the key {key}"
    return f"{target_of(file.role, key)} ({file.session.host} {printable(file.session.session_id, 40)})"


def _state(layout: Layout, key: str) -> _State:
    registry = Registry(layout)
    record = registry.record(key)
    lives = record is not None and registry.lives(record)
    return _State(
        record=record,
        on_file=os.path.lexists(layout.record(key)),
        session=probe(layout.session_lock(key)),
        mailbox=probe(layout.mailbox_lock(key)),
        lives=lives,
        listed=lives and record is not None and registry.is_listed(record),
        process=record is not None and _runs(record),
    )


def _runs(record: Record) -> bool:
    try:
        return start_token(record.claim.pid) == record.claim.start
    except (HerdError, OSError):  # hidden, or of another pid namespace: nothing is known of it
        return False


def _without_record(layout: Layout, key: str, state: _State, label: str) -> Finding:
    owner = state.session.owner
    if owner is None:
        return Finding("session", ok=True, detail=f"{label} is being started just now")
    # Its coordinator writes its name into the lock when it publishes, and never before.
    what = "the file in its record's place is none" if state.on_file else "its record is missing"
    return Finding(
        "session",
        ok=False,
        detail=f"{label} runs in process {owner.pid}, and {what}: nobody sees it ({layout.record(key)})",
        next_step=(
            "Its next own call publishes it again, such as a tool call of its agent; "
            "where none comes, end it and start it again."
        ),
    )


def _unlocked(lock: str, label: str, pid: int) -> Finding:
    return Finding(
        "session",
        ok=False,
        detail=(
            f"{label} runs in process {pid}, and nobody holds {lock}: "
            "that lock file was removed while the session ran"
        ),
        next_step=_AGAIN,
    )


def _durable(layout: Layout, key: str, label: str) -> Findings:
    """Look whether a running session could start again from what stands in its folder."""
    folder, path = layout.session_folder(key), layout.session_file(key)
    if not os.path.lexists(folder):
        yield Finding(
            "session",
            ok=False,
            detail=f"{label} is running, and its folder {folder} is gone: its mail goes with it at its end",
            next_step="Put it back where it was before the session ends, or read its mail inside it now.",
        )
        return
    file = read_session_file(layout, key)
    if file is None:
        yield Finding(
            "session",
            ok=False,
            detail=f"{label} is running, and {path} is missing: it goes on with what it read at its start",
            next_step="Bring back a backup of it before the session ends: it cannot start again without.",
        )
    elif file.custody_id is not None and not os.path.lexists(layout.mailbox(key)):
        yield Finding(
            "session",
            ok=False,
            detail=(
                f"{label} is running, and {layout.mailbox(key)} is missing: its mail goes with it at its end"
            ),
            next_step="Put it back where it was before the session ends, or read its mail inside it now.",
        )
