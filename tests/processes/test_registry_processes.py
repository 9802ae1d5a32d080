"""Presence between processes: publishers that are stopped, killed and replaced while others read."""

import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import InvalidParams, RecoveryRequired
from herd.core.identity import SessionName, peer_id_of, target_of
from herd.core.locks import HeldLock, LockState, Owner, probe, wait_until_free
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.presence.record import Record, decode
from herd.presence.registry import Registry, names_of
from herd.presence.session_file import read_session_file, write_session_file
from tests.fakes.herd_session import HerdSession, SessionEndedError
from tests.fakes.records import bytes_of, layout_at, put, seen, session_of
from tests.fakes.watching import command_line_of
from tests.processes.conftest import Machine

ROOT = Path(__file__).parents[2]
BOUND_S = 30
MANY = 20
ME = session_of(1)

PUBLISHER = """
import os, sys
from herd.core.errors import LockTimeout
from herd.core.locks import HeldLock
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.presence.publisher import Publisher
from tests.fakes.records import LEAD, instance_of, session_of

def say(word):
    print(word, flush=True)

layout, session = Layout(sys.argv[1]), session_of(int(sys.argv[2]))
try:
    lock = HeldLock.acquire(layout.session_lock(session.key))
except LockTimeout:
    say("held")
    sys.exit(6)
me = instance_of(session, sys.argv[3])._replace(pid=os.getpid(), start=start_token(os.getpid()))
publisher = Publisher(layout, lock, me)
publisher.publish(LEAD)
say("ready")
for number, word in enumerate(sys.stdin):
    match word.split():
        case ["publish", times]:
            for turn in range(int(times)):
                label = str(turn) * 50  # records of many sizes
                publisher.publish(LEAD._replace(name=label, repo=label, branch=label, cwd="/" + label))
        case ["flap"]:
            while True:
                claim = publisher.publish(LEAD)
                for turn in range(5):
                    publisher.enrich(claim, lambda presence: presence._replace(since=turn))
                publisher.withdraw()
        case ["withdraw"]:
            publisher.withdraw()
        case ["remove"]:
            publisher.remove()
    say("done")
"""


