"""One live coordinator: opened for a session, listed while healthy, ended in order.

`coordinate` is the whole life. It takes the locks, reads what is durable, opens the mailbox, binds the socket
and publishes, in that order; on the way out it withdraws, settles, closes and releases. How the parts are
joined is told in `joining`; here is what follows when one of them has news.
"""

import asyncio
import gc
import logging
import secrets
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from herd.coordinator.connections import Peer
from herd.coordinator.door import Door
from herd.coordinator.joining import Joined
from herd.coordinator.opening import Locks, Opening, remove_former_socket, settled_session_file, take_locks
from herd.coordinator.presenting import Presenting, publisher_of
from herd.coordinator.shapes import shape_status
from herd.coordinator.tasks import Tasks, in_thread
from herd.core.build import running_build
from herd.core.config import RESTART_REVIEW
from herd.core.errors import HerdError
from herd.core.files import replace_private
from herd.core.identity import TERMINAL
from herd.core.limits import OBJECTS_BEFORE_COLLECTION, SETTLE_S
from herd.core.watch import reserve_descriptors
from herd.mail import inbox, outbox
from herd.mail.counter import next_cursor
from herd.mail.inbox import Incoming
from herd.mail.outbox import Outgoing
from herd.mail.receipts import EXPIRED, PENDING, REJECTED, Receipt
from herd.mail.retention import is_resolved
from herd.mail.routes import Progress
from herd.presence.entries import undrained_minutes
from herd.presence.session_file import SessionFile
from herd.rpc.connection import Connection

if TYPE_CHECKING:
    from herd.coordinator.runs.live import LiveRun

__all__ = ["Coordinator", "coordinate"]

_log = logging.getLogger("herd.coordinator")

_RENEWED = ("renewed", "")


@asynccontextmanager
async def coordinate(opening: Opening) -> AsyncIterator["Coordinator"]:
    """Coordinate a session until the block ends.

    Raises:
        SessionHeld: another process does; `holder` is its owner record.
        LockTimeout: a visitor keeps the mailbox for longer than a start waits; its pid is named.
        RecoveryRequired, NewerState: `session.json` cannot be used. A damaged mailbox does not stop the
            start: the coordinator is then unhealthy, and every call that needs mail says why.
        UnsafeEndpoint: a folder, file or socket is not private to this user.
        OSError: the disk refused what a start has to write.
    """
    reserve_descriptors()
    _collect_seldom()
    with ExitStack() as held:
        locks = await in_thread(take_locks, opening, held)
        file = await in_thread(settled_session_file, opening)
        await in_thread(remove_former_socket, opening)
        await in_thread(running_build)  # it reads every file of ours, once
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(Tasks())
            coordinator = Coordinator(opening, locks, file, tasks)
            stack.push_async_callback(coordinator.stop)
            await coordinator.start()
            yield coordinator


def _collect_seldom() -> None:
    """Let garbage in cycles lie a little longer: looking for it took a tenth of a burst's CPU time."""
    gc.set_threshold(max(gc.get_threshold()[0], OBJECTS_BEFORE_COLLECTION), *gc.get_threshold()[1:])


