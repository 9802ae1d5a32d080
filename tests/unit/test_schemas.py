"""What other sessions and later versions read is pinned to its version number.

A schema that changes needs a new version number, or old and new sessions would misread each other. So each
shape's fingerprint stands here beside the number: whoever changes the one has to look at the other.
"""

import hashlib
import json

import pytest

from herd.core.limits import (
    MAILBOX_APPLICATION_ID,
    MAILBOX_VERSION,
    PROTOCOL_VERSION,
    RECORD_VERSION,
    SESSION_VERSION,
)
from herd.mail.tables import SCRIPTS
from herd.mail.wire import Envelope, ReceiptShape, StatusQuestion
from herd.presence.record import CAPABILITIES, Presence, encode
from herd.presence.scopes import Extent
from herd.presence.session_file import SessionFile
from tests.fakes.records import record_of, session_of


def fingerprint(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def shape_of(value: object) -> object:
    """Give the names and kinds in a JSON value, without the values themselves."""
    if isinstance(value, dict):
        return {name: shape_of(one) for name, one in value.items()}
    return type(value).__name__


FULL = Presence(
    role="lead",
    socket="none",
    cwd="/x",
    name="n",
    repo="r",
    branch="b",
    workspace_label="w",
    activity="idle",
    since=4,
    pane_id="p",
    tab_id="t",
    workspace_id="w",
    scope="repository",
    workspace="/x",
    repository="/x/.git",
    undrained_since=5,
    runs=True,
    group="/x/.git",
)


@pytest.mark.requirement("H-build-08")
@pytest.mark.parametrize(
    ("version", "shape", "pinned"),
    [
        pytest.param(
            PROTOCOL_VERSION,
            [one.model_json_schema(by_alias=True) for one in (Envelope, ReceiptShape, StatusQuestion)],
            (1, "079ad425108cf4ce"),
            id="the wire",
        ),
        pytest.param(
            RECORD_VERSION,
            [shape_of(json.loads(encode(record_of(session_of(1), FULL)))), CAPABILITIES],
            (3, "19469523c8262ddb"),
            id="an instance record",
        ),
        pytest.param(
            SESSION_VERSION, SessionFile._fields + Extent._fields, (3, "e9e1ce4228c14c0e"), id="session.json"
        ),
        pytest.param(
            MAILBOX_VERSION,
            [[script.split() for script in SCRIPTS], MAILBOX_APPLICATION_ID],
            (3, "b961183517ce19a1"),
            id="the mailbox",
        ),
    ],
)
def test_a_schema_changes_only_with_its_version(version, shape, pinned):
    assert (version, fingerprint(shape)) == pinned