class Publishing:
    """A process that holds a session's lock and publishes it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def has_said(self) -> bool:
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def said(self) -> str:
        stdout = self.process.stdout
        assert stdout is not None
        assert select.select([stdout], [], [], BOUND_S)[0], "it said nothing in time"
        return stdout.readline().strip()

    def begin(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def do(self, word: str) -> None:
        self.begin(word)
        assert self.said() == "done"

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(BOUND_S)


@contextmanager
def started(
    layout: Layout, number: int = 1, instance: str = "", before: tuple[str, ...] = ()
) -> Iterator[Publishing]:
    instance = instance or f"instance-{number}"
    words = [*before, sys.executable, "-c", PUBLISHER, layout.root, str(number), instance]
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        encoding="utf-8",
    )
    with process:
        try:
            yield Publishing(process)
        finally:
            process.kill()


@contextmanager
def publishing(
    layout: Layout, number: int = 1, instance: str = "", before: tuple[str, ...] = ()
) -> Iterator[Publishing]:
    with started(layout, number, instance, before) as process:
        assert process.said() == "ready"
        yield process


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


@pytest.fixture
def registry(layout: Layout) -> Registry:
    """One reader for the whole test, so that what it remembers is in play."""
    return Registry(layout)


def keys_of(records: list[Record]) -> list[str]:
    return [record.key for record in records]


@pytest.mark.requirement("A-presence-07")
def test_a_stopped_process_stays_listed_and_a_killed_one_is_gone_from_the_next_listing(layout, registry):
    with publishing(layout) as process:
        process.stop()
        assert keys_of(registry.listed()) == [ME.key]
        assert registry.lives(registry.scan()[0])

        process.kill()
        assert registry.listed() == []
        assert keys_of(registry.scan()) == [ME.key]  # it left its record, which says nothing any more
        assert not registry.lives(registry.scan()[0])


@pytest.mark.requirement("A-presence-03")
@pytest.mark.parametrize("busy", [True, False])
def test_a_second_process_of_a_session_publishes_nothing_even_while_the_first_one_is_stopped(
    layout, registry, busy
):
    with publishing(layout) as first:
        if busy:
            first.stop()
        before = seen(layout.record(ME.key))
        with started(layout, instance="another") as second:
            assert second.said() == "held"
            assert second.process.wait(BOUND_S) == 6

        assert seen(layout.record(ME.key)) == before
        assert [record.instance_id for record in registry.listed()] == ["instance-1"]


def test_the_next_instance_takes_the_place_of_a_killed_one_for_every_reader(layout, registry):
    with publishing(layout, instance="first") as process:
        (former,) = registry.listed()
        process.kill()
    with publishing(layout, instance="second"):
        (latter,) = registry.listed()

        assert (former.key, latter.key) == (ME.key, ME.key)
        assert [one.instance_id for one in (former, latter)] == ["first", "second"]
        assert former.claim.id != latter.claim.id
        assert not registry.lives(former)
        assert not registry.is_listed(former)
        assert registry.instance("first") is None
        assert registry.instance("second") == latter
        assert names_of(former)[0] == names_of(latter)[0] == target_of("lead", ME.key)
        assert [names_of(one)[1] for one in (former, latter)] == [peer_id_of("first"), peer_id_of("second")]


@pytest.mark.requirement("A-presence-05")
@pytest.mark.parametrize("end", ["withdraw", "remove"])
def test_the_end_of_a_process_that_lost_its_lock_leaves_its_successors_record(layout, registry, end):
    """Its lock file was replaced under it, as by a restore from a backup, and the new one is free."""
    with publishing(layout, instance="first") as first:
        os.rename(layout.session_lock(ME.key), layout.session_lock(ME.key) + ".old")
        with publishing(layout, instance="second"):
            before = seen(layout.record(ME.key))

            first.do(end)

            assert seen(layout.record(ME.key)) == before
            assert [record.instance_id for record in registry.listed()] == ["second"]


@pytest.mark.requirement("A-presence-04")
def test_a_reader_that_loops_during_a_thousand_publications_sees_whole_records_of_one_writing(
    layout, registry
):
    path = layout.record(ME.key)
    with publishing(layout) as process:
        process.begin("publish 1000")
        versions = set()
        while not process.has_said():
            with open(path, "rb") as file:
                presence = decode(file.read(), ME.key).presence
            assert presence is not None
            if presence.repo is not None:
                assert presence.name == presence.repo == presence.branch
                assert presence.cwd == "/" + presence.repo
                versions.add(presence.name)
            assert len(registry.scan()) == 1
            assert registry.faults == []
        assert process.said() == "done"
        assert len(versions) > 1
        (last,) = registry.listed()
    assert last.presence is not None
    assert last.presence.name == "999" * 50


def test_a_reader_of_sessions_that_flap_finds_each_of_them_listed_or_not_and_nothing_else(layout, registry):
    with ExitStack() as stack:
        for number in range(3):
            stack.enter_context(publishing(layout, number)).begin("flap")
        steady = stack.enter_context(publishing(layout, 9))
        lengths = set()
        for _ in range(500):
            listed = registry.listed()
            assert session_of(9).key in keys_of(listed)
            assert all(record.presence is not None and record.claim.id is not None for record in listed)
            assert registry.faults == []
            assert len(registry.scan()) == 4
            lengths.add(len(listed))
        assert len(lengths) > 1
        steady.do("withdraw")
        assert session_of(9).key not in keys_of(registry.listed())
        assert session_of(9).key in keys_of(registry.scan())
        steady.do("remove")
        assert session_of(9).key not in keys_of(registry.scan())


def test_twenty_that_start_at_once_are_listed_until_they_are_killed_and_again_afterwards(layout, registry):
    for life in ("first", "second"):
        with ExitStack() as stack:
            processes = [
                stack.enter_context(started(layout, number, f"{life}-{number}")) for number in range(MANY)
            ]
            assert [process.said() for process in processes] == ["ready"] * MANY
            listed = registry.listed()
            assert {record.instance_id for record in listed} == {f"{life}-{number}" for number in range(MANY)}
            assert len({record.claim.id for record in listed}) == MANY
            for process in processes:
                process.process.kill()
            for process in processes:
                process.process.wait(BOUND_S)
            assert registry.listed() == []
            assert len(registry.scan()) == MANY


@pytest.mark.parametrize("same_start", [False, True])
def test_a_killed_processs_record_is_dead_although_its_pid_is_a_living_strangers(
    layout, registry, same_start
):
    with publishing(layout) as process:
        process.kill()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
        token = start_token(stranger.pid)
        assert token is not None
        claim = Owner(stranger.pid, token if same_start else "boot:1:1", "claim")
        with open(layout.record(ME.key), "rb") as file:
            shape = json.load(file)
        shape["claim"] = claim._asdict()
        put(layout.record(ME.key), bytes_of(shape))
        put(layout.session_lock(ME.key), bytes_of(claim._asdict()).ljust(255) + b"\n")

        (record,) = registry.scan()
        assert record.claim == claim
        assert registry.listed() == []
        assert not registry.lives(record)


def test_a_child_of_a_killed_publisher_does_not_keep_it_listed(layout, registry):
    # The child tells its number itself: until its exec has closed them, it holds its parent's files.
    fork = 'os.fork() or os.execvp("sh", ["sh", "-c", "echo $$; exec cat"])'
    script = PUBLISHER.replace('say("ready")', fork)
    words = [sys.executable, "-c", script, layout.root, "1", "instance"]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        encoding="utf-8",
    ) as process:
        publisher = Publishing(process)
        child = int(publisher.said())
        try:
            assert keys_of(registry.listed()) == [ME.key]
            publisher.kill()
            os.kill(child, 0)  # it lives on
            assert registry.listed() == []
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.machine
@pytest.mark.requirement("H-locks-14")
def test_a_session_in_another_pid_namespace_is_listed_and_gone_when_it_is_killed(layout, registry):
    elsewhere = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with publishing(layout, before=elsewhere) as process:
        (record,) = registry.listed()
        assert record.claim.pid == 1  # whoever is process 1 here is somebody else
        assert probe(layout.session_lock(ME.key)).held
        process.kill()
        HeldLock.acquire(layout.session_lock(ME.key), wait_ms=BOUND_S * 1_000).release()
        assert registry.listed() == []


# --- whole sessions --------------------------------------------------------------------------------

ALICE, BOB = SessionName("claude", "alice"), SessionName("codex", "bob")
HERDR = {
    "HERDR_ENV": "1",
    "HERDR_SOCKET_PATH": "/run/user/7/herdr.sock",
    "HERDR_PANE_ID": "pane-7",
    "HERDR_TAB_ID": "tab-7",
    "HERDR_WORKSPACE_ID": "workspace-7",
}
SMALL = 256
"""Bytes that a file may have where nothing but an owner record is to be written any more."""


def record_in(machine: Machine, session: SessionName) -> dict[str, Any]:
    with open(machine.layout.record(session.key), "rb") as file:
        record: dict[str, Any] = json.load(file)
    return record


def names_listed_by(session: HerdSession) -> list[str]:
    return [str(peer["name"]) for peer in session.request("session.list")["peers"]]


def target_shown_to(session: HerdSession, name: str) -> str:
    [target] = [peer["target"] for peer in session.request("session.list")["peers"] if peer["name"] == name]
    return str(target)


def taken_by(session: HerdSession) -> list[str]:
    """Wait until messages are there, confirm them, and give their texts."""
    messages = session.request("session.read", wait_ms=20_000)["messages"]
    if messages:
        ids = [message["message_id"] for message in messages]
        session.request("session.confirm", message_ids=ids, evidence="a test")
    return [message["text"] for message in messages]


@contextmanager
def git_replaced(folder: Path, script: str) -> Iterator[dict[str, str]]:
    """Put another `git` first on the path of a session; give the variables that do."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (programs / "git").chmod(0o755)
    yield {"PATH": f"{programs}:{os.environ['PATH']}"}


