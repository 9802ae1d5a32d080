"""The life of a coordinator inside real Pi: whose session it serves, when it ends, and what survives that."""

import json
import os
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.fakes.pi_host import MODEL, WAIT_S, PiRpc
from tests.fakes.real_hosts import program
from tests.hosts.pi.conftest import PiWorld

pytestmark = [pytest.mark.machine, pytest.mark.timeout(120)]


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def new_child(pi: PiRpc, old: list[int]) -> list[int]:
    """Wait for another coordinator than the old one."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = [pid for pid in pi.children() if pid not in old]
        if found:
            return found
    raise AssertionError("no other coordinator was started")


@pytest.mark.requirement("D-host-04")
def test_the_coordinator_ends_in_order_with_its_pi(world: PiWorld):
    pi, _ = world.started("one")
    children = pi.children()

    pi.end()

    assert (len(children), gone(children)) == (1, True)
    assert world.other.request("session.list")["peers"] == []
    assert (
        list((world.home / "run").glob("*.sock")) == [] or world.other.request("session.list")["peers"] == []
    )
    assert (pi.process.returncode, pi.errors) == (0, b"")


def test_mail_waits_for_a_session_that_is_down_and_comes_once(world: PiWorld):
    own = str(uuid.uuid4())
    pi, target = world.started("one", "--session-id", own)
    pi.run("remember me [[say yes]]")
    pi.end()

    message = world.other.send(target, "while you were away [[say welcome back]]")
    while_down = world.state(message)
    again = world.pi("one", "--session-id", own)
    again.settled()
    again.run("more [[say more]]")

    assert while_down == "accepted"
    assert world.target("one") == target
    assert world.model.requests[-1].text.count("while you were away") == 1
    assert world.becomes(message, "delivered")


def test_what_pi_kept_of_a_cancelled_turn_is_not_given_to_the_model_twice(world: PiWorld):
    own = str(uuid.uuid4())
    pi, target = world.started("one", "--session-id", own)
    pi.run("begin [[say begun]]")
    message = world.other.send(target, "seen but unanswered [[hold never]]")
    world.model.held("never")
    pi.ask("abort")
    pi.end()

    before = world.state(message)
    again = world.pi("one", "--session-id", own)
    world.target("one")
    again.run("go on [[say on]]")

    assert before == "accepted"
    assert world.model.requests[-1].text.count("seen but unanswered") == 1
    assert world.becomes(message, "delivered")


@pytest.mark.requirement("D-host-04")
def test_a_new_session_and_a_fork_are_sessions_of_their_own(world: PiWorld):
    pi, first = world.started("one")
    pi.run("to be forked [[say done]]")
    children = pi.children()
    [entry] = pi.ask("get_fork_messages")["data"]["messages"]

    pi.ask("fork", entryId=entry["entryId"])
    forked = json.loads(pi.run("[[call list_peers {}]]").removeprefix("result: "))["self"]["target"]
    pi.ask("new_session")
    new = json.loads(pi.run("[[call list_peers {}]]").removeprefix("result: "))["self"]["target"]

    assert len({first, forked, new}) == 3
    assert [peer["target"] for peer in world.other.request("session.list")["peers"]] == [new]
    assert gone(children)
    assert len(pi.children()) == 1
    message = world.other.send(new, "to the newest [[say got it]]")
    assert world.becomes(message, "delivered")


def test_a_second_pi_on_a_session_says_who_has_it_and_takes_over(world: PiWorld):
    own = str(uuid.uuid4())
    pi, target = world.started("one", "--session-id", own)
    pi.run("begin [[say begun]]")
    second = world.pi("one", "--session-id", own)

    refused = second.run("[[call list_peers {}]]")
    pi.end()
    message = world.other.send(target, "to whoever has it")
    second.run("[[say now]]")

    assert "SESSION_HELD" in refused
    assert world.model.requests[-1].text.count("to whoever has it") == 1
    assert world.becomes(message, "delivered")


def test_a_killed_coordinator_is_replaced_and_loses_nothing(world: PiWorld):
    pi, target = world.started("one")
    children = pi.children()
    os.kill(children[0], signal.SIGKILL)

    message = world.other.send(target, "after the kill [[say alive]]")
    world.model.wait("after the kill")

    assert new_child(pi, children)
    assert world.becomes(message, "delivered")
    assert pi.errors == b""


def test_a_coordinator_killed_in_a_turn_leaves_the_turn_alone(world: PiWorld):
    pi, target = world.started("one")
    mark = pi.prompt("[[hold busy]] [[call list_peers {}]] [[say end]]")
    world.model.held("busy")
    children = pi.children()
    message = world.other.send(target, "waits in the mailbox")
    os.kill(children[0], signal.SIGKILL)
    world.model.release("busy")
    pi.settled(mark)
    pi.run("and now [[say now]]")

    assert world.model.requests[-1].text.count("waits in the mailbox") == 1
    assert world.becomes(message, "delivered")


def test_without_the_command_herd_pi_works_and_the_tools_say_why(world: PiWorld):
    world.folder.install(herd="/nowhere/herd")
    pi = world.pi("one")

    answer = pi.run("[[call list_peers {}]]")

    assert "Herd cannot do this now. /nowhere/herd cannot be started" in answer
    assert pi.errors == b""
    assert pi.end() < WAIT_S / 2


def test_a_herd_that_refuses_does_not_disturb_pi(world: PiWorld):
    world.folder.install()
    config = world.home / "config" / "herd" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("nonsense = 1\n", encoding="utf-8")
    pi = world.pi("one")

    answer = pi.run("[[call list_peers {}]]")

    assert "nonsense" in answer
    assert pi.errors == b""


def test_a_printing_pi_uses_the_tools_and_ends_at_once(world: PiWorld):
    def printed(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("pi"), "-p", "--model", MODEL, *words],
            cwd=world.folder.work("printing"),
            env=world.folder.environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=WAIT_S,
            check=True,
        )

    coordinated = printed("[[call list_peers {}]]")
    nobody = printed("--no-session", "[[call list_peers {}]]")

    listed = json.loads(coordinated.stdout.removeprefix("result: "))
    assert [peer["name"] for peer in listed["peers"]] == ["other"]
    assert nobody.stdout.startswith("no such tool")
    assert (coordinated.stderr, nobody.stderr) == ("", "")
    assert world.other.request("session.list")["peers"] == []


def test_after_the_extension_is_taken_away_pi_knows_nothing_of_herd(world: PiWorld):
    own = str(uuid.uuid4())
    pi, target = world.started("one", "--session-id", own)
    pi.run("begin [[say begun]]")
    pi.end()
    world.folder.extension.unlink()

    message = world.other.send(target, "is anybody there?")
    later = world.pi("one", "--session-id", own)
    later.run("[[say hello]]")

    assert later.children() == []
    assert "list_peers" not in world.model.requests[-1].offered
    assert "is anybody there?" not in world.model.requests[-1].text
    assert world.state(message) == "accepted"


def test_sessions_of_pi_write_to_each_other(world: PiWorld, home: Path):
    one, _ = world.started("one")
    _, target = world.started("two")
    one.run("[[call list_peers {}]]")
    arguments = json.dumps({"target": target, "message": "from one to two [[say read]]"})

    one.run(f"[[call message_peer {arguments}]]")

    assert world.model.wait('named "one"').fresh.count("from one to two") == 1
