"""Whose command line it is, and what `send`, `peers`, `whoami`, `status` and `cancel` do, as processes."""

import os
import sqlite3
from typing import Any

import pytest

from herd.core.errors import UnknownTarget
from herd.core.identity import SessionName
from herd.core.limits import DEFAULT_LIMITS, READ_BYTES, STDIN_BYTES
from tests.fakes.command_line import CommandLine, Outcome, Terminal
from tests.fakes.herd_session import HerdSession
from tests.processes.conftest import Machine

TERMINAL = SessionName("terminal", "default")


def belongs_to(commands: CommandLine, *words: str, environ: dict[str, str] | None = None) -> str:
    """Give the name of the session that a command line acts for."""
    shown = commands.run("whoami", "--json", *words, environ=environ)
    assert shown.status == 0, shown.stderr
    return str(shown.json["name"])


def refused(commands: CommandLine, *words: str, stdin: bytes = b"") -> tuple[int, str]:
    """Give status and code of a command that has to refuse, and has to print nothing else."""
    shown = commands.run(*words, "--json", stdin=stdin)
    assert shown.stdout == b""
    assert shown.refusal["hint"]
    return shown.status, str(shown.refusal["code"])


def taken(reader: HerdSession) -> list[dict[str, Any]]:
    """Read and confirm one batch, waiting for its first message."""
    messages = reader.request("session.read", wait_ms=10_000)["messages"]
    ids = [message["message_id"] for message in messages]
    reader.request("session.confirm", message_ids=ids, evidence="a test")
    return list(messages)


# --- whose command line it is ------------------------------


@pytest.mark.requirement("D-cli-01")
def test_a_command_belongs_to_the_session_of_the_host_above_it(machine: Machine):
    machine.session("claude", "alice", name="alice")
    other = machine.new_host()
    machine.session("pi", "bob", name="bob", parent=other)

    assert belongs_to(machine.inside) == "alice"
    assert belongs_to(machine.command_line(other)) == "bob"


@pytest.mark.requirement("D-cli-01")
def test_the_host_may_be_any_number_of_processes_above(machine: Machine):
    machine.session("claude", "alice", name="alice")
    # Not `exec`, so that each shell is a process between the host and the command.
    between = ("sh", "-c", 'sh -c \'"$@"; exit $?\' sh "$@"; exit $?', "sh")

    commands = machine.command_line(machine.host, herd=(*between, *machine.inside.herd))

    assert belongs_to(commands) == "alice"


@pytest.mark.requirement("D-cli-01")
def test_the_nearest_host_wins_whatever_terminal_controls_the_command(machine: Machine):
    machine.session("claude", "outer", name="outer")
    inner = machine.new_host(inside=machine.host)
    deepest = machine.new_host(inside=inner)
    assert belongs_to(machine.command_line(deepest)) == "outer"

    session = machine.session("codex", "inner", name="inner", parent=inner)

    assert belongs_to(machine.command_line(inner)) == "inner"
    assert belongs_to(machine.command_line(deepest)) == "inner"
    assert belongs_to(machine.inside) == "outer"
    with Terminal(deepest) as terminal:
        assert belongs_to(machine.command_line(terminal)) == "inner"
    session.end()
    assert belongs_to(machine.command_line(deepest)) == "outer"


def test_a_session_that_was_killed_is_nobodys_any_more(machine: Machine):
    machine.session("claude", "alice").kill()

    assert refused(machine.inside, "whoami") == (3, "NO_SESSION")


@pytest.mark.requirement("D-cli-02")
def test_under_a_host_with_several_sessions_its_own_variable_decides_or_nobody(machine: Machine):
    first = machine.session("claude", "first", name="first")
    assert belongs_to(machine.inside, environ={"CLAUDE_CODE_SESSION_ID": "another"}) == "first"
    second = machine.session("claude", "second", name="second")

    assert belongs_to(machine.inside, environ={"CLAUDE_CODE_SESSION_ID": "second"}) == "second"
    assert belongs_to(machine.inside, environ={"CLAUDE_CODE_SESSION_ID": "first"}) == "first"
    for environ in ({}, {"CLAUDE_CODE_SESSION_ID": "third"}, {"CODEX_THREAD_ID": "first"}):
        commands = machine.command_line(machine.host, environ=environ)
        shown = commands.run("whoami", "--json")
        assert (shown.status, shown.refusal["code"]) == (3, "AMBIGUOUS_TARGET")
        targets = [session.request("session.whoami")["target"] for session in (first, second)]
        assert shown.refusal["candidates"] == sorted(targets)
        assert refused(commands, "send", "x", "y") == (3, "AMBIGUOUS_TARGET")