@pytest.mark.requirement("H-presence-05", "H-presence-06")
def test_the_record_that_stands_before_the_first_look_up_says_all_but_what_is_looked_up(machine, tmp_path):
    folder = tmp_path / "a folder of wörk"
    folder.mkdir()
    os.mkfifo(tmp_path / "seen")
    reading = os.open(tmp_path / "seen", os.O_RDONLY | os.O_NONBLOCK)
    peers = f"{machine.layout.peers}/{ALICE.key}.json"
    with git_replaced(tmp_path, f"cat {peers} >{tmp_path}/seen") as path:
        alice = machine.session("claude", "alice", cwd=folder, environ={**HERDR, **path}, name="alice")
        try:
            assert select.select([reading], [], [], BOUND_S)[0], "nothing was looked up"
            first = json.loads(os.read(reading, 65_536))
        finally:
            os.close(reading)
    me = alice.request("session.whoami")

    assert first["session"] == {"host": "claude", "session_id": "alice", "created": ""}
    assert first["claim"] == {
        "pid": alice.pid,
        "start": start_token(alice.pid),
        "id": record_in(machine, ALICE)["claim"]["id"],
    }
    assert first["build"] == me["build"]
    assert first["presence"] == {
        "role": "lead",
        "socket": "/run/user/7/herdr.sock",
        "cwd": str(folder),
        "name": "alice",
        "pane_id": "pane-7",
        "tab_id": "tab-7",
        "workspace_id": "workspace-7",
        "scope": "machine",
        "workspace": str(folder.resolve()),
    }


