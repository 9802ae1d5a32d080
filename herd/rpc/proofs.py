"""What a handshake is made of: key pairs, nonces, and the transcript that both sides sign.

It is pure and ignorant of the handshake's steps (`herd.rpc.handshake`) and of records. The domain string is a
parameter, so that links between machines sign under their own.
"""

import binascii
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from herd.core.errors import AuthenticationFailed
from herd.core.identity import length_prefixed
from herd.core.limits import NONCE_LIFETIME_S, NONCES_REMEMBERED, PROTOCOL_VERSION
from herd.core.public_key import is_public_key

if TYPE_CHECKING:
    from herd.core.clock import Clock

_NONCE_BYTES = 32
_PROOF_BYTES = 64
_SPKI_HEAD = bytes.fromhex("302a300506032b6570032100")
"""What every Ed25519 SPKI begins with (RFC 8410): a sequence, the algorithm, a bit string of 32 bytes."""

Role = Literal["client", "server"]
"""Who signs: the dialling side or the accepting one, so that no proof can be sent back as one's own."""


class KeyPair:
    """An Ed25519 key pair; the private half lives in memory and can be neither shown nor copied.

    Attributes:
        public_key: Canonical base64 (60 characters) of the key's 44-byte SPKI.
    """

    __slots__ = ("_private", "public_key")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        # By its fixed head: the library's own serialization loads every format of keys there is.
        self.public_key = _base64(_SPKI_HEAD + private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> "KeyPair":
        """Make a new pair from the system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> "KeyPair":
        """Make the pair of a 32-byte seed."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    def sign(self, transcript: bytes) -> str:
        """Give the proof of a transcript: canonical base64 (88 characters) of the signature."""
        return _base64(self._private.sign(transcript))

    def __repr__(self) -> str:
        return "<KeyPair>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key pair is never copied, stored or sent")


class Identity(NamedTuple):
    """Who one side is."""

    instance_id: str
    keys: KeyPair


def transcript(
    *,
    domain: str,
    role: Role,
    client_id: str,
    server_id: str,
    client_key: str,
    server_key: str,
    client_nonce: str,
    server_nonce: str,
    version: int = PROTOCOL_VERSION,
) -> bytes:
    """Give the bytes that the side in `role` signs: nine fields, each after its four-byte length."""
    ids_and_keys = (client_id, server_id, client_key, server_key)
    return length_prefixed(domain, str(version), role, *ids_and_keys, client_nonce, server_nonce)


def verify(public_key: str, transcript: bytes, proof: Any) -> None:
    """Check that the holder of a key signed a transcript.

    Raises:
        AuthenticationFailed: the key or the proof has another form, or the proof is of something else.
    """
    signature = _decoded(proof, _PROOF_BYTES)
    if signature is None:
        raise AuthenticationFailed("proof is no canonical base64 of a 64-byte signature")
    der = binascii.a2b_base64(checked_public_key(public_key))
    try:
        Ed25519PublicKey.from_public_bytes(der[len(_SPKI_HEAD) :]).verify(signature, transcript)
    except (InvalidSignature, ValueError):
        raise AuthenticationFailed("proof was not made with this key for this handshake") from None


def checked_public_key(text: Any) -> str:
    """Give a public key back if it is canonical base64 of a 44-byte Ed25519 SPKI.

    Raises:
        AuthenticationFailed: it is not.
    """
    if not isinstance(text, str) or not is_public_key(text):
        raise AuthenticationFailed("publicKey is no canonical base64 of an Ed25519 key")
    return text


def new_nonce() -> str:
    """Make a nonce: 32 random bytes in canonical base64 (44 characters)."""
    return _base64(secrets.token_bytes(_NONCE_BYTES))


def checked_nonce(text: Any) -> str:
    """Give a nonce back if it is canonical base64 of 32 bytes.

    Raises:
        AuthenticationFailed: it is not.
    """
    if _decoded(text, _NONCE_BYTES) is None:
        raise AuthenticationFailed("nonce is no canonical base64 of 32 bytes")
    return str(text)


class NonceMemory:
    """The nonces that one coordinator has used or seen, so that none counts twice.

    Args:
        clock: What lifetimes are counted by.
        size: Nonces kept at most; the one remembered longest ago is forgotten first.
        lifetime_s: Seconds for which a nonce is kept.
    """

    def __init__(
        self, clock: "Clock", size: int = NONCES_REMEMBERED, lifetime_s: float = NONCE_LIFETIME_S
    ) -> None:
        self._clock = clock
        self._size = size
        self._lifetime_s = lifetime_s
        self._since: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._since)

    def remember(self, nonce: str) -> None:
        """Take note of a nonce.

        Raises:
            AuthenticationFailed: it is remembered already.
        """
        now = self._clock.elapsed()
        self._forget_older(now - self._lifetime_s)
        if nonce in self._since:
            raise AuthenticationFailed("nonce was used before")
        self._since[nonce] = now
        if len(self._since) > self._size:
            self._since.popitem(last=False)

    def _forget_older(self, instant: float) -> None:
        while self._since and next(iter(self._since.values())) <= instant:
            self._since.popitem(last=False)


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _decoded(text: Any, size: int) -> bytes | None:
    """Give the bytes of a canonical base64 text of exactly that size, else None."""
    if not isinstance(text, str):
        return None
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except ValueError:
        return None
    # Strict mode still takes different texts for the same bytes: the unused bits of the last character.
    return data if len(data) == size and _base64(data) == text else None
