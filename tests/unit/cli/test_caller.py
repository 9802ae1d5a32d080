"""Whose command line it is, from a process tree and records: every branch, without a process."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from herd.cli.caller import Caller, Tree, find_caller, process_tree
from herd.core.errors import AmbiguousTarget, CapabilityDenied, InvalidParams, NoSession
from herd.core.identity import SessionName, target_of
from herd.core.paths import Layout
from herd.presence.registry import Registry
from tests.fakes import records
from tests.fakes.records import instance_of, layout_at, living, session_of

HOST = (os.getpid() - 1, "boot:4026531836:98")
"""The host that `tests.fakes.records` puts into each record of this process."""

INIT = (1, "boot:4026531836:1")
SHELL = (77, "boot:4026531836:500")
FIRST, SECOND = session_of(1), session_of(2)
DEFAULT = SessionName("terminal", "default")


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


def found(
    layout: Layout,
    *ancestors: tuple[int, str],
    terminal: bool = False,
    name: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Caller:
    return find_caller(Registry(layout), Tree(ancestors, terminal), environ or {}, name)


@pytest.mark.requirement("D-cli-01")
def test_a_host_anywhere_among_the_ancestors_makes_it_its_session(layout: Layout):
    with living(layout, FIRST):
        for ancestors in ([HOST], [SHELL, HOST], [SHELL, HOST, INIT]):
            for terminal in (True, False):
                caller = found(layout, *ancestors, terminal=terminal)
                assert caller.session == FIRST
                assert caller.record is not None
                assert (caller.record.host_pid, caller.record.host_start) == HOST


@pytest.mark.requirement("D-cli-01")
def test_a_process_that_has_the_pid_of_a_host_and_another_start_is_none(layout: Layout):
    with living(layout, FIRST):
        for stranger in ((HOST[0], "boot:4026531836:99"), (HOST[0] + 1, HOST[1]), (0, "")):
            with pytest.raises(NoSession):
                found(layout, SHELL, stranger, INIT)
            assert found(layout, SHELL, stranger, INIT, terminal=True) == Caller(DEFAULT, None)


@pytest.mark.requirement("D-cli-01")
def test_the_nearest_host_wins_whatever_the_order_of_the_records(layout: Layout, home: Path):
    outer = (HOST[0] - 5, "boot:4026531836:7")
    with living(layout, FIRST), living(layout, SECOND):
        at(layout, SECOND, outer)

        assert found(layout, SHELL, HOST, outer).session == FIRST
        assert found(layout, SHELL, outer, HOST).session == SECOND


def at(layout: Layout, session: SessionName, host: tuple[int, str]) -> None:
    """Put another host on a session's record, as if its coordinator had been started by it."""
    path = Path(layout.record(session.key))
    record = Registry(layout).record(session.key)
    assert record is not None
    shape = records.shape_of(record._replace(host_pid=host[0], host_start=host[1]))
    records.put(path, records.bytes_of(shape))


def test_a_session_that_is_over_has_no_host_and_the_next_one_up_counts(layout: Layout):
    outer = (HOST[0] - 5, "boot:4026531836:7")
    with living(layout, SECOND):
        at(layout, SECOND, outer)
        with living(layout, FIRST):
            pass
        records.put(layout.record(FIRST.key), records.bytes_of(records.shape_of(records.record_of(FIRST))))

        assert found(layout, HOST, outer).session == SECOND


def test_a_session_that_is_not_listed_now_is_still_its_hosts(layout: Layout):
    with living(layout, FIRST, None):
        assert found(layout, HOST).session == FIRST


def test_a_terminal_session_is_nobodys_host(layout: Layout):
    with living(layout, DEFAULT):
        with pytest.raises(NoSession):
            found(layout, HOST)
        caller = found(layout, HOST, terminal=True)
    assert caller.session == DEFAULT
    assert caller.record is not None


@pytest.mark.requirement("D-cli-02")
@pytest.mark.parametrize("host", ["claude", "codex"])
def test_of_several_sessions_of_one_host_its_own_variable_names_exactly_one(layout: Layout, host: str):
    first, second = session_of(1, host), session_of(2, host)
    own = {"claude": "CLAUDE_CODE_SESSION_ID", "codex": "CODEX_THREAD_ID"}
    other = own["codex" if host == "claude" else "claude"]
    with living(layout, first), living(layout, second):
        assert found(layout, HOST, environ={own[host]: "session-1"}).session == first
        assert found(layout, HOST, environ={own[host]: "session-2", other: "session-1"}).session == second
        for environ in ({}, {own[host]: "session-3"}, {own[host]: ""}, {other: "session-1"}):
            with pytest.raises(AmbiguousTarget) as told:
                found(layout, HOST, terminal=True, environ=environ)
            targets = sorted(target_of("lead", one.key) for one in (first, second))
            assert told.value.details["candidates"] == targets
            assert all(target in told.value.message for target in targets)
            assert "session-" not in told.value.message


@pytest.mark.requirement("D-cli-02")
def test_two_sessions_of_two_hosts_in_one_process_are_told_apart_by_either_variable(layout: Layout):
    claude, codex = session_of(1, "claude"), session_of(1, "codex")
    with living(layout, claude), living(layout, codex):
        assert found(layout, HOST, environ={"CLAUDE_CODE_SESSION_ID": "session-1"}).session == claude
        assert found(layout, HOST, environ={"CODEX_THREAD_ID": "session-1"}).session == codex
        both = {"CLAUDE_CODE_SESSION_ID": "session-1", "CODEX_THREAD_ID": "session-1"}
        with pytest.raises(AmbiguousTarget):
            found(layout, HOST, environ=both)


@pytest.mark.requirement("D-cli-03", "D-cli-04")
def test_without_a_host_the_controlling_terminal_decides(layout: Layout):
    assert found(layout, SHELL, INIT, terminal=True) == Caller(DEFAULT, None)
    with pytest.raises(NoSession) as told:
        found(layout, SHELL, INIT)
    assert "`--as NAME`" in told.value.next_step


@pytest.mark.requirement("D-cli-05")
def test_as_names_a_terminal_session_without_a_host_and_is_refused_under_one(layout: Layout):
    bot = SessionName("terminal", "bot")
    for terminal in (True, False):
        assert found(layout, SHELL, terminal=terminal, name="bot") == Caller(bot, None)
    with living(layout, SessionName("claude", "bot")):
        assert found(layout, SHELL, name="bot").session == bot
        with pytest.raises(CapabilityDenied) as told:
            found(layout, HOST, terminal=True, name="bot")
    assert "--as" in told.value.next_step


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 64, "default"])
def test_a_name_begins_with_a_letter(layout: Layout, name: str):
    assert found(layout, SHELL, name=name).session == SessionName("terminal", name)


@pytest.mark.parametrize("name", ["", " ", "9", "-a", "_a", "a b", "a.b", "a/b", "x" * 65, "ä", "a\n", "a\0"])
def test_any_other_name_is_refused(layout: Layout, name: str):
    with pytest.raises(InvalidParams, match="--as"):
        found(layout, SHELL, terminal=True, name=name)


def test_this_process_has_the_ancestors_that_the_kernel_shows():
    tree = process_tree()

    assert tree.ancestors[0][0] == os.getppid()
    assert instance_of(FIRST).host_pid not in dict(tree.ancestors)
