"""`on_restart = "review"` for people: what a terminal shows, who may say yes, what a host shows."""

import json

import pytest

from tests.processes.conftest import Machine

pytestmark = pytest.mark.requirement("A-restart-02")


@pytest.fixture
def reviewing(machine: Machine) -> Machine:
    file = machine.home / "config" / "herd" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('on_restart = "review"\n', encoding="utf-8")
    return machine


def waits_for(machine: Machine) -> str:
    """Let a message wait for a session that was here and is not; give its target."""
    alice = machine.session("pi", "alice", name="alice")
    target = str(alice.request("session.whoami")["target"])
    alice.end()
    assert machine.shell.run("send", target, "the text of it").status == 0
    return target


def test_a_person_looks_says_yes_and_then_the_session_has_it(reviewing: Machine):
    target = waits_for(reviewing)
    alice = reviewing.session("pi", "alice", name="alice")
    assert alice.request("session.read")["messages"] == []

    shown = reviewing.shell.run("inbox", "--session", target)
    assert shown.status == 0
    assert "the text of it" in shown.text
    assert "1 held back until a person lets them through" in shown.text
    assert alice.request("session.read")["messages"] == []

    shown = reviewing.shell.run("inbox", "--session", target, "--accept")
    assert shown.status == 0
    assert "the text of it" in shown.text
    assert "1 held back until now: let through" in shown.text
    [message] = alice.request("session.read", wait_ms=20_000)["messages"]
    assert message["text"] == "the text of it"


def test_an_agent_s_shell_shows_nothing_of_it_and_lets_nothing_through(reviewing: Machine):
    target = waits_for(reviewing)
    alice = reviewing.session("pi", "alice", name="alice")

    for words in (["inbox"], ["inbox", "--look"], ["inbox", "--session", target], ["inbox", "--json"]):
        shown = reviewing.inside.run(*words)
        assert "the text of it" not in shown.text + shown.stderr
    refused = reviewing.inside.run("inbox", "--session", target, "--accept")
    assert (refused.status, refused.stdout) == (4, b"")
    assert "CAPABILITY_DENIED" in refused.stderr
    assert alice.request("session.read")["messages"] == []


def test_a_yes_to_a_session_that_does_not_run_is_refused(reviewing: Machine):
    target = waits_for(reviewing)

    refused = reviewing.shell.run("inbox", "--session", target, "--accept", "--json")
    assert refused.status == 5
    assert json.loads(refused.stderr)["code"] == "PEER_OFFLINE"
    assert reviewing.shell.run("inbox", "--accept").status == 2
