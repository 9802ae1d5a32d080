"""A blocking client of a running coordinator's socket, for command lines and hooks.

It needs no event loop and no cryptography: the session's private token proves it, and the socket's folder,
owner and mode are checked before a byte is sent.
"""

import json
import os
import socket
from types import TracebackType
from typing import Any, Self

from herd.core.errors import DeliveryUnknown, HerdError, NoSession, PeerOffline, from_wire
from herd.core.files import read_private
from herd.core.limits import CLIENT_S, DEFAULT_LIMITS, TOKEN_BYTES
from herd.core.paths import Layout
from herd.presence.record import Record
from herd.rpc.endpoints import checked_endpoint


class Client:
    """One authenticated connection to the coordinator in a record.

    Args:
        layout: The folders of this machine.
        record: The instance to talk to.
        command: Whether a person's command line is asking: it may name whatever resolves now.

    Raises:
        PeerOffline: nobody listens there any more.
        HerdError: the socket is not safe, or the token was refused.
    """

    def __init__(self, layout: Layout, record: Record, *, command: bool = True) -> None:
        checked_endpoint(record.endpoint, record.instance_id)
        token = read_private(layout.token(record.key), TOKEN_BYTES)
        if token is None:
            raise NoSession("the session's token is gone; its coordinator has ended")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CLIENT_S)
        self._buffer = b""
        self._last_id = 0
        try:
            self._socket.connect(record.endpoint)
            self.request("session.authenticate", {"token": token.decode(), "command": command})
        except OSError as fault:
            self.close()
            raise PeerOffline(
                f"the session's coordinator does not answer: {fault.strerror or fault}"
            ) from fault
        except BaseException:
            self.close()
            raise

    def request(self, method: str, params: dict[str, Any], *, wait_s: float = CLIENT_S) -> dict[str, Any]:
        """Ask and give the result.

        Args:
            method: Such as `session.list`.
            params: JSON values.
            wait_s: Seconds until it counts as unanswered.

        Raises:
            DeliveryUnknown: the connection broke or nothing came in time.
            HerdError: the coordinator's refusal, as its own class.
        """
        self._last_id += 1
        frame = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        try:
            self._socket.settimeout(wait_s)
            self._socket.sendall(
                json.dumps(frame, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
            )
            return self._result(self._last_id)
        except OSError as fault:
            raise DeliveryUnknown(f"{method}: the session's coordinator went away: {fault}") from fault

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _result(self, request_id: int) -> dict[str, Any]:
        while True:
            frame = self._frame()
            if frame.get("id") is None and isinstance(frame.get("error"), dict):
                raise from_wire(frame["error"])  # what was sent was no frame at all, or too large a one
            if frame.get("id") == request_id and "method" not in frame:
                break
        if "error" in frame:
            raise from_wire(frame["error"])
        result = frame.get("result")
        if not isinstance(result, dict):
            raise HerdError("the session's coordinator answered with no object")
        return result

    def _frame(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            data = self._socket.recv(65_536)
            if not data or len(self._buffer) > 2 * DEFAULT_LIMITS.frame_bytes:
                raise ConnectionResetError(0, os.strerror(104))
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        frame: dict[str, Any] = json.loads(line)
        return frame
