"""Visitors killed at random instants, while coordinators of the session come, go and are killed."""

import asyncio
import random
import sqlite3
from contextlib import closing

import pytest

from herd.core.identity import SessionName
from herd.core.paths import Layout
from herd.mail.receipts import DELIVERED
from herd.presence.session_file import read_session_file
from tests.faults.chaos import KILLED
from tests.faults.deeds import VISITED_AT_ONCE
from tests.faults.dice import dice
from tests.faults.forked import DiedError, Process
from tests.faults.forks import IN_TIME_S, Forks
from tests.faults.truth import Came, look

BOB = SessionName("claude", "bob")
VISITORS = 500
FULL_S = 0.2
"""Seconds without a new visitor after which the next coordinator comes all the same."""

VISITS_S = (0.001, 0.06)
COORDINATES_S = (0.01, 0.25)
"""Seconds after which a visitor and a coordinator are killed."""
SENDERS = ("ann", "ben", "cid", "dot")


class Crowd:
    """Senders whose visitors are killed one after the other."""

    def __init__(self, layout: Layout, forks: Forks, decided: random.Random) -> None:
        self.accepted = dict.fromkeys(SENDERS, 0)
        """How many messages of each sender were acknowledged: the number of the next one."""
        self.lived = 0
        self.changed = asyncio.Event()
        self._layout = layout
        self._forks = forks
        self._decided = decided

    async def come(self, sender: str) -> None:
        """Send visitors until all have had their turn."""
        while self.lived < VISITORS:
            self.lived += 1
            visitor = await self._forks.fork(
                "visit",
                root=self._layout.root,
                visitor=sender,
                host=BOB.host,
                session_id=BOB.session_id,
                begin=self.accepted[sender],
                dies_after_s=self._decided.uniform(*VISITS_S),
                of_its_own_time=self._decided.random() < 0.5,
            )
            loop, told = asyncio.get_running_loop(), b""
            async with asyncio.timeout(IN_TIME_S):
                while data := await loop.sock_recv(visitor.socket, 1 << 16):
                    told += data
                assert await visitor.ended in KILLED
            visitor.socket.close()
            if told:
                self.accepted[sender] = int(told.split()[-1]) + 1
            self.changed.set()

    async def more(self, count: int) -> None:
        """Wait until so many more visitors have come, or none comes for a while: the inbox may be full."""
        wanted = min(self.lived + count, VISITORS)
        while self.lived < wanted:
            self.changed.clear()
            try:
                async with asyncio.timeout(FULL_S):
                    await self.changed.wait()
            except TimeoutError:
                return


class Reader:
    """The host of the session that is visited."""

    def __init__(self) -> None:
        self.had: list[tuple[str, bool]] = []
        self.recorded: set[str] = set()

    async def read(self, process: Process, **query) -> int:
        """Read and confirm once, and give how many messages came."""
        answer = await process.ask("session.read", **query)
        for message in answer["messages"]:
            assert message["message_id"] not in self.recorded, "given again after its evidence"
            assert message["text"] == message["message_id"].replace("-", " ")
            self.had.append((message["message_id"], message.get("again", False)))
        ids = list({one for one, _ in self.had} - self.recorded)[:64]
        if ids:
            await process.ask("session.confirm", message_ids=ids, evidence="its session file")
            self.recorded |= set(ids)
        return len(answer["messages"])


async def lives(process: Process, reader: Reader, *, orderly: bool) -> None:
    """Be read from until it dies, or for a while and then end in order."""
    try:
        await process.ask("session.whoami")
        while True:
            await reader.read(process, wait_ms=20)
            if orderly:
                assert await process.end() == 0
                return
    except DiedError:
        assert await process.gone() in KILLED


@pytest.mark.timeout(300)
@pytest.mark.requirement("D-visit-07")
async def test_five_hundred_visitors_killed_at_random_instants_leave_each_message_once_and_in_order(
    layout: Layout, forks: Forks
):
    with dice() as decided:
        await visitors_and_coordinators(layout, forks, decided)


async def visitors_and_coordinators(layout: Layout, forks: Forks, decided: random.Random) -> None:
    first = await Process.started(forks, layout, BOB)
    await first.ask("session.whoami")
    assert await first.end() == 0
    crowd, reader = Crowd(layout, forks, decided), Reader()

    async with asyncio.TaskGroup() as tasks:
        for sender in SENDERS:
            tasks.create_task(crowd.come(sender))
        while crowd.lived < VISITORS:
            await crowd.more(decided.randint(1, 12))
            orderly = decided.random() < 0.4
            fate = {} if orderly else {"dies_after_s": decided.uniform(*COORDINATES_S)}
            await lives(await Process.started(forks, layout, BOB, **fate), reader, orderly=orderly)
    await read_to_the_end(layout, await Process.started(forks, layout, BOB), reader)

    came = look(layout, BOB).inbox
    for sender in SENDERS:
        numbers = [int(row.content.split()[1]) for row in came if row.content.startswith(sender)]
        assert numbers == list(range(len(numbers))), "twice, out of order, or lost"
        # The last ones may have been committed by a visitor that was killed before it could say so.
        assert crowd.accepted[sender] <= len(numbers) <= crowd.accepted[sender] + VISITED_AT_ONCE
    reader_had_everything(reader, came)
    mailbox_is_whole(layout)


async def read_to_the_end(layout: Layout, last: Process, reader: Reader) -> None:
    while await reader.read(last):
        pass
    for row in look(layout, BOB).inbox:
        # Handed over twice, and the host got neither answer: such a message is asked for by its id.
        if row.message_id not in reader.recorded:
            await reader.read(last, message_id=row.message_id)
    assert await last.end() == 0


def reader_had_everything(reader: Reader, came: list[Came]) -> None:
    assert all(row.state == DELIVERED for row in came)
    assert len(came) == len({row.message_id for row in came})
    assert {row.message_id for row in came} == reader.recorded
    order = {row.message_id: number for number, row in enumerate(came)}
    first_time = [order[one] for one, again in reader.had if not again]
    assert first_time == sorted(first_time)


def mailbox_is_whole(layout: Layout) -> None:
    file = read_session_file(layout, BOB.key)
    assert file is not None
    with closing(sqlite3.connect(layout.mailbox(BOB.key))) as connection:
        assert connection.execute("SELECT custody_id FROM custody").fetchall() == [(file.custody_id,)]
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
