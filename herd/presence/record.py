"""The instance record `peers/<session key>.json`: its exact schema, read and written as values.

A record holds one instance (its process, socket, key, capabilities) for as long as the coordinator lives,
and inside it the presence, only while the session may be listed. It is an observation: nothing here says
what a session may do. Whether the instance lives is the registry's question, and a kernel lock answers it.
"""

import json
from typing import Any

from herd.core.build import Build
from herd.core.errors import InvalidParams
from herd.core.identity import SessionName, checked_session
from herd.core.limits import (
    CWD_CHARACTERS,
    ENDPOINT_PATH_CHARACTERS,
    LABEL_CHARACTERS,
    MOMENT_MS,
    PLACE_ID_BYTES,
    RECORD_BYTES,
    RECORD_CAPABILITIES,
    RECORD_VERSION,
)
from herd.core.locks import Owner
from herd.core.public_key import is_public_key
from herd.presence.fields import Fields, Malformed, read_fields
from herd.presence.plain import plain_record
from herd.presence.scopes import SCOPES
from herd.presence.values import (
    ACTIVITIES,
    CAPABILITIES,
    KINDS,
    OF_SESSIONS,
    RECEIVE,
    ROLES,
    SEND,
    WAIT,
    Presence,
    Record,
)

__all__ = [
    "CAPABILITIES",
    "OF_SESSIONS",
    "RECEIVE",
    "SEND",
    "WAIT",
    "Malformed",
    "Presence",
    "Record",
    "clipped",
    "decode",
    "encode",
]

_LEFT_OUT_FIRST = ("workspace_label", "branch", "repo", "name", "cwd", "repository", "workspace", "group")
"""What a record too long goes without, in this order; without an id a session is in fewer scopes."""


def encode(record: Record) -> bytes:
    """Give the file's bytes: at most `RECORD_BYTES`, by leaving out labels and then ids that would burst it.

    Raises:
        InvalidParams: what is left is no record that a reader would accept; the message names the field.
    """
    data = _json(record)
    for label in _LEFT_OUT_FIRST:
        if len(data) <= RECORD_BYTES or record.presence is None:
            break
        bare: dict[str, Any] = {label: None}
        record = record._replace(presence=record.presence._replace(**bare))
        data = _json(record)
    try:
        decode(data, record.key)
    except Malformed as fault:
        # Every reader would pass over it, and the session would be missing without a word.
        raise InvalidParams(f"the record of this session {fault}") from None
    return data


def decode(data: bytes, key: str) -> Record:
    """Read a record's bytes.

    Args:
        data: The whole file.
        key: The session key in the file's name; the session inside must have it.

    Raises:
        Malformed: any field is missing, unknown, mistyped or out of range.
    """
    if len(data) > RECORD_BYTES:
        raise Malformed(f"has {len(data)} bytes, more than {RECORD_BYTES}")
    # Nearly every record is plain. Whatever is not is read with care, which alone says what is wrong with it.
    record = plain_record(data) or _read(read_fields(data))
    if record.key != key:
        raise Malformed("names another session than its file does")
    if (record.presence is None) != (record.claim.id is None):
        raise Malformed("has a presence without a claim, or a claim without a presence")
    return record


def _read(fields: Fields) -> Record:
    version = fields.integer("version")
    if version != RECORD_VERSION:
        raise Malformed(f"has version {version}, not {RECORD_VERSION}")
    record = Record(
        session=_session(fields.inner("session")),
        kind=fields.one_of("kind", KINDS),
        claim=_claim(fields.inner("claim")),
        **_host(fields.inner("host")),
        **_instance(fields.inner("instance")),
        build=_build(fields.inner("build")),
        presence=_presence(fields.inner("presence")) if fields.has("presence") else None,
    )
    fields.end()
    return record


def clipped(label: str | None, limit: int = LABEL_CHARACTERS) -> str | None:
    """Cut a label to what a record may carry, without NUL and lone surrogates; a blank one is none."""
    kept = (label or "")[:limit].replace("\0", "?").encode("utf-8", "replace").decode()
    return kept if kept.strip() else None


def _json(record: Record) -> bytes:
    shape: dict[str, Any] = {
        "version": RECORD_VERSION,
        "session": record.session._asdict(),
        "kind": record.kind,
        "claim": record.claim._asdict(),
        "host": {"pid": record.host_pid, "start": record.host_start},
        "instance": {
            "id": record.instance_id,
            "protocol": record.protocol,
            "socket": record.endpoint,
            "public_key": record.public_key,
            "capabilities": list(record.capabilities),
        },
        "build": record.build._asdict(),
    }
    if record.presence is not None:
        shape["presence"] = {k: v for k, v in record.presence._asdict().items() if v is not None}
    text = json.dumps(shape, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate becomes the escape of itself, so that the check of what was written names its field.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _session(fields: Fields) -> SessionName:
    session = SessionName(fields.text("host"), fields.text("session_id"), fields.text("created", least=0))
    fields.end()
    try:
        return checked_session(*session)
    except InvalidParams as refusal:
        raise Malformed(str(refusal)) from None


def _claim(fields: Fields) -> Owner:
    claim = Owner(fields.integer("pid", least=1), fields.text("start"), fields.text_or_null("id"))
    fields.end()
    return claim


def _host(fields: Fields) -> dict[str, Any]:
    host = {"host_pid": fields.integer("pid"), "host_start": fields.text("start", least=0)}
    fields.end()
    return host


def _instance(fields: Fields) -> dict[str, Any]:
    instance: dict[str, Any] = {
        "instance_id": fields.text("id", most=128),
        "protocol": fields.integer("protocol", least=1),
        "endpoint": fields.text("socket", most=ENDPOINT_PATH_CHARACTERS),
        "public_key": fields.text("public_key"),
        "capabilities": tuple(fields.texts("capabilities", CAPABILITIES, most=RECORD_CAPABILITIES)),
    }
    fields.end()
    if not is_public_key(instance["public_key"]):
        raise Malformed("has a public_key that is no canonical Ed25519 SPKI")
    return instance


def _build(fields: Fields) -> Build:
    build = Build(fields.text("version", most=128), fields.text("sha256", least=64, most=64))
    fields.end()
    return build


def _presence(fields: Fields) -> Presence:
    presence = Presence(
        role=fields.one_of("role", ROLES),
        socket=fields.text("socket", most=CWD_CHARACTERS),
        cwd=fields.optional_text("cwd", most=CWD_CHARACTERS),
        activity=fields.one_of("activity", ACTIVITIES) if fields.has("activity") else None,
        since=fields.integer("since", most=MOMENT_MS) if fields.has("since") else None,
        undrained_since=(
            fields.integer("undrained_since", most=MOMENT_MS) if fields.has("undrained_since") else None
        ),
        runs=fields.true("runs") if fields.has("runs") else None,
        **{label: fields.optional_text(label) for label in ("name", "repo", "branch", "workspace_label")},
        **{native: fields.optional_text(native) for native in ("pane_id", "tab_id", "workspace_id")},
        scope=fields.one_of("scope", SCOPES),
        **{
            place: fields.optional_text(place, most=PLACE_ID_BYTES)
            for place in ("workspace", "repository", "group")
        },
    )
    fields.end()
    return presence
