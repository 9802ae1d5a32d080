"""A story of visitors and coordinators of one session that are killed at random instants.

It is a process of its own: it imports everything, starts no thread and no event loop, and forks. Each of
its senders has one visitor at a time, which hands in the sender's messages one after the other until it is
killed; the next one begins with the first message that was not acknowledged. Meanwhile coordinators of the
session begin, end and are killed. What was acknowledged, and what is stored in the end, is told as JSON.

`python -m tests.fakes.visitors ROOT VISITORS SEED`
"""

import asyncio
import json
import os
import random
import selectors
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from herd.coordinator.coordinator import coordinate
from herd.core.build import running_build
from herd.core.errors import PeerOffline
from herd.core.identity import SessionName
from herd.core.locks import wait_until_free
from herd.core.paths import Layout
from herd.mail import acceptance, inbox
from herd.mail.visit import visit
from herd.presence.session_file import SessionFile
from tests.fakes.coordinators import opening_of
from tests.fakes.mail import BOB, NOW, admission, envelope, sender, started_once

SENDERS = 5
LIVES_S = 0.06
"""Seconds that a visitor lives at most once it is inside for the first time."""

COORDINATES_S = 0.1
"""Seconds that a coordinator lives at most once it coordinates."""

AT_ANY_TIME = 0.25
"""The share of visitors that are killed at an instant which has nothing to do with how far they are."""

NEVER = float("inf")

RESTS_S = 0.3
"""Seconds until the next coordinator begins, at most."""

GONE_S = 60.0
"""Seconds that a child has to be gone after it was killed or let end."""

ROOM = 1_000_000
"""Messages that the inbox takes: here it is never full."""

INSIDE, DONE = b"i", b"d"
"""What children say: a visitor has begun a transaction; it was acknowledged, or a coordinator lives."""

_PIPE_BYTES = 1 << 20


class Child(NamedTuple):
    pid: int
    pipe: int
    """The end that we read: what the child has acknowledged."""
    life: int
    """The end of another pipe, by closing which we let it end in order."""
    sender: int | None
    """Whose visitor it is; None for a coordinator."""
    until: float
    """When it is killed or let end; `NEVER` until it has said its first word."""
    most_s: float
    orderly: bool


class Story:
    """All of it, in one process without threads."""

    def __init__(self, layout: Layout, visitors: int, seed: int) -> None:
        self._layout = layout
        self._left = visitors
        self._random = random.Random(seed)
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, Child] = {}
        self._coordinates_at = 0.0
        self._coordinates = False
        self.acknowledged = [0] * SENDERS
        self.coordinated = 0

    def play(self) -> None:
        """Begin, kill and reap until every visitor has had its turn; a child that fails ends the story."""
        try:
            self._play()
        finally:
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def _play(self) -> None:
        for number in range(SENDERS):
            self._begin_visitor(number)
        while self._children or self.coordinated == 0:
            for key, _ in self._selector.select(self._until_next()):
                if key.data is None:
                    self._reap(key.fd)
                else:
                    self._heard(key.data)
            for handle, child in list(self._children.items()):
                if child.until <= time.monotonic():
                    self._end(handle, child)
            if not self._coordinates and self._coordinates_at <= time.monotonic():
                self._begin_coordinator()

    def _until_next(self) -> float | None:
        instants = [child.until for child in self._children.values()]
        if not self._coordinates:
            instants.append(self._coordinates_at)
        return None if min(instants) == NEVER else max(0.0, min(instants) - time.monotonic())

    def _heard(self, handle: int) -> None:
        """Begin to count a child's time, since it has said its first word."""
        child = self._children.get(handle)
        if child is None or child.pipe not in self._selector.get_map():
            return  # it was reaped just now
        self._selector.unregister(child.pipe)
        if child.until == NEVER:
            self._children[handle] = child._replace(until=self._at_random(child.most_s))

    def _at_random(self, most_s: float) -> float:
        return time.monotonic() + self._random.uniform(0, most_s)

    def _begin_visitor(self, number: int) -> None:
        begin = self.acknowledged[number]
        # More than were asked for, where the machine is so busy that nobody came to an end.
        if self._left > 0 or begin == 0:
            self._left -= 1
            self._begin(number, LIVES_S, lambda pipe, _: hand_in(self._layout, number, begin, pipe))

    def _begin_coordinator(self) -> None:
        self._coordinates_at = NEVER
        if self._left > 0 or self.coordinated == 0:
            self._coordinates = True
            self._begin(None, COORDINATES_S, lambda pipe, life: live(self._layout, pipe, life))

    def _begin(self, number: int | None, most_s: float, deed: Callable[[int, int], None]) -> None:
        pipe, told = os.pipe()
        ends, life = os.pipe()
        pid = os.fork()
        if pid == 0:
            for descriptor in (pipe, life, *self._descriptors()):
                os.close(descriptor)
            _do(lambda: deed(told, ends))
        os.close(told)
        os.close(ends)
        until = self._at_random(most_s) if self._random.random() < AT_ANY_TIME else NEVER
        handle = os.pidfd_open(pid)
        self._children[handle] = Child(pid, pipe, life, number, until, most_s, self._random.random() < 0.5)
        self._selector.register(handle, selectors.EVENT_READ)
        self._selector.register(pipe, selectors.EVENT_READ, handle)

    def _descriptors(self) -> list[int]:
        """Give what a new child must not keep: no life ends while others have hold of it."""
        ours = [one for child in self._children.values() for one in (child.pipe, child.life) if one >= 0]
        return [*ours, *self._children]

    def _end(self, handle: int, child: Child) -> None:
        """Kill a child; a coordinator may be let end in order instead."""
        if child.sender is None and child.orderly:
            os.close(child.life)
            self._children[handle] = child._replace(life=-1, until=time.monotonic() + GONE_S)
        else:
            os.kill(child.pid, signal.SIGKILL)
            self._children[handle] = child._replace(until=time.monotonic() + GONE_S)

    def _reap(self, handle: int) -> None:
        child = self._children.pop(handle)
        self._selector.unregister(handle)
        os.close(handle)
        _, status = os.waitpid(child.pid, 0)
        assert os.waitstatus_to_exitcode(status) in {0, -signal.SIGKILL}, "a child failed"
        if child.pipe in self._selector.get_map():
            self._selector.unregister(child.pipe)
        told = os.read(child.pipe, _PIPE_BYTES).count(DONE)
        for descriptor in (child.pipe, child.life):
            if descriptor >= 0:
                os.close(descriptor)
        if child.sender is None:
            self.coordinated += told
            self._coordinates = False
            self._coordinates_at = time.monotonic() + self._random.uniform(0, RESTS_S)
        else:
            self.acknowledged[child.sender] += told
            self._begin_visitor(child.sender)


