"""The counter of one mailbox: cursors that only rise, and how far the host has been told."""

from pathlib import Path

import pytest

from herd.mail.counter import last_cursor, next_cursor, tell, told
from tests.fakes.mail import BOB, inside, tables
from tests.fakes.records import layout_at


def test_a_new_mailbox_has_seen_nothing_and_told_nothing():
    with tables() as connection:
        assert (last_cursor(connection), told(connection)) == (0, 0)


def test_every_event_takes_the_next_cursor():
    with tables() as connection:
        assert [next_cursor(connection) for _ in range(3)] == [1, 2, 3]
        assert last_cursor(connection) == 3


def test_looking_at_the_counter_takes_nothing():
    with tables() as connection:
        next_cursor(connection)

        assert [last_cursor(connection), last_cursor(connection), told(connection)] == [1, 1, 0]


def test_what_was_told_never_goes_back():
    with tables() as connection:
        for cursor in (5, 2):
            tell(connection, cursor)

        assert told(connection) == 5


def test_a_cursor_that_was_rolled_back_is_given_again_since_nobody_saw_it():
    with tables() as connection:
        connection.execute("BEGIN")
        next_cursor(connection)
        connection.execute("ROLLBACK")

        assert next_cursor(connection) == 1


@pytest.mark.requirement("A-receipts-04")
def test_the_counter_and_what_was_told_outlast_a_restart(home: Path):
    layout = layout_at(home)
    inside(
        layout,
        BOB,
        lambda connection: [next_cursor(connection), next_cursor(connection), tell(connection, 1)],
    )

    assert inside(layout, BOB, lambda connection: (last_cursor(connection), told(connection))) == (2, 1)
    assert inside(layout, BOB, next_cursor) == 3
