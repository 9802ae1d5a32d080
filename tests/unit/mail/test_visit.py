"""A visit: one transaction under the mailbox lock, all or nothing, on a session that nobody coordinates."""

import errno
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import HerdError, LockTimeout, PeerOffline, QueueFull, RecoveryRequired, UnsafeEndpoint
from herd.core.limits import VISIT_S
from herd.core.locks import HeldLock, Owner, probe
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.mail import counter
from herd.mail.visit import look, visit
from herd.presence.session_file import SessionFile, read_session_file
from tests.fakes.mail import BOB, CAROL, inside, refused, started_once
from tests.fakes.records import layout_at

IN_TIME_S = 20


@pytest.fixture
def layout(home: Path) -> Layout:
    layout = layout_at(home)
    started_once(layout, BOB)
    return layout


def next_cursor(connection: sqlite3.Connection, _: SessionFile) -> int:
    return counter.next_cursor(connection)


def last_cursor(connection: sqlite3.Connection, _: SessionFile) -> int:
    return counter.last_cursor(connection)


class Watch:
    """A clock that a visit reads when it begins and when its transaction has run."""

    def __init__(self, *readings: float) -> None:
        self._readings = list(readings)

    def __call__(self) -> float:
        return self._readings.pop(0)


# --- one transaction -------------------------------------------------------------------------------


@pytest.mark.requirement("D-visit-01", "A-storage-04")
def test_a_visit_holds_the_lock_under_its_own_name_for_one_transaction_and_lets_go(layout: Layout):
    path = layout.mailbox_lock(BOB.key)
    seen: list[Any] = []

    def work(connection: sqlite3.Connection, _: SessionFile) -> int:
        seen.append((probe(path), connection.in_transaction))
        return counter.next_cursor(connection)

    assert visit(layout, BOB.key, work) == 1

    ((state, in_transaction),) = seen
    assert in_transaction
    assert state.held
    assert state.owner == Owner(os.getpid(), start_token(os.getpid()) or "", None)
    assert not probe(path).held
    assert inside(layout, BOB, counter.last_cursor) == 1


def test_the_first_visit_makes_the_mailbox_and_tells_its_custody(layout: Layout):
    told = visit(layout, BOB.key, lambda _, file: file)

    assert told.custody_id is not None
    assert told == read_session_file(layout, BOB.key)


def test_a_look_gives_what_the_transaction_gave_where_there_is_a_mailbox(layout: Layout):
    assert look(layout, BOB.key, last_cursor) is None
    visit(layout, BOB.key, next_cursor)

    assert look(layout, BOB.key, last_cursor) == 1


REFUSALS = [
    QueueFull("full"),
    ValueError("a fault of ours"),
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"),
]


@pytest.mark.parametrize("fault", REFUSALS, ids=lambda fault: type(fault).__name__)
def test_a_transaction_that_is_refused_is_rolled_back_and_its_refusal_told(layout: Layout, fault: HerdError):
    visit(layout, BOB.key, next_cursor)

    with pytest.raises(type(fault)) as caught:
        visit(layout, BOB.key, lambda connection, _: refused(fault)(connection))

    assert caught.value is fault
    assert visit(layout, BOB.key, last_cursor) == 1


@pytest.mark.parametrize("fault", [sqlite3.OperationalError("disk I/O error"), OSError("no space left")])
def test_a_disk_that_fails_is_told_as_a_refusal_that_may_pass_and_names_the_file(
    layout: Layout, fault: Exception
):
    def work(connection: sqlite3.Connection, _: SessionFile) -> None:
        counter.next_cursor(connection)
        raise fault

    with pytest.raises(RecoveryRequired) as caught:
        visit(layout, BOB.key, work)

    assert caught.value.may_pass
    assert layout.mailbox(BOB.key) in caught.value.message
    assert visit(layout, BOB.key, last_cursor) == 0


@pytest.mark.parametrize("replaced", [False, True])
def test_a_visit_to_a_mailbox_that_is_taken_away_meanwhile_stores_nothing(layout: Layout, replaced: bool):
    path = layout.mailbox(BOB.key)
    visit(layout, BOB.key, next_cursor)

    def work(connection: sqlite3.Connection, _: SessionFile) -> int:
        os.rename(path, f"{path}.away")
        if replaced:
            Path(path).write_bytes(b"")
        return counter.next_cursor(connection)

    with pytest.raises(RecoveryRequired, match="no longer the file that this process has open"):
        visit(layout, BOB.key, work)

    os.rename(f"{path}.away", path)
    assert visit(layout, BOB.key, last_cursor) == 1


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.ENOSPC, "Free space"), (errno.EMFILE, "Raise the limit")]
)
def test_a_visit_that_the_system_refuses_says_what_mends_it(layout: Layout, number: int, hint: str):
    def work(connection: sqlite3.Connection, _: SessionFile) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(RecoveryRequired) as caught:
        visit(layout, BOB.key, work)

    assert caught.value.next_step.startswith(hint)


