"""Looking at an inbox: a person sees what waits there, and nothing becomes of it by that."""

import sqlite3

import pytest

from herd.core.identity import SessionName
from tests.processes.conftest import Machine

ALICE, BOB = SessionName("claude", "alice"), SessionName("pi", "bob")


def sent(machine: Machine, *texts: str) -> tuple[str, list[str]]:
    """Let a person send something to bob; gives bob's target and the messages' ids."""
    bob = machine.session("pi", "bob")
    target = bob.request("session.whoami")["target"]
    ids = [machine.shell.run("send", target, text, "--json").json["message_id"] for text in texts]
    return target, ids


@pytest.mark.requirement("A-boundary-20")
def test_a_person_looks_into_a_running_agents_inbox_and_nothing_is_delivered_by_it(machine: Machine):
    target, (message,) = sent(machine, "hello\n/clear")

    looked = machine.shell.run("inbox", "--session", target)
    assert "  | hello\n  | /clear\n" in looked.text
    assert f"message {message} from terminal session" in looked.text
    again = machine.inside.run("inbox", "--look", "--json").json
    assert [one["message_id"] for one in again["messages"]] == [message]
    assert "again" not in again["messages"][0]  # it was never handed over

    assert machine.shell.run("status", message, "--json").json["state"] == "accepted"
    assert [one["message_id"] for one in machine.inside.run("inbox", "--json").json["messages"]] == [message]
    assert machine.shell.run("status", message, "--json").json["state"] == "delivered"


def test_an_agent_does_not_look_into_a_running_session_of_another(machine: Machine):
    target, _ = sent(machine, "for bob alone")
    elsewhere = machine.new_host()
    machine.session("claude", "alice", parent=elsewhere)

    refused = machine.command_line(elsewhere).run("inbox", "--session", target)
    assert refused.status == 6
    assert "for bob alone" not in refused.text + refused.stderr
    assert machine.cron.run("inbox", "--session", target).status == 6


@pytest.mark.requirement("P-deliver-09")
def test_a_stored_record_that_does_not_parse_is_shown_as_unreadable_and_hides_no_other(machine: Machine):
    bob = machine.session("pi", "bob")
    target = bob.request("session.whoami")["target"]
    bob.end()
    first, second = (
        machine.shell.run("send", target, text, "--json").json["message_id"] for text in ("one", "two")
    )
    with sqlite3.connect(machine.layout.mailbox(BOB.key)) as mailbox:
        mailbox.execute("UPDATE inbox SET sender = '{' WHERE message_id = ?", (first,))
    mailbox.close()

    asleep = machine.shell.run("inbox", "--session", target)
    assert f"message {first} is stored and cannot be read" in asleep.text
    assert "  | two" in asleep.text

    running = machine.session("pi", "bob")
    shown = machine.inside.run("inbox", "--look", "--json").json
    assert shown["unreadable"] == [first]
    assert [one["message_id"] for one in shown["messages"]] == [second]
    # It keeps nobody from what came behind it, and stays.
    assert [one["text"] for one in running.request("session.read", wait_ms=20_000)["messages"]] == ["two"]
    assert machine.inside.run("inbox", "--look", "--json").json["unreadable"] == [first]
