"""The terminal session: its mailbox from shell to shell, two shells at once, and `herd inbox`."""

import json
import os
import select
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from herd.core.identity import SessionName
from herd.core.limits import HANDOVERS
from tests.fakes.command_line import CommandLine, Outcome, Running
from tests.fakes.herd_session import WAIT_S, HerdSession
from tests.fakes.watching import processes_of, sockets_of
from tests.processes.conftest import Machine

DEFAULT = SessionName("terminal", "default")


def target_of(commands: CommandLine, *words: str) -> str:
    return str(commands.run("whoami", "--json", *words).json["target"])


def first_contact(machine: Machine) -> HerdSession:
    """Start a session that may write to the terminal, asleep or not: it has listed it once."""
    alice = machine.session("claude", "alice", name="alice")
    with machine.shell.start("inbox", "--wait") as shown:
        alice.until_listed("terminal")
        os.kill(shown.pid, signal.SIGINT)
        assert shown.outcome().status == 130
    return alice


def read(session: HerdSession) -> list[dict[str, Any]]:
    return list(session.request("session.read", wait_ms=10_000)["messages"])


def texts(shown: Outcome) -> list[str]:
    assert shown.status == 0, shown.stderr
    return [message["text"] for message in shown.json["messages"]]


# --- its mail ------------------------------


@pytest.mark.requirement("D-cli-06")
def test_it_is_an_ordinary_lead_and_keeps_its_mail_from_one_shell_to_the_next(machine: Machine):
    alice = first_contact(machine)
    target = target_of(machine.shell)
    sent = [alice.send(target, text) for text in ("one", "two")]

    shown = machine.shell.run("whoami", "--json").json
    assert (shown["role"], shown["kind"], shown["name"]) == ("lead", "ordinary", "terminal")
    assert texts(machine.shell.run("inbox", "--json")) == ["one", "two"]
    assert machine.shell.run("inbox").text == "nothing new\n"
    assert {alice.request("session.status", message_id=one)["state"] for one in sent} == {"delivered"}


