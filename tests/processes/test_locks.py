"""Locks between processes: killed holders, children that outlive them, many at once, other namespaces."""

import os
import select
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from herd.core.errors import LockTimeout
from herd.core.locks import AuthorityLock, HeldLock, LockState, Owner, probe, wait_until_free

ROOT = Path(__file__).parents[2]
FREE = LockState(held=False, owner=None)
BOUND_S = 20
MANY = 20

HOLDER = """
import sys
from herd.core.locks import HeldLock, Owner
held = HeldLock.acquire(sys.argv[1])
held.write_owner(Owner(int(sys.argv[2]), "start", "id"))
print("ready", flush=True)
sys.stdin.read()
"""

FORKED_HOLDER = r"""
import os, signal, subprocess, sys
from herd.core.locks import AuthorityLock, HeldLock
hold = AuthorityLock(*sys.argv[2:5]).exclusive()
held = HeldLock.acquire(sys.argv[1])
child = os.fork()
if not child:
    held.release()  # neither may end what the parent holds
    hold.release()
    os.write(1, b"forked\n")  # whole: three processes write here
    signal.pause()
other = "import os, signal; os.write(1, b'started\\n'); signal.pause()"
other = subprocess.Popen([sys.executable, "-c", other], close_fds=False)
os.write(1, f"{child} {other.pid}\n".encode())
sys.stdin.read()
"""

PROBER = """
import sys
from herd.core.locks import probe
print("ready", flush=True)
sys.stdin.readline()
while True:
    assert not probe(sys.argv[1]).held or probe(sys.argv[1]).owner in (None, (1, "start", "id"))
"""

READER = """
import sys, time
from herd.core.locks import AuthorityLock
lock = AuthorityLock(*sys.argv[1:4])
print("ready", flush=True)
sys.stdin.readline()
while True:
    with lock.shared(60):
        time.sleep(float(sys.argv[4]))
"""

ONE_READER = """
import sys
from herd.core.locks import AuthorityLock
hold = AuthorityLock(*sys.argv[1:4]).try_shared()
print("ready" if hold is not None else "waited", flush=True)
sys.stdin.read()
"""

REWRITER = """
import sys
from herd.core.locks import HeldLock, Owner
held = HeldLock.acquire(sys.argv[1])
owners = [Owner(1, "a" * 60, "a" * 36), Owner(2, "b" * 70, None), Owner(3_000_000, "c" * 50, "c" * 40)]
held.write_owner(owners[0])
print("ready", flush=True)
while True:
    for owner in owners:
        held.write_owner(owner)
"""

COUNTER = """
import sys
from herd.core.locks import AuthorityLock, HeldLock

def count(path):
    with open(path, "r+", encoding="utf-8") as file:
        number = int(file.read())
        file.seek(0)
        file.write(str(number + 1))

authority = AuthorityLock(*sys.argv[2:5])
print("ready", flush=True)
for _ in range(int(sys.argv[7])):
    with HeldLock.acquire(sys.argv[1], wait_ms=60_000):
        count(sys.argv[5])
    with authority.exclusive(60):
        count(sys.argv[6])
print("done", flush=True)
"""

STANDBY = """
import sys, threading
from herd.core.locks import wait_until_free
thread = threading.Thread(target=wait_until_free, args=sys.argv[1:2], daemon=True)
thread.start()
print("ready", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "session.lock")


@pytest.fixture
def authority_paths(tmp_path: Path) -> list[str]:
    return [str(tmp_path / f"authority.{kind}") for kind in ("lock", "gate", "generation")]


@contextmanager
def started(script: str, *arguments: object, before: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Run a script that ends at the end of its standard input or is killed at the end of the block."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        encoding="utf-8",
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    """Give its next line; every script writes one line at a time and flushes it."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], BOUND_S)[0], "it said nothing in time"
    return process.stdout.readline().strip()


