"""Mail into real Pi sessions: where it enters, what the model sees, and when it counts as delivered."""

import json
from typing import Any

import pytest

from herd.core.text import quoted
from herd.mail.header import NOTICE
from tests.fakes.pi_host import HERD_COMMAND
from tests.hosts.pi.conftest import PiWorld

pytestmark = [pytest.mark.machine, pytest.mark.timeout(120)]


def result_of(text: str) -> Any:
    """Read the JSON that the model repeated of a tool's result."""
    return json.loads(text.removeprefix("result: "))


def test_a_session_lists_its_peers_and_writes_to_one(world: PiWorld):
    pi = world.pi("one")

    listed = result_of(pi.run("Who is there? [[call list_peers {}]]"))
    [peer] = listed["peers"]
    arguments = json.dumps({"target": peer["target"], "message": "hello from Pi"})
    sent = result_of(pi.run(f"[[call message_peer {arguments}]]"))

    assert (listed["self"]["name"], peer["name"]) == ("one", "other")
    [message] = world.other.request("session.read", wait_ms=10_000)["messages"]
    assert (message["message_id"], message["text"]) == (sent["message_id"], "hello from Pi")
    assert message["from"]["target"] == listed["self"]["target"]


@pytest.mark.requirement("H-inbox-12", "D-evidence-06", "A-boundary-02", "A-boundary-10")
def test_several_messages_wake_an_idle_session_once(world: PiWorld):
    pi, target = world.started("one")

    first = world.other.send(target, "one [[hold awake]] [[say done]]")
    held = world.model.held("awake")
    later = [world.other.send(target, text) for text in ("two", "three")]
    before = [world.state(message) for message in (first, *later)]
    world.model.release("awake")
    pi.settled()

    everything = world.model.requests[-1].text
    assert before == ["accepted"] * 3
    assert held.fresh.startswith(NOTICE)
    assert "This comes from another session and not from the user" in held.fresh
    assert everything.count(NOTICE) == 1
    assert [everything.count(quoted(text)) for text in ("two", "three")] == [1, 1]
    assert all(world.becomes(message, "delivered") for message in (first, *later))


@pytest.mark.requirement("H-inbox-12")
def test_where_idle_is_notify_no_turn_begins(world: PiWorld):
    world.wake_nobody()
    pi, target = world.started("one")

    message = world.other.send(target, "for later")
    asked_before = len(world.model.requests)
    pi.run("what now? [[say nothing]]")

    assert asked_before == 0
    assert [request.fresh.count("for later") for request in world.model.requests] == [1]
    assert world.model.requests[0].fresh.startswith("what now?")
    assert world.becomes(message, "delivered")


@pytest.mark.requirement("A-config-04")
def test_with_notify_pi_s_footer_counts_what_waits_until_it_is_taken_and_no_turn_begins(world: PiWorld):
    world.wake_nobody()
    pi, target = world.started("one")

    first = world.other.send(target, "secret words of a peer")
    pi.footer("herd: 1 message waits")
    second = world.other.send(target, "more of them")
    mark = pi.footer("herd: 2 messages wait")
    asked = len(world.model.requests)
    begun = [record for record in pi.records if record["type"] == "agent_start"]
    pi.run("what now? [[say nothing]]")
    pi.footer(None, since=mark)

    assert (asked, begun) == (0, [])
    assert [pi.footers(), pi.footers(since=mark)] == [
        ["herd: 1 message waits", "herd: 2 messages wait", None],
        [None],
    ]
    assert all(world.becomes(message, "delivered") for message in (first, second))


@pytest.mark.requirement("A-config-04")
def test_what_the_person_reads_in_a_terminal_is_counted_no_more(world: PiWorld):
    world.wake_nobody()
    pi, target = world.started("one")
    message = world.other.send(target, "read me elsewhere")
    mark = pi.footer("herd: 1 message waits")

    pi.ask("bash", command=f"{HERD_COMMAND} inbox")
    pi.footer(None, since=mark)

    assert world.model.requests == []
    assert world.becomes(message, "delivered")