@pytest.mark.requirement("H-presence-09")
@pytest.mark.parametrize(
    "script", ["exit 128", 'exec 3<>"$0.pipe"; read line <&3', "head -c 100000 /dev/zero"]
)
def test_a_look_up_that_fails_or_does_not_return_leaves_presence_socket_and_mail_working(
    machine, tmp_path, script
):
    with git_replaced(tmp_path, script) as path:
        os.mkfifo(tmp_path / "programs" / "git.pipe")
        alice = machine.session("claude", "alice", environ=path, name="alice")
        bob = machine.session("codex", "bob", environ=path, name="bob")

        assert names_listed_by(bob) == ["alice"]
        bob.request("session.send", target=target_shown_to(bob, "alice"), message="to you")
        assert taken_by(alice) == ["to you"]
        alice.request("session.send", target=target_shown_to(alice, "bob"), message="and back")
        assert taken_by(bob) == ["and back"]
        assert {record.session for record in Registry(machine.layout).listed()} == {ALICE, BOB}


@pytest.mark.requirement("H-presence-11")
def test_the_cwd_is_what_the_host_says_and_no_checkout_takes_its_place(machine, tmp_path):
    checkout, linked = tmp_path / "checkout", tmp_path / "linked"
    (checkout / "deep" / "er").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "topic", checkout], check=True)
    linked.symlink_to(checkout / "deep")
    alice = machine.session("claude", "alice", cwd=checkout / "deep", name="alice")
    bob = machine.session("codex", "bob", name="bob")

    def cwds() -> set[str]:
        [entry] = bob.request("session.list")["peers"]
        return {entry["cwd"], record_in(machine, ALICE)["presence"]["cwd"]}

    assert cwds() == {str(checkout / "deep")}
    for cwd in (str(linked / "er"), str(checkout), "/", "/gone/for ever"):
        alice.request("session.update", cwd=cwd)
        assert cwds() == {cwd}


@pytest.mark.requirement("A-ident-01", "A-ident-02", "H-presence-01")
@pytest.mark.parametrize("session_id", ["x", "ü \U0001f469" * 128])
def test_a_session_keeps_its_id_and_target_through_restarts_and_every_instance_has_an_id_of_its_own(
    machine, session_id
):
    session = SessionName("claude", session_id)
    instances, claims, targets = set(), set(), set()
    for number in range(3):
        one = machine.session("claude", session_id)
        targets.add(one.request("session.whoami")["target"])
        assert os.listdir(machine.layout.peers) == [f"{session.key}.json"]
        record = record_in(machine, session)
        assert record["session"]["session_id"] == session_id
        assert record["presence"]["role"] == "lead"
        instances.add(uuid.UUID(record["instance"]["id"]))
        claims.add(record["claim"]["id"])
        if number % 2:
            one.kill()
        else:
            assert one.end() == 0

    assert targets == {target_of("lead", session.key)}
    assert (len(instances), len(claims)) == (3, 3)


@pytest.mark.requirement("A-ident-01")
@pytest.mark.parametrize("session_id", ["", "x" * 513, "a\0b", "\ud800"])
def test_an_id_outside_1_to_512_characters_or_that_is_no_text_starts_nothing(machine, session_id):
    starting = machine.starting(None)

    with pytest.raises(InvalidParams, match="session_id"):
        starting.request("session.bind", host="claude", session_id=session_id, cwd="/")
    assert os.listdir(machine.layout.peers) == os.listdir(machine.layout.sessions) == []


