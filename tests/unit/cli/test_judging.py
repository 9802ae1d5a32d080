"""`herd peers` lists whom its session may write to, by the same evidence as the session's coordinator."""

import os
from pathlib import Path

import pytest

from assignments import store
from assignments.worktrees import fresh, git_groups, running
from herd.cli.context import Context
from herd.cli.judging import peers_of
from herd.core import config
from herd.core.locks import AuthorityLock
from herd.presence.record import Presence, Record
from herd.presence.registry import Registry
from roles.evidence import party_on_record
from roles.model import Party
from tests.fakes.authority import World
from tests.fakes.checkouts import Checkouts
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.records import layout_at, record_of, session_of

ALICE, BOB, CAROL = (session_of(number) for number in (1, 2, 3))


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    for module in (git_groups, running):
        monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)
    monkeypatch.setattr(fresh, "TOPOLOGY_WAIT_S", IN_TIME_S)
    monkeypatch.setattr(fresh, "TOPOLOGY_FRESH_S", IN_TIME_S)


@pytest.fixture
def context(home) -> Context:
    environ = {"HERD_HOME": str(home), "PATH": os.environ["PATH"], "HOME": str(home)}
    layout = layout_at(home)
    return Context(environ, config.load(environ), layout, Registry(layout))


@pytest.fixture
def world(context, tmp_path) -> World:
    return World(context.layout, tmp_path / "unused")


@pytest.fixture
def checkouts(tmp_path) -> Checkouts:
    (tmp_path / "real").mkdir()
    return Checkouts(tmp_path / "real")


def lead(session, folder: Path | str, kind: str = "ordinary") -> Record:
    return record_of(session, Presence("lead", "none", cwd=str(folder)), kind=kind)


def listed(context: Context, records: list[Record]) -> dict[str, set[str]]:
    def seen(me: Party) -> set[str]:
        return {record.session.session_id for record in peers_of(context, records, me).peers}

    return {record.session.session_id: seen(party_on_record(record, "none")) for record in records}


def assign(world: World, session, branch: str, repo: str) -> str:
    assignment = world.assignment(session, branch, socket="none", repo=repo)
    with world.lock.exclusive() as hold:
        store.write(world.layout, hold, assignment)
    return world.layout.assignment(*assignment.place)


def test_without_assignments_all_ordinary_leads_see_each_other_and_nothing_is_made(context):
    found = listed(context, [lead(ALICE, "/a"), lead(BOB, "/b"), lead(CAROL, "/c", "managed")])

    assert found == {"session-1": {"session-2"}, "session-2": {"session-1"}, "session-3": set()}
    assert not os.path.lexists(context.layout.assignments)


def test_an_assigned_lead_and_those_of_its_group_see_each_other(context, world, checkouts):
    assign(world, ALICE, "cart", checkouts.repository)

    found = listed(
        context,
        [lead(ALICE, checkouts.linked, "managed"), lead(BOB, checkouts.main), lead(CAROL, checkouts.clone)],
    )

    assert found == {
        "session-1": {"session-2"},
        "session-2": {"session-1", "session-3"},
        "session-3": {"session-2"},
    }


def test_while_a_record_is_corrupt_nobody_is_listed(context, world):
    path = assign(world, CAROL, "fix", "/src/shop/.git")
    Path(path).write_bytes(b"{")

    assert listed(context, [lead(ALICE, "/a"), lead(BOB, "/b")]) == {"session-1": set(), "session-2": set()}


@pytest.mark.requirement("H-locks-06")
def test_it_is_judged_while_nobody_changes_authority(context, world, monkeypatch):
    held: list[bool] = []
    shared = AuthorityLock.shared

    def taken(lock, *given):
        held.append(True)
        return shared(lock, *given)

    monkeypatch.setattr(AuthorityLock, "shared", taken)

    listed(context, [lead(ALICE, "/a"), lead(BOB, "/b")])
    assert held == [True, True]
