"""One mailbox's connection, one thread that owns it, and commits shared by whoever waits together.

`Database.run` takes a whole transaction as a function, so that no await can stand inside one. The functions
that wait when the thread becomes free run in one transaction, each behind a savepoint: one that raises
rolls back alone, and all others share one commit, which is one sync.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from herd.core.limits import CHECKPOINT_TRANSACTIONS
from herd.mail.steps import COMMIT_AFTER, COMMIT_BEFORE, Step, no_step

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

FAULTS_OF_WORK = (
    sqlite3.IntegrityError,
    sqlite3.ProgrammingError,
    sqlite3.NotSupportedError,
    sqlite3.DataError,
)
"""What SQLite raises over a statement or a value; every other error of it lies with the file or the disk."""


class _Job(NamedTuple, Generic[Result]):
    work: Work[Result]
    done: "asyncio.Future[Result]"
    then: "Callable[[asyncio.Future[Result]], None] | None" = None


class Database:
    """A worker thread around one SQLite connection.

    Args:
        connection: Open, in autocommit mode; this object closes it.
        committed: Told after each batch, in the event loop: None, or the error that stopped the commit.
        standing: Called in the worker thread before each commit; raises where the file is no longer the one
            at its path, and then nothing of the batch is stored.
        step: Called in the worker thread around each commit; a fault test kills or raises there.

    Resource handling: `close` waits for what was handed in before. The thread is a daemon, so that a
    process that must end does not wait for a disk; what was not committed then was not acknowledged either.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        committed: Callable[[BaseException | None], None] = lambda _: None,
        standing: Callable[[], None] = lambda: None,
        step: Step = no_step,
    ) -> None:
        self._connection = connection
        self._committed = committed
        self._standing = standing
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._since_checkpoint = 0
        self._ended = asyncio.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="mailbox", daemon=True)
        self._thread.start()

    async def run(self, work: Work[Result]) -> Result:
        """Run one transaction and give its result after its commit.

        The work runs to its end even when the caller is cancelled while waiting.

        Raises:
            sqlite3.Error: the commit failed, and nothing of the transaction is stored.
            HerdError: the file is no longer where it was opened; likewise.
            Exception: whatever `work` raised; then nothing of it is stored.
        """
        return await self.start(work)

    def start(
        self, work: Work[Result], then: Callable[["asyncio.Future[Result]"], None] | None = None
    ) -> "asyncio.Future[Result]":
        """Give a transaction its place in line now; the future ends as `run` would.

        Transactions are committed, and their futures end, in the order of these calls.

        Args:
            work: The transaction.
            then: Called with the ended future at once, a turn of the loop before whoever awaits it.
        """
        if self._closing:
            raise sqlite3.ProgrammingError("the mailbox is closed")
        job = _Job(work, self._loop.create_future(), then)
        self._jobs.put(job)
        return job.done

    async def close(self) -> None:
        """Finish what waits, fold the log back and close the connection."""
        if not self._closing:
            self._closing = True
            self._jobs.put(None)
        await self._ended.wait()

    def _serve(self) -> None:
        going = True
        while going:
            batch, going = self._next_batch()
            if batch:
                outcomes, fault = self._commit(batch)
                self._loop.call_soon_threadsafe(self._settle, batch, outcomes, fault)
            if self._since_checkpoint >= CHECKPOINT_TRANSACTIONS and self._jobs.empty():
                self._checkpoint()
        try:
            self._connection.close()
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _next_batch(self) -> tuple[list[_Job[Any]], bool]:
        batch: list[_Job[Any]] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: list[_Job[Any]]) -> tuple[list[Any], BaseException | None]:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            outcomes = [self._run_one(job) for job in batch] if len(batch) > 1 else self._run_alone(batch[0])
            self._step(COMMIT_BEFORE)
            # Before, so that what is refused is not stored either. Whoever takes the file away between this
            # and the answer may as well do so just after it.
            self._standing()
            connection.execute("COMMIT")
            self._step(COMMIT_AFTER)
        except BaseException as fault:  # noqa: BLE001 - the thread must outlive any fault and tell it
            if connection.in_transaction:
                _roll_back(connection)
            return [_Raised(fault)] * len(batch), fault
        self._since_checkpoint += len(batch)
        return outcomes, None

    def _run_one(self, job: _Job[Any]) -> Any:
        connection = self._connection
        connection.execute("SAVEPOINT one")
        try:
            result = job.work(connection)
        except Exception as fault:
            if isinstance(fault, sqlite3.Error) and not isinstance(fault, FAULTS_OF_WORK):
                raise  # the file or disk is at fault: nothing of this batch may be trusted
            connection.execute("ROLLBACK TO one")
            result = _Raised(fault)
        connection.execute("RELEASE one")
        return result

    def _run_alone(self, job: _Job[Any]) -> list[Any]:
        # Rolled back as a whole where it fails, so it needs no savepoint: two statements of six or so.
        try:
            return [job.work(self._connection)]
        except Exception as fault:
            if isinstance(fault, sqlite3.Error) and not isinstance(fault, FAULTS_OF_WORK):
                raise
            self._connection.execute("ROLLBACK")
            self._connection.execute("BEGIN IMMEDIATE")  # what follows commits nothing, as it would of many
            return [_Raised(fault)]

    def _checkpoint(self) -> None:
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return  # the log simply stays longer; the next commit tells whether the disk is at fault
        self._since_checkpoint = 0

    def _settle(self, batch: list[_Job[Any]], outcomes: list[Any], fault: BaseException | None) -> None:
        try:
            self._committed(fault)
        finally:
            for job, outcome in zip(batch, outcomes, strict=True):
                if not job.done.done():
                    _end(job.done, outcome)
                if job.then is not None:
                    job.then(job.done)


class _Raised(NamedTuple):
    fault: BaseException


def _end(done: "asyncio.Future[Any]", outcome: Any) -> None:
    if not isinstance(outcome, _Raised):
        done.set_result(outcome)
    elif isinstance(outcome.fault, StopIteration):
        done.set_exception(RuntimeError("the transaction raised StopIteration"))  # no future takes that one
    else:
        done.set_exception(outcome.fault)


def _roll_back(connection: sqlite3.Connection) -> None:
    try:
        connection.execute("ROLLBACK")
    except sqlite3.Error:
        return  # SQLite rolled back by itself, as it does on some disk faults