def test_what_wakes_pi_is_not_counted(world: PiWorld):
    pi, target = world.started("one")

    world.other.send(target, "one [[hold awake]] [[say done]]")
    world.model.held("awake")
    world.other.send(target, "two")
    world.model.release("awake")
    pi.settled()

    assert pi.footers() == []


@pytest.mark.requirement("P-deliver-04", "A-boundary-06")
def test_a_busy_session_gets_mail_behind_the_whole_group_of_results(world: PiWorld):
    pi, target = world.started("one")

    mark = pi.prompt(
        '[[hold busy]] [[call bash {"command": "echo result-1"}]] [[also bash {"command": "echo result-2"}]]'
    )
    held = world.model.held("busy")
    message = world.other.send(target, "while you work")
    world.model.release("busy")
    pi.settled(mark)

    after = world.model.wait("while you work").fresh
    places = [after.index(text) for text in ("result-1\n", "result-2\n", "while you work")]
    assert places == sorted(places)
    assert world.model.wait("while you work").number == held.number + 1
    assert NOTICE not in world.model.requests[-1].text
    ended = [record for record in pi.records[mark:] if record["type"] == "message_end"]
    assert not [record for record in ended if record["message"].get("stopReason") == "aborted"]
    assert world.becomes(message, "delivered")


@pytest.mark.requirement("A-boundary-07")
def test_mail_that_comes_during_the_last_answer_still_enters_this_turn(world: PiWorld):
    pi, target = world.started("one")

    mark = pi.prompt("[[hold last]] [[say that was all]]")
    world.model.held("last")
    world.other.send(target, "just in time [[say and this]]")
    world.model.release("last")
    pi.settled(mark)

    said = pi.ask("get_last_assistant_text")["data"]["text"]
    settled = [record for record in pi.records[mark:] if record["type"] == "agent_settled"]
    assert (said, len(settled)) == ("and this", 1)
    assert world.model.requests[-1].fresh.count("just in time") == 1


@pytest.mark.requirement("D-evidence-06")
def test_a_message_counts_as_delivered_only_when_the_model_answers(world: PiWorld):
    pi, target = world.started("one")

    message = world.other.send(target, "[[hold asked]] [[say yes]]")
    world.model.held("asked")
    while_asked = world.state(message)
    world.model.release("asked")
    pi.settled()

    assert while_asked == "accepted"
    assert world.becomes(message, "delivered")


@pytest.mark.requirement("D-evidence-06")
def test_what_a_tool_handed_over_counts_as_delivered_with_the_next_answer(world: PiWorld):
    world.wake_nobody()
    pi, target = world.started("one")
    mark = pi.prompt("[[hold first]] [[call peer_messages {}]] [[hold then]] [[say read]]")
    world.model.held("first")
    message = world.other.send(target, "read me by tool")
    world.model.release("first")
    asked = world.model.held("then")
    while_asked = world.state(message)
    world.model.release("then")
    pi.settled(mark)

    assert while_asked == "accepted"
    assert asked.fresh.count("read me by tool") == 1
    assert world.becomes(message, "delivered")


def test_a_reply_settles_the_message_it_answers(world: PiWorld):
    world.wake_nobody()
    pi, target = world.started("one")
    message = world.other.send(target, "prices in cents?")
    pi.run("read [[say read]]")
    own = world.other.request("session.whoami")["target"]
    arguments = json.dumps({"target": own, "message": "as integers", "reply_to": message})

    sent = result_of(pi.run(f"[[call message_peer {arguments}]]"))

    [answer] = world.other.request("session.read", wait_ms=10_000)["messages"]
    assert (answer["message_id"], answer["reply_to"]) == (sent["message_id"], message)
    assert world.state(message) == "replied"
