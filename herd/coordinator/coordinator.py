"""One live coordinator: opened for a session, listed while healthy, ended in order.

`coordinate` is the whole life. It takes the locks, reads what is durable, opens the mailbox, binds the socket
and publishes, in that order; on the way out it withdraws, settles, closes and releases. Everything else here
wires the parts to each other.
"""

import asyncio
import logging
import os
import secrets
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any

from herd.coordinator.authority import Authority
from herd.coordinator.carrier import Local, LocalCarrier
from herd.coordinator.connections import Connections, Peer
from herd.coordinator.delivery import Delivery
from herd.coordinator.door import Door
from herd.coordinator.health import Health
from herd.coordinator.listening import Listening
from herd.coordinator.listing import Listing
from herd.coordinator.opening import Locks, Opening, remove_former_socket, settled_session_file, take_locks
from herd.coordinator.owing import Owing
from herd.coordinator.own import Own, party_of
from herd.coordinator.peers import Inner, PeerHandler
from herd.coordinator.presenting import Presenting
from herd.coordinator.sending import Sending
from herd.coordinator.tasks import Tasks
from herd.coordinator.waiting import Waiting
from herd.core.build import running_build
from herd.core.errors import HerdError
from herd.core.files import replace_private
from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, generated_name
from herd.core.limits import SETTLE_S
from herd.core.locks import Owner
from herd.core.processes import start_token
from herd.mail import outbox
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING
from herd.mail.routes import Progress, Routes
from herd.presence.publisher import Instance, Publisher
from herd.presence.record import RECEIVE, SEND, WAIT, clipped
from herd.presence.registry import Registry
from herd.presence.session_file import SessionFile
from herd.rpc.connection import Connection
from herd.rpc.handshake import Identity, KeyPair, NonceMemory
from roles.model import Verdict

_log = logging.getLogger("herd.coordinator")

CAPABILITIES = (SEND, RECEIVE, WAIT)
"""What every session may do today."""

_MAY_BE_MORE_BY_NOW = frozenset({PENDING, ACCEPTED, DELIVERED})


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
    with ExitStack() as held:
        locks = await asyncio.to_thread(take_locks, opening, held)
        file = await asyncio.to_thread(settled_session_file, opening)
        await asyncio.to_thread(remove_former_socket, opening)
        async with AsyncExitStack() as stack:
            group = await stack.enter_async_context(asyncio.TaskGroup())
            coordinator = Coordinator(opening, locks, file, Tasks(group))
            stack.push_async_callback(coordinator.stop)
            await coordinator.start()
            yield coordinator


