"""A peer made by hand, which says exactly what a test tells it to, right or wrong.

Its frames and proofs are written here once more, from the description of the protocol and not with the code
under test. Only the record that registers it is published by the real publisher.
"""

import asyncio
import base64
import json
import os
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from herd.core.identity import SessionName, target_of
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.presence.publisher import Publisher
from herd.presence.record import Presence, Record
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.records import LEAD, instance_of

DOMAIN = "herd.peers.handshake.v1"


class CallEndedError(Exception):
    """The other side ended the connection instead of saying something."""


class Key:
    """A key pair, and the form in which its public half is published."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        der = self._private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.public = base64.b64encode(der).decode()

    def sign(self, data: bytes) -> str:
        """Give a proof."""
        return base64.b64encode(self._private.sign(data)).decode()


class RawPeer:
    """An instance that can prove itself.

    Args:
        session: Whose instance it says to be.
        instance_id: Its id.
        key: Its key.
    """

    publisher: Publisher
    """Writes its record, while it is registered."""

    def __init__(self, session: SessionName, instance_id: str = "", key: Key | None = None) -> None:
        self.session = session
        self.instance_id = instance_id or f"raw-{secrets.token_hex(8)}"
        self.key = key or Key()

    @property
    def target(self) -> str:
        """The target others know the session by."""
        return target_of("lead", self.session.key)

    @contextmanager
    def registered(
        self, layout: Layout, presence: Presence | None = LEAD, **instance: Any
    ) -> Iterator["RawPeer"]:
        """Hold the session's lock and be on record until the block ends."""
        one = instance_of(self.session, self.instance_id, pid=os.getpid())
        one = one._replace(public_key=self.key.public, **instance)
        with HeldLock.acquire(layout.session_lock(self.session.key)) as lock:
            self.publisher = Publisher(layout, lock, one)
            if presence is None:
                self.publisher.announce()
            else:
                self.publisher.publish(presence)
            try:
                yield self
            finally:
                self.publisher.remove()

    async def connect(self, to: Record) -> "RawConnection":
        """Open a connection and say nothing yet."""
        reader, writer = await asyncio.open_unix_connection(to.endpoint, limit=1 << 20)
        return RawConnection(self, to, reader, writer)

    async def proved(self, to: Record) -> "RawConnection":
        """Open a connection and go through the whole handshake."""
        connection = await self.connect(to)
        answer = await connection.handshake()
        assert answer.get("result") == {"authenticated": True, "version": 1}, answer
        return connection

    @asynccontextmanager
    async def listening(self, layout: Layout, **registered: Any) -> AsyncIterator["RawServer"]:
        """Be on record with a socket that takes calls, and let the test answer them."""
        path = os.path.join(layout.run, f"{self.instance_id}.sock")
        server = RawServer(self)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(path)
        os.chmod(path, 0o600)
        with self.registered(layout, endpoint=path, **registered):
            listening = await asyncio.start_unix_server(server.called, sock=sock)
            try:
                yield server
            finally:
                listening.close()
                os.unlink(path)
                await server.close()

    def envelope(self, to: str, content: str = "hello", **changed: Any) -> dict[str, Any]:
        """Give the params of a right `peer.send`; a field given as None is left out."""
        message_id = f"raw-{secrets.token_hex(8)}"
        shape = {
            "version": 1,
            "messageId": message_id,
            "from": {"session": self.target},
            "to": to,
            "content": content,
            "createdAt": 1_700_000_000_000,
            "correlationId": changed.get("messageId", message_id),
            "conversation": {"id": changed.get("messageId", message_id), "depth": 0},
            **changed,
        }
        return {name: value for name, value in shape.items() if value is not None}


