"""The status of an assignment, by an independent table of what may be seen around it."""

import json
from itertools import product

import pytest

from assignments.record import encode
from assignments.status import ACTIVE, CONFLICT, PAUSED, Surroundings, Worker, status_of
from tests.fakes.assignments import assignment_of

MINE = assignment_of(socket="/run/herdr.sock")
KEY = MINE.session.key
HERE, THERE = "w1", "w2"
OWN = Worker(KEY, MINE.socket, HERE)
OTHER = Worker("0" * 64, MINE.socket, HERE)


@pytest.mark.requirement("H-assign-11")
@pytest.mark.parametrize(
    ("worktrees", "own", "others"),
    list(
        product(
            (None, 0, 1, 2),
            ((), (HERE,), (THERE,), (None,), (HERE, HERE)),
            ((), (HERE,), (THERE,), (None,)),
        )
    ),
)
def test_the_status_is_worked_out_from_what_is_seen(
    worktrees: int | None, own: tuple[str | None, ...], others: tuple[str | None, ...]
):
    workers = [OWN._replace(place=place) for place in own] + [OTHER._replace(place=place) for place in others]
    wrong = worktrees == 2 or len(own) == 2 or own == (THERE,) or others == (HERE,)
    expected = CONFLICT if wrong else ACTIVE if own else PAUSED

    assert status_of(MINE, Surroundings(workers, HERE, worktrees)) == expected


def test_where_the_place_is_not_known_nobody_is_outside_of_it_or_in_it():
    workers = [OWN._replace(place=THERE), OTHER]

    assert status_of(MINE, Surroundings(workers)) == ACTIVE
    assert status_of(MINE, Surroundings(workers[1:])) == PAUSED


def test_a_session_on_another_socket_is_in_conflict_and_a_stranger_there_disturbs_nobody():
    elsewhere = {"socket": "/run/other.sock"}

    assert status_of(MINE, Surroundings([OWN._replace(**elsewhere)], HERE)) == CONFLICT
    assert status_of(MINE, Surroundings([OWN, OTHER._replace(**elsewhere)], HERE)) == ACTIVE


@pytest.mark.requirement("H-assign-11")
def test_no_status_is_kept_with_the_assignment():
    assert not {ACTIVE, PAUSED, CONFLICT, "status"} & set(json.loads(encode(MINE)))
    assert not {"status", "state", "active"} & set(MINE._fields)
