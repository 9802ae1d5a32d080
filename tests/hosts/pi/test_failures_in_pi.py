"""What happens inside real Pi when Herd fails: Pi goes on, the tools say why, and no mail is lost."""

import os
import signal
import time

import pytest

from tests.fakes.pi_host import WAIT_S, PiRpc
from tests.hosts.pi.conftest import PiWorld

pytestmark = [pytest.mark.machine, pytest.mark.timeout(120)]


def new_child(pi: PiRpc, old: list[int]) -> list[int]:
    """Wait for another coordinator than the old one."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = [pid for pid in pi.children() if pid not in old]
        if found:
            return found
    raise AssertionError("no other coordinator was started")


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


def test_a_herd_that_refuses_does_not_disturb_pi_and_is_asked_again(world: PiWorld):
    config = world.home / "config" / "herd" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("nonsense = 1\n", encoding="utf-8")
    pi = world.pi("one")

    refused = pi.run("[[call list_peers {}]]")
    config.unlink()
    answered = pi.run("[[call list_peers {}]]")

    assert "nonsense" in refused
    assert '"peers"' in answered
    assert pi.errors == b""


def test_a_coordinator_that_lives_and_refuses_is_replaced_by_another(world: PiWorld):
    records = world.layout.peers
    os.chmod(records, 0o777)
    pi = world.pi("one")

    refused = pi.run("[[call list_peers {}]]")
    os.chmod(records, 0o700)
    answered = pi.run("[[call list_peers {}]]")

    assert "UNSAFE_ENDPOINT" in refused
    assert '"peers"' in answered
