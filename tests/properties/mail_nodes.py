"""Mailboxes and routes of a few sessions in one process, with a network in between that a test is.

It owns opening, crashing at a commit, and carrying: what a route hands over lies on the wire until the test
says what becomes of it. A crash leaves the files as they were at that instant. Ignorant of what must be true.
"""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, TypeVar

from herd.core.clock import FakeClock
from herd.core.identity import SessionName
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.mail import inbox, outbox
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import PENDING, REPLIED, Receipt
from herd.mail.routes import Carried, CarriedTogether, Routes
from herd.mail.together import Together, accept_in_order
from herd.mail.visit import visit
from herd.mail.wire import Envelope, read_envelope, read_receipt, receipt_to_wire
from tests.fakes.mail import NOW, admission, sender, started_once, target

Result = TypeVar("Result")

ROOM = 4
"""Messages that an inbox takes before it is full."""

FILES = ("", "-wal")


ABREAST = 5
"""Messages that go in one request: more than an inbox takes, so that one in the middle may be refused."""


class Wire(NamedTuple):
    """Messages that have been sent in one request and may still arrive, any number of times."""

    source: "Node"
    sink: "Node"
    envelopes: tuple[Envelope, ...]

    def holds(self, message_id: str) -> bool:
        """Tell whether a message is among them."""
        return any(envelope.message_id == message_id for envelope in self.envelopes)


class Attempt(NamedTuple):
    """A route that waits for what becomes of the messages it sent."""

    wire: Wire
    answer: "asyncio.Future[CarriedTogether]"


class Told(NamedTuple):
    """A receipt on its way to a sender."""

    source: "Node"
    sink: "Node"
    life: int
    row: Incoming
    receipt: Receipt


