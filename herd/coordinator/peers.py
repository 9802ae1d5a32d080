"""What another coordinator may ask of this one: the handshake, and `peer.*` after it.

Gates in order: the caller has proved an instance; that instance is still on record (one stat); then the
method's own. The sender of a message is the caller's record and nothing that the message says.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from herd.coordinator.authority import Authority
from herd.coordinator.connections import Connections, Peer, is_same, peer_on_record
from herd.coordinator.delivery import Delivery
from herd.coordinator.expiring import Expiring
from herd.coordinator.health import Health
from herd.coordinator.lanes import Lanes
from herd.coordinator.own import Own, sender_of
from herd.coordinator.runs.directories import Proofs, Proved
from herd.coordinator.runs.directory import answer_of, asked_about
from herd.coordinator.runs.runs import Runs
from herd.coordinator.taking import Taking, lane
from herd.coordinator.tasks import Tasks
from herd.coordinator.thread import Thread
from herd.core.clock import Clock
from herd.core.errors import (
    AuthenticationFailed,
    CapabilityDenied,
    EligibilityUnverified,
    HerdError,
    InvalidParams,
    MethodNotFound,
    ScopeDenied,
    UnknownTarget,
)
from herd.core.identity import is_peer_id
from herd.core.limits import Limits
from herd.core.paths import Layout
from herd.mail import inbox, outbox, pushes
from herd.mail.body_wire import read_piece
from herd.mail.correspondents import identity_of
from herd.mail.inbox import Incoming, Sender
from herd.mail.mailbox import Mailbox
from herd.mail.outbox import Outgoing
from herd.mail.rates import Rates
from herd.mail.routes import Progress
from herd.mail.steps import Step, no_step
from herd.mail.together import read_envelopes, together_to_wire
from herd.mail.uploads import Uploads
from herd.mail.wire import Envelope, checked_offer, checked_status, read_envelope, receipt_to_wire
from herd.presence.record import RECEIVE, SEND, Record
from herd.presence.registry import Registry
from herd.presence.scopes import Extent
from herd.presence.session_file import read_session_file
from herd.rpc.connection import Connection
from herd.rpc.handshake import Identity, NonceMemory, ServerHandshake
from roles.evidence import party_on_record
from roles.model import LEAD, Party

_log = logging.getLogger("herd.coordinator.peers")


_Answer = Callable[[sqlite3.Connection, str, str, str, str | None], Incoming]
"""Answers a question about a message, by its sender's key, its id, its recipient and its digest."""


class Inner(NamedTuple):
    """The parts of a coordinator that answer peers."""

    layout: Layout
    own: Own
    identity: Identity
    nonces: NonceMemory
    registry: Registry
    capabilities: tuple[str, ...]
    authority: Authority
    mailbox: Mailbox
    delivery: Delivery
    expiring: Expiring
    thread: Thread
    health: Health
    runs: Runs
    tasks: Tasks
    taking: Lanes
    """A lane for each message that is just being taken into custody, by its sender and id."""
    uploads: Uploads
    limits: Limits
    rates: Rates
    clock: Clock
    progressed: Callable[[Progress], None]
    recorded: Callable[[Outgoing], None]
    step: Step = no_step


