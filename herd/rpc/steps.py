"""What both sides of a handshake share: the order of the steps, and the form of what they carry.

It is pure, and ignorant of keys and signatures (`herd.rpc.proofs`).
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from herd.core.errors import AuthenticationFailed, InvalidParams, UnsupportedProtocol
from herd.core.limits import INSTANCE_ID_CHARACTERS, PROTOCOL_VERSION, SHOWN_CHARACTERS

_INSTANCE_ID = re.compile(rf"[A-Za-z0-9-]{{1,{INSTANCE_ID_CHARACTERS}}}")

HELLO_FIELDS = frozenset({"version", "instanceId", "publicKey", "nonce"})
"""What `peer.hello` carries."""

HELLO_RESULT_FIELDS = HELLO_FIELDS | {"proof", "capabilities"}
"""What answers `peer.hello`."""

Refusal = type[AuthenticationFailed] | type[InvalidParams]
"""How a malformed field is refused: as the caller's params, or as a proof that the server did not give."""


class Step(Enum):
    """A step that is due next, or what became of the handshake."""

    HELLO = "hello"
    AUTHENTICATE = "authenticate"
    FINISH = "finish"
    DONE = "done"
    FAILED = "failed"


class Steps:
    """The order of steps: each once, in turn; whatever goes wrong ends the handshake for good."""

    def __init__(self) -> None:
        self._next = Step.HELLO

    def take(self, step: Step) -> None:
        """Begin a step; until `then` says what is due next, the handshake counts as failed.

        Raises:
            AuthenticationFailed: another step, or none, was due.
        """
        due, self._next = self._next, Step.FAILED
        if due is not step:
            raise AuthenticationFailed(f"the handshake's step {step.value} came out of order or twice")

    def then(self, step: Step) -> None:
        """Say which step is due, now that the one begun has succeeded."""
        self._next = step

    @property
    def done(self) -> bool:
        """Whether every step has succeeded."""
        return self._next is Step.DONE


def check_version(fields: Mapping[str, Any], refusal: Refusal) -> None:
    """Check `version`, before anything else: a later version may well have other fields.

    Raises:
        UnsupportedProtocol: it is another one than ours.
    """
    version = fields.get("version")
    if type(version) is not int:
        raise refusal("version is missing or no integer")
    if version != PROTOCOL_VERSION:
        shown = str(version)[:SHOWN_CHARACTERS]
        raise UnsupportedProtocol(f"the other side speaks protocol version {shown}, not {PROTOCOL_VERSION}")


def check_fields(fields: Mapping[str, Any], names: Iterable[str], refusal: Refusal) -> None:
    """Check that exactly these fields are there."""
    wrong = set(names) ^ fields.keys()
    if wrong:
        raise refusal(f"missing or extra fields: {', '.join(sorted(map(ascii, wrong)))[:SHOWN_CHARACTERS]}")


def checked_instance_id(value: Any) -> str:
    """Give an instance id back if it has the form of one, so that it can name a file.

    Raises:
        InvalidParams: it has not.
    """
    if not isinstance(value, str) or not _INSTANCE_ID.fullmatch(value):
        raise InvalidParams(
            f"instanceId is no text of 1 to {INSTANCE_ID_CHARACTERS} letters, digits and dashes"
        )
    return value
