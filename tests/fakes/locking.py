"""What each context of execution holds, while real coordinators work; and what it does meanwhile.

It owns noticing: every lock as it is taken with those that its taker holds, and every process, socket or
question to a peer that is begun under the authority lock. It is ignorant of which of that is wrong.

A context is a task of the event loop or a thread, with whatever it starts: who waits for what somebody else
holds is no concern here, who takes something while holding something is.
"""

import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NamedTuple

import pytest

from herd.coordinator.authority import Authority
from herd.coordinator.lanes import Lanes
from herd.core.authority_lock import AuthorityHold, AuthorityLock
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.mail.database import Database
from herd.rpc.connection import Connection

QUEUE, ASSIGNMENT, AUTHORITY, MAILBOX, VISITED = "queue", "assignment", "authority", "own mailbox", "visited"
FOR_LIFE = "for life"
ORDER = (QUEUE, ASSIGNMENT, AUTHORITY, MAILBOX, VISITED)

_BEGINNINGS = {
    "subprocess.Popen",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.system",
    "socket.connect",
    "socket.getaddrinfo",
}


class _Held(NamedTuple):
    what: str
    stands: Callable[[], bool]


class Taken(NamedTuple):
    """A lock that was taken or asked for."""

    what: str
    holding: tuple[str, ...]
    """What its taker held then, in the order in which it was taken."""
    waits: bool
    """Whether its taker waits for it where it is not free."""
    thread: str


_held: ContextVar[tuple[_Held, ...]] = ContextVar("held", default=())
_listening: "list[Locking]" = []


def holding() -> tuple[str, ...]:
    """Give what the caller's context holds now."""
    return tuple(one.what for one in _held.get() if one.stands())


class Locking:
    """Notices from `watch` until the test ends.

    Args:
        layout: The folders of the machine.

    Attributes:
        taken: Every lock, in the order in which they were asked for.
        begun: Every process, socket and question to a peer, with what its beginner held.
    """

    def __init__(self, layout: Layout) -> None:
        self.taken: list[Taken] = []
        self.begun: list[tuple[str, tuple[str, ...]]] = []
        self._layout = layout
        self._lanes: dict[tuple[Lanes, str], list[bool]] = {}

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Begin; `monkeypatch` ends it."""
        monkeypatch.setattr(Lanes, "enter", self._entering(Lanes.enter))
        monkeypatch.setattr(Lanes, "leave", self._leaving(Lanes.leave))
        monkeypatch.setattr(HeldLock, "acquire", self._acquiring(HeldLock.acquire))
        monkeypatch.setattr(AuthorityLock, "try_shared", self._holding(AuthorityLock.try_shared))
        monkeypatch.setattr(AuthorityLock, "exclusive", self._holding(AuthorityLock.exclusive))
        monkeypatch.setattr(Authority, "hold", self._inheriting(Authority.hold, lambda ruling: ruling))
        monkeypatch.setattr(Authority, "share", self._inheriting(Authority.share, lambda one: one.ruling))
        monkeypatch.setattr(Database, "start", self._beginning(Database.start))
        monkeypatch.setattr(Connection, "request", self._requesting(Connection.request))
        monkeypatch.setattr(sys.modules[__name__], "_listening", [self])

    def notice(self, event: str) -> None:
        """Take note of something that may take long."""
        self.begun.append((event, holding()))

    def _note(self, what: str, *, waits: bool = True) -> None:
        self.taken.append(Taken(what, holding(), waits, threading.current_thread().name))

    def _entering(self, enter: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(enter)
        async def entering(lanes: Lanes, *names: str) -> None:
            self._note(QUEUE)
            await enter(lanes, *names)
            for name in dict.fromkeys(names):
                over = self._lanes[lanes, name] = [False]
                _add(QUEUE, partial(_goes_on, over))

        return entering

    def _leaving(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(leave)
        def leaving(lanes: Lanes, *names: str) -> None:
            for name in dict.fromkeys(names):
                self._lanes.pop((lanes, name), [False])[0] = True
            leave(lanes, *names)

        return leaving

    def _acquiring(self, acquire: Callable[..., HeldLock]) -> Callable[..., HeldLock]:
        def acquiring(path: str, **more: Any) -> HeldLock:
            waits = more.get("wait_ms") != 0
            name = path.rsplit("/", 1)[1]
            what = ASSIGNMENT if name.endswith(".assignment.lock") else FOR_LIFE if waits else VISITED
            self._note(what, waits=waits)
            lock = acquire(path, **more)
            if what != FOR_LIFE:
                _add(what, lambda: lock._lock is not None)
            return lock

        return acquiring

    def _holding(self, take: Callable[..., AuthorityHold | None]) -> Callable[..., AuthorityHold | None]:
        @wraps(take)
        def taking(lock: AuthorityLock, *given: Any) -> AuthorityHold | None:
            self._note(AUTHORITY)
            hold = take(lock, *given)
            if hold is not None:
                _add(AUTHORITY, lambda: hold.covers(self._layout.authority_lock))
            return hold

        return taking

    def _inheriting(self, take: Callable[..., Any], ruling_of: Callable[[Any], Any]) -> Callable[..., Any]:
        """Let the task that waited have what a thread, or another task of the same turn, took for it."""

        @wraps(take)
        async def taking(authority: Authority) -> Any:
            found = await take(authority)
            hold = ruling_of(found)._hold
            _add(AUTHORITY, lambda: hold.covers(self._layout.authority_lock))
            return found

        return taking

    def _beginning(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(begin)
        def beginning(database: Database, *given: Any, **more: Any) -> Any:
            self._note(MAILBOX)
            done = begin(database, *given, **more)
            _add(MAILBOX, lambda: not done.done())
            return done

        return beginning

    def _requesting(self, request: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(request)
        async def requesting(connection: Connection, method: str, *given: Any, **more: Any) -> Any:
            self.notice(method)
            return await request(connection, method, *given, **more)

        return requesting


def _goes_on(over: list[bool]) -> bool:
    return not over[0]


def _add(what: str, stands: Callable[[], bool]) -> None:
    _held.set((*(one for one in _held.get() if one.stands()), _Held(what, stands)))


def _audited(event: str, _: tuple[Any, ...]) -> None:
    if event in _BEGINNINGS:
        for one in _listening:
            one.notice(event)


sys.addaudithook(_audited)