class RawServer:
    """The socket of a peer made by hand."""

    def __init__(self, me: RawPeer) -> None:
        self.me = me
        self._calls: asyncio.Queue[RawConnection] = asyncio.Queue()
        self._all: list[RawConnection] = []

    @property
    def calls(self) -> int:
        """How many calls came."""
        return len(self._all)

    async def called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Note a call."""
        connection = RawConnection(self.me, None, reader, writer)
        self._all.append(connection)
        self._calls.put_nowait(connection)

    async def call(self) -> "RawConnection":
        """Give the next call, on which nothing has been answered yet."""
        async with asyncio.timeout(IN_TIME_S):
            return await self._calls.get()

    async def proved(self) -> "RawConnection":
        """Give the next call after the whole handshake; calls that ended before are passed over."""
        while True:
            connection = await self.call()
            with suppress(CallEndedError):
                await connection.answer_handshake()
                return connection

    async def close(self) -> None:
        """End every connection, those included that are just being accepted."""
        for _ in range(10):
            await asyncio.sleep(0)
        for connection in self._all:
            await connection.close()


class RawConnection:
    """One connection on which frames are said and heard one by one."""

    def __init__(
        self, me: RawPeer, to: Record | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.me = me
        self.to = to
        self.nonce = base64.b64encode(secrets.token_bytes(32)).decode()
        self._reader = reader
        self._writer = writer
        self._last_id = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def say_bytes(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._writer.write(data)

    def break_off(self) -> None:
        """End the connection at once, whatever is still to be read."""
        self._writer.transport.abort()

    def say(self, method: str, params: dict[str, Any], request_id: int | None = None) -> None:
        """Write a frame; a notification where no id is given."""
        frame: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            frame["id"] = request_id
        self._writer.write(json.dumps(frame, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")

    def answer(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        """Answer what the other side asked."""
        frame = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        self._writer.write(json.dumps(frame).encode() + b"\n")

    async def heard(self) -> dict[str, Any] | None:
        """Give the next frame; None once the other side has ended the connection."""
        async with asyncio.timeout(IN_TIME_S):
            try:
                line = await self._reader.readline()
            except OSError:
                return None
        return json.loads(line) if line else None

    async def said(self) -> dict[str, Any]:
        """Give the next frame, where there must be one."""
        frame = await self.heard()
        if frame is None:
            raise CallEndedError
        return frame

    async def asked(self) -> dict[str, Any]:
        """Give the next request that the other side makes."""
        while True:
            frame = await self.said()
            if "method" in frame:
                return frame

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask, and give the frame that answers; what the other side asks meanwhile is dropped."""
        self._last_id += 1
        self.say(method, params, self._last_id)
        while True:
            frame = await self.said()
            if "method" not in frame and frame["id"] in {self._last_id, None}:
                return frame

    async def refused(self, method: str, params: dict[str, Any]) -> str:
        """Ask for what must be refused, and give the code."""
        answer = await self.request(method, params)
        assert "error" in answer, answer
        return str(answer["error"]["data"]["code"])

    async def accepted(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask for what must be carried out, and give the result."""
        answer = await self.request(method, params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def hello(self, **changed: Any) -> dict[str, Any]:
        """Give the params of a right hello, but for what is changed."""
        me = self.me
        right = {"version": 1, "instanceId": me.instance_id, "publicKey": me.key.public, "nonce": self.nonce}
        return {**right, **changed}

    def proof(self, hello_result: dict[str, Any], *, domain: str = DOMAIN, role: str = "client") -> str:
        """Give our proof of this handshake."""
        fields = (
            domain,
            "1",
            role,
            self.me.instance_id,
            hello_result["instanceId"],
            self.me.key.public,
            hello_result["publicKey"],
            self.nonce,
            hello_result["nonce"],
        )
        return self.me.key.sign(_prefixed(fields))

    async def handshake(self) -> dict[str, Any]:
        """Prove ourselves, and give the last answer."""
        answer = await self.request("peer.hello", self.hello())
        if "error" in answer:
            return answer
        return await self.request("peer.authenticate", {"proof": self.proof(answer["result"])})

    async def answer_handshake(self, **changed: Any) -> None:
        """Prove ourselves to whoever called; fields of our hello may be changed."""
        hello = await self.asked()
        assert hello["method"] == "peer.hello", hello
        self.answer(hello, {**self.hello_result(hello["params"]), **changed})
        authenticate = await self.asked()
        assert authenticate["method"] == "peer.authenticate", authenticate
        self.answer(authenticate, {"authenticated": True, "version": 1})

    def hello_result(self, caller: dict[str, Any], key: Key | None = None) -> dict[str, Any]:
        """Give the right answer to a hello, signed with our key or another one."""
        fields = (
            DOMAIN,
            "1",
            "server",
            caller["instanceId"],
            self.me.instance_id,
            caller["publicKey"],
            self.me.key.public,
            caller["nonce"],
            self.nonce,
        )
        proof = (key or self.me.key).sign(_prefixed(fields))
        return {**self.hello(), "proof": proof, "capabilities": ["message.send", "message.receive"]}

    def refuse(self, request: dict[str, Any], code: str, **details: Any) -> None:
        """Refuse what the other side asked."""
        error = {"code": -32000, "message": f"{code}: no", "data": {"code": code, **details}}
        frame = {"jsonrpc": "2.0", "id": request["id"], "error": error}
        self._writer.write(json.dumps(frame).encode() + b"\n")

    async def message(self) -> dict[str, Any]:
        """Give the next `peer.send` of the other side; whatever else it asks is refused meanwhile."""
        while True:
            request = await self.asked()
            if request["method"] == "peer.send":
                return request
            # As one of an earlier version, which knows no request for several.
            older = request["method"] == "peer.sendMany"
            self.refuse(request, "METHOD_NOT_FOUND" if older else "UNKNOWN_TARGET")

    def accept(self, request: dict[str, Any], custody_id: str = "raw-custody") -> None:
        """Answer a `peer.send` as a custody that has taken it."""
        sent = request["params"]
        receipt = {"messageId": sent["messageId"], "to": sent["to"], "custodyId": custody_id}
        self.answer(request, {**receipt, "state": "accepted", "cursor": 1, "acceptedAt": 1_700_000_000_000})

    async def ended(self) -> bool:
        """Wait for the other side to end the connection; whatever it still says is dropped."""
        while await self.heard() is not None:
            pass
        return True

    async def close(self) -> None:
        """End the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            return


def _prefixed(fields: Iterable[str]) -> bytes:
    return b"".join(len(field.encode()).to_bytes(4, "big") + field.encode() for field in fields)
