"""What other sessions and later versions read is pinned to its version number.

A schema that changes needs a new version number, or old and new sessions would misread each other. So each
shape's fingerprint stands here beside the number: whoever changes the one has to look at the other.
"""

import hashlib
import json

import pytest

from herd.core.build import Build
from herd.core.identity import SessionName
from herd.core.limits import (
    MAILBOX_APPLICATION_ID,
    MAILBOX_VERSION,
    PROTOCOL_VERSION,
    RECORD_VERSION,
    SESSION_VERSION,
)
from herd.core.locks import Owner
from herd.mail.tables import TABLES
from herd.mail.wire import Envelope, ReceiptShape, StatusQuestion
from herd.presence.record import CAPABILITIES, Presence, Record, encode
from herd.presence.session_file import SessionFile


def fingerprint(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def shape_of(value: object) -> object:
    """Give the names and kinds in a JSON value, without the values themselves."""
    if isinstance(value, dict):
        return {name: shape_of(one) for name, one in value.items()}
    return type(value).__name__


def a_record() -> Record:
    return Record(
        session=SessionName("claude", "1"),
        kind="ordinary",
        claim=Owner(2, "start", "id"),
        host_pid=3,
        host_start="start",
        instance_id="instance",
        protocol=1,
        endpoint="/run/x.sock",
        public_key="k",
        capabilities=("message.send",),
        build=Build("0", "0" * 64),
        presence=Presence(*("x",) * 8, 4, *("x",) * 3),
    )


@pytest.mark.requirement("H-build-08")
@pytest.mark.parametrize(
    ("version", "shape", "pinned"),
    [
        pytest.param(
            PROTOCOL_VERSION,
            [one.model_json_schema(by_alias=True) for one in (Envelope, ReceiptShape, StatusQuestion)],
            (1, "WIRE"),
            id="the wire",
        ),
        pytest.param(
            RECORD_VERSION,
            [shape_of(json.loads(encode(a_record()))), CAPABILITIES],
            (1, "RECORD"),
            id="an instance record",
        ),
        pytest.param(SESSION_VERSION, SessionFile._fields, (1, "SESSION"), id="session.json"),
        pytest.param(
            MAILBOX_VERSION, [TABLES.split(), MAILBOX_APPLICATION_ID], (1, "MAILBOX"), id="the mailbox"
        ),
    ],
)
def test_a_schema_changes_only_with_its_version(version, shape, pinned):
    assert (version, fingerprint(shape)) == pinned
