"""One live coordinator: opened for a session, listed while healthy, ended in order.

`coordinate` is the whole life. It takes the locks, reads what is durable, opens the mailbox, binds the socket
and publishes, in that order; on the way out it withdraws, settles, closes and releases. Everything else here
wires the parts to each other.
"""

import asyncio
import logging
import os
import random
import secrets
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

from assignments.worktrees.topology import Topology, Whereabouts
from herd.coordinator.authority import Authority
from herd.coordinator.carrier import Local, LocalCarrier
from herd.coordinator.connections import Connections, Peer
from herd.coordinator.delivery import Delivery
from herd.coordinator.door import Door
from herd.coordinator.health import Health
from herd.coordinator.listing import Listing
from herd.coordinator.owing import Owing
from herd.coordinator.own import Own, party_of
from herd.coordinator.peers import Inner, PeerHandler
from herd.coordinator.sending import Sending
from herd.coordinator.tasks import Tasks
from herd.core.build import running_build
from herd.core.clock import Clock, SystemClock
from herd.core.config import Place
from herd.core.errors import HerdError, LockTimeout, RecoveryRequired, SessionHeld
from herd.core.files import private_folder, replace_private
from herd.core.identity import TERMINAL, SessionName, generated_name
from herd.core.limits import ACCEPTED_CONNECTIONS_FLOOR, SETTLE_S, VISITOR_WAIT_S, Limits
from herd.core.locks import HeldLock, Owner
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.core.watch import FolderWatch
from herd.mail import outbox
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING
from herd.mail.routes import Progress, Routes
from herd.mail.steps import Step, no_step
from herd.presence.publisher import Instance, Publisher
from herd.presence.record import RECEIVE, SEND, WAIT, Presence, clipped
from herd.presence.registry import Registry
from herd.presence.session_file import SessionFile, read_session_file, write_session_file
from herd.rpc.connection import Connection
from herd.rpc.handshake import Identity, KeyPair, NonceMemory
from herd.rpc.unix import Listener, bind
from roles.eligibility import Judge, OrdinaryLeads
from roles.model import ORDINARY, Verdict

_log = logging.getLogger("herd.coordinator")

CAPABILITIES = (SEND, RECEIVE, WAIT)
"""What every session may do today."""

_MAY_BE_MORE_BY_NOW = frozenset({PENDING, ACCEPTED, DELIVERED})


class Opening(NamedTuple):
    """What a coordinator is opened for and with; the defaults are the real things."""

    layout: Layout
    session: SessionName
    cwd: str
    limits: Limits
    topology: Topology
    place: Place
    name: str | None = None
    host_pid: int = 0
    host_start: str = ""
    clock: Clock = SystemClock()
    judge: Judge = OrdinaryLeads()
    jitter: Callable[[], float] = random.random
    step: Step = no_step


class Locks(NamedTuple):
    """The two locks that a coordinator holds for life."""

    session: HeldLock
    mailbox: HeldLock


@asynccontextmanager
async def coordinate(opening: Opening) -> AsyncIterator["Coordinator"]:
    """Coordinate a session until the block ends.

    Raises:
        SessionHeld: another process does; `holder` is its owner record.
        LockTimeout: a visitor keeps the mailbox for longer than a start waits; its pid is named.
        RecoveryRequired, NewerState: `session.json` cannot be used. A damaged mailbox does not stop the
            start: the coordinator is then unhealthy, and every call that needs mail says why.
        UnsafeEndpoint: a folder, file or socket is not private to this user.
    """
    async with AsyncExitStack() as stack:
        locks = await asyncio.to_thread(_take_locks, opening, stack)
        file = await asyncio.to_thread(_session_file, opening)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        coordinator = Coordinator(opening, locks, file, Tasks(group))
        try:
            await coordinator.start()
            yield coordinator
        finally:
            await coordinator.stop()