def _do(deed: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        deed()
        status = 0
    except BaseException:  # noqa: BLE001 - a child that went on would tell the story twice
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def hand_in(layout: Layout, number: int, begin: int, pipe: int) -> None:
    """Be a visitor: hand in one message after the other, each acknowledged on the pipe, until killed."""
    session = sender_session(number)
    count = begin
    while True:
        one = envelope(f"m-{count}", str(count), by=session)

        def work(connection: sqlite3.Connection, file: SessionFile, one: Any = one) -> None:
            os.write(pipe, INSIDE)
            custody_id = file.custody_id or ""
            acceptance.accept(connection, one, sender(session), admission(custody_id, ROOM, NOW))

        try:
            visit(layout, BOB.key, work)
        except PeerOffline:
            wait_until_free(layout.session_lock(BOB.key))
            wait_until_free(layout.mailbox_lock(BOB.key))
            continue
        os.write(pipe, DONE)
        count += 1


def sender_session(number: int) -> SessionName:
    """Give the session whose messages a visitor brings."""
    return SessionName("claude", f"sender-{number}")


def live(layout: Layout, pipe: int, life: int) -> None:
    """Be a coordinator until the pipe of life is closed."""

    async def coordinated() -> None:
        ended = asyncio.Event()
        async with coordinate(opening_of(layout, BOB)) as one:
            asyncio.get_running_loop().add_reader(life, ended.set)
            await one.mailbox.read(inbox.undelivered)
            os.write(pipe, DONE)
            await ended.wait()

    asyncio.run(coordinated())


def found(layout: Layout) -> dict[str, Any]:
    """Give what the mailbox holds in the end."""

    def work(connection: sqlite3.Connection, file: SessionFile) -> dict[str, Any]:
        rows = connection.execute("SELECT sender_key, message_id, sequence FROM inbox ORDER BY sequence")
        return {
            "rows": rows.fetchall(),
            "custody_id": file.custody_id,
            "quick_check": connection.execute("PRAGMA quick_check").fetchall(),
        }

    return visit(layout, BOB.key, work)


def main() -> None:
    """Play the story and tell it."""
    root, visitors, seed = sys.argv[1:]
    layout = Layout(root)
    started_once(layout, BOB)
    running_build()  # once, and not in every coordinator
    story = Story(layout, int(visitors), int(seed))
    story.play()
    told = {"acknowledged": story.acknowledged, "coordinated": story.coordinated, **found(layout)}
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
