"""`herd session` as a process: its lines, its ends, what it holds, and what it leaves."""

import json
import os
import select
import signal
import stat
from pathlib import Path

import pytest

from herd.core.errors import (
    CapabilityDenied,
    HerdError,
    InvalidParams,
    MethodNotFound,
    NoSession,
    ParseError,
    UnknownTarget,
    from_wire,
)
from herd.core.identity import SessionName
from herd.core.locks import Owner
from herd.core.processes import start_token
from tests.fakes.command_line import Outcome
from tests.fakes.herd_session import WAIT_S, HerdSession, SessionEndedError
from tests.fakes.programs import hanging_git
from tests.fakes.watching import command_line_of, processes_of, sockets_of
from tests.processes.conftest import Machine

ALICE = SessionName("claude", "alice")
BOB = SessionName("codex", "bob")


def records(machine: Machine) -> list[str]:
    return os.listdir(machine.layout.peers)


def target_of_other(session: HerdSession) -> str:
    """List, as a tool does before it sends, and give the one peer's target."""
    [peer] = session.request("session.list")["peers"]
    return str(peer["target"])


def taken(reader: HerdSession, **query: object) -> list[str]:
    """Read and confirm what waits, and give the texts."""
    messages = reader.request("session.read", **query)["messages"]
    if messages:
        ids = [message["message_id"] for message in messages]
        reader.request("session.confirm", message_ids=ids, evidence="a test")
    return [message["text"] for message in messages]


# --- its lines ------------------------------


def test_requests_are_answered_in_lines_and_nothing_else_is_written(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")

    first, second = alice.begin("session.whoami"), alice.begin("session.list")
    assert alice.result(second)["self"]["name"] == "alice"
    assert alice.result(first)["kind"] == "ordinary"
    assert alice.end() == 0
    assert alice.others == []
    assert alice.stderr == ""


@pytest.mark.parametrize(
    ("method", "params", "refusal"),
    [
        ("session.whoami", {"more": 1}, InvalidParams),
        ("session.send", {"target": "lead:0000000000"}, InvalidParams),
        ("session.send", {"target": "lead:0000000000", "message": "x", "sender": "me"}, InvalidParams),
        ("session.send", {"target": "lead:0000000000", "message": 7}, InvalidParams),
        ("session.send", {"target": "lead:0000000000", "message": "x"}, UnknownTarget),
        ("session.read", {"wait_ms": -1}, InvalidParams),
        ("session.read", {"message_id": "nobody-sent-it"}, UnknownTarget),
        ("session.status", {"message_id": "../../x"}, InvalidParams),
        ("session.update", {"activity": "asleep"}, InvalidParams),
        ("session.destroy", {}, MethodNotFound),
        ("peer.directory", {}, MethodNotFound),
    ],
)
def test_a_wrong_request_is_refused_and_the_next_one_is_served(
    machine: Machine, method: str, params: dict[str, object], refusal: type[HerdError]
):
    alice = machine.session("claude", "alice")

    with pytest.raises(refusal):
        alice.request(method, **params)
    assert alice.request("session.whoami")["kind"] == "ordinary"


def test_a_line_that_is_no_json_is_named_and_ends_the_session_in_order(machine: Machine):
    alice = machine.session("claude", "alice")

    alice.write(b'{"jsonrpc":"2.0","id":7,"method":"session.whoami","params":{}}\n{"half\n')
    answers = [alice.line(), alice.line()]
    told = {answer["id"]: answer for answer in answers}
    assert told[7]["result"]["kind"] == "ordinary"
    assert isinstance(from_wire(told[None]["error"]), ParseError)
    assert alice.wait() == 2
    assert records(machine) == []


@pytest.mark.parametrize("name", ["\x1b[31mred", "x" * 512, "\u202e", " a name "])
def test_a_session_takes_whatever_name_it_is_given(machine: Machine, name: str):
    alice = machine.session("claude", "alice", name=name)

    assert alice.request("session.whoami")["name"] == name


# --- how it starts ------------------------------


def test_without_a_session_nothing_is_published_until_one_is_bound(machine: Machine):
    waiting = machine.starting(None)
    with pytest.raises(NoSession):
        waiting.request("session.whoami")
    assert records(machine) == []

    bound = waiting.request("session.bind", host="pi", session_id="p", created="2026", cwd="/", name="pi")
    assert bound["target"] == waiting.request("session.whoami")["target"]
    assert records(machine) == [f"{SessionName('pi', 'p', '2026').key}.json"]
    assert waiting.end() == 0
    assert records(machine) == []


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--host", "claude"], 2),
        (["--session", "alice"], 2),
        (["--host", "Claude!", "--session", "alice"], 2),
        (["--host", "claude", "--session", ""], 2),
        (["--host", "claude", "--session", "x" * 513], 2),
        (["--host", "claude", "--session", b"\xff\xfe"], 2),
        (["--host", "claude", "--session", "alice", "--name", "x" * 513], 2),
        (["--host", "claude", "--session", "alice", "--name", ""], 2),
        (["--host", "claude", "--session", "alice", "--created", "x" * 513], 2),
        (["--host", "claude", "--session", "alice", "more"], 2),
        (["--wrong"], 2),
        (["--host", "terminal", "--session", "default"], 4),
    ],
)
def test_wrong_arguments_start_nothing(machine: Machine, words: list[str | bytes], status: int):
    refused = machine.cron.run("session", *words)

    assert (refused.status, refused.stdout) == (status, b"")
    assert refused.stderr != ""
    assert "Traceback" not in refused.stderr
    assert records(machine) == []
    assert os.listdir(machine.layout.sessions) == []