@pytest.mark.requirement("D-cli-06")
def test_there_is_one_for_a_user_and_as_makes_others_with_mail_of_their_own(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    for words in ([], ["--as", "bot"]):
        assert machine.shell.run("send", "alice", "hello", *words).status == 0
    targets = {message["from"]["name"]: message["from"]["target"] for message in read(alice)}
    assert targets == {"terminal": target_of(machine.shell), "bot": target_of(machine.cron, "--as", "bot")}
    elsewhere = machine.command_line(machine.terminal, cwd="/", environ={"TERM": "dumb"})
    assert target_of(elsewhere) == targets["terminal"]

    for name, target in targets.items():
        alice.send(target, f"to {name}")

    assert texts(machine.cron.run("inbox", "--as", "bot", "--json")) == ["to bot"]
    assert texts(elsewhere.run("inbox", "--json")) == ["to terminal"]


@pytest.mark.requirement("D-cli-08")
@pytest.mark.parametrize("words", [[], ["--as", "bot"], ["--as", "user"]])
def test_the_header_of_its_mail_says_terminal_and_calls_nobody_the_user(machine: Machine, words: list[str]):
    machine.session("claude", "alice", name="alice")
    sent = machine.shell.run("send", "alice", "please do it", *words, "--json").json["message_id"]

    shown = machine.inside.run("inbox").text
    again = machine.inside.run("inbox", "--message", sent, "--json").json["messages"][0]

    name = words[-1] if words else "terminal"
    header, body = shown.splitlines()
    sender = target_of(machine.shell, *words)
    assert header == f'message {sent} from terminal session {sender} named "{name}"'
    assert body == "  | please do it"
    assert again["from"] == {"target": sender, "name": name, "role": "terminal"}


# --- two shells ------------------------------


@pytest.mark.requirement("D-cli-07")
def test_a_second_shell_works_through_the_coordinator_of_the_first(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    with machine.shell.start("inbox", "--wait", "--json") as first:
        target = alice.until_listed("terminal")
        record = Path(machine.layout.record(DEFAULT.key)).read_bytes()
        assert f'"pid":{first.pid},'.encode() in record
        shown = machine.shell.run("status", "no-such-message", "--json")
        assert shown.refusal["code"] == "UNKNOWN_TARGET"
        assert Path(machine.layout.record(DEFAULT.key)).read_bytes() == record

        # The first shell waits for a message, which a receipt of the second one's is not.
        machine.shell.run("send", "alice", "from the second", "--json")
        assert read(alice)[0]["from"]["target"] == target
        alice.send(target, "to the first")
        told = [json.loads(line) for line in first.outcome().text.splitlines()]
    assert [message["text"] for answer in told for message in answer["messages"]] == ["to the first"]
    assert not os.path.exists(machine.layout.record(DEFAULT.key))


@pytest.mark.requirement("D-cli-07")
def test_a_shell_goes_on_by_itself_when_the_coordinator_it_worked_through_ends(machine: Machine):
    alice = first_contact(machine)
    for ending in (signal.SIGINT, signal.SIGKILL, signal.SIGHUP):
        with machine.shell.start("inbox", "--wait", "30") as first:
            target = alice.until_listed("terminal")
            with machine.shell.start("inbox", "--wait", "30", "--json") as second:
                wait_until_connected(second)
                os.kill(first.pid, ending)
                first.child.wait(WAIT_S)
                alice.send(target, f"after {ending.name}")

                assert texts(second.outcome()) == [f"after {ending.name}"]


def wait_until_connected(second: Running) -> None:
    """Wait until a command has connected to the coordinator of another."""
    deadline = time.monotonic() + WAIT_S
    while not sockets_of(second.pid):
        assert time.monotonic() < deadline, "the second command never asked"


@pytest.mark.requirement("D-cli-07")
def test_many_shells_at_once_lose_nothing_and_send_nothing_twice(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    numbers = range(16)

    running = [machine.shell.start("send", "alice", f"number {number}") for number in numbers]
    got: list[str] = []
    while len(got) < len(running):
        messages = read(alice)
        assert messages
        got += [message["text"] for message in messages]
        ids = [message["message_id"] for message in messages]
        alice.request("session.confirm", message_ids=ids, evidence="a test")
    outcomes = []
    for one in running:
        with one:
            outcomes.append(one.outcome())

    assert [(one.status, one.stderr) for one in outcomes] == [(0, "")] * len(running)
    assert sorted(got) == sorted(f"number {number}" for number in numbers)
    assert alice.request("session.read")["messages"] == []
    assert [pid for pid in processes_of(machine.home) if pid != alice.pid] == []


def test_a_send_gives_its_message_the_time_it_takes_since_nobody_carries_it_afterwards(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob")
    os.kill(alice.pid, signal.SIGSTOP)
    with machine.shell.start("send", "alice", "slowly", "--json") as running:
        bob.until_listed("terminal")
        os.kill(alice.pid, signal.SIGCONT)
        assert running.outcome().json["status"] == "accepted"
    assert [message["text"] for message in read(alice)] == ["slowly"]


def test_what_nobody_took_in_that_time_goes_with_a_later_command(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    os.kill(alice.pid, signal.SIGSTOP)
    shown = machine.shell.run("send", "alice", "later")
    message_id, _, rest = shown.text.partition("  ")
    assert (shown.status, rest.partition(" ")[0]) == (0, "queued")
    assert "any later command of this session, such as `herd inbox`, tries again" in rest
    os.kill(alice.pid, signal.SIGCONT)

    with machine.shell.start("inbox", "--wait") as waiting:
        [message] = read(alice)
        assert message["text"] == "later"
        # What only tells of receipts ends no wait.
        alice.send(message["from"]["target"], "at last")
        told = waiting.outcome().text
    assert told.startswith(f"your message {message_id} to ")
    assert " is accepted\n" in told
    assert told.endswith("  | at last\n")


def test_a_command_beside_a_stopped_one_fails_in_time_and_says_so(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    with machine.shell.start("inbox", "--wait") as stopped:
        alice.until_listed("terminal")
        os.kill(stopped.pid, signal.SIGSTOP)

        shown = machine.shell.run("cancel", "some-message", "--json")

        assert shown.status == 5
        assert shown.refusal["code"] in {"PEER_OFFLINE", "DELIVERY_UNKNOWN"}


# --- herd inbox ------------------------------


def test_waiting_ends_when_a_message_comes(machine: Machine):
    alice = first_contact(machine)
    with machine.shell.start("inbox", "--wait") as waiting:
        target = alice.until_listed("terminal")
        sent = alice.send(target, "here it is")

        shown = waiting.outcome()

    assert shown.status == 0
    assert shown.text.endswith('named "alice"\n  | here it is\n')
    assert alice.request("session.status", message_id=sent)["state"] == "delivered"


def test_waiting_ends_after_its_time(machine: Machine):
    assert machine.shell.run("inbox", "--wait", "0.05").text == "nothing new\n"
    assert machine.shell.run("inbox", "--wait", "0").text == "nothing new\n"
    assert machine.shell.run("inbox", "--wait", "0.05", "--json").json["timed_out"] is True
    for seconds in ("-1", "nan", "-inf", "soon"):
        assert machine.shell.run("inbox", f"--wait={seconds}").status == 2


def test_an_interrupt_ends_the_waiting_in_order(machine: Machine):
    alice = first_contact(machine)
    with machine.shell.start("inbox", "--wait") as waiting:
        alice.until_listed("terminal")
        os.kill(waiting.pid, signal.SIGINT)

        shown = waiting.outcome()

    assert (shown.status, shown.stdout, shown.stderr) == (130, b"", "")
    assert alice.request("session.list")["peers"] == []
    assert not os.path.exists(machine.layout.record(DEFAULT.key))


@pytest.mark.requirement("D-evidence-01")
@pytest.mark.parametrize("reader", ["that is gone", "that is full", "that is closed"])
def test_a_message_that_nobody_could_see_stays_and_is_given_again(machine: Machine, reader: str):
    alice = first_contact(machine)
    target = target_of(machine.shell)
    sent = alice.send(target, "m" * 6_000)

    assert lost_output(machine, reader).status == 1

    assert alice.request("session.status", message_id=sent)["state"] == "accepted"
    shown = machine.shell.run("inbox")
    assert shown.text.startswith(f"message {sent} from lead session ")
    assert "(again: an earlier hand-over was not confirmed)" in shown.text
    assert alice.request("session.status", message_id=sent)["state"] == "delivered"
    assert machine.shell.run("inbox").text == "nothing new\n"


def lost_output(machine: Machine, reader: str) -> Outcome:
    """Run `herd inbox` with a standard output that takes nothing."""
    if reader == "that is closed":
        herd = ("sh", "-c", 'exec "$@" >&-', "sh", *machine.shell.herd)
        shown = machine.command_line(machine.terminal, herd=herd).run("inbox")
        assert shown.stderr == "herd: standard output cannot be written: it is closed\n"
        return shown
    if reader == "that is full":
        full = os.open("/dev/full", os.O_WRONLY)
        with machine.shell.start("inbox", stdout=full) as running:
            os.close(full)
            shown = running.outcome()
        assert shown.stderr == "herd: standard output cannot be written: No space left on device\n"
        return shown
    ours, theirs = os.pipe()
    os.close(ours)
    with machine.shell.start("inbox", stdout=theirs) as running:
        os.close(theirs)
        shown = running.outcome()
    assert shown.stderr == ""
    return shown


@pytest.mark.requirement("D-evidence-01")
def test_nothing_is_confirmed_while_the_output_is_not_taken(machine: Machine):
    alice = first_contact(machine)
    target = target_of(machine.shell)
    sent = [alice.send(target, "m" * 7_000) for _ in range(12)]
    ours, theirs = os.pipe()  # which holds 65,536 bytes
    with machine.shell.start("inbox", stdout=theirs) as running:
        os.close(theirs)
        filled = wait_until_asleep_in_a_pipe(running)

        states = [alice.request("session.status", message_id=one)["state"] for one in sent]
        assert "accepted" in states
        # What is confirmed already was read whole: the batches before the one that waits.
        delivered = states.count("delivered")
        assert states == ["delivered"] * delivered + ["accepted"] * (len(sent) - delivered)
        assert delivered * 7_000 < filled
        taken = b""
        while data := os.read(ours, 1 << 16):
            taken += data
        assert running.outcome().status == 0
    os.close(ours)
    assert taken.count(b"m" * 7_000) == len(sent)
    assert {alice.request("session.status", message_id=one)["state"] for one in sent} == {"delivered"}


def wait_until_asleep_in_a_pipe(running: Running) -> int:
    """Wait until a command sleeps because its pipe is full, and give how much the pipe holds."""
    deadline = time.monotonic() + WAIT_S
    while "pipe" not in Path(f"/proc/{running.pid}/wchan").read_text(encoding="utf-8"):
        assert time.monotonic() < deadline, "it never filled its pipe"
    return 65_536


def test_what_was_handed_over_in_vain_a_person_is_given_all_the_same(machine: Machine):
    alice = first_contact(machine)
    target = target_of(machine.shell)
    alice.send(target, "in vain")
    for _ in range(HANDOVERS + 1):
        assert lost_output(machine, "that is gone").status == 1

    assert texts(machine.shell.run("inbox", "--json")) == ["in vain"]


def test_one_message_can_be_read_again(machine: Machine):
    alice = first_contact(machine)
    target = target_of(machine.shell)
    sent = alice.send(target, "again")
    first = machine.shell.run("inbox", "--message", sent)
    assert first.text.endswith("  | again\n")
    assert alice.request("session.status", message_id=sent)["state"] == "delivered"

    assert machine.shell.run("inbox", "--message", sent).text == first.text
    shown = machine.shell.run("inbox", "--message", "no-such-message", "--json")
    assert (shown.status, shown.refusal["code"]) == (3, "UNKNOWN_TARGET")


@pytest.mark.requirement("D-visit-08")
def test_the_mailbox_of_a_sleeping_session_is_read_and_no_status_changes(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob")
    targets = {
        name: one.request("session.whoami")["target"] for name, one in (("alice", alice), ("bob", bob))
    }
    bob.until_listed("alice")
    asked = bob.send(targets["alice"], "asked")
    assert bob.end() == 0
    sent = machine.shell.run("send", targets["bob"], "for bob", "--json").json["message_id"]

    for commands in (machine.cron, machine.inside):
        shown = commands.run("inbox", "--session", targets["bob"])
        assert shown.text == (
            f'message {sent} from terminal session {target_of(machine.shell)} named "terminal"\n  | for bob\n'
        )
        receipt = commands.run("status", asked, "--session", targets["bob"], "--json").json
        assert (receipt["message_id"], receipt["to"]) == (asked, targets["alice"])
        assert receipt["state"] == "accepted"
    assert machine.shell.run("status", sent, "--json").json["state"] == "accepted"
    bob = machine.session("codex", "bob", name="bob")
    [message] = read(bob)
    assert (message["message_id"], message.get("again")) == (sent, None)


@pytest.mark.requirement("D-visit-08")
def test_a_status_in_the_terminal_starts_no_coordinator_where_a_visit_does(machine: Machine):
    alice = first_contact(machine)
    sent = machine.shell.run("send", "alice", "x", "--json").json["message_id"]
    folder = Path(machine.layout.peers)
    before = stat.S_IMODE(folder.stat().st_mode), folder.stat().st_mtime_ns

    assert machine.shell.run("status", sent).status == 0

    assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_mtime_ns) == before
    assert alice.request("session.list")["peers"] == []


@pytest.mark.requirement("A-limits-24")
def test_the_status_of_what_expired_while_nobody_ran_is_asked_for(machine: Machine):
    alice = first_contact(machine)
    target = target_of_session(alice)
    alice.end()
    sent = machine.shell.run("send", target, "x", "--expires-in=1", "--json").json["message_id"]

    receipt = machine.shell.run("status", sent, "--json").json

    assert receipt["state"] == "expired"


def target_of_session(session: HerdSession) -> str:
    return str(session.request("session.whoami")["target"])


def test_a_running_session_is_read_by_its_own_host_alone(machine: Machine):
    machine.session("claude", "alice", name="alice")
    target = target_of(machine.inside)

    for commands, words in (
        (machine.cron, ["inbox"]),
        (machine.inside, ["inbox"]),
        (machine.shell, ["status", "m"]),
    ):
        shown = commands.run(*words, "--session", target, "--json")
        assert (shown.status, shown.refusal["code"]) == (6, "SESSION_HELD")
    # A person looks, and reads nothing by it.
    assert machine.shell.run("inbox", "--session", target).text == "nothing waits\n"
    for other in ("lead:0000000000", "alice", "../x"):
        shown = machine.shell.run("inbox", "--session", other, "--json")
        assert (shown.status, shown.refusal["code"]) == (3, "UNKNOWN_TARGET")
    for more in (["--wait", "1"], ["--message", "m"]):
        assert machine.shell.run("inbox", "--session", target, *more).status == 2


def test_an_agent_reads_its_mail_by_the_command_line_too(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    sent = machine.shell.run("send", "alice", "for the agent", "--json").json["message_id"]

    assert machine.inside.run("inbox").text.endswith("  | for the agent\n")

    assert machine.shell.run("status", sent).text.endswith("  delivered\n")
    assert alice.request("session.read")["messages"] == []


def test_a_message_that_the_host_was_handed_is_not_given_to_its_command_line(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    assert machine.shell.run("send", "alice", "for the agent").status == 0
    [handed] = read(alice)

    assert machine.inside.run("inbox").text == "nothing new\n"

    alice.request("session.confirm", message_ids=[handed["message_id"]], evidence="a test")


def test_a_person_sees_the_output_in_the_terminal_itself(machine: Machine):
    alice = first_contact(machine)
    target = target_of(machine.shell)
    alice.send(target, "\x1b[31mred\x07")
    person, process = machine.terminal.open()

    with machine.shell.start("inbox", stdin=process, stdout=process) as running:
        assert running.outcome().status == 0
        assert select.select([person], [], [], WAIT_S)[0]
        shown = os.read(person, 1 << 16)

    assert b"red" in shown
    assert b"\x1b" not in shown
    assert b"\x07" not in shown


def test_the_status_of_a_pending_message_is_asked_for_and_not_read_from_yesterday(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    os.kill(alice.pid, signal.SIGSTOP)
    message_id = machine.shell.run("send", "alice", "later", "--json").json["message_id"]
    os.kill(alice.pid, signal.SIGCONT)
    with machine.shell.start("inbox", "--wait"):  # which carries what is pending, and is interrupted then
        [message] = read(alice)

    assert message["message_id"] == message_id
    assert machine.shell.run("status", message_id, "--json").json["state"] == "accepted"
