"""The streams on which a modern client hears that a list has changed: what each asked for. Pure.

Nothing is sent that was not asked for, and everything bears the id of the request that opened its stream.
"""

from typing import Any

from herd.mcp.protocol import INVALID_PARAMS, INVALID_REQUEST, SUBSCRIPTION_KEY, ProtocolError

RequestId = str | int

_SERVED = {"tools": "toolsListChanged", "prompts": "promptsListChanged"}


class Subscriptions:
    """The open streams of one connection.

    Args:
        most: Streams that may be open at once.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._streams: dict[RequestId, frozenset[str]] = {}

    def open(self, request_id: RequestId, params: dict[str, Any]) -> dict[str, Any]:
        """Open a stream whose id no other has, and give the notification that acknowledges what is served.

        Raises:
            ProtocolError: the params are malformed, or too many are open.
        """
        wanted = params.get("notifications")
        if not isinstance(wanted, dict):
            raise ProtocolError(INVALID_PARAMS, "notifications is an object")
        if len(self._streams) >= self._most:
            raise ProtocolError(INVALID_REQUEST, f"{self._most} streams are open already")
        served = [kind for kind in _SERVED.values() if wanted.get(kind) is True]
        self._streams[request_id] = frozenset(served)
        params = {"notifications": dict.fromkeys(served, True), **self.mark(request_id)}
        return _notification("notifications/subscriptions/acknowledged", params)

    def is_open(self, request_id: RequestId) -> bool:
        """Tell whether a stream with this id is open."""
        return request_id in self._streams

    def close(self, request_id: RequestId) -> None:
        """Close a stream that its client ended; there is no answer to that."""
        self._streams.pop(request_id, None)

    def close_all(self) -> list[RequestId]:
        """Close every stream and give the requests whose results end them."""
        ended = list(self._streams)
        self._streams.clear()
        return ended

    def changed(self, kind: str) -> list[dict[str, Any]]:
        """Give the notifications that tell of a changed list, one for each stream that asked for them."""
        method = f"notifications/{kind}/list_changed"
        return [
            _notification(method, self.mark(request_id))
            for request_id, kinds in self._streams.items()
            if _SERVED[kind] in kinds
        ]

    @staticmethod
    def mark(request_id: RequestId) -> dict[str, Any]:
        """Give the `_meta` that everything on a stream bears."""
        return {"_meta": {SUBSCRIPTION_KEY: request_id}}


def _notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}
