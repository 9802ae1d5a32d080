"""`herd log`, `herd recover` and `herd purge`: what they show and remove, and that it is the caller's own."""

import json
import os
import re
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import REFUSED, ScopeDenied
from herd.core.identity import SessionName, peer_id_of
from herd.core.limits import OLD_SESSION_S
from herd.mail.mailbox_proof import open_exclusively
from tests.fakes.herd_session import HerdSession
from tests.processes.conftest import Machine

BOB = SessionName("pi", "bob")
SECRET = "a text that is nobody else's"


def bob_with_mail(machine: Machine, **of_bob: Any) -> tuple[HerdSession, str, str]:
    """Let a person send bob something; gives bob, his target and the message's id."""
    bob = machine.session("pi", "bob", **of_bob)
    target = bob.request("session.whoami")["target"]
    return bob, target, machine.shell.run("send", target, SECRET, "--json").json["message_id"]


def stored(machine: Machine, session: SessionName = BOB) -> list[Any]:
    with closing(open_exclusively(machine.layout.mailbox(session.key))) as connection:
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("inbox", "outbox")]


def instance_of(machine: Machine) -> str:
    record = json.loads(Path(machine.layout.record(BOB.key)).read_bytes())
    return peer_id_of(record["instance"]["id"])


# --- recover -----------------------------------------------------------------------------------


@pytest.mark.requirement("A-restart-05", "A-storage-03")
def test_recover_shows_what_a_killed_instance_left_and_alters_nothing(machine: Machine):
    bob, _, message = bob_with_mail(machine)
    former = instance_of(machine)
    [given] = bob.request("session.read", wait_ms=20_000)["messages"]
    bob.kill()
    bob = machine.session("pi", "bob")
    later = machine.shell.run("send", bob.request("session.whoami")["target"], "to this one", "--json")
    assert instance_of(machine) != former

    shown = machine.inside.run("recover", "--json").json["messages"]

    assert [one["message_id"] for one in shown] == [message] != [later.json["message_id"]]
    [left] = shown
    assert (left["state"], left["instance"], left["handed_over"]) == ("accepted", former, 1)
    assert {"stored_at", "handed_over_at"} <= set(left)
    assert not {"evidence", "seen_at"} & set(left)
    assert SECRET not in json.dumps(shown)
    assert message in machine.inside.run("recover").text
    again = bob.request("session.read", wait_ms=20_000)["messages"]
    assert [one["message_id"] for one in again] == [given["message_id"], later.json["message_id"]]
    assert again[0]["again"] is True, "the next instance goes on with it as if nobody had looked"


@pytest.mark.requirement("A-restart-06", "A-errors-05")
def test_what_a_session_left_is_shown_to_no_other_and_to_no_person(machine: Machine):
    bob, target, _ = bob_with_mail(machine, parent=machine.new_host())
    others = [machine.inside, machine.shell]
    machine.session("claude", "alice")

    for running in (True, False):
        if not running:
            bob.kill()
        for other in others:
            refused = other.run("recover", "--session", target, "--json")
            assert refused.status == REFUSED
            assert refused.refusal["code"] == "SCOPE_DENIED"
            assert SECRET not in refused.text + refused.stderr
            for compared in ("scopes of both sessions", "run's delegation", "workspace", "data root"):
                assert compared in ScopeDenied.hint
            own = other.run("recover", "--json").json["messages"]
            assert [one["direction"] for one in own] == (["out"] if other is machine.shell else [])


@pytest.mark.requirement("D-visit-09", "A-restart-05")
def test_a_session_that_does_not_run_is_looked_into_by_a_visit_and_by_nothing_else(machine: Machine):
    bob, _, own = bob_with_mail(machine)
    mine = machine.shell.run("whoami", "--json").json["target"]
    sent = bob.request("session.send", target=mine, message="while it sleeps")["message_id"]
    terminal = SessionName("terminal", "default")
    before = stored(machine, terminal)

    out, left = machine.shell.run("recover", "--json").json["messages"]

    assert (out["direction"], out["message_id"]) == ("out", own)
    assert (left["message_id"], left["state"]) == (sent, "accepted")
    assert "instance" not in left, "it came by a visit"
    assert stored(machine, terminal) == before
    with machine.visited(terminal):
        busy = machine.shell.run("recover", "--json")
    assert busy.refusal["code"] == "PEER_OFFLINE"
    assert not os.path.lexists(machine.layout.record(terminal.key)), "no coordinator was begun for it"


# --- log ---------------------------------------------------------------------------------------


def test_the_log_tells_both_directions_with_times_and_no_text(machine: Machine):
    bob, target, message = bob_with_mail(machine)

    [out] = machine.shell.run("log", "--json").json["messages"]
    [came] = machine.inside.run("log", "--json").json["messages"]

    assert (out["direction"], out["message_id"], out["state"]) == ("out", message, "accepted")
    assert out["peer"] == target
    assert (came["direction"], came["message_id"], came["state"]) == ("in", message, "accepted")
    assert SECRET not in str([out, came])
    line = machine.inside.run("log").text
    assert message in line
    assert f"stored {came['stored_at']}" in line
    bob.end()
    assert machine.shell.run("log", "--most", "0").status == 2
    assert machine.cron.run("log", "--as", "nobody").text == "no messages\n"


