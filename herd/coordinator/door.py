"""What stands behind the instance's socket: the first request tells whether a peer or an adapter knocks.

Whoever has proved nothing within `handshake_ms` is shut out again.
"""

import hmac
from typing import TYPE_CHECKING, Any

from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.connections import Peer
from herd.coordinator.peers import PeerHandler
from herd.core.errors import AuthenticationFailed, InvalidParams
from herd.rpc.connection import Connection

if TYPE_CHECKING:
    from herd.coordinator.coordinator import Coordinator


class Door:
    """Handles one accepted connection until it is known who is at its other end, and then hands on.

    Args:
        coordinator: Whose socket it is.
        peer: Answers if a peer knocks.
        token: What proves an adapter of this session.
    """

    def __init__(self, coordinator: "Coordinator", peer: PeerHandler, token: str) -> None:
        self._coordinator = coordinator
        self._peer = peer
        self._token = token
        self._adapter: AdapterApi | None = None

    def proved(self, connection: Connection) -> bool:
        """Tell whether the other end has proved who it is."""
        return self._adapter is not None or isinstance(connection.principal, Peer)

    async def request(self, connection: Connection, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See `Handler.request`."""
        if self._adapter is not None:
            return await self._adapter.request(connection, method, params)
        if method == "session.authenticate":
            return self._admit(connection, params)
        return await self._peer.request(connection, method, params)

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        """Drop it: a notification stores nothing and proves nothing."""

    async def unsent(
        self, connection: Connection, method: str, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        """See `Handler.unsent`; a peer is handed nothing."""
        if self._adapter is not None:
            await self._adapter.unsent(connection, method, params, result)

    def ended(self) -> None:
        """Give back what an adapter held; call it when the connection has ended."""
        if self._adapter is not None:
            self._adapter.ended()

    def _admit(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        token = params.get("token")
        if not isinstance(token, str) or set(params) - {"token", "command"}:
            connection.finish()
            raise InvalidParams("session.authenticate takes token, and command", field="token")
        if not isinstance(params.get("command", False), bool):
            raise InvalidParams("command is true or false", field="command")
        if not hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
            connection.finish()
            raise AuthenticationFailed("that is not this instance's token")
        if isinstance(connection.principal, Peer):
            connection.finish()
            raise AuthenticationFailed("a peer's connection does not become an adapter's")
        self._adapter = AdapterApi(Settled(self._coordinator), command=params.get("command", False))
        return {"instance_id": self._coordinator.own.instance_id}