class PeerHandler:
    """Answers one connection whose other end is or wants to be a peer.

    Args:
        inner: What answers.
        connections: Told who has proved itself.
        dialled: Whether this side opened the connection: then the other end is proved by our own handshake,
            and may not begin one.
    """

    def __init__(self, inner: Inner, connections: Connections, *, dialled: bool = False) -> None:
        self._inner = inner
        self._connections = connections
        self._dialled = dialled
        self._taking = Taking(inner)
        self._methods = {
            "peer.send": self._send,
            "peer.sendMany": self._send_many,
            "peer.body": self._body,
            "peer.status": self._status,
            "peer.subscribe": self._subscribe,
            "peer.receipt": self._receipt,
            "peer.directory": self._directory,
        }
        self._proofs = Proofs(inner.clock)
        self._handshake = ServerHandshake(
            inner.identity, inner.nonces, self._key_on_record, inner.capabilities
        )

    async def request(self, connection: Connection, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See `Handler.request`."""
        if method in {"peer.hello", "peer.authenticate"}:
            return self._prove(connection, method, params)
        if not isinstance(connection.principal, Peer):
            connection.finish()
            raise AuthenticationFailed(f"{method} came before the handshake")
        if method == "peer.read":
            raise ScopeDenied("only a session's own host reads its inbox")
        if method.startswith(("session.", "resource.")):
            raise CapabilityDenied(f"a peer may not call {method}")
        serve = self._methods.get(method)
        if serve is None:
            raise MethodNotFound(f"there is no method {method}")
        return await serve(self._caller(connection), params, connection)

    async def unsent(
        self, connection: Connection, method: str, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        """See `Handler.unsent`; a peer is handed nothing."""

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        """Drop it: a notification stores nothing and proves nothing."""

    def _prove(self, connection: Connection, method: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._dialled:
                raise AuthenticationFailed(f"{method} comes from the side that dials")
            if method == "peer.hello":
                return self._handshake.hello(params)
            result = self._handshake.authenticate(params)
            peer = self._proven()
        except HerdError:
            connection.finish()
            raise
        # In the next turn of the loop, so that our own requests on it come after this answer.
        asyncio.get_running_loop().call_soon(self._connections.proved, peer, connection)
        connection.principal = peer
        return result

    def _proven(self) -> Peer:
        instance_id, key = self._handshake.peer_instance_id, self._handshake.peer_key
        record = self._on_record(instance_id)
        peer = peer_on_record(self._inner.registry, record.key) if record else None
        if peer is None or (peer.record.instance_id, peer.record.public_key) != (instance_id, key):
            raise AuthenticationFailed("your instance has just left the record")
        return peer

    def _key_on_record(self, instance_id: str) -> str | None:
        record = self._on_record(instance_id)
        return record.public_key if record else None

    def _on_record(self, instance_id: str) -> Record | None:
        record = self._inner.registry.instance(instance_id)
        return record if record is not None and self._inner.registry.lives(record) else None

    def _caller(self, connection: Connection) -> Record:
        """Give the caller's record as it is now: one stat where it has not changed since the last request."""
        known: Peer = connection.principal
        registry, key = self._inner.registry, known.record.key
        if registry.stamp(key) == known.stamp:
            return known.record
        peer = peer_on_record(registry, key)
        if peer is None or not is_same(peer.record, known.record):
            connection.finish()
            raise AuthenticationFailed("your instance is no longer on record")
        connection.principal = peer
        return peer.record

    async def _send(self, caller: Record, params: dict[str, Any], connection: Connection) -> dict[str, Any]:
        self._require_capable(caller)
        envelope = read_envelope(params)
        sender = sender_of(caller)
        proof = self._fitting([envelope], sender, caller, connection)
        party = self._party(caller)
        taken = await self._taking.take([envelope], sender, party, several=False, proof=proof)
        if envelope.parts is not None and (taken.refusal is None or not taken.refusal.may_pass):
            self._inner.uploads.end(sender.key, envelope.message_id, envelope.to)
        if taken.refusal is not None:
            raise taken.refusal
        return receipt_to_wire(taken.receipts[0])

    async def _body(self, caller: Record, params: dict[str, Any], _: Connection) -> dict[str, Any]:
        self._require_capable(caller)
        piece = read_piece(params)
        self._require_own(piece.to)
        sender = sender_of(caller)
        # What goes on with an upload waits for nothing: pieces are taken in the order of their frames.
        if not self._inner.uploads.has(sender.key, piece):
            party = self._party(caller)
            if await self._taking.knows(piece, sender, party):
                return {"received": piece.described.size}
        return {"received": self._inner.uploads.add(sender.key, piece)}

    async def _send_many(
        self, caller: Record, params: dict[str, Any], connection: Connection
    ) -> dict[str, Any]:
        self._require_capable(caller)
        envelopes = read_envelopes(params)
        sender = sender_of(caller)
        proof = self._fitting(envelopes, sender, caller, connection)
        party = self._party(caller)
        taken = await self._taking.take(envelopes, sender, party, several=True, proof=proof)
        return together_to_wire(taken)

    def _party(self, caller: Record) -> Party:
        """Give the caller as evidence; of one that is withdrawn, what was durable at its start."""
        party = party_on_record(caller, self._inner.own.socket)
        if caller.presence is not None:
            return party
        return party._replace(role=LEAD, extent=self._extent(caller))

    def _extent(self, caller: Record) -> Extent:
        """Give the caller's scope and ids as published, or as durable while it is withdrawn."""
        if caller.presence is not None:
            return caller.presence.extent
        file = read_session_file(self._inner.layout, caller.key)
        if file is None:
            raise EligibilityUnverified("your session has neither a presence nor a session.json")
        return file.extent

    def _require_capable(self, caller: Record) -> None:
        if SEND not in caller.capabilities or RECEIVE not in self._inner.capabilities:
            raise CapabilityDenied("sending here needs message.send there and message.receive here")

    def _fitting(
        self, envelopes: Sequence[Envelope], sender: Sender, caller: Record, connection: Connection
    ) -> Callable[[], Awaitable[Proved]] | None:
        """Check what messages to one recipient say of both sides, and that anything can be taken now.

        Returns:
            What proves the run that they are from, where they say that they are from one.
        """
        if any(envelope.sender.session != sender.target for envelope in envelopes):
            raise InvalidParams("from.session is not the session that this connection proved", field="from")
        run = envelopes[0].sender.run
        if any(envelope.sender.run != run for envelope in envelopes):
            raise InvalidParams("the messages have not all the same sender", field="from")
        self._require_own(envelopes[0].to)
        self._inner.health.require()
        return None if run is None else lambda: self._proofs.proved(connection, caller, sender, run)

    async def _directory(self, caller: Record, params: dict[str, Any], _: Connection) -> dict[str, Any]:
        wanted = asked_about(params)
        shown = [
            run for run in self._inner.runs.shown_to(self._extent(caller)) if wanted in {None, run.peer_id}
        ]
        return answer_of(shown, self._inner.own.instance_id, self._inner.limits.sent_frame_bytes)

    async def _status(self, caller: Record, params: dict[str, Any], _: Connection) -> dict[str, Any]:
        return await self._asked(inbox.asked, caller, params)

    async def _subscribe(self, caller: Record, params: dict[str, Any], _: Connection) -> dict[str, Any]:
        # What changes behind this commit is owed to the caller, whether or not this answer has left by then.
        return {"subscribed": True, "receipt": await self._asked(pushes.subscribe, caller, params)}

    async def _asked(self, answer: _Answer, caller: Record, params: dict[str, Any]) -> dict[str, Any]:
        question = checked_status(params)
        sender = sender_of(caller)
        async with self._inner.taking.lane(lane(sender, question.message_id)):
            row = await self._inner.mailbox.read(
                lambda connection: answer(
                    connection,
                    identity_of(sender.key, question.run),
                    question.message_id,
                    question.to,
                    question.digest,
                )
            )
        if row is None:
            raise UnknownTarget(f"message {question.message_id} of yours has not come here")
        return receipt_to_wire(row.receipt._replace(custody_id=self._inner.mailbox.custody_id))

    async def _receipt(self, caller: Record, params: dict[str, Any], _: Connection) -> dict[str, Any]:
        receipt, digest = checked_offer(params)
        now = self._inner.clock.wall_ms()
        row = await self._inner.mailbox.read(
            lambda connection: outbox.record_receipt(connection, receipt, caller.key, digest, now_ms=now)
        )
        if row is None:
            raise ScopeDenied(f"message {receipt.message_id} was not sent by this session")
        self._inner.recorded(row)
        self._inner.progressed(Progress(row.receipt))
        return {"recorded": True}

    def _require_own(self, to: str) -> None:
        # What a peer id means is told as late as can be, since a run may end meanwhile: see `Taking`.
        if to not in self._inner.own.names and not is_peer_id(to):
            raise UnknownTarget(f"this session is not {to}")