@pytest.mark.requirement("D-cli-02")
def test_the_variable_of_another_host_decides_nothing(machine: Machine):
    machine.session("codex", "first", name="first")
    machine.session("codex", "second", name="second")

    assert belongs_to(machine.inside, environ={"CODEX_THREAD_ID": "second"}) == "second"
    commands = machine.command_line(machine.host, environ={"CLAUDE_CODE_SESSION_ID": "second"})
    assert refused(commands, "whoami") == (3, "AMBIGUOUS_TARGET")


@pytest.mark.requirement("D-cli-02")
def test_a_host_without_a_variable_of_its_own_is_ambiguous(machine: Machine):
    machine.session("opencode", "first")
    machine.session("opencode", "second")

    for name in ("OPENCODE_SESSION_ID", "PI_SESSION_ID", "CLAUDE_CODE_SESSION_ID"):
        commands = machine.command_line(machine.host, environ={name: "second"})
        assert refused(commands, "whoami") == (3, "AMBIGUOUS_TARGET")


@pytest.mark.requirement("D-cli-03")
def test_without_a_host_a_controlling_terminal_makes_it_the_terminal_session(machine: Machine):
    machine.session("claude", "alice", name="alice")

    shown = machine.shell.run("whoami", "--json").json

    assert (shown["name"], shown["role"], shown["kind"]) == ("terminal", "lead", "ordinary")
    assert belongs_to(machine.shell, environ={"CLAUDE_CODE_SESSION_ID": "alice"}) == "terminal"


