"""Visits between real processes: nobody waits for a lock, a start waits for a visitor, kills lose nothing."""

import asyncio
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import pytest

from herd.core.errors import LockTimeout, PeerOffline
from herd.core.limits import VISITOR_WAIT_S
from herd.core.locks import probe
from herd.core.paths import Layout
from herd.mail import counter, inbox
from herd.mail.visit import visit
from tests.fakes.coordinators import Running, running, until
from tests.fakes.mail import ALICE, BOB, inside, started_once, target
from tests.fakes.records import layout_at
from tests.fakes.visitors import SENDERS, sender_session

ROOT = Path(__file__).parents[2]
IN_TIME_S = 40
MEMORY = Path("/dev/shm")

VISITOR = """
import os, signal, sys
from herd.core.paths import Layout
from herd.mail import acceptance
from herd.mail.visit import visit
from tests.fakes.mail import BOB, NOW, admission, envelope, sender

def work(connection, file):
    custody_id = file.custody_id
    acceptance.accept(connection, envelope(), sender(), admission(custody_id, 32, NOW))
    os.write(1, b"inside\\n")
    if sys.stdin.readline() == "die\\n":
        os.kill(os.getpid(), signal.SIGKILL)

# Its clock stands, since the tests let it wait as long as they need.
visit(Layout(sys.argv[1]), BOB.key, work, now=lambda: 0.0)
os.write(1, b"done\\n")
sys.stdin.readline()
"""

HOLDER = """
import asyncio, os, sys
from herd.coordinator.coordinator import coordinate
from herd.core.paths import Layout
from tests.fakes.coordinators import opening_of
from tests.fakes.mail import BOB

async def hold():
    async with coordinate(opening_of(Layout(sys.argv[1]), BOB)):
        os.write(1, b"inside\\n")
        await asyncio.to_thread(sys.stdin.readline)

asyncio.run(hold())
"""


@pytest.fixture
def layout(home: Path) -> Layout:
    layout = layout_at(home)
    started_once(layout, BOB)
    return layout


class Process:
    """A process that tells how far it is, a line each, and goes on when it gets one."""

    def __init__(self, script: str, layout: Layout) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-c", script, layout.root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            encoding="utf-8",
        )

    @property
    def pid(self) -> int:
        return self.running.pid

    def reaches(self, line: str) -> None:
        assert self.running.stdout is not None
        assert select.select([self.running.stdout], [], [], IN_TIME_S)[0], f"it never was {line}"
        assert self.running.stdout.readline() == f"{line}\n"

    def goes_on(self, how: str = "on") -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{how}\n")
        self.running.stdin.flush()

    def ends(self) -> int:
        return self.running.wait(IN_TIME_S)

    def __enter__(self) -> Self:
        self.running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.kill()
        self.running.__exit__(None, None, None)


# --- nobody waits for a lock -----------------------------------------------------------------------


@pytest.mark.requirement("D-visit-01", "A-storage-04")
def test_a_visitor_does_not_wait_for_a_coordinator_however_long_it_lives(layout: Layout):
    with Process(HOLDER, layout) as holder:
        holder.reaches("inside")
        for _ in range(20):
            with pytest.raises(PeerOffline):
                visit(layout, BOB.key, lambda connection, _: counter.next_cursor(connection))
        assert probe(layout.mailbox_lock(BOB.key)).held
        holder.goes_on()
        assert holder.ends() == 0

    assert visit(layout, BOB.key, lambda connection, _: counter.next_cursor(connection)) == 1


@pytest.mark.requirement("D-visit-01")
def test_a_visitor_does_not_wait_for_another_visitor(layout: Layout):
    with Process(VISITOR, layout) as first:
        first.reaches("inside")
        with pytest.raises(PeerOffline):
            visit(layout, BOB.key, lambda connection, _: counter.next_cursor(connection))
        first.goes_on()
        first.reaches("done")

    assert [row.message_id for row in inside(layout, BOB, inbox.undelivered)] == ["m-1"]


# --- a start waits for a visitor -------------------------------------------------------------------


@asynccontextmanager
async def starting(layout: Layout) -> AsyncIterator["asyncio.Task[list[str]]"]:
    """Start Bob's coordinator, and give what it found to deliver; it waits for the visitor by then."""

    async def found() -> list[str]:
        async with running(layout, BOB) as bob:
            return [row.message_id for row in await waiting_at(bob)]

    task = asyncio.create_task(found())
    try:
        await until(lambda: probe(layout.session_lock(BOB.key)).held)
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def waiting_at(one: Running) -> list[inbox.Incoming]:
    return await one.coordinator.mailbox.run(inbox.undelivered)