@pytest.mark.requirement("D-visit-01")
@pytest.mark.parametrize("took_s", [VISIT_S + 0.01, 600])
def test_a_visit_that_took_too_long_is_rolled_back(layout: Layout, took_s: float):
    with pytest.raises(LockTimeout) as caught:
        visit(layout, BOB.key, next_cursor, now=Watch(100, 100 + took_s))

    assert caught.value.may_pass
    assert visit(layout, BOB.key, last_cursor) == 0
    assert not probe(layout.mailbox_lock(BOB.key)).held


def test_a_visit_that_took_all_its_time_counts(layout: Layout):
    assert visit(layout, BOB.key, next_cursor, now=Watch(100, 100 + VISIT_S)) == 1
    assert VISIT_S == 2


# --- whom one visits -------------------------------------------------------------------------------


@pytest.mark.requirement("D-visit-01")
@pytest.mark.parametrize("name", ["mailbox_lock", "session_lock"])
@pytest.mark.parametrize("call", [visit, look])
def test_nobody_is_visited_whose_coordinator_holds_a_lock_or_is_just_taking_one(
    layout: Layout, call: Callable[..., Any], name: str
):
    # The session's own lock too, or visitors one after the other would keep a coordinator from starting.
    with HeldLock.acquire(getattr(layout, name)(BOB.key)), pytest.raises(PeerOffline) as caught:
        call(layout, BOB.key, next_cursor)

    assert caught.value.details["retry_after_ms"] > 0
    assert os.listdir(layout.session_folder(BOB.key)) == ["session.json"]


@pytest.mark.parametrize("call", [visit, look])
def test_a_session_that_was_never_here_cannot_be_visited_and_gets_no_folder(
    layout: Layout, call: Callable[..., Any]
):
    with pytest.raises(PeerOffline):
        call(layout, CAROL.key, next_cursor)

    assert os.listdir(layout.sessions) == [BOB.key]


@pytest.mark.parametrize("call", [visit, look])
def test_a_folder_without_a_session_file_is_no_session(layout: Layout, call: Callable[..., Any]):
    os.unlink(layout.session_file(BOB.key))

    with pytest.raises(PeerOffline):
        call(layout, BOB.key, next_cursor)

    assert os.listdir(layout.session_folder(BOB.key)) == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o500])
def test_a_folder_that_is_not_private_is_not_entered(layout: Layout, mode: int):
    os.chmod(layout.session_folder(BOB.key), mode)

    with pytest.raises(UnsafeEndpoint):
        visit(layout, BOB.key, next_cursor)

    assert os.listdir(layout.session_folder(BOB.key)) == ["session.json"]


# --- one at a time ---------------------------------------------------------------------------------


@pytest.mark.requirement("D-visit-02")
def test_a_process_has_one_visited_mailbox_open_at_a_time(layout: Layout):
    started_once(layout, CAROL)
    begun, may_end, second_begun = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def first(_: sqlite3.Connection, __: SessionFile) -> None:
        begun.set()
        assert may_end.wait(IN_TIME_S)
        order.append("bob's ends")

    def second(_: sqlite3.Connection, __: SessionFile) -> None:
        second_begun.set()
        order.append("carol's begins" if not probe(layout.mailbox_lock(BOB.key)).held else "both at once")

    threads = [
        threading.Thread(target=visit, args=(layout, BOB.key, first)),
        threading.Thread(target=visit, args=(layout, CAROL.key, second)),
    ]
    threads[0].start()
    assert begun.wait(IN_TIME_S)
    threads[1].start()
    # Nothing tells of a thread that waits; one that did not wait would have begun by then.
    assert not second_begun.wait(0.3)
    assert not probe(layout.mailbox_lock(CAROL.key)).held
    may_end.set()
    for thread in threads:
        thread.join(IN_TIME_S)

    assert order == ["bob's ends", "carol's begins"]


@pytest.mark.requirement("D-visit-02")
def test_a_visit_that_was_refused_lets_the_next_one_in(layout: Layout):
    for _ in range(3):
        with HeldLock.acquire(layout.mailbox_lock(BOB.key)), pytest.raises(PeerOffline):
            visit(layout, BOB.key, next_cursor)
        with pytest.raises(QueueFull):
            visit(layout, BOB.key, lambda connection, _: refused(QueueFull("full"))(connection))

    assert visit(layout, BOB.key, next_cursor) == 1
