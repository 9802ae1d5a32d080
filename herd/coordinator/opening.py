"""What a coordinator is opened with, and its first steps: locks, the session's file, what a crash left."""

import os
import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import NamedTuple

from assignments.evidence import Scan
from assignments.scan import Scans
from assignments.worktrees.checkout import extent_at
from assignments.worktrees.groups import Groups
from assignments.worktrees.topology import Topology
from herd.coordinator.topologies import NO_GROUPS
from herd.core.authority_lock import AuthorityLock
from herd.core.clock import Clock, SystemClock
from herd.core.config import IDLE_AUTO, RESTART_DELIVER, SCOPE_MACHINE, Place
from herd.core.errors import HerdError, LockTimeout, RecoveryRequired, SessionHeld
from herd.core.files import private_folder
from herd.core.identity import TERMINAL, SessionName
from herd.core.limits import VISITOR_WAIT_S, Limits
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.core.text import printable
from herd.mail.steps import Step, no_step
from herd.presence.record import OF_SESSIONS
from herd.presence.registry import Registry
from herd.presence.session_file import SessionFile, amend_session_file, read_session_file, write_session_file
from herd.rpc.endpoints import checked_endpoint
from roles.eligibility import Judge, Leads
from roles.model import MANAGED, ORDINARY


class Opening(NamedTuple):
    """What a coordinator is opened for and with; the defaults are the real things."""

    layout: Layout
    session: SessionName
    cwd: str
    limits: Limits
    topology: Topology
    place: Place
    name: str | None = None
    host_pid: int = 0
    host_start: str = ""
    clock: Clock = SystemClock()
    judge: Judge = Leads()
    jitter: Callable[[], float] = random.random
    step: Step = no_step
    idle: str = IDLE_AUTO
    on_restart: str = RESTART_DELIVER
    scope: str = SCOPE_MACHINE
    alias: str | None = None
    capabilities: tuple[str, ...] = OF_SESSIONS
    groups: Groups = NO_GROUPS
    kind: str | None = None
    """The kind at the session's first start; None for what the assignments say. Later starts keep what is."""


class Locks(NamedTuple):
    """The two locks that a coordinator holds for life."""

    session: HeldLock
    mailbox: HeldLock


def take_locks(opening: Opening, stack: ExitStack) -> Locks:
    """Take the session's lock and then its mailbox's; the stack releases them.

    Raises:
        SessionHeld: another process coordinates the session.
        LockTimeout: a visitor keeps the mailbox for longer than a start waits.
        UnsafeEndpoint: a lock file cannot be opened or is not ours alone.
    """
    layout, key = opening.layout, opening.session.key
    try:
        session = stack.enter_context(HeldLock.acquire(layout.session_lock(key)))
    except LockTimeout as busy:
        name = f"{opening.session.host} session {printable(opening.session.session_id)!r}"
        raise SessionHeld(f"{_who(busy)} coordinates the {name}", holder=busy.details.get("holder")) from None
    try:
        wait_ms = VISITOR_WAIT_S * 1000
        mailbox = stack.enter_context(HeldLock.acquire(layout.mailbox_lock(key), wait_ms=wait_ms))
    except LockTimeout as busy:
        raise LockTimeout(
            f"a visitor, {_who(busy)}, keeps this session's mailbox for more than {VISITOR_WAIT_S} s",
            holder=busy.details.get("holder"),
        ) from None
    return Locks(session, mailbox)


def settled_session_file(opening: Opening) -> SessionFile:
    """Read the session's file, or write it at the session's first start, which fixes the kind.

    Its socket, scope and ids are those of this start from here on, before anybody is told of the session: a
    visitor judges by them as soon as it ends.

    Raises:
        RecoveryRequired: it is malformed, or missing although the session was here before; or the session is
            new and the assignments do not tell its kind.
        NewerState: a newer Herd wrote it.
        LockTimeout, SystemWant: the kind cannot be fixed now.
    """
    layout, key = opening.layout, opening.session.key
    folder = private_folder(layout.session_folder(key))
    extent, socket = extent_at(opening.cwd, opening.scope), opening.place.socket
    first = SessionFile(opening.session, extent=extent, socket=socket)
    if read_session_file(layout, key) is None:
        _require_new(layout, key, folder)
        _begin(opening, first)
    return amend_session_file(layout, first, extent=extent, socket=socket)


def _require_new(layout: Layout, key: str, folder: str) -> None:
    """Let pass a session that was never here: one that was may not get another kind by losing its file."""
    left = [name for name in os.listdir(folder) if not name.startswith(".")]
    former = Registry(layout).record(key)
    if left or (former is not None and former.kind == MANAGED):
        path = layout.session_file(key)
        why = "has a mailbox" if os.path.lexists(layout.mailbox(key)) else "was here before"
        raise RecoveryRequired(f"{path} is missing, although its session {why}", path=path)


def _begin(opening: Opening, first: SessionFile) -> None:
    """Fix the kind of a new session, which is a change of authority."""
    layout = opening.layout
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    with lock.exclusive() as hold:
        kind = opening.kind or _kind_of(opening.session, Scans(layout, lock).scan(hold))
        write_session_file(layout, first._replace(kind=kind))


def _kind_of(session: SessionName, scan: Scan) -> str:
    """Give the kind that the assignments prove: it stays for good, so no guess may stand in for a proof."""
    if session.host == TERMINAL:
        return ORDINARY
    if scan.lacking is not None:
        raise RecoveryRequired(
            f"whether an assignment names this new session cannot be told: {scan.lacking.path}:"
            f" {scan.lacking.reason}",
            hint="Run `herd doctor`, mend what it names, and start the session again.",
            path=scan.lacking.path,
        )
    return MANAGED if session.key in scan.held else ORDINARY


def remove_former_socket(opening: Opening) -> None:
    """Remove the socket that a killed instance of this session left.

    Only its own record names it, and the session lock in our hands proves that nobody listens there.
    """
    record = Registry(opening.layout).record(opening.session.key)
    if record is None:
        return
    with suppress(HerdError, OSError):
        checked_endpoint(record.endpoint, record.instance_id)
        os.unlink(record.endpoint)
        folder = os.path.dirname(record.endpoint)
        if folder != opening.layout.run:
            os.rmdir(folder)


def _who(busy: LockTimeout) -> str:
    holder = busy.details.get("holder")
    return f"process {holder['pid']}" if holder else "another process"