def test_a_session_of_the_terminal_cannot_be_bound_by_an_extension(machine: Machine):
    waiting = machine.starting(None)

    with pytest.raises(CapabilityDenied):
        waiting.request("session.bind", host="terminal", session_id="default", cwd="/")
    assert records(machine) == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_session_whose_input_or_output_is_closed_starts_nothing(machine: Machine, number: int):
    refused = closed(machine, number)

    assert refused.status == 4
    assert refused.stderr.startswith("herd: UNSAFE_ENDPOINT: standard ")
    assert records(machine) == []


def closed(machine: Machine, number: int) -> Outcome:
    """Run `herd session` with one of its standard descriptors closed."""
    words = ("sh", "-c", f'exec "$@" {number}>&-', "sh")
    herd = (*words, *machine.cron.herd)
    return machine.command_line(machine.cron.parent, herd=herd).run(
        "session", "--host", "claude", "--session", "alice"
    )


# --- whose it is ------------------------------


@pytest.mark.requirement("H-locks-02")
def test_a_second_start_is_told_who_holds_the_session_and_disturbs_nothing(machine: Machine):
    alice, bob = machine.session("claude", "alice"), machine.session("codex", "bob")
    record = Path(machine.layout.record(ALICE.key)).read_bytes()

    second = machine.starting("claude", "alice")
    with pytest.raises(SessionEndedError, match=f"exit status 6; .*SESSION_HELD: process {alice.pid} "):
        second.ready()

    assert Path(machine.layout.record(ALICE.key)).read_bytes() == record
    assert sorted(records(machine)) == sorted(f"{one.key}.json" for one in (ALICE, BOB))
    assert not os.path.exists(machine.layout.mailbox(ALICE.key))
    message = bob.send(target_of_other(bob), "still there?")
    assert taken(alice, wait_ms=5_000) == ["still there?"]
    assert bob.request("session.status", message_id=message)["state"] == "delivered"


@pytest.mark.requirement("H-locks-03")
def test_after_a_kill_the_next_start_needs_no_cleaning_up_whoever_has_the_pid_now(machine: Machine):
    first = machine.session("claude", "alice")
    before = first.request("session.whoami")
    first.kill()
    [socket] = os.listdir(machine.layout.run)
    # The pid of the killed holder is another process's by now: this one's, which lives.
    stranger = Owner(os.getpid(), start_token(os.getpid()) or "", "a claim")
    claim = json.dumps(stranger._asdict()).ljust(255) + "\n"
    Path(machine.layout.session_lock(ALICE.key)).write_text(claim, encoding="utf-8")

    again = machine.session("claude", "alice")

    assert again.request("session.whoami")["target"] == before["target"]
    assert len(os.listdir(machine.layout.run)) == 1
    assert socket not in os.listdir(machine.layout.run)
    assert len(records(machine)) == 1