class Coordinator:
    """The parts of one session's coordinator, joined."""

    def __init__(self, opening: Opening, locks: Locks, file: SessionFile, tasks: Tasks) -> None:
        self._opening = opening
        self._tasks = tasks
        self._locks = locks
        self._token = secrets.token_hex(32)
        self.own = Own(
            opening.session,
            kind=file.kind,
            role=file.role,
            instance_id=str(uuid.uuid4()),
            socket=opening.place.socket,
            name=clipped(opening.name) or _name_for(opening),
        )
        self._identity = Identity(self.own.instance_id, KeyPair.generate())
        self._nonces = NonceMemory(opening.clock)
        self.registry = Registry(opening.layout)
        self._authority = Authority(opening.layout, opening.judge)
        self._listening = Listening(opening.layout, self.own.instance_id, opening.limits, self._accepted)
        self._presenting: Presenting | None = None
        self._join_mail(file)
        self._join_sending()

    def _join_mail(self, file: SessionFile) -> None:
        """Join what receives: mailbox, health, delivery."""
        opening = self._opening
        clock, step = opening.clock, opening.step
        self.health = Health(self._withdraw, self._restore, clock=clock, jitter=opening.jitter)
        self.mailbox = Mailbox(opening.layout, file, health=self.health.observed, step=step)
        self.delivery = Delivery(
            self.mailbox, self._judged, self._row_changed, hold=self._authority.hold, clock=clock, step=step
        )
        self.listing = Listing(opening.layout, self.registry, self._authority, self.own, self.mailbox, clock)
        self._waiting = Waiting(opening.layout.peers, self.retry)

    def _join_sending(self) -> None:
        """Join what carries: connections, routes, owed receipts."""
        opening, tasks = self._opening, self._tasks
        layout, clock, step, jitter = opening.layout, opening.clock, opening.step, opening.jitter
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
            waits=self._waiting.begin,
            jitter=jitter,
            step=step,
        )
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
            self.mailbox,
            self.carrier.reach,
            tasks,
            clock=clock,
            waits=self._waiting.begin,
            jitter=jitter,
            step=step,
        )

    async def start(self) -> None:
        """Open the mailbox, listen, publish, and take up what a former instance left."""
        try:
            await self.mailbox.open()
        except HerdError as fault:
            _log.warning("mailbox.open.failed", extra={"code": fault.code, "reason": fault.message})
            self.health.fault = fault
        token = self._opening.layout.token(self.own.key)
        await asyncio.to_thread(replace_private, token, self._token.encode())
        self._presenting = self._presented(await self._listening.open())
        self._tasks.create_task(self._listening.keep(self._withdraw, self._moved))
        if self.health.fault is not None:
            self._presenting.announce()
            return
        self._presenting.publish()
        for row in await self.mailbox.read(outbox.pending) or []:
            self.routes.add(row)
        await self.owing.start()
        self._tasks.create_task(self.health.keep())

    async def stop(self) -> None:
        """Withdraw, settle what runs, close, and leave no record and no socket behind."""
        self._withdraw()
        self._waiting.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self.routes.written()
                await self.owing.told()
        await self._tasks.cancel()
        await self._listening.close()
        await self.mailbox.close()
        if self._presenting is not None:
            self._presenting.remove()

    def whoami(self) -> dict[str, Any]:
        """Give this session as it may be shown to itself."""
        return {
            "target": self.own.target,
            "name": self.own.name,
            "role": self.own.role,
            "kind": self.own.kind,
            "socket": self.own.socket,
            "build": running_build()._asdict(),
        }

    def update(self, *, cwd: str | None, name: str | None, activity: str | None) -> None:
        """Take what the host reports; see `Presenting.update`."""
        assert self._presenting is not None, "start() came first"
        self._presenting.update(cwd=cwd, name=name, activity=activity)

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
        refusal = self.routes.refusal(row)
        return row, refusal.code if refusal else None

    async def cancel(self, message_id: str) -> Outgoing:
        """Take back a message that no mailbox has; see `Sending.cancel`."""
        return await self.sending.cancel(message_id, self.carrier)

    async def _asked(self, row: Outgoing) -> Outgoing:
        """Ask the recipient, whose last word may be lost; what is stored stands where it cannot be asked."""
        try:
            receipt = await self.carrier.status(row)
            learnt = await self.mailbox.run(
                lambda connection: outbox.record_receipt(connection, receipt, row.recipient_key)
            )
        except HerdError:
            return row
        self._recorded(learnt)
        return learnt

    def _presented(self, endpoint: str) -> Presenting:
        opening = self._opening
        start = start_token(os.getpid()) or ""
        self._locks.mailbox.write_owner(Owner(os.getpid(), start, None))
        instance = Instance(
            session=self.own.session,
            kind=self.own.kind,
            pid=os.getpid(),
            start=start,
            host_pid=opening.host_pid,
            host_start=opening.host_start,
            instance_id=self.own.instance_id,
            endpoint=endpoint,
            public_key=self._identity.keys.public_key,
            capabilities=CAPABILITIES,
            build=running_build(),
        )
        publisher = Publisher(opening.layout, self._locks.session, instance)
        return Presenting(opening, self.own, publisher, self._tasks, self.health.observed)

    def _withdraw(self) -> None:
        if self._presenting is not None:
            self._presenting.withdraw()

    async def _moved(self, endpoint: str) -> None:
        assert self._presenting is not None, "start() came first"
        self._presenting.moved(endpoint)
        if self.health.fault is None:
            self._presenting.publish()
        else:
            self._presenting.announce()

    async def _restore(self) -> None:
        """Write durably and publish again; raises while either fails."""
        assert self._presenting is not None, "start() came first"
        if self.mailbox.custody_id is not None:
            await self.mailbox.run(lambda connection: connection.execute("UPDATE counter SET value = value"))
        self._presenting.publish()
        self.health.require()
        self.retry()

    def _judged(self, row: Incoming) -> Verdict:
        return self._authority.judge.verdict(party_of(row.sender), self.own.as_party())

    def _row_changed(self, row: Incoming) -> None:
        self.owing.due(row.sender_key)

    def _progressed(self, progress: Progress) -> None:
        self.sending.progressed(progress)
        self.delivery.arrived()

    def _recorded(self, row: Outgoing) -> None:
        if row.receipt.state != PENDING:
            self.routes.settled_elsewhere(row)
        if row.reply_to is not None:
            self.owing.due(row.recipient_key)  # what it answers may have become replied

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


def _name_for(opening: Opening) -> str:
    if opening.session.host != TERMINAL:
        return generated_name(os.path.basename(opening.cwd.rstrip("/")), opening.session.key)
    default = opening.session.session_id == DEFAULT_TERMINAL
    return TERMINAL if default else opening.session.session_id
