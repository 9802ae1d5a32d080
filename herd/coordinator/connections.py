"""The connections to other coordinators: dialled with the handshake, kept, and used in both directions.

A connection is reused whoever opened it, since after the handshake both ends are proved. What the other end
may do is asked again at every request, from its record.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from herd.coordinator.lanes import Lanes
from herd.coordinator.tasks import Tasks
from herd.core.errors import (
    AuthenticationFailed,
    DeliveryUnknown,
    PeerOffline,
    QueueFull,
    UnsupportedProtocol,
)
from herd.core.limits import PROTOCOL_VERSION, RETRY_WHEN_FULL_MS, Limits
from herd.presence.record import Record
from herd.presence.registry import Registry
from herd.presence.stamps import Stamp
from herd.rpc.connection import Connection, Handler
from herd.rpc.handshake import ClientHandshake, Identity, NonceMemory
from herd.rpc.unix import dial


class Peer(NamedTuple):
    """Who the other end of a connection proved to be, and the version of its record that said so."""

    record: Record
    stamp: Stamp


def peer_on_record(registry: Registry, key: str) -> Peer | None:
    """Give a session's instance as it is on record now; None where there is none."""
    # The stamp before the record: what changes in between is then told by the next look at the stamp.
    stamp = registry.stamp(key)
    record = registry.record(key)
    return None if stamp is None or record is None else Peer(record, stamp)


def is_same(one: Record, other: Record) -> bool:
    """Tell whether two records are of one instance, by its id and the key that proves it."""
    return (one.instance_id, one.public_key) == (other.instance_id, other.public_key)


class Connections:
    """Open connections by the instance at their other end.

    Args:
        identity: Our instance and its keys.
        nonces: Every nonce this coordinator has seen.
        registry: Where records are read.
        handler: Answers what the other ends ask.
        tasks: Runs the connections.
        limits: The bounds in force.
        connected: Told each newly proved peer.
        unknown: Called when a peer that was dialled does not know this instance.
    """

    def __init__(
        self,
        identity: Identity,
        nonces: NonceMemory,
        registry: Registry,
        handler: Callable[[], Handler],
        tasks: Tasks,
        *,
        limits: Limits,
        connected: Callable[[Peer], None],
        unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self._unknown = unknown
        self._identity = identity
        self._nonces = nonces
        self._registry = registry
        self._handler = handler
        self._tasks = tasks
        self._limits = limits
        self._connected = connected
        self._open: dict[str, Connection] = {}
        self._by_key: dict[str, Connection] = {}
        self._dialled: set[Connection] = set()
        self._coming = 0
        self._dialling = Lanes()

    def proved(self, peer: Peer, connection: Connection) -> None:
        """Keep a connection whose other end has proved itself."""
        connection.principal = peer
        self._open[peer.record.instance_id] = connection
        self._by_key[peer.record.key] = connection
        self._connected(peer)

    def ended(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self._dialled.discard(connection)
        peer = connection.principal
        if isinstance(peer, Peer) and self._open.get(peer.record.instance_id) is connection:
            del self._open[peer.record.instance_id]
        if isinstance(peer, Peer) and self._by_key.get(peer.record.key) is connection:
            del self._by_key[peer.record.key]

    def open_to(self, key: str) -> Connection | None:
        """Give the open connection to the instance of a session that is on record now, by one stat.

        None where there is none, or where the record is another one than that which the connection proved:
        whether the same instance wrote it anew is then to be read.
        """
        connection = self._by_key.get(key)
        if connection is None or connection.closed:
            return None
        known: Peer = connection.principal
        return connection if self._registry.stamp(key) == known.stamp else None

    async def to(self, record: Record) -> Connection:
        """Give the connection to an instance, dialling where there is none.

        Raises:
            PeerOffline: its socket refuses, hangs or is absent.
            AuthenticationFailed, UnsafeEndpoint, UnsupportedProtocol: it is not provably that instance.
            QueueFull: too many connections are in use.
        """
        connection = self._open.get(record.instance_id)
        if connection is not None and not connection.closed and connection.principal.record is record:
            return connection
        async with self._dialling.lane(record.instance_id):
            connection = self._open.get(record.instance_id)
            if connection is None or connection.closed:
                connection = await self._dial(record.key, record.instance_id)
            else:
                self._renew(connection, record.key)
        return connection

    def _renew(self, connection: Connection, key: str) -> None:
        """Note the version of the record that the instance at the other end has now."""
        peer, known = peer_on_record(self._registry, key), connection.principal
        if peer is not None and isinstance(known, Peer) and is_same(peer.record, known.record):
            connection.principal = peer

    async def _dial(self, key: str, instance_id: str) -> Connection:
        # Read again: the call may have waited for another's attempt.
        peer = peer_on_record(self._registry, key)
        if peer is None or peer.record.instance_id != instance_id:
            raise PeerOffline("that session's instance has just left the record")
        if peer.record.protocol != PROTOCOL_VERSION:
            raise UnsupportedProtocol(f"that session speaks protocol {peer.record.protocol}")
        connection = await self._connected_to(peer.record)
        self._tasks.create_task(self._run(connection))
        try:
            await self._prove(connection, peer.record)
        except BaseException:
            connection.finish()
            raise
        self.proved(peer, connection)
        return connection

    async def _connected_to(self, record: Record) -> Connection:
        self._coming += 1  # it has its place before anything is waited for, or too many would find room
        try:
            await self._make_room()
            timeout_ms = self._limits.handshake_ms
            reader, writer = await dial(record.endpoint, record.instance_id, timeout_ms=timeout_ms)
            connection = Connection(reader, writer, self._handler(), limits=self._limits)
            self._dialled.add(connection)
        finally:
            self._coming -= 1
        return connection

    async def _prove(self, connection: Connection, record: Record) -> None:
        handshake = ClientHandshake(self._identity, record.instance_id, record.public_key, self._nonces)
        try:
            async with asyncio.timeout(self._limits.handshake_ms / 1000):
                hello = await connection.request("peer.hello", handshake.hello())
                proof = handshake.authenticate(hello)
                handshake.finish(await connection.request("peer.authenticate", proof))
        except AuthenticationFailed:
            self._unknown()
            raise
        except (TimeoutError, DeliveryUnknown):
            raise PeerOffline("that session's socket did not complete a handshake in time") from None

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self.ended(connection)

    async def _make_room(self) -> None:
        if len(self._dialled) + self._coming <= self._limits.connections:
            return
        idle = [connection for connection in self._dialled if connection.idle]
        if not idle:
            raise QueueFull(
                f"all {self._limits.connections} connections are in use", retry_after_ms=RETRY_WHEN_FULL_MS
            )
        unused_longest = min(idle, key=lambda connection: connection.last_used)
        self.ended(unused_longest)  # at once, so that nobody else counts on it
        await unused_longest.close()
