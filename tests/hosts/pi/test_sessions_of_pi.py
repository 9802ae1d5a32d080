"""The life of a coordinator inside real Pi: whose session it serves, when it ends, and what survives that."""

import json
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from tests.fakes.pi_host import HERD_COMMAND, MODEL, WAIT_S
from tests.fakes.real_hosts import program
from tests.hosts.pi.conftest import PiWorld

pytestmark = [pytest.mark.machine, pytest.mark.timeout(120)]


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


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
    mark = second.mark()
    second.ask("prompt", message="now [[say now]]", streamingBehavior="followUp")
    second.settled(mark)

    assert "SESSION_HELD" in refused
    assert world.model.requests[-1].text.count("to whoever has it") == 1
    assert world.becomes(message, "delivered")


def printed(world: PiWorld, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Pi for one prompt."""
    return subprocess.run(
        [program("pi"), "-p", "--model", MODEL, *words],
        cwd=world.folder.work("one"),
        env=world.folder.environ(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
        check=True,
    )


def test_a_printing_pi_uses_the_tools_and_ends_at_once(world: PiWorld):
    coordinated = printed(world, "[[call list_peers {}]]")
    nobody = printed(world, "--no-session", "[[call list_peers {}]]")

    listed = json.loads(coordinated.stdout.removeprefix("result: "))
    assert [peer["name"] for peer in listed["peers"]] == ["other"]
    assert nobody.stdout.startswith("no such tool")
    assert (coordinated.stderr, nobody.stderr) == ("", "")
    assert world.other.request("session.list")["peers"] == []


def test_a_printing_pi_takes_its_mail_with_the_prompt(world: PiWorld):
    own = str(uuid.uuid4())
    pi, target = world.started("one", "--session-id", own)
    pi.run("begin [[say begun]]")
    pi.end()
    message = world.other.send(target, "for the next run")

    told = printed(world, "--session-id", own, "next [[say done]]")

    assert (told.stdout, told.stderr) == ("done\n", "")
    assert world.model.requests[-1].text.count("for the next run") == 1
    assert world.becomes(message, "delivered")


def test_herd_installs_itself_into_pi_and_out_of_it_again(world: PiWorld):
    def herd(*words: str) -> str:
        path = f"{program('pi').parent}:{os.environ['PATH']}"
        environ = {**world.folder.environ(), "PATH": path}
        command = [HERD_COMMAND, *words]
        ended = subprocess.run(command, env=environ, capture_output=True, encoding="utf-8", check=True)
        return ended.stdout

    world.folder.extension.unlink()
    own = str(uuid.uuid4())
    herd("install", "pi")
    pi, target = world.started("one", "--session-id", own)
    pi.run("begin [[say begun]]")
    pi.end()
    herd("uninstall", "pi")

    message = world.other.send(target, "is anybody there?")
    later = world.pi("one", "--session-id", own)
    later.run("[[say hello]]")

    assert not world.folder.extension.exists()
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
