"""Sessions in real checkouts: the group that each publishes, and who reaches whom where one is managed."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from herd.core.errors import EligibilityUnverified, HerdError
from herd.core.identity import SessionName
from herd.presence.registry import Registry
from tests.fakes.assignments import assigned, assignment_of
from tests.fakes.checkouts import git
from tests.fakes.herd_session import WAIT_S, HerdSession
from tests.processes.conftest import Machine

FOLDERS = {"source": "r/src", "linked": "w/src", "through": "s", "nested": "r/vendor/x"}
WHO = {name: SessionName("claude", name) for name in FOLDERS}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Give the checkouts of C7."""
    place = tmp_path.resolve()
    git("init", "-q", "-b", "main", place / "r")
    git("-C", place / "r", "commit", "-q", "--allow-empty", "-m", "Begin")
    git("-C", place / "r", "worktree", "add", "-q", place / "w", "-b", "b")
    git("init", "-q", "-b", "main", place / "r" / "vendor" / "x")
    for folder in ("r/src", "w/src"):
        (place / folder).mkdir()
    (place / "s").symlink_to(place / "w")
    return place


def until(holds: Callable[[], bool]) -> None:
    """Wait until something that is asked of a session holds."""
    give_up = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < give_up


def group_of(machine: Machine, session: HerdSession, name: str) -> str | None:
    session.request("session.whoami")  # so that each look gives the session its turn
    record = Registry(machine.layout).record(WHO[name].key)
    return record.presence.group if record and record.presence else None


def listed(session: HerdSession) -> set[str]:
    return {peer["name"] for peer in session.request("session.list")["peers"]}


def sent(session: HerdSession, target: str, text: str) -> str:
    """Send, again where a busy machine kept git from answering in time."""
    give_up = time.monotonic() + WAIT_S
    while True:
        try:
            return session.send(target, text)
        except EligibilityUnverified:
            assert time.monotonic() < give_up


@pytest.mark.requirement("C7")
def test_the_nested_repository_is_of_no_group_with_the_worktrees_around_it(machine: Machine, place: Path):
    group = str(place / "r" / ".git")
    work = assignment_of(1, repo=group, branch="b", session=WHO["linked"], checkout=str(place / "w"))
    assigned(machine.layout, work)
    up = {
        name: machine.session("claude", name, name=name, cwd=str(place / folder))
        for name, folder in FOLDERS.items()
    }
    up["through"].request("session.update", cwd=str(place / "s"))  # a process itself is told the real path
    groups = dict.fromkeys(FOLDERS, group) | {"nested": str(place / "r/vendor/x/.git")}
    for name, session in up.items():
        until(lambda name=name, session=session: group_of(machine, session, name) == groups[name])  # type: ignore[misc]
    kinds = {name: session.request("session.whoami")["kind"] for name, session in up.items()}
    assert kinds == dict.fromkeys(FOLDERS, "ordinary") | {"linked": "managed"}

    sees = {
        "source": {"linked", "through", "nested"},
        "linked": {"source", "through"},
        "through": {"linked", "source", "nested"},
        "nested": {"source", "through"},
    }
    for name, others in sees.items():
        until(lambda name=name, others=others: listed(up[name]) == others)  # type: ignore[misc]
    target = {name: up[name].request("session.whoami")["target"] for name in FOLDERS}
    for name, others in sees.items():
        for other in others:
            sent(up[name], target[other], f"{name} to {other}")
    for one, other in (("linked", "nested"), ("nested", "linked")):
        with pytest.raises(HerdError) as refusal:
            sent(up[one], target[other], "hello")
        assert refusal.value.code in {"UNKNOWN_TARGET", "ELIGIBILITY_DENIED"}
    for name in FOLDERS:
        expected = {f"{one} to {name}" for one, others in sees.items() if name in others}
        read: set[str] = set()
        until(
            lambda name=name, read=read, expected=expected: (  # type: ignore[misc]
                read.update(one["text"] for one in up[name].request("session.read")["messages"])
                or read == expected
            )
        )
