"""One connection, one thread, commits shared by whoever waits together: real files, chosen interleavings."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import QueueFull, RecoveryRequired
from herd.core.limits import CHECKPOINT_TRANSACTIONS
from herd.mail.database import Database, Work
from herd.mail.steps import COMMIT_AFTER, COMMIT_BEFORE, Step, no_step

ROOT = Path(__file__).parents[2]
IN_TIME_S = 20
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


class Failing(sqlite3.Connection):
    """A disk that fails: a statement raises what `faults` has next for it, and None lets it pass."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.faults: dict[str, list[Exception | None]] = {}

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        fault = self.faults[sql].pop(0) if self.faults.get(sql) else None
        if fault is not None:
            raise fault
        return super().execute(sql, parameters)


class Kept:
    """A database of notes, the statements its thread ran, and what was told of its commits."""

    def __init__(self, path: Path, connection: Failing, database: Database, commits: list[Any]) -> None:
        self.path = path
        self.connection = connection
        self.database = database
        self.commits = commits
        self.statements: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()
        connection.set_trace_callback(self._ran)

    def _ran(self, statement: str) -> None:
        self.statements.append(statement)
        self._loop.call_soon_threadsafe(self._more.set)

    async def until(self, statement: str) -> None:
        """Wait until the thread has come to a statement."""
        async with asyncio.timeout(IN_TIME_S):
            while statement not in self.statements:
                self._more.clear()
                await self._more.wait()

    def count(self, statement: str) -> int:
        return self.statements.count(statement)

    async def run(self, work: Work[Any]) -> Any:
        async with asyncio.timeout(IN_TIME_S):
            return await self.database.run(work)

    async def notes(self) -> list[str]:
        found = await self.run(lambda connection: connection.execute("SELECT text FROM notes").fetchall())
        return [row[0] for row in found]


def connected(path: Path) -> Failing:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Failing)
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "PRAGMA wal_autocheckpoint = 0",
        "CREATE TABLE IF NOT EXISTS notes (text TEXT UNIQUE NOT NULL) STRICT",
    ):
        connection.execute(statement)
    return connection


@asynccontextmanager
async def kept(
    path: Path,
    *,
    step: Step = no_step,
    told: Callable[[Any], None] | None = None,
    standing: Callable[[], None] = lambda: None,
) -> AsyncIterator[Kept]:
    commits: list[Any] = []
    connection = connected(path)
    database = Database(connection, committed=told or commits.append, standing=standing, step=step)
    try:
        yield Kept(path, connection, database, commits)
    finally:
        async with asyncio.timeout(IN_TIME_S):
            await database.close()


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[Kept]:
    async with kept(tmp_path / "notes.sqlite3") as one:
        yield one


def note(text: str) -> Work[str]:
    def work(connection: sqlite3.Connection) -> str:
        connection.execute("INSERT INTO notes VALUES (?)", (text,))
        return text

    return work


def refusing(text: str, fault: BaseException) -> Work[str]:
    """Give a transaction that writes and is refused then."""

    def work(connection: sqlite3.Connection) -> str:
        note(text)(connection)
        raise fault

    return work


class Held:
    """A transaction that keeps the thread until it is let go, so that others wait together behind it."""

    def __init__(self, kept_: Kept) -> None:
        self._begun = threading.Event()
        self._may_end = threading.Event()
        self._done = kept_.database.start(self._work)

    def _work(self, _: sqlite3.Connection) -> None:
        self._begun.set()
        assert self._may_end.wait(IN_TIME_S)

    async def __aenter__(self) -> None:
        await asyncio.to_thread(self._begun.wait, IN_TIME_S)

    async def __aexit__(self, *_: object) -> None:
        self._may_end.set()
        async with asyncio.timeout(IN_TIME_S):
            await self._done


async def all_of(futures: Iterable["asyncio.Future[Any]"]) -> list[Any]:
    async with asyncio.timeout(IN_TIME_S):
        return await asyncio.gather(*futures, return_exceptions=True)


# --- commits ---------------------------------------------------------------------------------------


async def test_a_transaction_gives_its_result_after_its_commit(notes: Kept):
    assert await notes.run(note("one")) == "one"

    assert notes.count("COMMIT") == 1
    assert await notes.notes() == ["one"]
    assert notes.commits == [None, None]