# --- how it ends ------------------------------


@pytest.mark.parametrize("how", ["end of input", signal.SIGTERM, signal.SIGHUP])
def test_it_withdraws_closes_and_releases_when_it_ends(machine: Machine, how: str | signal.Signals):
    alice, bob = machine.session("claude", "alice"), machine.session("codex", "bob")
    message = bob.send(target_of_other(bob), "for later")

    if isinstance(how, signal.Signals):
        os.kill(alice.pid, how)
        status = alice.wait()
    else:
        status = alice.end()

    assert (status, alice.stderr) == (0, "")
    assert records(machine) == [f"{BOB.key}.json"]
    assert len(os.listdir(machine.layout.run)) == 1
    assert bob.request("session.list")["peers"] == []
    again = machine.session("claude", "alice")
    assert taken(again) == ["for later"]
    assert bob.request("session.status", message_id=message)["state"] == "delivered"


def test_a_signal_ends_it_in_order_while_a_read_waits(machine: Machine):
    alice = machine.session("claude", "alice")
    alice.begin("session.read", wait_ms=30_000)
    alice.request("session.whoami")

    assert alice.terminate() == 0
    assert records(machine) == []


def test_its_input_may_end_while_a_read_waits(machine: Machine):
    alice = machine.session("claude", "alice")
    alice.begin("session.read", wait_ms=30_000)
    alice.request("session.whoami")

    assert alice.end() == 0
    assert records(machine) == []


def test_an_interrupt_ends_it_in_order_with_the_status_of_interrupts(machine: Machine):
    alice = machine.session("claude", "alice")

    os.kill(alice.pid, signal.SIGINT)

    assert (alice.wait(), alice.stderr) == (130, "")
    assert records(machine) == []


@pytest.mark.requirement("A-endpoint-02")
def test_when_the_last_session_has_ended_no_process_of_herd_runs(machine: Machine):
    alice, bob = machine.session("claude", "alice"), machine.session("codex", "bob")
    alice.send(target_of_other(alice), "hello")
    assert taken(bob, wait_ms=5_000) == ["hello"]
    assert machine.shell.run("send", "--json", target_of_other(alice), "and hello").status == 0
    assert {alice.pid, bob.pid} <= set(processes_of(machine.home))

    assert [alice.end(), bob.end()] == [0, 0]

    assert {pid: command_line_of(pid) for pid in processes_of(machine.home)} == {}
    assert os.listdir(machine.layout.run) == []


@pytest.mark.requirement("A-endpoint-02")
def test_a_child_that_hangs_ends_with_its_session(machine: Machine, tmp_path: Path):
    begun = tmp_path / "begun"
    alice = machine.starting("claude", "alice", environ=hanging_git(tmp_path, begun))
    child = os.pidfd_open(int(begun.read_text(encoding="utf-8")))
    alice.ready()

    assert (alice.end(), alice.stderr) == (0, "")

    assert select.select([child], [], [], WAIT_S)[0]
    os.close(child)


# --- what it holds ------------------------------


@pytest.mark.requirement("A-endpoint-01")
def test_a_coordinator_holds_no_socket_but_unix_stream_sockets(machine: Machine):
    alice, bob = machine.session("claude", "alice"), machine.session("codex", "bob")
    alice.send(target_of_other(alice), "over a connection")
    assert taken(bob, wait_ms=5_000) == ["over a connection"]

    held = [sockets_of(session.pid) for session in (alice, bob)]

    assert {kind for sockets in held for kind in sockets} == {"unix stream"}
    assert all(len(sockets) >= 2 for sockets in held)  # it listens, and it is connected


