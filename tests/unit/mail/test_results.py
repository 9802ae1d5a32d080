"""Results and their references: what means a result to a session, and what makes room."""

import sqlite3
from collections.abc import Iterator

import pytest

from herd.core.errors import AmbiguousTarget, RecoveryRequired, RequestIdConflict
from herd.core.limits import RESULTS_BYTES, RESULTS_KEPT
from herd.mail import acceptance, inbox, results
from herd.mail.parts import Binding, Bodies, Part, Parts
from herd.mail.results import Result
from tests.fakes.mail import BOB, admission, envelope, sender, tables, target

ONE = Binding("result:builder#1", "result:call-1")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with tables() as one:
        one.execute("PRAGMA foreign_keys = ON")
        yield one


def accepted(
    connection: sqlite3.Connection,
    text: bytes = b"found",
    binding: Binding = ONE,
    message_id: str = "m-1",
) -> None:
    """Let a message come with an attached result."""
    parts = Parts(None, (Part.of(text, binding.ref),), (binding,))
    message = envelope(message_id, **parts.shape())
    acceptance.accept(connection, message, sender(), admission(), Bodies(parts, {1: text}))


@pytest.mark.requirement("H-files-01", "H-files-02")
def test_a_result_is_found_by_both_its_references(connection):
    results.register(connection, ONE, None, b"found")

    for reference in ONE:
        assert results.find(connection, reference) == Result(ONE, b"found")
    for other in ("result:builder#2", "result:call-2", "builder#1", "result:builder"):
        assert results.find(connection, other) is None


@pytest.mark.requirement("H-files-02")
def test_a_semantic_reference_means_nothing_on_another_branch(connection):
    results.register(connection, ONE, "left", b"found")

    assert results.find(connection, ONE.ref, ["trunk", "left"]) is not None
    assert results.find(connection, ONE.ref, ["trunk", "right"]) is None
    assert results.find(connection, ONE.ref, []) is None
    assert results.find(connection, ONE.ref, None) is not None  # a host without branches: all of it
    assert results.find(connection, ONE.canonical, ["right"]) is not None


@pytest.mark.requirement("H-files-03", "H-files-05")
def test_what_came_attached_can_be_attached_once_it_was_given(connection):
    accepted(connection)
    assert [results.find(connection, reference) for reference in ONE] == [None, None]

    inbox.count_handovers(connection, [1], 5)

    assert [results.find(connection, reference) for reference in ONE] == [Result(ONE, b"found")] * 2
    connection.execute("DELETE FROM inbox")
    assert [results.find(connection, reference) for reference in ONE] == [None, None]


def test_a_message_rejected_at_its_delivery_is_evidence_of_nothing(connection):
    accepted(connection)
    inbox.count_handovers(connection, [1], 5)
    inbox.refuse(connection, 1, "ELIGIBILITY_DENIED", 5)

    assert results.find(connection, ONE.canonical) is None


def test_the_same_call_keeps_its_reference_and_no_other_text_gets_it(connection):
    assert results.register(connection, ONE, None, b"found") == ONE
    again = Binding("result:builder#2", ONE.canonical)

    assert results.register(connection, again, None, b"found") == ONE
    with pytest.raises(RequestIdConflict):
        results.register(connection, again, None, b"other")
    assert results.registered(connection, "result:call-2", "builder", b"found") is None


def test_the_same_call_is_no_result_of_another_agent(connection):
    results.register(connection, ONE, None, b"found")

    for other in ("result:build#2", "result:builder2#3", "result:b#1"):
        with pytest.raises(RequestIdConflict):
            results.register(connection, Binding(other, ONE.canonical), None, b"found")


def test_a_request_id_that_fits_several_results_that_came_is_ambiguous(connection):
    accepted(connection)
    accepted(connection, b"else", Binding("result:tester#7", ONE.canonical), "m-2")
    inbox.count_handovers(connection, [1], 5)
    assert results.find(connection, ONE.canonical) == Result(ONE, b"found")  # the other one still waits
    inbox.count_handovers(connection, [2], 5)

    with pytest.raises(AmbiguousTarget) as caught:
        results.find(connection, ONE.canonical)
    assert caught.value.details["candidates"] == ["result:builder#1", "result:tester#7"]
    assert results.find(connection, ONE.ref) == Result(ONE, b"found")
    assert results.find(connection, "result:tester#7") is not None


def test_a_result_that_came_twice_is_one_result(connection):
    accepted(connection)
    accepted(connection, message_id="m-2")
    inbox.count_handovers(connection, [1, 2], 5)

    assert [results.find(connection, reference) for reference in ONE] == [Result(ONE, b"found")] * 2


@pytest.mark.parametrize(("text", "fits"), [(b"found", True), (b"else", False)])
def test_an_own_request_id_is_ambiguous_where_another_content_came_under_it(connection, text, fits):
    results.register(connection, ONE, None, b"found")
    accepted(connection, text, Binding("result:tester#7", ONE.canonical))
    inbox.count_handovers(connection, [1], 5)

    assert results.find(connection, ONE.ref) == Result(ONE, b"found")
    if fits:
        assert results.find(connection, ONE.canonical) == Result(ONE, b"found")
        return
    with pytest.raises(AmbiguousTarget) as caught:
        results.find(connection, ONE.canonical)
    assert caught.value.details["candidates"] == ["result:builder#1", "result:tester#7"]


def test_the_oldest_results_make_room_by_count_and_by_size(connection):
    for number in range(RESULTS_KEPT + 3):
        results.register(connection, Binding(f"result:b#{number}", f"result:c-{number}"), None, b"x")
    assert connection.execute("SELECT count(*) FROM results").fetchone() == (RESULTS_KEPT,)
    assert results.find(connection, "result:b#2") is None
    assert results.find(connection, "result:b#3") is not None

    half = b"x" * (RESULTS_BYTES // 2)
    for number in (1, 2):
        results.register(connection, Binding(f"result:large#{number}", f"result:l-{number}"), None, half)
    left = [row[0] for row in connection.execute("SELECT ref FROM results ORDER BY result_id")]
    assert left == ["result:large#1", "result:large#2"]
    assert connection.execute("SELECT count(*) FROM bodies").fetchone() == (2,)


def test_a_damaged_result_is_no_result(connection):
    results.register(connection, ONE, None, b"found")
    connection.execute("UPDATE chunks SET data = x'00'")

    with pytest.raises(RecoveryRequired):
        results.find(connection, ONE.ref)


def test_what_a_message_binds_is_stored_with_it(connection):
    accepted(connection)
    assert connection.execute("SELECT * FROM bindings").fetchall() == [(1, *ONE, 1)]
    assert target(BOB)
