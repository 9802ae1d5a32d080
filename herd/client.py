"""A blocking client of a running coordinator's socket, for command lines and hooks.

It needs no event loop and no cryptography: the session's private token proves it, and the socket's folder,
owner and mode are checked before a byte is sent.
"""

import errno
import json
import os
import socket
import time
from types import TracebackType
from typing import Any, Self

from herd.core.errors import (
    DeliveryUnknown,
    FrameTooLarge,
    InvalidRpc,
    NoSession,
    PeerOffline,
    from_wire,
)
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
        wait_s: Seconds until connecting and proving count as unanswered.

    Raises:
        PeerOffline: nobody listens there any more.
        HerdError: the socket is not safe, or the token was refused.
    """

    def __init__(
        self, layout: Layout, record: Record, *, command: bool = True, wait_s: float = CLIENT_S
    ) -> None:
        checked_endpoint(record.endpoint, record.instance_id)
        token = read_private(layout.token(record.key), TOKEN_BYTES)
        if token is None:
            raise NoSession("the session's token is gone; its coordinator has ended")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(wait_s)
        self._buffer = b""
        self._last_id = 0
        try:
            self._socket.connect(record.endpoint)
            proof = {"token": token.decode(), "command": command}
            self.request("session.authenticate", proof, wait_s=wait_s)
        except (OSError, DeliveryUnknown) as fault:  # nothing was asked for yet that could have been done
            self.close()
            raise PeerOffline(f"the session's coordinator does not answer: {fault}") from fault
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
            FrameTooLarge: it does not fit into a frame; nothing was sent.
            HerdError: the coordinator's refusal, as its own class.
        """
        self._last_id += 1
        frame = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        # Escaped: a lone surrogate, as from an argument that is not UTF-8, is then refused by its field.
        data = json.dumps(frame).encode("ascii")
        if len(data) > DEFAULT_LIMITS.frame_bytes:
            raise FrameTooLarge(f"{method} takes {len(data)} bytes, more than {DEFAULT_LIMITS.frame_bytes}")
        give_up = time.monotonic() + wait_s
        try:
            self._socket.settimeout(wait_s)
            self._socket.sendall(data + b"\n")
            return self._result(self._last_id, give_up)
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

    def _result(self, request_id: int, give_up: float) -> dict[str, Any]:
        while True:
            frame = self._frame(give_up)
            error = frame.get("error")
            if frame.get("id") is None and isinstance(error, dict):
                raise from_wire(error, own=True)  # what was sent was no frame at all
            if frame.get("id") == request_id and "method" not in frame:
                break
        if isinstance(error, dict):
            raise from_wire(error, own=True)
        result = frame.get("result")
        if not isinstance(result, dict):
            raise InvalidRpc("the session's coordinator answered with no object")
        return result

    def _frame(self, give_up: float) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            left = give_up - time.monotonic()
            if left <= 0:
                raise TimeoutError("it did not answer in time")
            self._socket.settimeout(left)
            data = self._socket.recv(65_536)
            if not data or len(self._buffer) > 2 * DEFAULT_LIMITS.frame_bytes:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            frame = json.loads(line)
        except ValueError:
            frame = None
        if not isinstance(frame, dict):
            raise InvalidRpc("the session's coordinator answered with something that is no frame")
        return frame