@pytest.mark.requirement("A-endpoint-13")
def test_nothing_lies_in_the_runtime_directory_which_may_vanish(machine: Machine, tmp_path: Path):
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    places = {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime)}
    alice = machine.session("claude", "alice", environ=places)
    bob = machine.session("codex", "bob", environ=places)
    alice.send(target_of_other(alice), "before the logout")
    assert machine.shell.run("send", target_of_other(alice), "hello", environ=places).status == 0

    assert list(runtime.iterdir()) == []
    runtime.rmdir()
    alice.send(target_of_other(alice), "after it")
    assert taken(bob) == ["before the logout", "hello", "after it"]


@pytest.mark.requirement("A-presence-07")
def test_a_stopped_session_stays_listed_and_a_killed_one_is_gone_from_the_next_listing(machine: Machine):
    alice, bob = machine.session("claude", "alice"), machine.session("codex", "bob", name="bob")

    os.kill(bob.pid, signal.SIGSTOP)
    assert [peer["name"] for peer in alice.request("session.list")["peers"]] == ["bob"]
    assert b"bob" in machine.shell.run("peers").stdout

    bob.kill()
    assert alice.request("session.list")["peers"] == []
    assert b"bob" not in machine.shell.run("peers").stdout


@pytest.mark.requirement("A-discover-14")
def test_sessions_of_two_data_roots_neither_list_nor_reach_each_other(machine: Machine, tmp_path: Path):
    other = tmp_path / "root"
    other.mkdir(mode=0o700)
    there = {"HERD_HOME": str(other)}
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob", environ=there)
    target = bob.request("session.whoami")["target"]

    assert alice.request("session.list")["peers"] == []
    assert bob.request("session.list")["peers"] == []
    for name in (target, "bob"):
        with pytest.raises(UnknownTarget):
            alice.request("session.send", target=name, message="x")
        refused = machine.shell.run("send", "--json", name, "x")
        assert (refused.status, refused.refusal["code"]) == (3, "UNKNOWN_TARGET")
    assert machine.shell.run("send", "bob", "x", environ=there).status == 0
    assert taken(bob) == ["x"]


@pytest.mark.requirement("A-storage-06")
def test_a_lock_file_is_private_and_stays_and_neither_its_age_nor_its_owner_record_frees_it(machine: Machine):
    alice = machine.session("claude", "alice")
    locks = Path(machine.layout.locks)
    inodes = {path.name: path.stat().st_ino for path in locks.iterdir()}
    lock = Path(machine.layout.session_lock(ALICE.key))
    os.utime(lock, (0, 0))
    owner = json.dumps({"pid": 4_194_304, "start": "boot:1:1", "id": None}).ljust(255) + "\n"
    lock.write_text(owner, encoding="utf-8")

    with pytest.raises(SessionEndedError, match="exit status 6"):
        machine.starting("claude", "alice").ready()

    assert alice.end() == 0
    alice = machine.session("claude", "alice")
    alice.kill()
    machine.session("claude", "alice")
    now = {path.name: path.stat().st_ino for path in locks.iterdir()}
    assert {name: now[name] for name in inodes} == inodes
    assert {stat.S_IMODE(path.stat().st_mode) for path in locks.iterdir()} == {0o600}


@pytest.mark.requirement("A-storage-06")
def test_a_child_that_outlives_the_holder_keeps_none_of_its_locks(machine: Machine, tmp_path: Path):
    # git is the only child that a session has; this one outlives whoever asks it.
    begun = tmp_path / "begun"
    environ = hanging_git(tmp_path, begun)
    with HerdSession(machine.home, "claude", "alice", parent=machine.host, environ=environ) as alice:
        child = int(begun.read_text(encoding="utf-8"))
        alice.ready()
        alice.kill()
        try:
            assert machine.session("claude", "alice").request("session.whoami")["kind"] == "ordinary"
            assert os.path.exists(f"/proc/{child}/exe")
        finally:
            os.kill(child, signal.SIGKILL)