@pytest.mark.requirement("H-presence-04")
def test_sessions_on_different_sockets_find_each_other_and_exchange_messages(machine):
    elsewhere = {**HERDR, "HERDR_SOCKET_PATH": "/run/user/7/other.sock"}
    sessions = {
        name: machine.session("claude", name, environ=environ, name=name)
        for name, environ in (("none", {}), ("one", HERDR), ("other", elsewhere))
    }

    sockets = {record_in(machine, SessionName("claude", name))["presence"]["socket"] for name in sessions}
    assert sockets == {"none", "/run/user/7/herdr.sock", "/run/user/7/other.sock"}
    for name, session in sessions.items():
        others = set(sessions) - {name}
        assert set(names_listed_by(session)) == others
        for other in others:
            session.request("session.send", target=target_shown_to(session, other), message=f"from {name}")
            assert taken_by(sessions[other]) == [f"from {name}"]


@pytest.mark.requirement("H-kinds-01")
def test_a_session_that_cannot_write_down_its_kind_puts_nothing_on_record(machine):
    put(machine.layout.session_folder(ALICE.key), b"in the way")
    before = os.stat(machine.layout.peers).st_mtime_ns

    with pytest.raises(SessionEndedError, match="UNSAFE_ENDPOINT"):
        machine.starting("claude", "alice").ready()

    assert os.stat(machine.layout.peers).st_mtime_ns == before  # nothing came into it, nor left it


@pytest.mark.requirement("H-kinds-01")
def test_the_kind_is_written_at_the_first_start_and_stays(machine):
    for _ in range(2):
        alice = machine.session("claude", "alice")
        with open(machine.layout.session_file(ALICE.key), "rb") as file:
            assert json.load(file)["kind"] == record_in(machine, ALICE)["kind"] == "ordinary"
        assert alice.end() == 0

    durable = read_session_file(machine.layout, ALICE.key)
    assert durable is not None
    write_session_file(machine.layout, durable._replace(kind="managed"))
    machine.session("claude", "alice")
    assert record_in(machine, ALICE)["kind"] == "managed"


