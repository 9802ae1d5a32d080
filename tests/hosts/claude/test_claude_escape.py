"""Escape in real Claude Code: nothing is woken against it, and nothing stands twice in a request after it."""

import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.claude_host import ESCAPE, MODEL, WAIT_S, ClaudeTui, until
from tests.fakes.real_hosts import program

pytestmark = pytest.mark.machine

World = Any

_QUIET_S = 4.0
"""Longer than a notice ever took to begin a turn after Escape."""


def in_a_tool(world: World, claude: ClaudeTui) -> None:
    claude.prompt('[[call Bash {"command": "touch begun; sleep 15"}]] [[say done]]')
    claude.until((world.folder.work("a") / "begun").exists, "the tool does not run")


def in_thought(world: World, claude: ClaudeTui) -> None:
    claude.prompt("[[hold thought]] [[say done]]")
    world.model.held("thought")


def at_a_dialog(_world: World, claude: ClaudeTui) -> None:
    claude.prompt('[[call Bash {"command": "touch asked"}]] [[say done]]')
    claude.until(lambda: claude.status == "waiting", "no dialog is open")
    claude.until(lambda: claude.shows("Do you want to proceed"), "the dialog is not shown")


@pytest.mark.requirement("A-boundary-11")
@pytest.mark.parametrize("hooks", [True, False], ids=["with_hooks", "without_hooks"])
@pytest.mark.parametrize("begin", [in_a_tool, in_thought, at_a_dialog])
def test_after_escape_nobody_is_woken_for_what_came_before_it(
    world: World, begin: Callable[[World, ClaudeTui], None], hooks: bool
):
    if begin is at_a_dialog:
        world.folder.settings["permissions"]["allow"] = ["mcp__herd"]
    if not hooks:
        del world.folder.settings["hooks"]
    world.folder.install()
    claude, target = world.started()
    begin(world, claude)
    message = world.send(target, "before escape [[say heard]]")
    world.wants(claude)

    if begin is at_a_dialog:
        threading.Event().wait(1)  # a dialog takes no key in its first moments
    claude.type(ESCAPE)  # once: a second one, in an idle session, opens a menu
    claude.until(lambda: claude.status == "idle", "it is not idle again")
    threading.Event().wait(_QUIET_S)

    assert world.notices == 0
    assert world.state(message) == "accepted"
    if begin is in_thought:
        world.model.release("thought")
    world.send(target, "after escape [[say heard]]")
    until(lambda: world.notices == 1, "what is new does not wake it")
    if hooks:
        assert world.becomes(message, "delivered")


@pytest.mark.requirement("A-boundary-07")
def test_a_turn_that_ends_by_itself_lets_mail_wake_that_came_in_its_last_moment(world: World):
    del world.folder.settings["hooks"]
    world.folder.install()
    claude, target = world.started()
    in_thought(world, claude)
    world.send(target, "hello [[say heard]]")
    world.wants(claude)

    world.model.release("thought")

    until(lambda: world.notices == 1, "it is not woken")


@pytest.mark.requirement("A-boundary-09", "A-boundary-11")
def test_a_woken_turn_that_is_cancelled_keeps_its_mail_and_is_not_woken_again(world: World):
    claude, target = world.started()
    message = world.send(target, "[[hold one]] [[say heard]]")
    world.model.held("one")

    claude.type(ESCAPE)
    claude.until(lambda: claude.status == "idle", "it is not idle again")

    assert world.becomes(message, "delivered")
    world.model.release("one")
    threading.Event().wait(_QUIET_S)
    assert len(world.model.requests) == 1
    claude.prompt("go on [[say gone on]]")
    request = world.model.wait("go on")
    assert request.text.count(f"message {message} from") == 1
    assert "(again" not in request.text


@pytest.mark.requirement("A-boundary-09", "D-host-01")
def test_a_run_that_resumes_a_session_with_mail_has_it_once_in_its_request(world: World):
    claude, target = world.started()
    session = claude.session_id
    claude.prompt("remember this [[say kept]]")
    written = world.folder.settings_folder / "projects"
    claude.until(
        lambda: any(b'"text":"kept"' in one.read_bytes() for one in written.glob(f"*/{session}.jsonl")),
        "it is not written down",
    )
    claude.end()
    message = world.send(target, "once")

    ended = subprocess.run(
        [program("claude"), "-p", "--model", MODEL, "--resume", session, "hello [[say hi]]"],
        cwd=world.folder.work("a"),
        env=world.folder.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=WAIT_S,
    )

    assert b"hi" in ended.stdout
    request = world.model.wait(f"message {message} from")
    assert request.text.count(f"message {message} from") == 1
    assert world.becomes(message, "delivered")