class Node:
    """One session: its mailbox and routes while it lives, its files while it does not.

    Args:
        layout: The folders of the machine.
        session: Its name.
        peers: Every node by its session key.
    """

    def __init__(self, layout: Layout, session: SessionName, peers: "dict[str, Node]") -> None:
        self.session = session
        self.key = session.key
        self.target = target(session)
        self.life = 0
        self.attempts: list[Attempt] = []
        self.holding: set[int] = set()
        """What its host was handed in this life."""
        self._layout = layout
        self._peers = peers
        self._folder = layout.session_folder(session.key)
        self._mailbox: Mailbox | None = None
        self._cut = ""
        self._cuts = 0
        started_once(layout, session)

    @property
    def lives(self) -> bool:
        return self._mailbox is not None

    @property
    def idle(self) -> bool:
        """Whether every piece of its work waits for an answer, or for its clock."""
        if not self.lives:
            return True
        unanswered = sum(not attempt.answer.done() for attempt in self.attempts)
        return len(self._tasks) == unanswered + self.clock.sleeping

    # --- lives and deaths --------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin a life with what the files hold."""
        self.life += 1
        self._locks = ExitStack()
        for path in (self._layout.session_lock(self.key), self._layout.mailbox_lock(self.key)):
            self._locks.enter_context(HeldLock.acquire(path))
        file = started_once(self._layout, self.session)
        self._mailbox = Mailbox(self._layout, file, step=self._step)
        await self._mailbox.open()
        self.clock = FakeClock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.routes = Routes(
            self._mailbox,
            self,
            self,
            clock=self.clock,
            changed=lambda _: None,
            recorded=self.recorded,
            jitter=lambda: 0.0,
        )
        for row in await self._mailbox.read(outbox.pending) or []:
            self.routes.add(row)

    async def close(self) -> None:
        """End the life in order."""
        assert self._mailbox is not None, "it lives"
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._mailbox.close()
        self._mailbox = None
        self.holding.clear()
        self._locks.close()

    async def crash(self) -> None:
        """End the life at this instant, or at the commit that was cut."""
        if not self._cuts:
            await asyncio.to_thread(self._photograph)
        await self.close()
        self._put_back()
        self._cut, self._cuts = "", 0

    def cut_at(self, step: str) -> None:
        """Let the life end at the next commit, before or after it: `was_cut` says whether there was one."""
        self._cut = step

    @property
    def was_cut(self) -> bool:
        self._cut = ""
        return self._cuts > 0

    def _step(self, name: str) -> None:
        if name == self._cut:
            self._cut = ""
            self._cuts += 1
            self._photograph()

    def _photograph(self) -> None:
        for end in FILES:
            path = self._layout.mailbox(self.key) + end
            if os.path.lexists(path):
                shutil.copyfile(path, path + ".photograph")
                os.chmod(path + ".photograph", 0o600)

    def _put_back(self) -> None:
        for end in FILES:
            path = self._layout.mailbox(self.key) + end
            if os.path.lexists(path):
                os.unlink(path)
            if os.path.lexists(path + ".photograph"):
                os.rename(path + ".photograph", path)

    # --- its work ----------------------------------------------------------------------------------

    def create_task(self, work: Coroutine[Any, Any, None]) -> object:
        """See `Spawner.create_task`."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run a transaction of this session, or a visit while it sleeps."""
        if self._mailbox is not None:
            return await self._mailbox.run(work)
        return await asyncio.to_thread(visit, self._layout, self.key, lambda connection, _: work(connection))

    async def custody_id(self) -> str:
        """Give the custody id of its mailbox, made if need be."""
        return await self.run(
            lambda connection: str(connection.execute("SELECT custody_id FROM custody").fetchone()[0])
        )

    def recorded(self, row: Outgoing) -> None:
        """Do as a coordinator does when more is written down of a message it sent."""
        if self.lives and row.receipt.state != PENDING:
            self.routes.settled_elsewhere(row)

    async def carry(self, message: Outgoing) -> Carried:
        """See `Carrier.carry`."""
        carried = await self.carry_together([message])
        if carried.refusal is not None:
            raise carried.refusal
        return Carried(carried.receipts[0], carried.running)

    async def carry_together(self, messages: Sequence[Outgoing]) -> CarriedTogether:
        """See `Carrier.carry_together`: lay them on the wire and wait for what the test says."""
        envelopes = tuple(read_envelope(one.envelope().to_wire()) for one in messages[:ABREAST])
        wire = Wire(self, self._peers[messages[0].recipient_key], envelopes)
        attempt = Attempt(wire, asyncio.get_running_loop().create_future())
        self.attempts.append(attempt)
        try:
            return await attempt.answer
        finally:
            self.attempts.remove(attempt)

    async def accept(self, wire: Wire) -> Together:
        """Take what arrives into custody, as a coordinator or a visitor does."""
        custody_id = await self.custody_id()

        def work(connection: sqlite3.Connection) -> tuple[Together, list[Outgoing]]:
            taken = accept_in_order(
                connection,
                wire.envelopes,
                sender(wire.source.session),
                admission(custody_id, ROOM, NOW),
            )
            replies = [one.reply_to for one in wire.envelopes[: len(taken.accepted)] if one.reply_to]
            answered = [outbox.find(connection, reply_to) for reply_to in replies]
            return taken.told(), [row for row in answered if row is not None]

        together, answered = await self.run(work)
        for row in answered:
            if row.receipt.state == REPLIED:
                self.recorded(row)
        return together._replace(
            receipts=tuple(read_receipt(receipt_to_wire(receipt)) for receipt in together.receipts)
        )

    async def owed(self) -> list[Told]:
        """Give the receipts that it owes now."""
        custody_id = await self.custody_id()
        rows = await self.run(inbox.owed)
        return [
            Told(
                self, self._peers[row.sender_key], self.life, row, row.receipt._replace(custody_id=custody_id)
            )
            for row in rows
        ]


def rows_of(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    """Give every row of a table by the names of its columns, in order."""
    with closing(connection.execute(f"SELECT * FROM {table} ORDER BY 1")) as found:
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]
