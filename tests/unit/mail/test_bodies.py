"""Bodies in a mailbox: with their row, counted as what they take up, and gone with its text."""

from pathlib import Path

import pytest

from herd.core.errors import QueueFull
from herd.core.moments import Moment
from herd.mail import acceptance, inbox, outbox, retention
from herd.mail.outbox import Outgoing
from herd.mail.parts import Binding, Bodies, Part, Parts
from herd.mail.wire import Envelope, read_envelope
from tests.fakes.bounds import UNHURRIED
from tests.fakes.mail import BOB, NOW, admission, opened, outgoing, params, sender
from tests.fakes.records import layout_at

TEXT = b"x" * 100_000
ONE = Binding("result:builder#1", "result:call-1")
PARTS = Parts(Part.of(TEXT), (Part.of(b"found", ONE.ref),), (ONE,))
BODIES = Bodies(PARTS, {0: TEXT, 1: b"found"})
LATER = Moment("boot", NOW + 1, NOW + 1)


def message() -> Envelope:
    shape = params(**PARTS.shape())
    del shape["content"]
    return read_envelope(shape)


def row() -> Outgoing:
    return outgoing(content="", parts=PARTS.text())


def counted(connection, *tables: str) -> list[int]:
    return [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]


@pytest.mark.requirement("H-files-12")
def test_the_bodies_of_a_received_message_go_when_retention_takes_its_text(home: Path):
    with opened(layout_at(home), BOB) as connection:
        acceptance.accept(connection, message(), sender(), admission(), BODIES)
        inbox.confirm(connection, [1], "hook", NOW)
        assert counted(connection, "bodies", "chunks", "bindings") == [2, 3, 1]
        retention.note_resolved(connection, LATER)
        assert retention.strip(connection, LATER, 0) == 1

        assert counted(connection, "inbox", "bodies", "chunks", "bindings") == [1, 0, 0, 0]


def test_the_bodies_of_a_sent_message_go_as_soon_as_it_is_settled(home: Path):
    with opened(layout_at(home), BOB) as connection:
        outbox.enqueued(connection, row(), UNHURRIED, BODIES.data)
        assert counted(connection, "bodies", "chunks") == [2, 3]
        stored = outbox.required(connection, "m-1")
        assert outbox.bodies_of(connection, stored) == BODIES
        outbox.reject(connection, "m-1", "CANCELLED", NOW)

        assert counted(connection, "bodies", "chunks") == [0, 0]


def test_bodies_count_as_what_a_mailbox_takes_up(home: Path):
    little = UNHURRIED._replace(storage_bytes=250_000)
    with opened(layout_at(home), BOB) as connection:
        with pytest.raises(QueueFull):
            outbox.enqueued(connection, row(), little, {**BODIES.data, 0: TEXT * 2})
        with pytest.raises(QueueFull):
            acceptance.accept(connection, message(), sender(), admission(storage_bytes=200_000), BODIES)

        assert counted(connection, "inbox", "outbox", "bodies", "chunks") == [0, 0, 0, 0]