class Coordinator(Joined):
    """One session's coordinator; `start` and `stop` are `coordinate`'s."""

    def __init__(self, opening: Opening, locks: Locks, file: SessionFile, tasks: Tasks) -> None:
        super().__init__(opening, file, tasks)
        self._locks = locks
        self._token = secrets.token_hex(32)
        self._presenting: Presenting | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._left: list[Outgoing] | None = None
        self._taken_up = False

    async def start(self) -> None:
        """Open the mailbox, listen, publish, and take up what a former instance left."""
        mendable = await self._open_mailbox()
        token = self.opening.layout.token(self.own.key)
        await in_thread(replace_private, token, self._token.encode())
        endpoint = await self.listening.open()
        publisher = publisher_of(self.opening, self.own, self._locks, self.identity, endpoint)
        self._presenting = Presenting(self.opening, self.own, publisher, self.tasks, self.health.observed)
        keeping = self.listening.keep(self.withdraw, self._moved, self.health.observed)
        self._keeping = self.tasks.create_task(keeping)
        if mendable:
            self.tasks.create_task(self.health.keep())
        if self.health.fault is not None:
            self._presenting.announce()
            return
        self._presenting.publish()
        self._take_up()

    async def stop(self) -> None:
        """Withdraw, settle what runs, close, and leave no record and no socket behind."""
        if self._presenting is not None:
            self._presenting.end()
        self.delivery.end()
        await self.runs.end_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self.routes.written()
                await self.owing.told()
        if self._keeping is not None:
            self._keeping.cancel()  # or it would bind the socket again whose file goes now
            await asyncio.wait({self._keeping})
        # First the callers, whose requests run in tasks of ours too.
        await self.listening.close()
        await self.tasks.cancel()
        self.waiting.end()  # what ran until now may have begun to wait
        await self.mailbox.close()
        await self.authority.close()
        if self._presenting is not None:
            self._presenting.remove()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the session may do."""
        return self.opening.capabilities

    def whoami(self) -> dict[str, Any]:
        """Give this session as it may be shown to itself."""
        return {
            "target": self.own.target,
            "name": self.own.name,
            "role": self.own.role,
            "kind": self.own.kind,
            "socket": self.own.socket,
            "scope": self.own.extent.scope,
            **({} if self.own.group is None else {"group": self.own.group}),
            "build": running_build()._asdict(),
        }

    def update(
        self,
        *,
        cwd: str | None = None,
        name: str | None = None,
        activity: str | None = None,
        person_prompted: bool = False,
        turn_ended: bool = False,
    ) -> None:
        """Take what the host reports; see `Presenting.update`.

        Args:
            cwd: The session's folder now.
            name: Its name now.
            activity: What it does now: idle, working, waiting or away.
            person_prompted: A person has written in it.
            turn_ended: A turn of it has ended, however it went.
        """
        assert self._presenting is not None, "start() came first"
        if person_prompted:
            self.thread.prompted()
        if turn_ended:
            self.attention.turn_ended()
        if (cwd, name, activity) != (None, None, None):
            self._presenting.update(cwd=cwd, name=name, activity=activity)
        if activity is not None:
            self.attention.reported(activity)

    def renew(self) -> None:
        """See `Joined.renew`; one look is enough for all that begins in one turn of the loop."""
        found = self.authority.turn.found()
        if self._presenting is not None and _RENEWED not in found:
            found[_RENEWED] = True
            self._presenting.renew(listed=self.health.fault is None)

    def show_undrained(self, since: int | None) -> None:
        """See `Joined.show_undrained`."""
        if self._presenting is not None:
            self._presenting.undrained(since)

    def show_runs(self, *, some: bool) -> None:
        """See `Joined.show_runs`."""
        if self._presenting is not None:
            self._presenting.runs(some=some)

    async def status(self, message_id: str) -> dict[str, Any]:
        """Give what is known of a message this session sent; see `Asking.status`."""
        row, refusal = await self.asking.status(message_id)
        lying = self.undrained_at(row.recipient_key, row.receipt.accepted_at or 0)
        return shape_status(row, refusal, lying)

    def undrained_at(self, key: str, accepted_ms: int = 0) -> int | None:
        """Give the minutes for which a running session's host has left mail lying; None where it has not."""
        found, named = self.authority.turn.found(), ("running", key)
        if named not in found:
            found[named] = self.carrier.running(key)
        return undrained_minutes(found[named], self.opening.clock.wall_ms(), accepted_ms)

    async def cancel(self, message_id: str) -> Outgoing:
        """Take back a message that no mailbox has; see `Asking.cancel`."""
        return await self.asking.cancel(message_id)

    def folder(self) -> str:
        """See `Joined.folder`."""
        return self.opening.cwd if self._presenting is None else self._presenting.cwd

    def withdraw(self) -> None:
        """See `Joined.withdraw`."""
        if self._presenting is not None:
            self._presenting.withdraw()

    async def restore(self) -> None:
        """See `Joined.restore`."""
        assert self._presenting is not None, "start() came first"
        self.listening.require()
        (await self.authority.hold()).release()
        await self._look_back()
        if self.mailbox.custody_id is not None:
            # A change: SQLite writes nothing for a value that stays as it is, and a full disk would not show.
            await self.mailbox.run(next_cursor)
        self._presenting.publish()

    def restored(self) -> None:
        """See `Joined.restored`."""
        if not self._taken_up:
            self._take_up()
        else:
            self.tasks.create_task(self.owing.start())
        if self.mailbox.custody_id is not None:
            self._waits()  # nobody was told of what came before the fault and was never handed over
            self.expiring.look()
            self.tasks.create_task(self.runs.write_down())
        self.retry()

    def retry(self) -> None:
        """See `Joined.retry`."""
        self.routes.retry()
        self.owing.retry()
        self.expiring.retry()
        self.rejudging.retry()

    def connected(self, peer: Peer) -> None:
        """See `Joined.connected`."""
        self.owing.contact(peer.record.key)

    def row_changed(self, row: Incoming) -> None:
        """See `Joined.row_changed`."""
        self.owing.due(row.sender.key)
        if row.receipt.state in {EXPIRED, REJECTED}:
            self.undrained.handed()  # it looks again what waits
            self.attention.fewer()
        self.journal.happened()
        self._changed(row.receipt)

    def progressed(self, progress: Progress) -> None:
        """See `Joined.progressed`."""
        speakers: list[Coordinator | LiveRun] = [self, *self.runs.all_parts()]
        for one in speakers:
            one.sending.progressed(progress)  # a message's id is nobody else's
            one.delivery.arrived()

    def recorded(self, row: Outgoing) -> None:
        """See `Joined.recorded`."""
        if row.receipt.state != PENDING:
            self.routes.settled_elsewhere(row)
            self._speaker(row).sending.settled(row)
            self.carrier.end(row.message_id)
        if row.reply_to is not None:
            self.owing.due(row.recipient_key)  # what it answers may have become replied
        self.journal.happened()
        self._speaker(row).delivery.arrived()
        self._changed(row.receipt)

    def learnt(self, row: Outgoing) -> None:
        """See `Joined.learnt`."""
        self.recorded(row)
        if row.receipt.state != PENDING:
            self._speaker(row).sending.progressed(Progress(row.receipt))

    async def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """See `Joined.accepted`; whoever has proved nothing in time is shut out again."""
        door = Door(self, self.peer_handler(dialled=False), self._token)
        connection = Connection(reader, writer, door, limits=self.opening.limits)
        deadline = asyncio.get_running_loop().call_later(
            self.opening.limits.handshake_ms / 1000,
            lambda: None if door.proved(connection) else connection.shut_out(),
        )
        try:
            await connection.run()
        finally:
            deadline.cancel()
            door.ended()
            self.connections.ended(connection)

    async def _open_mailbox(self) -> bool:
        """Open the mailbox, and tell whether it can be used, now or later."""
        try:
            await self.mailbox.open()
            await self._look_back()
        except HerdError as fault:
            _log.warning("mailbox.open.failed", extra={"code": fault.code, "reason": fault.message})
            # What the disk refuses was observed as a failed write, and may pass; a file that is not what it
            # should be stays as it is.
            passing = self.health.fault is not None
            self.health.fault = fault
            return passing
        return True

    async def _look_back(self) -> None:
        """Read what a former instance left, before anything new can come in front of it."""
        if self._left is None:
            # A person reads the terminal's own mail, so there is nobody to ask.
            if self.opening.on_restart == RESTART_REVIEW and self.own.session.host != TERMINAL:
                rows = await self.mailbox.read(inbox.lying) or []
                self.delivery.hold_back(max((row.sequence for row in rows), default=0))
            self._left = await self.mailbox.read(_left_behind) or []

    def _speaker(self, row: Outgoing) -> "Coordinator | LiveRun":
        """Give who sent a message: the session, or a run while there is anybody in it who could wait."""
        return self.runs.find(row.run) or self

    def _take_up(self) -> None:
        if not self._taken_up and self.health.fault is None:
            self._taken_up = True
            for row in self._left or []:
                self.routes.add(row)
            self.tasks.create_task(self.owing.start())
            if self.mailbox.custody_id is not None:
                self.undrained.waits()
                self.keeping.look()
                self.expiring.look()

    def _changed(self, receipt: Receipt) -> None:
        self.records.changed()
        if is_resolved(receipt):  # a message that has only been accepted gives a sweep nothing to do
            self.keeping.look()

    async def _moved(self, endpoint: str) -> None:
        assert self._presenting is not None, "start() came first"
        self._presenting.moved(endpoint)
        if self.health.fault is None:
            self._presenting.publish()
        else:
            self._presenting.announce()
            self.health.hasten()


def _left_behind(connection: sqlite3.Connection) -> list[Outgoing]:
    """Give what a former instance left pending, and note that its runs are over."""
    inbox.runs_ended(connection)
    return outbox.pending(connection)