def _take_locks(opening: Opening, stack: AsyncExitStack) -> Locks:
    layout, key = opening.layout, opening.session.key
    try:
        session = stack.enter_context(HeldLock.acquire(layout.session_lock(key)))
    except LockTimeout as busy:
        holder = busy.details.get("holder")
        pid = f"process {holder['pid']}" if holder else "another process"
        raise SessionHeld(
            f"{pid} coordinates the {opening.session.host} session {opening.session.session_id!r}",
            holder=holder,
        ) from None
    try:
        mailbox = stack.enter_context(
            HeldLock.acquire(layout.mailbox_lock(key), wait_ms=VISITOR_WAIT_S * 1000)
        )
    except LockTimeout as busy:
        holder = busy.details.get("holder")
        pid = holder["pid"] if holder else "unknown"
        raise LockTimeout(
            f"a visitor (process {pid}) keeps this session's mailbox for more than {VISITOR_WAIT_S} s",
            holder=holder,
        ) from None
    return Locks(session, mailbox)


def _session_file(opening: Opening) -> SessionFile:
    file = read_session_file(opening.layout, opening.session.key)
    if file is None:
        if os.path.lexists(opening.layout.mailbox(opening.session.key)):
            path = opening.layout.session_file(opening.session.key)
            raise RecoveryRequired(f"{path} is missing, although its session has a mailbox", path=path)
        file = SessionFile(opening.session, kind=ORDINARY)
        write_session_file(opening.layout, file)
    return file