@pytest.mark.requirement("A-storage-14")
async def test_transactions_that_wait_together_share_one_commit(notes: Kept):
    async with Held(notes):
        waiting = [notes.database.start(note(str(number))) for number in range(50)]

    assert await all_of(waiting) == [str(number) for number in range(50)]
    assert notes.count("COMMIT") == 2, "the one that was held, and all others"
    assert notes.commits == [None, None]


async def test_transactions_one_after_the_other_share_nothing(notes: Kept):
    for number in range(3):
        await notes.run(note(str(number)))

    assert notes.count("COMMIT") == 3


async def test_transactions_run_and_end_in_the_order_in_which_they_were_started(notes: Kept):
    ended: list[str] = []
    async with Held(notes):
        waiting = [notes.database.start(note(str(number))) for number in range(50)]
        for future in waiting:
            future.add_done_callback(lambda done: ended.append(done.result()))

    await all_of(waiting)
    in_order = [str(number) for number in range(50)]
    assert ended == in_order
    assert await notes.notes() == in_order


async def test_a_transaction_sees_what_those_before_it_in_the_same_commit_wrote(notes: Kept):
    def count(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT count(*) FROM notes").fetchone()[0])

    async with Held(notes):
        waiting = [notes.database.start(work) for work in (note("a"), count, note("b"), count)]

    assert await all_of(waiting) == ["a", 1, "b", 2]


# --- refusals --------------------------------------------------------------------------------------

REFUSALS = [
    QueueFull("full", retry_after_ms=5),
    ValueError("a fault of ours"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
    sqlite3.IntegrityError("a constraint"),
    sqlite3.ProgrammingError("a statement"),
    sqlite3.DataError("too big"),
]


@pytest.mark.parametrize("fault", REFUSALS, ids=lambda fault: type(fault).__name__)
async def test_one_that_is_refused_rolls_back_alone_and_the_others_are_committed(
    notes: Kept, fault: Exception
):
    async with Held(notes):
        works = (note("before"), refusing("refused", fault), note("after"))
        waiting = [notes.database.start(work) for work in works]

    assert await all_of(waiting) == ["before", fault, "after"]
    assert notes.count("COMMIT") == 2
    assert await notes.notes() == ["before", "after"]
    assert notes.commits == [None] * 3, "the disk is well"


async def test_a_constraint_that_the_file_itself_holds_against_one_is_that_ones_alone(notes: Kept):
    async with Held(notes):
        waiting = [notes.database.start(note(text)) for text in ("a", "a", "b")]

    first, second, third = await all_of(waiting)
    assert (first, third) == ("a", "b")
    assert isinstance(second, sqlite3.IntegrityError)


async def test_one_that_raises_stop_iteration_keeps_nobody_waiting(notes: Kept):
    # No future takes that exception, and a loop that settles the others must not stop over it.
    async with Held(notes):
        works = (refusing("refused", StopIteration()), note("after"))
        waiting = [notes.database.start(work) for work in works]

    refused, after = await all_of(waiting)
    assert isinstance(refused, RuntimeError)
    assert after == "after"
    assert await notes.notes() == ["after"]


async def test_a_caller_that_goes_away_does_not_undo_what_it_began(notes: Kept):
    async with Held(notes):
        caller = asyncio.create_task(notes.database.run(note("one")))
        await asyncio.sleep(0)
        other = notes.database.start(note("two"))
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller

    assert await all_of([other]) == ["two"]
    assert await notes.notes() == ["one", "two"]


async def test_a_fault_in_what_is_told_of_a_commit_keeps_nobody_waiting(tmp_path: Path):
    seen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))

    def told(_: object) -> None:
        raise ValueError("a fault of ours")

    async with kept(tmp_path / "notes.sqlite3", told=told) as notes:
        assert await notes.run(note("one")) == "one"

    assert [str(fault) for fault in seen] == ["a fault of ours"]


# --- faults of the disk ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "of_the_one_before"),
    [("BEGIN IMMEDIATE", []), ("SAVEPOINT one", []), ("RELEASE one", [None]), ("COMMIT", [None])],
)
async def test_where_the_disk_fails_nothing_of_the_batch_is_stored_and_all_are_told(
    notes: Kept, statement: str, of_the_one_before: list[None]
):
    fault = sqlite3.OperationalError("disk I/O error")
    async with Held(notes):
        waiting = [notes.database.start(note(text)) for text in ("a", "b")]
        notes.connection.faults[statement] = [*of_the_one_before, fault]

    assert await all_of(waiting) == [fault, fault]
    assert notes.commits == [None, fault]
    assert await notes.notes() == []