@pytest.mark.requirement("D-cli-04")
def test_with_neither_a_host_nor_a_terminal_it_is_refused_and_nothing_is_done(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    every = [
        ["whoami"],
        ["peers"],
        ["send", "alice", "x"],
        ["inbox", "--wait"],
        ["status", "m"],
        ["cancel", "m"],
    ]

    for words in every:
        shown = machine.cron.run(*words)
        assert (shown.status, shown.stdout) == (3, b"")
        assert shown.stderr.startswith("herd: NO_SESSION: ")
        assert "`--as NAME`" in shown.stderr

    assert os.listdir(machine.layout.sessions) == [SessionName("claude", "alice").key]
    assert alice.request("session.read")["messages"] == []


@pytest.mark.requirement("D-cli-05")
def test_as_names_a_terminal_session_and_nothing_else(machine: Machine):
    machine.session("claude", "alice", name="alice")

    for commands in (machine.cron, machine.shell):
        assert belongs_to(commands, "--as", "alice") == "alice"
    own = machine.cron.run("whoami", "--as", "alice", "--json").json
    [peer] = machine.cron.run("peers", "--as", "alice", "--json").json["peers"]
    assert peer["name"] == "alice"
    assert own["target"] != peer["target"]
    assert machine.cron.run("send", "--as", "alice", "alice", "x").status == 0
    assert {SessionName("terminal", "alice").key, SessionName("claude", "alice").key} == set(
        os.listdir(machine.layout.sessions)
    )
    assert belongs_to(machine.cron, "--as", "default") == "terminal"


@pytest.mark.requirement("D-cli-05")
def test_as_is_refused_under_a_host(machine: Machine):
    machine.session("claude", "alice", name="alice")
    every = [["whoami"], ["peers"], ["send", "x", "y"], ["inbox"], ["status", "m"], ["cancel", "m"]]
    for words in every:
        assert refused(machine.inside, *words, "--as", "bot") == (4, "CAPABILITY_DENIED")
    with Terminal(machine.host) as terminal:
        own_terminal = machine.command_line(terminal)
        assert refused(own_terminal, "send", "x", "y", "--as", "default") == (4, "CAPABILITY_DENIED")
    assert os.listdir(machine.layout.sessions) == [SessionName("claude", "alice").key]


def test_as_takes_a_name_only(machine: Machine):
    for name in ("", "lead:0000000000", "ü", "x" * 65, "x\n", "../x"):
        assert refused(machine.cron, "whoami", f"--as={name}") == (2, "INVALID_PARAMS")


# --- send ------------------------------


@pytest.mark.requirement("D-cli-09")
def test_a_target_or_an_unambiguous_name_is_taken_and_nothing_of_it_counts_as_shown(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("pi", "bob", name="bob", parent=machine.new_host())
    target = bob.request("session.whoami")["target"]

    assert machine.inside.run("peers").status == 0
    assert machine.inside.run("send", "bob", "by name").status == 0
    assert machine.inside.run("send", target, "by target").status == 0

    assert [message["text"] for message in taken(bob)] == ["by name", "by target"]
    with pytest.raises(UnknownTarget, match="was not shown"):
        alice.request("session.send", target=target, message="as a tool")
    alice.end()
    with sqlite3.connect(machine.layout.mailbox(SessionName("claude", "alice").key)) as mailbox:
        assert mailbox.execute("SELECT count(*) FROM shown").fetchone() == (0,)
    mailbox.close()


@pytest.mark.requirement("D-cli-09")
def test_a_name_means_who_bears_it_now(machine: Machine):
    first = machine.session("claude", "first", name="worker")
    assert machine.shell.run("send", "worker", "to the first").status == 0
    first.request("session.update", name="other")
    second = machine.session("codex", "second", name="worker")

    assert machine.shell.run("send", "worker", "to the second").status == 0

    assert [message["text"] for message in taken(first)] == ["to the first"]
    assert [message["text"] for message in taken(second)] == ["to the second"]


@pytest.mark.requirement("A-discover-04")
def test_a_name_that_several_bear_sends_nothing_and_lists_them(machine: Machine):
    both = [machine.session(host, "s", name="api-worker") for host in ("claude", "codex")]
    targets = [session.request("session.whoami")["target"] for session in both]

    shown = machine.shell.run("send", "api-worker", "x", "--json")

    assert (shown.status, shown.refusal["code"]) == (3, "AMBIGUOUS_TARGET")
    assert sorted(shown.refusal["candidates"]) == sorted(targets)
    assert all(session.request("session.read")["messages"] == [] for session in both)
    assert all(machine.shell.run("send", target, f"to {target}").status == 0 for target in targets)
    assert [taken(session)[0]["text"] for session in both] == [f"to {target}" for target in targets]


@pytest.mark.requirement("A-discover-04")
def test_a_callers_own_name_is_nobody_and_leaves_a_namesake_alone(machine: Machine):
    alice = machine.session("claude", "alice", name="twin")
    assert refused(machine.inside, "send", "twin", "x") == (3, "UNKNOWN_TARGET")
    assert refused(machine.inside, "send", alice.request("session.whoami")["target"], "x") == (
        3,
        "UNKNOWN_TARGET",
    )
    twin = machine.session("codex", "twin", name="twin", parent=machine.new_host())

    assert machine.inside.run("send", "twin", "to the other one").status == 0

    assert taken(twin)[0]["text"] == "to the other one"


def given_as_argument(commands: CommandLine, text: bytes) -> Outcome:
    return commands.run("send", "alice", text)


def given_on_standard_input(commands: CommandLine, text: bytes) -> Outcome:
    return commands.run("send", "alice", stdin=text)


def given_by_a_dash(commands: CommandLine, text: bytes) -> Outcome:
    return commands.run("send", "alice", "-", stdin=text)


WAYS = [given_as_argument, given_on_standard_input, given_by_a_dash]
LOCALES = [
    {},
    {"LANG": "C", "PYTHONUTF8": "0"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("environ", LOCALES)
def test_a_text_arrives_byte_for_byte_in_every_locale(machine: Machine, way, environ: dict[str, str]):
    text = "漢字 👩🏽‍🚀 e\u0301 \x1b[31m\x00 \u202e ümlaut \ttab\r\nend\n"
    if way is given_as_argument:
        text = text.replace("\x00", "")
    machine.session("claude", "alice", name="alice", environ=environ)

    assert way(machine.command_line(machine.terminal, environ=environ), text.encode()).status == 0

    inside = machine.command_line(machine.host, environ=environ)
    shown = inside.run("inbox", "--json")
    assert [message["text"] for message in shown.json["messages"]] == [text]
    assert shown.stderr == ""


@pytest.mark.parametrize("way", [given_on_standard_input, given_by_a_dash])
def test_a_text_of_just_the_bound_fits_and_one_more_byte_does_not(machine: Machine, way):
    alice = machine.session("claude", "alice", name="alice")

    most = DEFAULT_LIMITS.mailbox_payload_bytes
    assert way(machine.shell, b"x" * most).status == 0
    over = way(machine.shell, b"x" * (most + 1))
    assert (over.status, over.stdout) == (7, b"")
    assert over.stderr.startswith("herd: MESSAGE_TOO_LARGE: ")
    (message,) = taken(alice)
    assert (message["text"], message["next_offset"]) == ("x" * READ_BYTES, READ_BYTES)


@pytest.mark.parametrize(
    "size", [2 * DEFAULT_LIMITS.mailbox_payload_bytes, STDIN_BYTES, STDIN_BYTES + 1, 2 * STDIN_BYTES]
)
@pytest.mark.parametrize("where", ["shell", "inside"])
def test_a_text_far_too_large_is_called_that_and_never_cut(machine: Machine, size: int, where: str):
    machine.session("claude", "alice", name="alice")
    machine.session("codex", "bob", name="bob", parent=machine.new_host())
    text = ("x" + "ü" * size)[: size // 2].encode()  # a bound would fall into a character

    assert refused(getattr(machine, where), "send", "bob", stdin=text) == (7, "MESSAGE_TOO_LARGE")


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["send", "alice", b"\xff\xfe"], b""),
        (["send", "alice"], b"\xc3"),
        (["send", "alice", "-"], b"half \xe2\x82"),
        (["send", "alice"], b""),
        (["send", "alice", ""], b"not read"),
        (["send", "alice", "-"], b""),
        (["send", b"\xff", "x"], b""),
        (["send", "alice", "x", "--topic", b"\xff"], b""),
        (["send", "alice", "x", "--topic", ""], b""),
        (["send", "alice", "x", "--topic", "t" * 257], b""),
        (["send", "alice", "x", "--reply-to", "no id!"], b""),
        (["send", "alice", b"\xed\xa0\x80"], b""),
        (["send"], b""),
        (["send", "alice", "x", "y"], b""),
        (["send", "alice", "--loud"], b""),
    ],
)
def test_what_is_no_message_is_a_wrong_use_and_sends_nothing(machine: Machine, words, stdin: bytes):
    alice = machine.session("claude", "alice", name="alice")

    shown = machine.shell.run(*words, stdin=stdin)

    assert (shown.status, shown.stdout) == (2, b"")
    assert "Traceback" not in shown.stderr
    assert alice.request("session.read")["messages"] == []


def test_nobody_at_a_terminal_is_left_waiting_for_a_text(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    person, process = machine.terminal.open()
    shown = machine.shell.run("send", "alice", stdin=process)
    assert (shown.status, shown.stderr.partition("\n")[0]) == (
        2,
        "herd: INVALID_PARAMS: there is no text: give it as the second argument, or `-` and type it",
    )

    with machine.shell.start("send", "alice", "-", stdin=process) as typed:
        os.write(person, b"typed by a person\n\x04")
        assert typed.outcome().status == 0
    assert taken(alice)[0]["text"] == "typed by a person\n"


@pytest.mark.parametrize("text", [["--", "-x"], ["--", "--json"]])
def test_a_text_may_look_like_an_option(machine: Machine, text: list[str]):
    alice = machine.session("claude", "alice", name="alice")

    assert machine.shell.run("send", "alice", *text).text.endswith("  accepted\n")

    assert taken(alice)[0]["text"] == text[-1]


def test_what_a_send_printed_is_what_the_tool_of_the_session_gives(machine: Machine):
    machine.session("claude", "alice", name="alice")
    bob = machine.session("pi", "bob", name="bob", parent=machine.new_host())
    target = bob.request("session.whoami")["target"]

    sent = at_once(machine.inside, "bob", "one", "--topic", "a topic", "--no-reply-needed").json
    assert sent == {"message_id": sent["message_id"], "target": target, "status": "accepted"}
    message = taken(bob)[-1]
    assert (message["topic"], message["no_reply_needed"]) == ("a topic", True)
    assert (message["from"]["name"], message["message_id"]) == ("alice", sent["message_id"])
    bob.kill()
    asleep = at_once(machine.inside, target, "two").json
    assert asleep == {**sent, "message_id": asleep["message_id"], "peer_running": False}


def test_a_send_to_a_session_that_sleeps_says_so(machine: Machine):
    bob = machine.session("pi", "bob")
    target = bob.request("session.whoami")["target"]
    bob.end()

    assert machine.shell.run("send", target, "x").text in {
        f"{message_id}  accepted{remark}\n"
        for message_id in message_ids(machine, target)
        # Where it took longer than an answer does, who took it in is not told.
        for remark in (" (that session is not running; its mailbox has it)", "")
    }


def message_ids(machine: Machine, target: str) -> list[str]:
    waiting = machine.cron.run("inbox", "--session", target, "--json").json
    return [message["message_id"] for message in waiting["messages"]]


def at_once(commands: CommandLine, *words: str) -> Outcome:
    """Send until an answer comes that tells more than `queued`."""
    for _ in range(8):
        shown = commands.run("send", *words, "--json")
        if shown.json["status"] != "queued":
            return shown
    raise TimeoutError("eight messages were queued, one after the other")


def test_a_reply_is_one_and_only_to_its_sender(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    hosts = {"bob": machine.new_host(), "carol": machine.new_host()}
    bob = machine.session("pi", "bob", name="bob", parent=hosts["bob"])
    carol = machine.session("codex", "carol", name="carol", parent=hosts["carol"])
    question = machine.inside.run("send", "bob", "a question", "--json").json["message_id"]
    assert taken(bob)[0]["message_id"] == question
    as_bob = machine.command_line(hosts["bob"])

    assert refused(as_bob, "send", "carol", "x", "--reply-to", question) == (4, "INVALID_REPLY")
    assert refused(as_bob, "send", "alice", "x", "--reply-to", "no-such-message") == (4, "INVALID_REPLY")
    assert as_bob.run("send", "alice", "an answer", "--reply-to", question).status == 0

    [answer] = taken(alice)
    assert (answer["text"], answer["reply_to"]) == ("an answer", question)
    assert machine.inside.run("status", question).text.endswith("  replied\n")
    assert carol.request("session.read")["messages"] == []


# --- peers, status, cancel ------------------------------


def test_peers_shows_who_is_there_with_the_caller_first(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("pi", "bob", name="bob", parent=machine.new_host())
    targets = {
        name: session.request("session.whoami")["target"]
        for name, session in (("alice", alice), ("bob", bob))
    }
    bob.request("session.update", activity="working")

    shown = machine.inside.run("peers")
    assert shown.text == (
        f"you are {targets['alice']}  alice\n{targets['bob']}  bob  {machine.home}  working\n"
    )
    view = machine.inside.run("peers", "--json").json
    listed = alice.request("session.list")
    assert view["peers"] == listed["peers"]
    assert view["self"] == listed["self"]
    assert [peer["name"] for peer in machine.shell.run("peers", "--json", "ALI").json["peers"]] == ["alice"]
    assert "nobody else is here\n" in machine.shell.run("peers", "no such label").text


@pytest.mark.parametrize("environ", LOCALES)
def test_a_query_may_be_any_text(machine: Machine, environ: dict[str, str]):
    machine.session("claude", "alice", name="für 漢字")

    shell = machine.command_line(machine.terminal, environ=environ)

    assert len(shell.run("peers", "--json", "FÜR 漢").json["peers"]) == 1
    assert shell.run("peers", b"\xff").status == 2


def test_a_receipt_is_shown_and_nothing_of_it_is_guessed(machine: Machine):
    bob = machine.session("pi", "bob", name="bob")
    sent = machine.shell.run("send", "bob", "x", "--json").json["message_id"]

    first = machine.shell.run("status", sent, "--json").json
    assert (first["message_id"], first["state"]) == (sent, "accepted")
    assert "delivered_at" not in first
    taken(bob)
    bob.end()
    again = machine.shell.run("status", sent, "--json").json
    assert (again["state"], again["to"]) == ("delivered", first["to"])
    assert machine.shell.run("status", sent).text == f"{sent}  to {first['to']}  delivered\n"
    assert refused(machine.shell, "status", "no-such-message") == (3, "UNKNOWN_TARGET")
    assert refused(machine.shell, "cancel", sent) == (6, "MESSAGE_ID_CONFLICT")
    assert refused(machine.shell, "cancel", "no-such-message") == (3, "UNKNOWN_TARGET")


@pytest.mark.parametrize("words", [["status"], ["cancel"], ["status", "a", "b"], ["peers", "a", "b"]])
def test_a_wrong_use_of_a_command_is_told_with_its_usage(machine: Machine, words: list[str]):
    shown = machine.shell.run(*words)

    assert (shown.status, shown.stdout) == (2, b"")
    assert shown.stderr.startswith("herd: INVALID_PARAMS: ")
    assert "\n  usage: herd " in shown.stderr
    as_json = machine.shell.run(*words, "--json")
    assert (as_json.status, as_json.refusal["code"]) == (2, "INVALID_PARAMS")


def test_help_names_every_command_and_an_unknown_one_is_a_wrong_use(machine: Machine):
    for words in ([], ["--help"]):
        shown = machine.cron.run(*words)
        assert (shown.status, shown.stderr) == (0, "")
        for command in ("peers", "send", "inbox", "status", "cancel", "whoami", "doctor", "session"):
            assert f"    {command} " in shown.text
    assert machine.cron.run("send", "--help").text.startswith("usage: herd send ")
    assert machine.cron.run("perrs").status == 2
    assert machine.cron.run("--version", "--wrong").status == 2