@pytest.mark.requirement("A-presence-09")
def test_neither_records_nor_listings_hold_text_tokens_or_arguments(machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob")
    bob.request(
        "session.send", target=target_shown_to(bob, "alice"), message="a secret text", topic="a topic"
    )
    assert taken_by(alice) == ["a secret text"]
    tokens = [Path(machine.layout.token(session.key)).read_bytes() for session in (ALICE, BOB)]
    arguments = [word for word in command_line_of(alice.pid).split(b"\0") if b"main" in word]

    shown = [Path(machine.layout.record(session.key)).read_bytes() for session in (ALICE, BOB)]
    shown += [json.dumps(session.request("session.list")).encode() for session in (alice, bob)]
    shown += [machine.shell.run("peers", *words).stdout for words in ((), ("--json",))]

    assert all(len(token) >= 32 for token in tokens)
    assert arguments
    for hidden in (b"a secret text", b"a topic", b"PRIVATE", *tokens, *arguments):
        assert not any(hidden in place for place in shown)


@pytest.mark.requirement("A-ident-06")
def test_mail_to_a_peer_id_never_reaches_the_next_instance_and_mail_to_a_target_does(machine):
    machine.session("claude", "alice", name="alice").request("session.whoami")
    first = record_in(machine, ALICE)["instance"]["id"]
    target, peer_id = target_of("lead", ALICE.key), peer_id_of(first)
    sent = machine.shell.run("send", peer_id, "to that very one")
    assert sent.status == 0, sent.stderr
    os.kill(record_in(machine, ALICE)["claim"]["pid"], signal.SIGKILL)
    wait_until_free(machine.layout.session_lock(ALICE.key))
    second = machine.session("claude", "alice", name="alice")
    assert record_in(machine, ALICE)["instance"]["id"] != first

    refused = machine.shell.run("send", peer_id, "for the one before", "--json")
    assert refused.status != 0
    assert refused.refusal["code"] in {"UNKNOWN_TARGET", "TARGET_ENDED", "PEER_OFFLINE"}
    assert machine.shell.run("send", target, "for whoever you are now").status == 0
    assert taken_by(second) == ["to that very one", "for whoever you are now"]


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("listens", [False, True])
def test_a_stranger_with_the_pid_and_the_socket_of_a_killed_session_is_not_it_and_gets_no_text(
    machine, listens
):
    bob = machine.session("codex", "bob", name="bob")
    alice = machine.session("claude", "alice", name="alice")
    target = target_shown_to(bob, "alice")
    record = record_in(machine, ALICE)
    endpoint = record["instance"]["socket"]
    alice.kill()
    os.unlink(endpoint)
    with ExitStack() as stack:
        stranger = stack.enter_context(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        claim = {"pid": stranger.pid, "start": "another:1:1", "id": record["claim"]["id"]}
        put(machine.layout.record(ALICE.key), bytes_of({**record, "claim": claim}))
        put(machine.layout.session_lock(ALICE.key), bytes_of(claim).ljust(255) + b"\n")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        if listens:
            listener.bind(endpoint)
            os.chmod(endpoint, 0o600)
            listener.listen()

        assert names_listed_by(bob) == []
        assert b"alice" not in machine.shell.run("peers").stdout
        answers = [bob.request("session.send", target=target, message="for alice alone")]
        answers.append(machine.shell.run("send", target, "for alice alone", "--json").json)

        assert [answer["peer_running"] for answer in answers] == [False, False]
        if listens:
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.accept()  # nobody even called
    assert taken_by(machine.session("claude", "alice")) == ["for alice alone"] * 2


@contextmanager
def full_disk_for(session: HerdSession) -> Iterator[None]:
    """Let a process write no file beyond the size of an owner record, as on a disk without a free block."""
    resource.prlimit(session.pid, resource.RLIMIT_FSIZE, (SMALL, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(session.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


@pytest.mark.requirement("H-presence-20", "H-presence-22", "H-presence-23", "H-locks-01")
def test_a_session_that_cannot_write_its_state_is_withdrawn_at_once_and_comes_back_by_itself(machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob")
    to_alice, to_bob = target_shown_to(bob, "alice"), target_shown_to(alice, "bob")
    bob.request("session.send", target=to_alice, message="before")
    alice.request("session.send", target=to_bob, message="from me")
    assert taken_by(bob) == ["from me"]
    claim = record_in(machine, ALICE)["claim"]

    with full_disk_for(alice):
        with pytest.raises(RecoveryRequired):
            alice.request("session.send", target=to_bob, message="lost disk")
        assert names_listed_by(bob) == []
        state = probe(machine.layout.session_lock(ALICE.key))
        assert state == LockState(held=True, owner=Owner(claim["pid"], claim["start"], None))
        queued = bob.request("session.send", target=to_alice, message="meanwhile")
        assert queued["status"] == "queued"

    # It tries again by itself, and tells bob when it is back.
    receipts: list[str] = []
    cursor = bob.request("session.read")["cursor"]
    while queued["message_id"] not in receipts:
        told = bob.request("session.read", after=cursor, wait_ms=20_000)
        assert not told["timed_out"]
        cursor = told["cursor"]
        receipts += [receipt["message_id"] for receipt in told["receipts"]]
    assert names_listed_by(bob) == ["alice"]
    again = record_in(machine, ALICE)["claim"]
    assert (again["pid"], again["start"]) == (claim["pid"], claim["start"])
    assert again["id"] not in {claim["id"], None}
    assert taken_by(alice) == ["before", "meanwhile"]


@pytest.mark.requirement("H-presence-20")
def test_a_session_that_finds_its_state_malformed_is_on_record_and_not_present(machine):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob")
    bob.request("session.send", target=target_shown_to(bob, "alice"), message="before")
    assert alice.end() == 0
    put(machine.layout.mailbox(ALICE.key), b"no database" * 1_000)

    machine.session("claude", "alice", name="alice")

    record = record_in(machine, ALICE)
    assert "presence" not in record
    assert record["claim"]["id"] is None
    assert names_listed_by(bob) == []


@pytest.mark.requirement("H-locks-01")
def test_the_lock_is_taken_before_the_first_record_and_held_until_the_session_has_ended(machine):
    path = machine.layout.session_lock(ALICE.key)
    before = os.stat(machine.layout.peers).st_mtime_ns
    with HeldLock.acquire(path), pytest.raises(SessionEndedError, match="SESSION_HELD"):
        machine.starting("claude", "alice").ready()
    assert os.stat(machine.layout.peers).st_mtime_ns == before  # without the lock no record came

    alice = machine.session("claude", "alice")
    assert probe(path).held
    owner = probe(path).owner
    assert owner is not None
    assert owner._asdict() == record_in(machine, ALICE)["claim"]
    assert alice.end() == 0
    assert not probe(path).held