@pytest.mark.requirement("D-visit-03")
async def test_a_coordinator_that_starts_waits_for_a_visitor_and_finds_what_it_brought(layout: Layout):
    with Process(VISITOR, layout) as visitor:
        await asyncio.to_thread(visitor.reaches, "inside")
        async with starting(layout) as started:
            assert not started.done()
            visitor.goes_on()
            async with asyncio.timeout(IN_TIME_S):
                assert await started == ["m-1"]


@pytest.mark.requirement("D-visit-03")
async def test_a_visitor_that_is_killed_lets_it_in_at_once_and_leaves_nothing_of_its_visit(layout: Layout):
    with Process(VISITOR, layout) as visitor:
        await asyncio.to_thread(visitor.reaches, "inside")
        async with starting(layout) as started:
            visitor.goes_on("die")
            assert await asyncio.to_thread(visitor.ends) == -signal.SIGKILL
            async with asyncio.timeout(IN_TIME_S):
                assert await started == []


@pytest.mark.requirement("D-visit-03")
async def test_after_5_s_it_gives_up_and_names_the_visitors_pid(layout: Layout):
    assert VISITOR_WAIT_S == 5
    with Process(VISITOR, layout) as visitor:
        await asyncio.to_thread(visitor.reaches, "inside")
        async with starting(layout) as started:
            with pytest.raises(LockTimeout) as caught:
                async with asyncio.timeout(IN_TIME_S):
                    await started

        assert str(visitor.pid) in caught.value.message
        assert caught.value.details["holder"]["pid"] == visitor.pid
        assert not probe(layout.session_lock(BOB.key)).held
        visitor.goes_on()
        await asyncio.to_thread(visitor.reaches, "done")


async def test_while_it_waits_no_other_visitor_comes_in_before_it(layout: Layout):
    with Process(VISITOR, layout) as visitor:
        await asyncio.to_thread(visitor.reaches, "inside")
        async with starting(layout) as started:
            visitor.goes_on()
            await asyncio.to_thread(visitor.reaches, "done")
            # The mailbox may be free for an instant now, but the session is not.
            with pytest.raises(PeerOffline):
                await asyncio.to_thread(visit, layout, BOB.key, lambda *_: None)
            async with asyncio.timeout(IN_TIME_S):
                assert await started == ["m-1"]


# --- kills -----------------------------------------------------------------------------------------


@pytest.fixture
def in_memory() -> Iterator[Layout]:
    """A data root in memory, where there is such a place: what the killed wrote is in the kernel anyway."""
    folder = Path(tempfile.mkdtemp(prefix="herd-", dir=MEMORY if os.access(MEMORY, os.W_OK) else "/tmp"))
    yield layout_at(folder)
    shutil.rmtree(folder)


def story_is_true(layout: Layout, visitors: int, seed: int) -> None:
    """Let visitors and coordinators be killed at random, and compare what was told with what is there."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fakes.visitors", layout.root, str(visitors), str(seed)],
        cwd=ROOT,
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    assert (ended.returncode, ended.stderr) == (0, ""), f"seed {seed}"
    told = json.loads(ended.stdout)

    assert told["quick_check"] == [["ok"]]
    assert [row[2] for row in told["rows"]] == list(range(1, len(told["rows"]) + 1))
    for number in range(SENDERS):
        key = sender_session(number).key
        stored = [message_id for sender_key, message_id, _ in told["rows"] if sender_key == key]
        assert stored == [f"m-{count}" for count in range(len(stored))], "each once and in order"
        # The last one may have been stored when the kill came before its acknowledgement.
        assert len(stored) - told["acknowledged"][number] in {0, 1}
    left = sorted(os.listdir(layout.session_folder(BOB.key)))
    assert [name for name in left if name != "token"] == ["mailbox.sqlite3", "session.json"]
    assert all(told["acknowledged"])
    assert told["coordinated"] > 0


@pytest.mark.requirement("H-inbox-01", "A-custody-03")
def test_100_visitors_killed_at_random_leave_each_acknowledged_message_once_and_in_order(in_memory: Layout):
    story_is_true(in_memory, 100, seed=1)


@pytest.mark.requirement("A-custody-03", "H-inbox-01")
async def test_a_receiver_killed_right_after_it_answered_has_the_message_in_its_next_life(layout: Layout):
    async with running(layout, ALICE) as alice:
        with Process(HOLDER, layout) as bob:
            await asyncio.to_thread(bob.reaches, "inside")
            await alice.ask("list")
            sent = await alice.send(target(BOB), "hello")
            bob.running.send_signal(signal.SIGKILL)
            assert sent["status"] == "accepted"
            assert await asyncio.to_thread(bob.ends) == -signal.SIGKILL
        async with running(layout, BOB) as bob_again:
            assert [row.content for row in await waiting_at(bob_again)] == ["hello"]
