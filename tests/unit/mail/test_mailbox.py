"""The mailbox of a coordinator: opened once whoever goes away meanwhile, and closed for good."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import HerdError, PeerOffline, QueueFull, RecoveryRequired, SystemWant
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.mail import counter
from herd.mail.mailbox import Mailbox
from herd.mail.mailbox_proof import damage_told
from tests.fakes.mail import BOB, inside, mailbox_of, refused, started_once
from tests.fakes.records import layout_at

IN_TIME_S = 20


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


class Gated(ThreadPoolExecutor):
    """Threads whose work has been done, and whose results are held back until the gate is opened."""

    def __init__(self) -> None:
        super().__init__(max_workers=4)
        self.gate = threading.Event()
        self.done = threading.Event()
        self.works = 0

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        def gated() -> Any:
            try:
                return work(*arguments, **named)
            finally:
                self.done.set()
                assert self.gate.wait(IN_TIME_S)

        self.works += 1
        return super().submit(gated)

    def wait_done(self) -> None:
        assert self.done.wait(IN_TIME_S)


@asynccontextmanager
async def gated() -> AsyncIterator[Gated]:
    """Run the threads of this loop behind a gate."""
    executor = Gated()
    asyncio.get_running_loop().set_default_executor(executor)
    try:
        yield executor
    finally:
        executor.gate.set()


async def until(executor: Gated) -> None:
    """Wait, without a thread of that executor, until its first work is done."""
    loop, seen = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        executor.wait_done()
        loop.call_soon_threadsafe(seen.set)

    watcher = threading.Thread(target=watch)
    watcher.start()
    async with asyncio.timeout(IN_TIME_S):
        await seen.wait()
    watcher.join()


# --- opening ---------------------------------------------------------------------------------------


async def test_the_first_transaction_makes_the_mailbox_and_names_its_custody(layout: Layout):
    async with mailbox_of(layout, BOB) as mailbox:
        assert mailbox.custody_id is None
        assert await mailbox.run(counter.next_cursor) == 1
        assert mailbox.custody_id == started_once(layout, BOB).custody_id is not None


async def test_many_that_need_it_first_open_it_once(layout: Layout):
    async with mailbox_of(layout, BOB) as mailbox:
        cursors = await asyncio.gather(*(mailbox.run(counter.next_cursor) for _ in range(20)))

    assert sorted(cursors) == list(range(1, 21))


async def test_a_caller_that_goes_away_while_it_is_opened_leaves_it_to_the_next(layout: Layout):
    # Two threads that make one mailbox at once would leave a session whose mail nobody can open.
    async with mailbox_of(layout, BOB) as mailbox, gated() as executor:
        first = asyncio.create_task(mailbox.run(counter.next_cursor))
        await until(executor)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(mailbox.run(counter.next_cursor))
        await asyncio.sleep(0)
        executor.gate.set()

        async with asyncio.timeout(IN_TIME_S):
            assert await second == 1
        assert executor.works == 1


async def test_closing_waits_for_an_opening_that_nobody_awaits_any_more(layout: Layout):
    async with gated() as executor:
        with HeldLock.acquire(layout.mailbox_lock(BOB.key)):
            mailbox = Mailbox(layout, started_once(layout, BOB))
            caller = asyncio.create_task(mailbox.run(counter.next_cursor))
            await until(executor)
            caller.cancel()
            closing = asyncio.create_task(mailbox.close())
            await asyncio.sleep(0)
            assert not closing.done()
            executor.gate.set()
            async with asyncio.timeout(IN_TIME_S):
                await closing

    # Closed: a second connection could not read it otherwise.
    assert await asyncio.to_thread(inside, layout, BOB, counter.last_cursor) == 0


async def test_closing_while_it_is_opened_finishes_what_that_was_for(layout: Layout):
    async with gated() as executor:
        with HeldLock.acquire(layout.mailbox_lock(BOB.key)):
            mailbox = Mailbox(layout, started_once(layout, BOB))
            caller = asyncio.create_task(mailbox.run(counter.next_cursor))
            await until(executor)
            closing = asyncio.create_task(mailbox.close())
            executor.gate.set()
            async with asyncio.timeout(IN_TIME_S):
                outcome, _ = await asyncio.gather(caller, closing, return_exceptions=True)

    stored = await asyncio.to_thread(inside, layout, BOB, counter.last_cursor)
    assert (outcome, stored) == (1, 1) or (isinstance(outcome, PeerOffline) and stored == 0)


# --- the end ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-storage-04")
@pytest.mark.parametrize("used", [False, True])
async def test_nobody_opens_it_again_after_its_coordinator_has_ended(layout: Layout, used: bool):
    async with mailbox_of(layout, BOB) as mailbox:
        if used:
            await mailbox.run(counter.next_cursor)

    for call in (mailbox.run, mailbox.read, mailbox.start):
        with pytest.raises(PeerOffline):
            await call(counter.next_cursor)
    assert await asyncio.to_thread(inside, layout, BOB, counter.last_cursor) == int(used)


async def test_what_was_in_line_when_it_was_closed_is_committed(layout: Layout):
    async with mailbox_of(layout, BOB) as mailbox:
        await mailbox.run(counter.next_cursor)
        ended = [await mailbox.start(counter.next_cursor) for _ in range(5)]

    assert [await end() for end in ended] == [2, 3, 4, 5, 6]


async def test_closing_twice_is_closing_once(layout: Layout):
    async with mailbox_of(layout, BOB) as mailbox:
        await mailbox.run(counter.next_cursor)
        await mailbox.close()


# --- refusals and faults ---------------------------------------------------------------------------


async def test_what_a_transaction_refuses_reaches_its_caller_and_stores_nothing(layout: Layout):
    told: list[HerdError | None] = []
    async with mailbox_of(layout, BOB, health=told.append) as mailbox:
        with pytest.raises(QueueFull, match="full"):
            await mailbox.run(refused(QueueFull("full")))
        assert await mailbox.run(counter.last_cursor) == 0

    assert set(told) == {None}


async def test_a_disk_that_fails_is_one_refusal_that_names_the_file_and_the_health_is_told(layout: Layout):
    told: list[HerdError | None] = []

    def failing(_: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    async with mailbox_of(layout, BOB, health=told.append) as mailbox:
        with pytest.raises(RecoveryRequired) as caught:
            await mailbox.run(failing)
        assert await mailbox.run(counter.next_cursor) == 1

    assert layout.mailbox(BOB.key) in caught.value.message
    assert "full" in caught.value.message
    assert caught.value.may_pass
    assert [type(fault) for fault in told] == [RecoveryRequired, type(None)]


async def test_what_the_system_refuses_at_the_opening_is_told_to_the_health_and_passes(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
):
    async with mailbox_of(layout, BOB) as mailbox:
        assert await mailbox.run(counter.next_cursor) == 1
    told: list[HerdError | None] = []
    want = SystemWant("too many open files")

    def refusing(*_: object) -> None:
        raise want

    with HeldLock.acquire(layout.mailbox_lock(BOB.key)):
        mailbox = Mailbox(layout, started_once(layout, BOB), health=told.append)
        with monkeypatch.context() as system:
            system.setattr("herd.mail.mailbox.read_session_file", refusing)
            with pytest.raises(SystemWant):
                await mailbox.open()
        assert told == [want]

        assert await mailbox.run(counter.next_cursor) == 2
        await mailbox.close()


def test_a_disk_that_turns_read_only_is_not_called_damage(layout: Layout):
    read_only = sqlite3.OperationalError("attempt to write a readonly database")
    read_only.sqlite_errorcode = sqlite3.SQLITE_READONLY

    with pytest.raises(sqlite3.OperationalError), damage_told(layout.mailbox(BOB.key)):
        raise read_only


@pytest.mark.parametrize("fault", [sqlite3.IntegrityError("a constraint"), ValueError("a fault")])
async def test_a_fault_of_ours_is_not_called_a_full_disk(layout: Layout, fault: Exception):
    told: list[HerdError | None] = []

    def failing(_: sqlite3.Connection) -> None:
        raise fault

    async with mailbox_of(layout, BOB, health=told.append) as mailbox:
        with pytest.raises(type(fault), match=str(fault)):
            await mailbox.run(failing)

    assert told == [None]


async def test_a_caller_that_is_cancelled_does_not_undo_its_transaction(layout: Layout):
    async with mailbox_of(layout, BOB) as mailbox:
        await mailbox.run(counter.next_cursor)
        ended = await mailbox.start(counter.next_cursor)
        caller = asyncio.ensure_future(ended())
        await asyncio.sleep(0)
        caller.cancel()

        assert await mailbox.run(counter.next_cursor) == 3
