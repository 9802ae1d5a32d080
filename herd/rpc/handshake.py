"""The handshake: how two sides of one connection prove who they are before anything else is said.

It owns what each step says and checks. It is pure: it reads and writes no socket and no record.
The domain string and the keys are parameters, so that links between machines use it too. It does not guard
against a hostile process of the same user, which could read whatever this one reads.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from herd.core.errors import AuthenticationFailed, InvalidParams
from herd.core.limits import PROTOCOL_VERSION
from herd.rpc.proofs import (
    Identity,
    KeyPair,
    NonceMemory,
    Role,
    checked_nonce,
    checked_public_key,
    new_nonce,
    transcript,
    verify,
)
from herd.rpc.steps import (
    HELLO_FIELDS,
    HELLO_RESULT_FIELDS,
    Step,
    Steps,
    check_fields,
    check_version,
    checked_instance_id,
)

__all__ = [
    "DOMAIN",
    "ClientHandshake",
    "Identity",
    "KeyPair",
    "NonceMemory",
    "ServerHandshake",
    "checked_nonce",
    "checked_public_key",
    "new_nonce",
    "transcript",
    "verify",
]

DOMAIN = "herd.peers.handshake.v1"
"""What our peers sign under; a signature made under any other domain fails here."""


class ClientHandshake:
    """The dialling side of one handshake.

    Args:
        identity: Who dials.
        server_id: The instance that the record names.
        server_key: The public key that the record names.
        nonces: The memory of this coordinator.
        domain: What both sides sign under.
    """

    def __init__(
        self, identity: Identity, server_id: str, server_key: str, nonces: NonceMemory, domain: str = DOMAIN
    ) -> None:
        self._identity = identity
        self._server_id = server_id
        self._server_key = server_key
        self._nonces = nonces
        self._domain = domain
        self._nonce = new_nonce()
        self._steps = Steps()

    def hello(self) -> dict[str, Any]:
        """Give the params of `peer.hello`."""
        self._steps.take(Step.HELLO)
        self._nonces.remember(self._nonce)
        self._steps.then(Step.AUTHENTICATE)
        return _introduction(self._identity, self._nonce)

    def authenticate(self, hello_result: Mapping[str, Any]) -> dict[str, Any]:
        """Check what `peer.hello` answered and give the params of `peer.authenticate`.

        Raises:
            AuthenticationFailed: the answer is malformed, names another instance or key than the record,
                repeats a nonce, or its proof fails.
            UnsupportedProtocol: the server speaks another version.
        """
        self._steps.take(Step.AUTHENTICATE)
        check_version(hello_result, AuthenticationFailed)
        check_fields(hello_result, HELLO_RESULT_FIELDS, AuthenticationFailed)
        if (hello_result["instanceId"], hello_result["publicKey"]) != (self._server_id, self._server_key):
            raise AuthenticationFailed("the server is another instance, or has another key, than its record")
        if not isinstance(hello_result["capabilities"], list):
            raise AuthenticationFailed("capabilities is no list")
        server_nonce = checked_nonce(hello_result["nonce"])
        self._nonces.remember(server_nonce)
        verify(self._server_key, self._transcript("server", server_nonce), hello_result["proof"])
        self._steps.then(Step.FINISH)
        return {"proof": self._identity.keys.sign(self._transcript("client", server_nonce))}

    def finish(self, result: Mapping[str, Any]) -> None:
        """Check what `peer.authenticate` answered; afterwards the connection may be used.

        Raises:
            AuthenticationFailed: it does not say that we are authenticated.
            UnsupportedProtocol: it names another version.
        """
        self._steps.take(Step.FINISH)
        check_version(result, AuthenticationFailed)
        check_fields(result, {"authenticated", "version"}, AuthenticationFailed)
        if result["authenticated"] is not True:
            raise AuthenticationFailed("the server did not accept our proof")
        self._steps.then(Step.DONE)

    def _transcript(self, role: Role, server_nonce: str) -> bytes:
        return transcript(
            domain=self._domain,
            role=role,
            client_id=self._identity.instance_id,
            server_id=self._server_id,
            client_key=self._identity.keys.public_key,
            server_key=self._server_key,
            client_nonce=self._nonce,
            server_nonce=server_nonce,
        )


class _Caller(NamedTuple):
    """Who says it is calling, and the nonces of this handshake."""

    instance_id: str
    key: str
    nonce: str
    our_nonce: str


class ServerHandshake:
    """The accepting side of one handshake.

    Args:
        identity: Who accepts.
        nonces: The memory of this coordinator.
        find_key: Gives the public key on record for an instance, None where none is; asked at both steps.
        capabilities: What `peer.hello` says we can do; it decides nothing.
        domain: What both sides sign under.
    """

    def __init__(
        self,
        identity: Identity,
        nonces: NonceMemory,
        find_key: Callable[[str], str | None],
        capabilities: Iterable[str],
        domain: str = DOMAIN,
    ) -> None:
        self._identity = identity
        self._nonces = nonces
        self._find_key = find_key
        self._capabilities = list(capabilities)
        self._domain = domain
        self._steps = Steps()
        self._caller: _Caller | None = None

    @property
    def authenticated(self) -> bool:
        """Whether both proofs have verified."""
        return self._steps.done

    @property
    def peer_instance_id(self) -> str:
        """The instance that the caller proved to be; AuthenticationFailed before it did."""
        return self._proven().instance_id

    @property
    def peer_key(self) -> str:
        """The public key that the caller proved to hold; AuthenticationFailed before it did."""
        return self._proven().key

    def hello(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `peer.hello`.

        Raises:
            AuthenticationFailed: out of turn, not on record with that key, or a nonce malformed or used.
            InvalidParams: a field is missing, extra or mistyped.
            UnsupportedProtocol: the caller speaks another version.
        """
        self._steps.take(Step.HELLO)
        check_version(params, InvalidParams)
        check_fields(params, HELLO_FIELDS, InvalidParams)
        instance_id = checked_instance_id(params["instanceId"])
        key = checked_public_key(params["publicKey"])
        nonce = checked_nonce(params["nonce"])
        self._check_record(instance_id, key)
        self._nonces.remember(nonce)
        our_nonce = new_nonce()
        self._nonces.remember(our_nonce)
        self._caller = caller = _Caller(instance_id, key, nonce, our_nonce)
        self._steps.then(Step.AUTHENTICATE)
        proof = self._identity.keys.sign(self._transcript("server", caller))
        more = {"proof": proof, "capabilities": self._capabilities}
        return _introduction(self._identity, our_nonce) | more

    def authenticate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `peer.authenticate`.

        Raises:
            AuthenticationFailed: out of turn, no longer on record with that key, or the proof fails.
            InvalidParams: a field is missing, extra or mistyped.
        """
        self._steps.take(Step.AUTHENTICATE)
        check_fields(params, {"proof"}, InvalidParams)
        caller = self._caller
        assert caller, "the step hello sets it"
        self._check_record(caller.instance_id, caller.key)
        verify(caller.key, self._transcript("client", caller), params["proof"])
        self._steps.then(Step.DONE)
        return {"authenticated": True, "version": PROTOCOL_VERSION}

    def _proven(self) -> _Caller:
        if not self._steps.done or self._caller is None:
            raise AuthenticationFailed("the other side has not proved who it is")
        return self._caller

    def _check_record(self, instance_id: str, key: str) -> None:
        if self._find_key(instance_id) != key:
            raise AuthenticationFailed(f"instance {instance_id} is not on record with this key")

    def _transcript(self, role: Role, caller: _Caller) -> bytes:
        return transcript(
            domain=self._domain,
            role=role,
            client_id=caller.instance_id,
            server_id=self._identity.instance_id,
            client_key=caller.key,
            server_key=self._identity.keys.public_key,
            client_nonce=caller.nonce,
            server_nonce=caller.our_nonce,
        )


def _introduction(identity: Identity, nonce: str) -> dict[str, Any]:
    return {
        "version": PROTOCOL_VERSION,
        "instanceId": identity.instance_id,
        "publicKey": identity.keys.public_key,
        "nonce": nonce,
    }
