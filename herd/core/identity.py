"""Who is who: session keys, targets, peer ids, names, derived message ids.

All of it is pure. A target or peer id names exactly one session or instance, because it is computed
from what that session or instance is; nobody can choose one.
"""

import hashlib
import json
import re
from functools import lru_cache
from typing import NamedTuple

from herd.core.errors import InvalidParams
from herd.core.limits import HOST_CHARACTERS, SESSION_ID_CHARACTERS

_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_TARGET = re.compile(r"(?:lead|manager):[0-9a-hjkmnp-tv-z]{10}")
_PEER_ID = re.compile(r"peer-[0-9a-f]{32}")
_KEY = re.compile(r"[0-9a-f]{64}")
_HOST = re.compile(r"[a-z][a-z0-9_-]*")
_NOT_IN_NAME = re.compile(r"[^a-z0-9-]+")

_REMEMBERED = 4_096
"""Names computed before that are kept: each is a hash of what it names, so none can grow old."""

TERMINAL = "terminal"
"""The host of the sessions that belong to a person's shells."""

DEFAULT_TERMINAL = "default"
"""The session id of the terminal session that a command line uses unless it says `--as NAME`."""


class SessionName(NamedTuple):
    """What names one saved conversation: the host, its own id, and a creation time where ids are reused."""

    host: str
    session_id: str
    created: str = ""

    @property
    def key(self) -> str:
        """The session key: 64 hex digits that name files, locks and targets."""
        return session_key(self)


def checked_session(host: str, session_id: str, created: str = "") -> SessionName:
    """Give the name of a session.

    Raises:
        InvalidParams: a part is empty, too long or no text, or the host is no lower-case word.
    """
    if not _HOST.fullmatch(host) or len(host) > HOST_CHARACTERS:
        raise InvalidParams(f"host {host[:HOST_CHARACTERS]!r} is no lower-case word such as 'claude' or 'pi'")
    if not 1 <= len(session_id) <= SESSION_ID_CHARACTERS:
        raise InvalidParams(f"session_id has {len(session_id)} characters, not 1 to {SESSION_ID_CHARACTERS}")
    if len(created) > SESSION_ID_CHARACTERS:
        raise InvalidParams(f"created has {len(created)} characters, more than {SESSION_ID_CHARACTERS}")
    if "\0" in session_id or "\0" in created:
        raise InvalidParams("session_id or created has a NUL, which no text of ours has")
    session = SessionName(host, session_id, created)
    try:
        session_key(session)
    except UnicodeEncodeError:
        raise InvalidParams("session_id or created has a lone surrogate, which is no text") from None
    return session


def length_prefixed(*fields: str) -> bytes:
    """Join fields unambiguously: each after its length as four big-endian bytes."""
    encoded = [field.encode() for field in fields]
    return b"".join([len(field).to_bytes(4, "big") + field for field in encoded])


@lru_cache(maxsize=_REMEMBERED)
def session_key(session: SessionName) -> str:
    """Give the session key: SHA-256 over the length-prefixed host, session id and creation time, as hex."""
    return hashlib.sha256(length_prefixed(*session)).hexdigest()


def is_session_key(text: str) -> bool:
    """Tell whether a text has the form of a session key."""
    return _KEY.fullmatch(text) is not None


@lru_cache(maxsize=_REMEMBERED)
def target_of(role: str, key: str) -> str:
    """Give the target of a session in a role: the role, a colon, 50 bits in lower-case Crockford base32."""
    digest = hashlib.sha256(length_prefixed("herd.target.v1", role, key)).digest()
    bits = int.from_bytes(digest[:7], "big") >> 6
    return f"{role}:" + "".join(_CROCKFORD[(bits >> shift) & 31] for shift in range(45, -1, -5))


def is_target(text: str) -> bool:
    """Tell whether a text has the form of a target."""
    return _TARGET.fullmatch(text) is not None


@lru_cache(maxsize=_REMEMBERED)
def peer_id_of(instance_id: str, run_id: str | None = None) -> str:
    """Give the peer id of one exact instance, or of one run inside it."""
    text = json.dumps([instance_id, run_id], separators=(",", ":"), ensure_ascii=False)
    return "peer-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def is_peer_id(text: str) -> bool:
    """Tell whether a text has the form of a peer id."""
    return _PEER_ID.fullmatch(text) is not None


def generated_name(project: str, key: str) -> str:
    """Give the name of a session that chose none: its project, a dash, six digits of its session key.

    The result fits `[A-Za-z][A-Za-z0-9_-]{0,63}`; it stays the same over the session's restarts and differs
    between two sessions of one project.
    """
    base = _NOT_IN_NAME.sub("-", project.lower()).strip("-")[:40].strip("-")
    if not base:
        base = "agent-local"
    elif not base[0].isalpha():
        base = f"agent-{base}"
    return f"{base}-{key[:6]}"


def derived_message_id(sender_key: str, call_id: str) -> str:
    """Give the message id of a tool call, so that the same call made twice is the same message.

    Args:
        sender_key: The session key of the caller.
        call_id: An id of the call that is unique in the session's life; never a JSON-RPC id, which restarts.
    """
    return "call-" + hashlib.sha256(length_prefixed("herd.call.v1", sender_key, call_id)).hexdigest()