class Coordinator:
    """The parts of one session's coordinator, joined."""

    def __init__(self, opening: Opening, locks: Locks, file: SessionFile, tasks: Tasks) -> None:
        self._opening = opening
        self._tasks = tasks
        self._pid = os.getpid()
        self._start = start_token(self._pid) or ""
        self._cwd = opening.cwd
        self._activity: tuple[str, int] | None = None
        self._labels = Whereabouts()
        self._locks = locks
        self._watches: list[FolderWatch] = []
        self._listener: Listener | None = None
        self._publisher: Publisher | None = None
        self._token = secrets.token_hex(32)
        layout, clock, step = opening.layout, opening.clock, opening.step
        self.own = Own(
            session=opening.session,
            kind=file.kind,
            instance_id=str(uuid.uuid4()),
            socket=opening.place.socket,
            name=clipped(opening.name) or _name_for(opening),
            role=file.role,
        )
        self._identity = Identity(self.own.instance_id, KeyPair.generate())
        self.registry = Registry(layout)
        self._authority = Authority(layout, opening.judge)
        self.health = Health(self._withdraw, self._restore, clock=clock, jitter=opening.jitter)
        self.mailbox = Mailbox(layout, file, health=self.health.observed, step=step)
        self.delivery = Delivery(
            self.mailbox, self._judged, lambda row: self.owing.due(row.sender_key), clock=clock, step=step
        )
        self._nonces = NonceMemory(clock)
        self.connections = Connections(
            self._identity,
            self._nonces,
            self.registry,
            self._peer_handler,
            tasks,
            limits=opening.limits,
            connected=self._connected,
        )
        self.carrier = LocalCarrier(
            Local(layout, self.registry, self.connections, self._authority, self.own, opening.limits, clock)
        )
        self.routes = Routes(
            self.mailbox,
            self.carrier,
            tasks,
            clock=clock,
            changed=self._progressed,
            recorded=self._recorded,
            jitter=opening.jitter,
            step=step,
        )
        self.listing = Listing(layout, self.registry, self._authority, self.own, self.mailbox, clock)
        self.sending = Sending(
            layout,
            self.registry,
            self._authority,
            self.own,
            self.mailbox,
            self.listing,
            self.health,
            self.routes,
            tasks,
            clock=clock,
            step=step,
        )
        self.owing = Owing(
            self.mailbox, self.carrier.reach, tasks, clock=clock, jitter=opening.jitter, step=step
        )

    async def start(self) -> None:
        """Open the mailbox, listen, publish, and take up what a former instance left."""
        try:
            await self.mailbox.open()
        except HerdError as fault:
            _log.error("mailbox.open.failed", extra={"code": fault.code})
            self.health.fault = fault
        await self._listen()
        if self.health.fault is None:
            self._publish()
            self._tasks.create_task(self._enrich())
            for row in await self.mailbox.read(outbox.pending) or []:
                self.routes.add(row)
            await self.owing.start()
            self._tasks.create_task(self.health.keep())

    async def stop(self) -> None:
        """Withdraw, settle what runs, close, and leave the record and the socket's file behind us clean."""
        if self._publisher is not None:
            self._publisher.withdraw()
        for watch in self._watches:
            watch.close()
        if self._listener is not None:
            await self._listener.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self.routes.written()
                await self.owing.told()
        await self._tasks.cancel()
        await self.mailbox.close()
        if self._publisher is not None:
            self._publisher.remove()

    def whoami(self) -> dict[str, Any]:
        """Give this session as it may be shown to itself."""
        build = running_build()
        return {
            "target": self.own.target,
            "name": self.own.name,
            "role": self.own.role,
            "kind": self.own.kind,
            "socket": self.own.socket,
            "build": build._asdict(),
        }

    def update(self, *, cwd: str | None, name: str | None, activity: str | None) -> None:
        """Take what the host reports; it changes labels and nothing else."""
        if activity is not None and (self._activity is None or self._activity[0] != activity):
            self._activity = (activity, self._opening.clock.wall_ms())
        if name is not None:
            self.own = self.own._replace(name=clipped(name) or self.own.name)
        moved = cwd is not None and cwd != self._cwd
        self._cwd = cwd or self._cwd
        self._relabel()
        if moved:
            self._labels = Whereabouts()
            self._tasks.create_task(self._enrich())

    def retry(self) -> None:
        """Try at once whatever waits for somebody to come back."""
        self.routes.retry()
        self.owing.retry()

    async def status(self, message_id: str) -> tuple[Outgoing, str | None]:
        """Give what is known of a message this session sent, and why it is still pending if it is.

        Raises:
            UnknownTarget: this session sent no such message.
        """
        row = await self.mailbox.run(lambda connection: outbox.required(connection, message_id))
        if row.receipt.state in _MAY_BE_MORE_BY_NOW:
            row = await self._asked(row)
        if row.receipt.state != PENDING:
            return row, None
        refusal = self.routes.refusal(message_id)
        return row, refusal.code if refusal else None

    async def _asked(self, row: Outgoing) -> Outgoing:
        """Ask the recipient, whose last word may have been lost; what is stored stands where it cannot be asked."""
        try:
            receipt = await self.carrier.status(row)
            learnt = await self.mailbox.run(
                lambda connection: outbox.record_receipt(connection, receipt, row.recipient_key)
            )
        except HerdError:
            return row
        self._recorded(learnt)
        return learnt

    async def cancel(self, message_id: str) -> Outgoing:
        """Take back a message that no mailbox has; see `Sending.cancel`."""
        return await self.sending.cancel(message_id, self.carrier)

    async def _listen(self) -> None:
        opening = self._opening
        listener = await asyncio.to_thread(bind, opening.layout.run, self.own.instance_id)
        self._listener = listener
        bound = max(ACCEPTED_CONNECTIONS_FLOOR, 4 * opening.limits.connections)
        await listener.start(self._accepted, limit_connections=bound)
        await asyncio.to_thread(listener.self_check)
        private_folder(opening.layout.session_folder(self.own.key))
        await asyncio.to_thread(replace_private, opening.layout.token(self.own.key), self._token.encode())
        if self._publisher is None:
            self._publisher = Publisher(opening.layout, self._locks.session, self._instance(listener.path))
            if self.health.fault is not None:
                self._publisher.announce()
        else:
            self._publisher.move(listener.path)
        self._watch(os.path.dirname(listener.path), self._socket_folder_changed)

    def _instance(self, endpoint: str) -> Instance:
        opening = self._opening
        self._locks.mailbox.write_owner(Owner(self._pid, self._start, None))
        return Instance(
            session=self.own.session,
            kind=self.own.kind,
            pid=self._pid,
            start=self._start,
            host_pid=opening.host_pid,
            host_start=opening.host_start,
            instance_id=self.own.instance_id,
            endpoint=endpoint,
            public_key=self._identity.keys.public_key,
            capabilities=CAPABILITIES,
            build=running_build(),
        )

    def _publish(self) -> None:
        assert self._publisher is not None
        try:
            self._publisher.publish(self._presence())
        except (OSError, HerdError) as fault:
            self.health.observed(_unwritable(fault))

    def _presence(self) -> Presence:
        place = self._opening.place
        activity, since = self._activity or (None, None)
        return Presence(
            role=self.own.role,
            socket=place.socket,
            cwd=self._cwd,
            name=self.own.name,
            repo=clipped(self._labels.repo),
            branch=clipped(self._labels.branch),
            workspace_label=clipped(self._labels.workspace_label),
            activity=activity,
            since=since,
            pane_id=place.pane_id,
            tab_id=place.tab_id,
            workspace_id=place.workspace_id,
        )

    def _relabel(self) -> None:
        assert self._publisher is not None
        try:
            self._publisher.enrich(self._publisher.claim, lambda _: self._presence())
        except (OSError, HerdError) as fault:
            self.health.observed(_unwritable(fault))

    async def _enrich(self) -> None:
        """Look up repository and branch after presence is out; whatever comes of it, mail is not concerned."""
        cwd = self._cwd
        labels = await self._opening.topology.whereabouts(cwd)
        if cwd == self._cwd:
            self._labels = labels
            self._relabel()

    def _withdraw(self) -> None:
        if self._publisher is None:
            return
        try:
            self._publisher.withdraw()
        except (OSError, HerdError):
            _log.exception("presence.withdraw.failed")  # the claim is retired, so the presence is not valid

    async def _restore(self) -> None:
        if self.mailbox.custody_id is not None:
            await self.mailbox.run(lambda connection: connection.execute("UPDATE counter SET value = value"))
        self._publish()
        self.health.require()
        self.retry()

    def _judged(self, row: Incoming) -> Verdict:
        return self._authority.judge.verdict(party_of(row.sender), self.own.as_party())

    def _progressed(self, progress: Progress) -> None:
        self.sending.progressed(progress)
        self.delivery.arrived()

    def _recorded(self, row: Outgoing) -> None:
        self.routes.settled_elsewhere(row)
        if row.reply_to is not None:
            self.owing.due(row.recipient_key)  # what it answers has become replied

    def _connected(self, peer: Peer) -> None:
        self.owing.contact(peer.record.key)

    def _peer_handler(self) -> PeerHandler:
        inner = Inner(
            own=self.own,
            identity=self._identity,
            nonces=self._nonces,
            registry=self.registry,
            capabilities=CAPABILITIES,
            authority=self._authority,
            mailbox=self.mailbox,
            delivery=self.delivery,
            health=self.health,
            limits=self._opening.limits,
            clock=self._opening.clock,
            progressed=self._progressed,
            recorded=self._recorded,
            step=self._opening.step,
        )
        return PeerHandler(inner, self.connections)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        door = Door(self, self._peer_handler(), self._token)
        connection = Connection(reader, writer, door, limits=self._opening.limits)
        deadline = asyncio.get_running_loop().call_later(
            self._opening.limits.handshake_ms / 1000,
            lambda: None if door.proved(connection) else connection.finish(),
        )
        try:
            await connection.run()
        finally:
            deadline.cancel()
            door.ended()
            self.connections.ended(connection)

    def _watch(self, folder: str, changed: Callable[[str | None], None]) -> None:
        for watch in self._watches:
            watch.close()
        self._watches = [
            FolderWatch(folder, changed),
            FolderWatch(self._opening.layout.peers, self._peers_changed),
        ]

    def _peers_changed(self, name: str | None) -> None:
        if self.routes.blocked or self.owing.waiting:
            self.retry()

    def _socket_folder_changed(self, _: str | None) -> None:
        if self._listener is not None and not os.path.lexists(self._listener.path):
            listener, self._listener = self._listener, None
            self._tasks.create_task(self._listen_again(listener))

    async def _listen_again(self, lost: Listener) -> None:
        """Bind again after somebody removed the socket's file, under a new claim."""
        self._withdraw()
        await lost.close()
        private_folder(self._opening.layout.run)
        await self._listen()
        if self.health.fault is None:
            self._publish()


def _name_for(opening: Opening) -> str:
    if opening.session.host == TERMINAL:
        default = opening.session.session_id == "default"
        return TERMINAL if default else opening.session.session_id
    return generated_name(os.path.basename(opening.cwd.rstrip("/")), opening.session.key)


def _unwritable(fault: OSError | HerdError) -> HerdError:
    if isinstance(fault, HerdError):
        return fault
    return RecoveryRequired(
        f"this session's record cannot be written: {fault.strerror or fault}",
        hint="Free space or mend the disk that holds the data root; mail is kept, and it goes on by itself.",
    )
