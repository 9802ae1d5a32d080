"""Presence between processes: publishers that are stopped, killed and replaced while others read."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from herd.core.identity import peer_id_of, target_of
from herd.core.locks import HeldLock, Owner, probe
from herd.core.paths import Layout
from herd.core.processes import start_token
from herd.presence.record import Record, decode
from herd.presence.registry import Registry, names_of
from tests.fakes.records import bytes_of, layout_at, put, seen, session_of

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
    fork = 'child = os.fork() or os.execvp("cat", ["cat"])\nsay(child)'
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