@pytest.mark.parametrize("texts", [["a"], ["a", "b"]])
async def test_a_batch_whose_file_is_no_longer_there_is_not_stored_and_all_are_told(
    tmp_path: Path, texts: list[str]
):
    fault = RecoveryRequired("another file")
    looks: list[Exception | None] = [None, fault, None]  # the one that was held, the batch, the reading

    def standing() -> None:
        found = looks.pop(0)
        if found is not None:
            raise found

    async with kept(tmp_path / "notes.sqlite3", standing=standing) as notes:
        async with Held(notes):
            waiting = [notes.database.start(note(text)) for text in texts]

        assert await all_of(waiting) == [fault] * len(texts)
        assert await notes.notes() == []
        assert notes.commits == [None, fault, None]


async def test_what_comes_after_a_fault_of_the_disk_is_stored_again(notes: Kept):
    await notes.run(note("before"))
    notes.connection.faults["COMMIT"] = [sqlite3.OperationalError("disk I/O error")]
    with pytest.raises(sqlite3.OperationalError):
        await notes.run(note("lost"))

    await notes.run(note("after"))

    assert await notes.notes() == ["before", "after"]
    assert [fault is None for fault in notes.commits] == [True, False, True, True]


async def test_a_disk_that_is_full_fails_the_batch_and_keeps_what_was_there(notes: Kept):
    await notes.run(note("before"))
    pages = await notes.run(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
    await notes.run(lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    async with Held(notes):
        waiting = [notes.database.start(note(text)) for text in ("small", "x" * 100_000, "another")]

    faults = await all_of(waiting)
    assert [type(fault) for fault in faults] == [sqlite3.OperationalError] * 3
    assert "full" in str(faults[0])
    assert await notes.notes() == ["before"]

    await notes.run(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchone())
    await notes.run(note("x" * 100_000))
    assert len(await notes.notes()) == 2


async def test_a_file_that_turns_out_damaged_fails_the_batch(notes: Kept):
    damage = sqlite3.DatabaseError("database disk image is malformed")
    async with Held(notes):
        waiting = [notes.database.start(work) for work in (note("a"), refusing("b", damage))]

    assert await all_of(waiting) == [damage, damage]
    assert notes.commits[-1] is damage
    assert await notes.notes() == []


class Died(BaseException):
    """What a fault test raises where a process would die."""


@pytest.mark.parametrize(("at", "stored"), [(COMMIT_BEFORE, []), (COMMIT_AFTER, ["one"])])
async def test_a_death_around_the_commit_leaves_all_or_nothing_and_acknowledges_nothing(
    tmp_path: Path, at: str, stored: list[str]
):
    passed: list[str] = []

    def step(name: str) -> None:
        passed.append(name)
        if name == at and passed.count(at) == 1:
            raise Died

    async with kept(tmp_path / "notes.sqlite3", step=step) as notes:
        with pytest.raises(Died):
            await notes.run(note("one"))

        assert await notes.notes() == stored
    assert passed[-2:] == [COMMIT_BEFORE, COMMIT_AFTER]


# --- checkpoints and the end -----------------------------------------------------------------------


async def many(notes: Kept, count: int) -> None:
    await all_of([notes.database.start(lambda _: None) for _ in range(count)])


@pytest.mark.requirement("A-storage-14")
async def test_the_log_is_folded_back_when_enough_has_come_and_nobody_waits_any_more(notes: Kept):
    await many(notes, CHECKPOINT_TRANSACTIONS - 1)
    seen: list[int] = []
    async with Held(notes):  # enough with this one
        waiting = [notes.database.start(lambda _: seen.append(notes.count(CHECKPOINT))) for _ in range(2)]
    await all_of(waiting)

    assert seen == [0, 0], "not while somebody waited"
    await notes.until(CHECKPOINT)
    assert notes.count(CHECKPOINT) == 1


@pytest.mark.requirement("A-storage-14")
async def test_the_log_is_left_alone_before_enough_has_come(notes: Kept):
    await many(notes, CHECKPOINT_TRANSACTIONS - 1)
    await many(notes, 1)
    await notes.until(CHECKPOINT)
    await many(notes, CHECKPOINT_TRANSACTIONS - 1)

    await notes.database.close()

    assert notes.count(CHECKPOINT) == 1


async def test_a_log_that_cannot_be_folded_back_is_tried_again_and_fails_nobody(notes: Kept):
    notes.connection.faults[CHECKPOINT] = [sqlite3.OperationalError("disk I/O error")]
    await many(notes, CHECKPOINT_TRANSACTIONS)

    for number in range(2):
        await notes.run(note(str(number)))
    await notes.until(CHECKPOINT)

    assert notes.connection.faults[CHECKPOINT] == []
    assert await notes.notes() == ["0", "1"]
    assert set(notes.commits) == {None}


async def test_closing_finishes_what_waits_and_folds_the_log_back(tmp_path: Path):
    path = tmp_path / "notes.sqlite3"
    async with kept(path) as notes:
        async with Held(notes):
            waiting = [notes.database.start(note(text)) for text in ("a", "b")]
            closing = asyncio.create_task(notes.database.close())
            await asyncio.sleep(0)
            with pytest.raises(sqlite3.ProgrammingError):
                notes.database.start(note("too late"))
        async with asyncio.timeout(IN_TIME_S):
            await closing

        assert await all_of(waiting) == ["a", "b"]
    assert os.listdir(tmp_path) == ["notes.sqlite3"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT text FROM notes").fetchall() == [("a",), ("b",)]
    connection.close()


async def test_closing_twice_is_closing_once(tmp_path: Path):
    async with kept(tmp_path / "notes.sqlite3") as notes:
        async with asyncio.timeout(IN_TIME_S):
            await asyncio.gather(notes.database.close(), notes.database.close())

        with pytest.raises(sqlite3.ProgrammingError):
            await notes.run(note("too late"))


# --- syncs, as the kernel sees them ------------------------------------------------------------------

SYNCING = """
import asyncio, os, sys, threading
from herd.core.identity import SessionName
from herd.core.paths import open_layout
from herd.mail import counter
from herd.mail.database import Database
from herd.mail.mailbox_file import open_mailbox
from herd.presence.session_file import SessionFile, write_session_file

def say(text):
    os.write(1, f"mark {text}".encode())

async def main():
    layout = open_layout(sys.argv[1], machine="m")
    file = SessionFile(SessionName("pi", "syncing"))
    write_session_file(layout, file)
    database = Database(open_mailbox(layout, file)[0])
    for _ in range(2):
        await database.run(counter.next_cursor)
    say("warm")
    for _ in range(10):
        await database.run(counter.next_cursor)
        say("acknowledged")
    begun, go = threading.Event(), threading.Event()
    held = database.start(lambda _: (begun.set(), go.wait()))
    await asyncio.to_thread(begun.wait)
    waiting = [database.start(counter.next_cursor) for _ in range(20)]
    say("waiting")
    go.set()
    await asyncio.gather(*waiting)
    say("together")
    await database.close()

asyncio.run(main())
"""


def syncs_between_marks(trace: str) -> list[tuple[str, int]]:
    """Give each mark with the number of syncs that began since the mark before it."""
    found = []
    syncs = 0
    for line in trace.splitlines():
        if "fdatasync(" in line or "fsync(" in line:
            syncs += 1
        if 'write(1, "mark ' in line:
            found.append((line.split('"mark ')[1].split('"')[0], syncs))
            syncs = 0
    return found


@pytest.mark.machine
@pytest.mark.requirement("A-storage-14", "H-inbox-01")
def test_each_commit_of_a_warm_mailbox_is_one_sync_made_before_it_is_acknowledged(home: Path, tmp_path: Path):
    strace = shutil.which("strace")
    assert strace, ".ci/run installs strace"
    trace = tmp_path / "trace"
    command = [strace, "-f", "-qq", "-e", "trace=fdatasync,fsync,write", "-o", str(trace)]

    subprocess.run(
        [*command, sys.executable, "-c", SYNCING, str(home)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=IN_TIME_S,
    )

    _, *marks = syncs_between_marks(trace.read_text(encoding="utf-8"))
    # What wrote nothing, as the one that was held, costs no sync.
    assert marks == [*[("acknowledged", 1)] * 10, ("waiting", 0), ("together", 1)]
