"""Which session a server in real Claude Code serves: named by hooks, followed through its changes."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.claude_host import MODEL, WAIT_S, ClaudeTui, until
from tests.fakes.real_hosts import program

pytestmark = pytest.mark.machine

World = Any


def served(world: World, session_id: str) -> dict[str, Any]:
    """Wait until a session is on record, and give its record."""
    found: list[dict[str, Any]] = []

    def recorded() -> bool:
        records = [json.loads(path.read_text(encoding="utf-8")) for path in world.home.glob("*/peers/*.json")]
        found[:] = [one for one in records if one["session"]["session_id"] == session_id]
        return bool(found and "presence" in found[0])

    until(recorded, f"session {session_id} is not served")
    return found[0]


def moved(claude: ClaudeTui, before: str) -> str:
    """Wait until Claude Code is in another session, and give its id."""
    claude.until(lambda: claude.session_id not in {"", before} and claude.status == "idle", "it did not move")
    return claude.session_id


def remembers(world: World, claude: ClaudeTui) -> None:
    """Have a session answer something, and wait until that can be resumed."""
    claude.prompt("remember this [[say kept]]")
    transcripts = world.folder.settings_folder / "projects"

    def written() -> bool:
        found = list(transcripts.glob(f"*/{claude.session_id}.jsonl"))
        return bool(found) and b'"text":"kept"' in found[0].read_bytes() and claude.status == "idle"

    claude.until(written, "it is not written down")


@pytest.mark.requirement("D-host-01", "D-host-02")
@pytest.mark.parametrize("hooks", [True, False], ids=["with_hooks", "without_hooks"])
def test_after_clear_the_same_process_serves_the_new_session(world: World, hooks: bool):
    if not hooks:
        del world.folder.settings["hooks"]
        world.folder.install()
    claude, _ = world.started()
    first = claude.session_id
    process = served(world, first)["claim"]["pid"]

    claude.prompt("/clear")
    second = moved(claude, first)

    assert served(world, second)["claim"]["pid"] == process
    assert served(world, second)["host"]["pid"] == claude.pid
    target = world.listed(lambda peer: peer["cwd"].endswith("/a"))
    message = world.send(target, "for the new one [[say heard]]")
    claude.until(lambda: world.notices == 1 and claude.status == "idle", "it was not woken")
    assert world.becomes(message, "delivered") if hooks else world.state(message) == "accepted"


@pytest.mark.requirement("D-host-01", "D-host-02")
def test_after_resume_the_same_process_serves_the_session_of_before(world: World):
    claude, target = world.started()
    first = claude.session_id
    remembers(world, claude)
    claude.prompt("/clear")
    second = moved(claude, first)
    served(world, second)
    waits = world.send(target, "for the first one [[say heard]]")

    claude.prompt(f"/resume {first}")
    claude.until(lambda: claude.session_id == first, "it did not go back")

    assert served(world, first)["host"]["pid"] == claude.pid
    assert world.becomes(waits, "delivered")
    assert "remember this" in world.model.wait("for the first one").text


@pytest.mark.requirement("D-host-03")
def test_a_session_resumed_twice_leaves_the_second_on_standby_until_the_first_ends(world: World):
    first, target = world.started()
    session = first.session_id
    remembers(world, first)

    second = world.claude("a", "--resume", session).ready()
    world.knows_tools(second)
    second.prompt("[[call list_peers {}]] [[hold asked]] [[say done]]")
    assert "SESSION_HELD" in world.model.held("asked").fresh
    world.model.release("asked")
    assert served(world, session)["host"]["pid"] == first.pid

    first.end()
    until(lambda: served(world, session)["host"]["pid"] == second.pid, "it did not take over")
    second.until(lambda: second.status == "idle", "it is not idle")
    assert world.becomes(world.send(target, "to whoever is there [[say heard]]"), "delivered")


@pytest.mark.requirement("D-host-01")
def test_a_fork_is_another_session(world: World):
    first, target = world.started()
    remembers(world, first)

    fork = world.claude("a", "--resume", first.session_id, "--fork-session").ready()
    other = world.listed(lambda peer: peer["cwd"].endswith("/a") and peer["target"] != target)

    assert fork.session_id != first.session_id
    assert served(world, fork.session_id)["host"]["pid"] == fork.pid
    message = world.send(other, "for the fork alone [[say heard]]")
    assert world.becomes(message, "delivered")
    first.until(lambda: first.status == "idle", "it is not idle")
    assert world.notices == 1


@pytest.mark.requirement("D-host-01")
def test_compaction_keeps_the_session(world: World):
    claude, target = world.started()
    session = claude.session_id
    remembers(world, claude)

    claude.prompt("/compact")
    claude.until(lambda: claude.shows("Compacted") or claude.shows("compacted"), "it is not compacted")

    assert claude.session_id == session
    assert world.becomes(world.send(target, "after it [[say heard]]"), "delivered")


@pytest.mark.requirement("D-host-13")
def test_a_killed_server_disturbs_no_turn(world: World):
    claude, _ = world.started()
    server = served(world, claude.session_id)["claim"]["pid"]
    os.kill(server, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{server}/cwd").exists(), "it still runs")
    assert str(claude.pid) in world.flags()

    claude.prompt("are you there [[say still here]]")
    claude.until(lambda: claude.shows("still here") and claude.status == "idle", "it does not answer")


@pytest.mark.requirement("D-host-01")
def test_a_server_that_was_killed_and_started_again_serves_on(world: World):
    claude, target = world.started()
    server = served(world, claude.session_id)["claim"]["pid"]
    os.kill(server, signal.SIGKILL)
    message = world.send(target, "while it was gone [[say heard]]")

    claude.prompt("/mcp reconnect herd")
    until(lambda: served(world, claude.session_id)["claim"]["pid"] != server, "no other server came")

    assert world.becomes(message, "delivered")


@pytest.mark.requirement("D-evidence-03", "D-host-01")
def test_without_hooks_the_notice_wakes_and_the_next_call_is_the_evidence(world: World):
    del world.folder.settings["hooks"]
    world.folder.install()
    claude, target = world.started()
    message = world.send(target, "read me")
    claude.until(lambda: world.notices == 1 and claude.status == "idle", "it was not woken")

    claude.prompt("[[call peer_messages {}]] [[hold read]] [[call list_peers {}]] [[say done]]")
    assert "read me" in world.model.held("read").fresh
    assert world.state(message) == "accepted"
    world.model.release("read")

    assert world.becomes(message, "delivered")


def test_what_waits_for_an_ended_session_comes_with_its_next_run(world: World):
    claude, target = world.started()
    session = claude.session_id
    remembers(world, claude)
    claude.end()
    message = world.send(target, "while you were away")

    again = world.claude("a", "--resume", session).ready()
    served(world, session)
    again.prompt("hello again [[say hi]]")

    assert world.becomes(message, "delivered")
    assert "while you were away" in world.model.wait("while you were away").text


@pytest.mark.requirement("D-host-01", "A-boundary-11")
def test_a_run_without_a_person_is_woken_by_nobody_and_gets_its_mail_in_the_turn(world: World):
    claude, target = world.started()
    session = claude.session_id
    remembers(world, claude)
    claude.end()
    message = world.send(target, "while you were away")

    words = [program("claude"), "-p", "--model", MODEL, "--resume", session, "hello [[hold up]] [[say hi]]"]
    with subprocess.Popen(
        words,
        cwd=world.folder.work("a"),
        env=world.folder.environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as run:
        world.model.held("up")
        until(lambda: f"{session}-{run.pid}" in world.flags(), "no flag stands")
        world.model.release("up")
        said, _ = run.communicate(timeout=WAIT_S)

    assert said
    assert "while you were away" in world.model.wait("while you were away").text
    assert world.becomes(message, "delivered")
    assert world.notices == 0
