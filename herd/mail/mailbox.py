"""The mailbox of the session that this process coordinates: made at first need, open for the process's life.

It joins the file (`mailbox_file`) and the thread that owns its connection (`database`), and turns whatever
the disk or SQLite reports into one refusal that callers understand.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from herd.core.errors import HerdError, PeerOffline, RecoveryRequired, SystemWant
from herd.core.paths import Layout
from herd.core.refusals import mending
from herd.mail.database import FAULTS_OF_WORK, Database, Work
from herd.mail.mailbox_file import open_mailbox
from herd.mail.mailbox_proof import require_sound
from herd.mail.standing import Standing
from herd.mail.steps import Step, no_step
from herd.presence.session_file import SessionFile, read_session_file

Result = TypeVar("Result")
After = TypeVar("After")

_log = logging.getLogger("herd.mail.mailbox")


class _Connected(NamedTuple):
    connection: sqlite3.Connection
    custody_id: str
    standing: Standing


class Mailbox:
    """One session's mailbox, under the mailbox lock that the caller holds for as long as this object lives.

    Args:
        layout: The folders of this machine.
        file: The session's file as it was read or written at the start.
        health: Told None after each successful commit, and the refusal where one failed.
        step: The fault-test seam.
    """

    def __init__(
        self,
        layout: Layout,
        file: SessionFile,
        *,
        health: Callable[[HerdError | None], None] = lambda _: None,
        step: Step = no_step,
    ) -> None:
        self._layout = layout
        self._file = file
        self._health = health
        self._step = step
        self._database: Database | None = None
        self._opening = asyncio.Lock()
        self._connecting: asyncio.Future[_Connected] | None = None
        self._refusal: HerdError | None = None
        self._closed = False
        self.custody_id: str | None = file.custody_id

    async def open(self) -> None:
        """Check and open the mailbox where the session has one; a session without one stays without.

        Raises:
            RecoveryRequired: it is missing, empty, foreign or damaged; the file stays as found, and every
                later call is refused the same way. Or it cannot be opened now; then a later call may succeed.
            NewerState: a newer Herd wrote it.
        """
        if self._file.custody_id is not None:
            await self._opened()

    async def run(self, work: Work[Result]) -> Result:
        """Run one transaction, making the mailbox first where there is none.

        Raises:
            RecoveryRequired: the mailbox cannot be used or written, or is no longer the file that was opened;
                nothing of the transaction is stored.
            PeerOffline: this mailbox was closed, because its coordinator has ended.
            HerdError: what `work` itself refused.
        """
        ended = await self.start(work)
        return await ended()

    async def start(self, work: Work[Result]) -> Callable[[], Awaitable[Result]]:
        """Give a transaction its place in line; the callable given awaits its end as `run` would."""
        future = (await self._opened()).start(work)

        async def ended() -> Result:
            try:
                return await future
            except FAULTS_OF_WORK:
                raise  # a fault of ours, and no disk is full
            except sqlite3.Error as fault:
                raise self._unwritable(fault) from fault

        return ended

    async def begin(
        self, work: Work[Result], then: Callable[[Callable[[], Result]], After]
    ) -> "asyncio.Future[After]":
        """Give a transaction its place in line, and what follows its end whoever still waits for that.

        Args:
            work: The transaction.
            then: Called once it has ended, in the event loop, with what gives the result of `work`, or raises
                as `run` would. It must not wait; what it gives or raises ends the future.
        """
        database = await self._opened()
        outcome: asyncio.Future[After] = asyncio.get_running_loop().create_future()

        def ended(committed: "asyncio.Future[Result]") -> None:
            try:
                after = then(lambda: self._result_of(committed))
            except Exception as fault:  # noqa: BLE001 - whoever waits is given it, or it is logged
                if outcome.done():
                    _log.exception("mailbox.then.failed")  # whoever waited for it has gone
                else:
                    outcome.set_exception(fault)
            else:
                if not outcome.done():
                    outcome.set_result(after)

        database.start(work, ended)
        return outcome

    def _result_of(self, committed: "asyncio.Future[Result]") -> Result:
        try:
            return committed.result()
        except FAULTS_OF_WORK:
            raise  # a fault of ours, and no disk is full
        except sqlite3.Error as fault:
            raise self._unwritable(fault) from fault

    async def read(self, work: Work[Result]) -> Result | None:
        """Run a transaction that makes no mailbox; None where the session has none yet."""
        if self._database is None and self.custody_id is None and not self._closed:
            return None
        return await self.run(work)

    async def close(self) -> None:
        """Finish what waits and close the file; nothing opens it again through this object."""
        self._closed = True
        async with self._opening:
            if self._connecting is not None:
                with suppress(HerdError, OSError, sqlite3.Error):
                    connected = await self._connecting
                    await asyncio.to_thread(connected.connection.close)
                self._connecting = None
        if self._database is not None:
            await self._database.close()

    async def _opened(self) -> Database:
        self._require_usable()
        if self._database is None:
            async with self._opening:
                self._require_usable()
                if self._database is None:
                    self._database = await self._made()
        return self._database

    def _require_usable(self) -> None:
        if self._closed:
            # Its lock may be another's by now, so it is not opened again, whoever still asks.
            raise PeerOffline("this session's coordinator has ended")
        if self._refusal is not None:
            raise self._refusal

    async def _made(self) -> Database:
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().run_in_executor(None, self._connect)
        try:
            # A caller that goes away must not leave a thread that opens the file beside the next caller's.
            connected = await asyncio.shield(self._connecting)
        except (OSError, sqlite3.Error, SystemWant) as fault:
            self._connecting = None
            refusal = self._unwritable(fault)
            self._health(refusal)
            raise refusal from fault
        except HerdError as refusal:
            self._connecting = None
            self._refusal = refusal if self._file.custody_id is not None else None
            raise
        self._connecting = None
        self.custody_id = connected.custody_id
        return Database(
            connected.connection,
            committed=self._committed,
            standing=connected.standing.require,
            step=self._step,
        )

    def _connect(self) -> "_Connected":
        # A visitor may have made the mailbox before this process got the lock, never after.
        current = read_session_file(self._layout, self._file.session.key) or self._file
        if current.custody_id is not None:
            require_sound(self._layout.mailbox(current.session.key))
        connection, custody_id = open_mailbox(self._layout, current)
        try:
            standing = Standing.of(self._layout.mailbox(current.session.key))
        except BaseException:
            connection.close()
            raise
        return _Connected(connection, custody_id, standing)

    def _committed(self, fault: BaseException | None) -> None:
        self._health(None if fault is None else self._unwritable(fault))

    def _unwritable(self, fault: BaseException) -> HerdError:
        if isinstance(fault, HerdError):
            return fault
        path = self._layout.mailbox(self._file.session.key)
        return RecoveryRequired(
            f"{path} cannot be written now: {fault}",
            hint=(mending(fault) if isinstance(fault, OSError) else None)
            or "Free space or mend the disk that holds it; accepted mail is kept and it goes on by itself.",
            path=path,
        )
