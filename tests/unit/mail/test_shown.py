"""What was shown to a session: by exact target, bounded, and never forgotten while there is mail."""

import sqlite3

import pytest

from herd.core.identity import SessionName
from herd.core.limits import SHOWN_PEERS
from herd.mail import acceptance, outbox, shown
from herd.mail.shown import Shown
from tests.fakes.mail import (
    ALICE,
    BOB,
    CAROL,
    CUSTODY,
    NOW,
    admission,
    envelope,
    outgoing,
    sender,
    tables,
    target,
)


def peer(session: SessionName, name: str | None = "api-worker") -> Shown:
    return Shown(target(session), session.key, name)


def many(count: int) -> list[Shown]:
    return [Shown(f"lead:{number:010}", f"{number:064}", None) for number in range(count)]


def test_what_was_never_shown_is_unknown():
    with tables() as connection:
        assert shown.find(connection, target(ALICE)) is None
        assert shown.every(connection) == {}


def test_what_was_shown_is_found_by_its_exact_target_alone():
    with tables() as connection:
        shown.remember(connection, [peer(ALICE), peer(BOB, None)], NOW)

        assert shown.find(connection, target(ALICE)) == peer(ALICE)
        assert shown.every(connection) == {target(ALICE): peer(ALICE), target(BOB): peer(BOB, None)}
        for other in (target(ALICE).upper(), ALICE.key, "api-worker", "", "%"):
            assert shown.find(connection, other) is None


def test_a_target_shown_once_keeps_its_session_and_takes_the_newest_name():
    with tables() as connection:
        shown.remember(connection, [peer(ALICE)], NOW)
        shown.remember(connection, [Shown(target(ALICE), BOB.key, "renamed")], NOW + 1)

        assert shown.find(connection, target(ALICE)) == peer(ALICE, "renamed")


def test_showing_nothing_changes_nothing():
    with tables() as connection:
        shown.remember(connection, [], NOW)

        assert shown.every(connection) == {}


def full(connection: sqlite3.Connection) -> None:
    """Show as many peers as are remembered, the first of them longest ago."""
    for number, one in enumerate(many(SHOWN_PEERS)):
        shown.remember(connection, [one], NOW + number)


def test_beyond_the_bound_the_one_shown_longest_ago_is_forgotten():
    with tables() as connection:
        full(connection)
        assert len(shown.every(connection)) == SHOWN_PEERS

        shown.remember(connection, [peer(ALICE)], NOW + SHOWN_PEERS)

        left = shown.every(connection)
        assert len(left) == SHOWN_PEERS
        assert many(1)[0].target not in left
        assert target(ALICE) in left


def test_showing_a_peer_again_makes_it_the_newest():
    with tables() as connection:
        full(connection)
        first, second = many(2)
        shown.remember(connection, [first], NOW + SHOWN_PEERS)
        shown.remember(connection, [peer(ALICE)], NOW + SHOWN_PEERS + 1)

        left = shown.every(connection)
        assert first.target in left
        assert second.target not in left


@pytest.mark.requirement("A-limits-19")
def test_a_peer_with_mail_in_either_direction_is_not_forgotten_for_a_new_one():
    with tables() as connection:
        acceptance.accept(connection, envelope(), sender(ALICE), admission(CUSTODY, 32, NOW - 2))
        outbox.enqueue(connection, outgoing("m-2", to=CAROL))
        shown.remember(connection, [peer(CAROL)], NOW - 1)
        full(connection)

        shown.remember(connection, [peer(BOB)], NOW + SHOWN_PEERS)

        left = shown.every(connection)
        assert {target(ALICE), target(CAROL), target(BOB)} <= left.keys()
        assert len(left) == SHOWN_PEERS + 2