def test_the_log_follows_until_it_is_interrupted(machine: Machine):
    bob, target, message = bob_with_mail(machine)
    with machine.inside.start("log", "--follow", "--json") as following:
        until_shown(following, 1)
        [given] = bob.request("session.read", wait_ms=20_000)["messages"]
        until_shown(following, 2)
        bob.request("session.confirm", message_ids=[given["message_id"]], evidence="a test")
        until_shown(following, 3)
        os.kill(following.pid, signal.SIGINT)
        outcome = following.outcome()

    told = [json.loads(line) for line in outcome.text.splitlines()]
    assert [one["message_id"] for one in told] == [message] * 3
    assert [one["state"] for one in told] == ["accepted", "accepted", "delivered"]
    assert [one.get("handed_over") for one in told] == [None, 1, 1]
    assert outcome.status == 130
    assert target


def until_shown(running: Any, lines: int) -> None:
    give_up = time.monotonic() + 30
    while running.shown().count(b"\n") < lines:
        assert time.monotonic() < give_up, running.shown()
        os.sched_yield()


# --- purge -------------------------------------------------------------------------------------


@pytest.mark.requirement("A-storage-15")
@pytest.mark.parametrize("runs", [True, False])
def test_purge_removes_the_texts_of_resolved_mail_alone(machine: Machine, runs: bool):
    mine = machine.shell.run("whoami", "--json").json["target"]
    bob, _, own = bob_with_mail(machine)
    read = bob.request("session.send", target=mine, message="read already")["message_id"]
    assert "read already" in machine.shell.run("inbox").text
    unread = bob.request("session.send", target=mine, message=SECRET)["message_id"]

    with machine.shell.start("log", "--follow") if runs else closing(open(os.devnull)) as coordinating:
        if runs:
            until_shown(coordinating, 3)
        purged = machine.shell.run("purge", "--json").json
    assert purged == {"removed": 1, "folders": 0}

    rows = {row["message_id"]: row for row in machine.shell.run("log", "--json").json["messages"]}
    assert rows[read]["text_removed"] is True
    assert not {"text_removed"} & {*rows[unread], *rows[own]}
    assert SECRET in machine.shell.run("inbox").text


@pytest.mark.requirement("A-storage-15")
def test_an_undelivered_message_goes_by_its_id_and_on_a_persons_word_alone(machine: Machine):
    mine = machine.shell.run("whoami", "--json").json["target"]
    bob, _, _ = bob_with_mail(machine)
    unread = bob.request("session.send", target=mine, message=SECRET)["message_id"]

    assert machine.shell.run("purge", "--json").json["removed"] == 0
    unasked = machine.shell.run("purge", "--message", unread, "--json", stdin=b"")
    assert unasked.refusal["code"] == "INVALID_PARAMS"
    agents = machine.inside.run("purge", "--message", unread, "--yes", "--json")
    assert agents.refusal["code"] == "CAPABILITY_DENIED"
    came = [one for one in machine.shell.run("log", "--json").json["messages"] if one["direction"] == "in"]
    assert [one["state"] for one in came] == ["accepted"]

    assert machine.shell.run("purge", "--message", unread, "--yes", "--json").json == {"removed": 1}

    status = bob.request("session.status", message_id=unread)
    assert (status["state"], status["outcome"]) == ("rejected", "PURGED")
    assert machine.shell.run("inbox", "--json").json["messages"] == []
    unknown = machine.shell.run("purge", "--message", "m-unknown", "--yes", "--json")
    assert unknown.refusal["code"] == "UNKNOWN_TARGET"


@pytest.mark.requirement("A-storage-15")
def test_purge_removes_old_session_folders_that_hold_nothing_and_no_others(machine: Machine):
    for name in ("empty", "young", "with-mail"):
        machine.session("pi", name).end()
    bob, _, _ = bob_with_mail(machine)
    bob.end()
    machine.shell.run("send", machine.session("pi", "with-mail").request("session.whoami")["target"], "x")
    keys = {name: SessionName("pi", name).key for name in ("empty", "young", "with-mail", "bob")}
    for name in ("empty", "with-mail", "bob"):
        age(machine.layout.session_folder(keys[name]), OLD_SESSION_S + 60)

    assert machine.shell.run("purge", "--json").json["folders"] == 1

    left = {name for name, key in keys.items() if os.path.isdir(machine.layout.session_folder(key))}
    assert left == {"young", "with-mail", "bob"}


def age(folder: str, seconds: int) -> None:
    then = time.time() - seconds
    for name in os.listdir(folder):
        os.utime(os.path.join(folder, name), (then, then))


@pytest.mark.requirement("A-storage-09")
def test_texts_lie_in_the_files_that_the_page_names_and_are_deleted_as_it_says(machine: Machine):
    page = Path("docs/reference/files.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {cells[1].strip(" `").replace("KEY", "*") for cells in rows if "**" in cells[4]}
    bob, _, message = bob_with_mail(machine)
    [given] = bob.request("session.read", wait_ms=20_000)["messages"]
    assert files_with_text(machine) == named
    bob.request("session.confirm", message_ids=[given["message_id"]], evidence="a test")
    bob.end()
    assert files_with_text(machine) == {one for one in named if not one.endswith("-wal")}

    machine.session("pi", "bob")
    assert machine.inside.run("purge", "--json").json["removed"] == 1
    machine.shell.run("status", message)
    assert machine.shell.run("purge", "--json").json["removed"] == 1

    assert "herd purge" in Path("docs/how-to/delete-kept-mail.md").read_text(encoding="utf-8")
    for commands in (machine.inside, machine.shell):
        [row] = commands.run("log", "--json").json["messages"]
        assert row["text_removed"] is True
        assert SECRET not in commands.run("inbox", "--message", message).text


def files_with_text(machine: Machine) -> set[str]:
    """Give the files below the machine's folder that hold the text, a session's key written as a star."""
    root = Path(machine.layout.root)
    holding = [path for path in root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    return {re.sub("[0-9a-f]{64}", "*", path.relative_to(root).as_posix()) for path in holding}