@contextmanager
def ready(script: str, *arguments: object, before: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    with started(script, *arguments, before=before) as process:
        assert line_of(process) == "ready"
        yield process


def go(processes: list[subprocess.Popen[str]]) -> None:
    """Let those begin that wait for a line; all at once, since a start crawls beside those that spin."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(BOUND_S)


@pytest.mark.requirement("H-locks-03")
def test_a_killed_holders_lock_is_free_at_once_although_its_pid_names_a_living_process(path):
    with ready(HOLDER, path, os.getpid()) as holder:
        assert probe(path) == LockState(held=True, owner=Owner(os.getpid(), "start", "id"))
        killed(holder)
    assert probe(path) == FREE
    HeldLock.acquire(path, wait_ms=0).release()


@pytest.mark.requirement("A-storage-06")
def test_a_lock_file_is_private_and_permanent_nothing_but_the_kernel_frees_it_and_no_child_keeps_it(
    path, authority_paths
):
    with started(FORKED_HOLDER, path, *authority_paths) as holder:
        lines = [line_of(holder) for _ in range(3)]
        children = [int(pid) for line in lines if line not in {"forked", "started"} for pid in line.split()]
        try:
            before = [os.stat(file) for file in (path, *authority_paths)]
            os.utime(path, (0, 0))  # ancient
            Path(path).write_bytes(b'{"pid":4194305,"start":"gone","id":null}'.ljust(256))  # beyond every pid
            with pytest.raises(LockTimeout):
                HeldLock.acquire(path)
            assert AuthorityLock(*authority_paths).try_shared() is None

            killed(holder)
            HeldLock.acquire(path, wait_ms=0).release()
            AuthorityLock(*authority_paths).exclusive(0).release()
            for child in children:
                os.kill(child, 0)  # they did outlive it
            after = [os.stat(file) for file in (path, *authority_paths)]
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
    assert len(children) == 2
    assert [status.st_ino for status in after] == [status.st_ino for status in before]
    assert {stat.S_IMODE(status.st_mode) for status in before + after} == {0o600}


def test_probes_by_many_processes_without_pause_never_keep_a_lock_from_its_taker(path):
    HeldLock.acquire(path).release()
    with ExitStack() as stack:
        probers = [stack.enter_context(ready(PROBER, path)) for _ in range(MANY)]
        go(probers)
        for _ in range(10):
            with HeldLock.acquire(path) as held:
                held.write_owner(Owner(1, "start", "id"))
        assert [prober.poll() for prober in probers] == [None] * MANY


def test_a_reader_of_an_owner_record_sees_the_old_or_the_new_one_however_often_it_is_rewritten(path):
    written = {Owner(1, "a" * 60, "a" * 36), Owner(2, "b" * 70, None), Owner(3_000_000, "c" * 50, "c" * 40)}
    with ready(REWRITER, path):
        seen = {probe(path).owner for _ in range(5_000)}
    assert seen - {None} == written


@pytest.mark.requirement("H-locks-12")
@pytest.mark.parametrize("held_s", [0, 0.002])
def test_readers_do_not_wait_for_one_another_and_a_writer_gets_in_between_twenty_that_never_pause(
    authority_paths, held_s
):
    with ExitStack() as stack:
        for _ in range(MANY):  # each tries once, without waiting, while all before it hold
            stack.enter_context(ready(ONE_READER, *authority_paths))
    authority = AuthorityLock(*authority_paths)
    with ExitStack() as stack:
        readers = [stack.enter_context(ready(READER, *authority_paths, held_s)) for _ in range(MANY)]
        go(readers)
        for _ in range(10):
            with authority.exclusive():
                pass
        assert [reader.poll() for reader in readers] == [None] * MANY
    assert authority.generation() == 10


def test_nothing_counted_under_a_lock_by_many_processes_is_lost(path, authority_paths, tmp_path):
    counts = [tmp_path / "held", tmp_path / "authority"]
    for file in counts:
        file.write_text("0", encoding="utf-8")
    with ExitStack() as stack:
        workers = [stack.enter_context(ready(COUNTER, path, *authority_paths, *counts, 25)) for _ in range(6)]
        assert [line_of(worker) for worker in workers] == ["done"] * 6
    assert [file.read_text(encoding="utf-8") for file in counts] == ["150", "150"]
    assert AuthorityLock(*authority_paths).generation() == 150


def test_a_change_that_is_killed_was_counted_and_lets_the_next_one_in(authority_paths, path):
    with started(FORKED_HOLDER, path, *authority_paths) as holder:
        pids = [line for line in (line_of(holder) for _ in range(3)) if line not in {"forked", "started"}]
        killed(holder)
        for pid in pids[0].split():
            os.kill(int(pid), signal.SIGKILL)
    authority = AuthorityLock(*authority_paths)
    with authority.shared(0):
        assert authority.generation() == 1
    with authority.exclusive(0):
        assert authority.generation() == 2


def test_a_standby_learns_of_the_holders_death_without_polling_and_takes_the_lock(path):
    with ready(HOLDER, path, 1) as holder:
        took = threading.Event()

        def stand_by() -> None:
            wait_until_free(path)
            with HeldLock.acquire(path):
                took.set()

        thread = threading.Thread(target=stand_by, daemon=True)
        thread.start()
        assert not took.wait(0.05)
        holder.kill()
        assert took.wait(BOUND_S)
        thread.join(BOUND_S)


def test_a_standby_that_waits_does_not_delay_the_end_of_its_process(path):
    with HeldLock.acquire(path), ready(STANDBY, path) as standby:
        assert standby.wait(BOUND_S) == 0


def test_a_fork_while_other_threads_open_and_close_lock_files_leaves_the_child_nothing(path):
    script = """
import os, sys, threading
from herd.core.locks import probe, AuthorityLock
lock = AuthorityLock(*(sys.argv[1] + end for end in ("a", "b", "c")))
stop = threading.Event()

def work():
    while not stop.is_set():
        lock.shared().release()
        probe(sys.argv[1] + "a")

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
bad = 0
for _ in range(100):
    child = os.fork()
    if not child:
        names = []
        for number in os.listdir("/proc/self/fd"):
            try:
                names.append(os.readlink("/proc/self/fd/" + number))
            except OSError:
                pass
        os._exit(any(name.startswith(sys.argv[1]) for name in names))
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads:
    thread.join()
print("bad", bad, flush=True)
"""
    with started(script, path) as process:
        assert line_of(process) == "bad 0"


@pytest.mark.machine
@pytest.mark.requirement("H-locks-14")
def test_a_lock_is_seen_held_from_another_pid_namespace_whatever_its_record_says(path):
    elsewhere = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    look = "import sys; from herd.core.locks import probe; print('ready'); print(probe(sys.argv[1]).held)"
    with ready(HOLDER, path, 1, before=elsewhere) as holder:  # process 1 of its namespace, and says so
        assert probe(path) == LockState(held=True, owner=Owner(1, "start", "id"))
        with pytest.raises(LockTimeout):
            HeldLock.acquire(path)
        killed(holder)
    wait_until_free(path)
    with HeldLock.acquire(path) as held:
        held.write_owner(Owner(2**22 + 1, "gone", None))
        with ready(look, path, before=elsewhere) as prober:
            assert line_of(prober) == "True"


@pytest.mark.machine
def test_an_owner_record_is_rewritten_on_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "herd-test", disk], check=True)
    try:
        with HeldLock.acquire(str(disk / "a.lock")) as held:
            held.write_owner(Owner(1, "first", "id"))
            filler = disk / "filler"
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(b"x" * 1_000_000)
            held.write_owner(Owner(2, "second", None))
            assert probe(held.path).owner == Owner(2, "second", None)
    finally:
        subprocess.run(["umount", disk], check=True)
