"""Start tokens, ancestors and the controlling terminal."""

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import RecoveryRequired
from herd.core.limits import ANCESTORS
from herd.core.processes import _Stat, ancestors, chain, has_controlling_terminal, parsed_stat, start_token

ROOT = Path(__file__).parents[3]
BOUND_S = 20
BEYOND_EVERY_PID = 2**22 + 1


@contextmanager
def running(*command: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command that says a line once it is there, until the end of the block."""
    process = subprocess.Popen(
        [str(part) for part in command],
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
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], BOUND_S)[0], "it said nothing in time"
    return process.stdout.readline().strip()


def test_a_start_token_is_the_boot_the_pid_namespace_and_the_start_in_ticks():
    boot, namespace, ticks = str(start_token(os.getpid())).split(":")
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    assert os.readlink("/proc/self/ns/pid") == f"pid:[{namespace}]"
    assert ticks.isdigit()


def test_the_token_of_a_process_is_the_same_whoever_asks_and_whenever():
    script = "import os; from herd.core.processes import *; print(start_token(os.getpid())); input()"
    with running(sys.executable, "-c", script) as process:
        said = line_of(process)
        assert start_token(process.pid) == said == start_token(process.pid)
        assert start_token(os.getpid()) != said


@pytest.mark.parametrize("pid", [0, -1, -7, BEYOND_EVERY_PID, 2**31, 2**70])
def test_where_no_process_is_there_is_no_token_and_no_ancestor(pid):
    assert start_token(pid) is None
    assert ancestors(pid) == []


def test_a_process_that_ended_has_no_token_once_it_was_waited_for():
    with running("cat") as process:
        token = start_token(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert start_token(process.pid) == token
        process.wait(BOUND_S)
        assert start_token(process.pid) is None


@pytest.mark.parametrize("name", ["a) R 1 (b", "( ) 7 7 7 7", "))))", "x y\nz", "\\", ") 0 0 0 0 0 0 0 0 0"])
def test_no_name_of_a_process_changes_its_token_or_its_parent(tmp_path, name):
    program = tmp_path / name
    shutil.copy2(shutil.which("cat") or "/bin/cat", program)
    with running("cat") as plain, running(program) as odd:
        own = start_token(os.getpid())
        for process in (plain, odd):
            assert process.stdin is not None
            process.stdin.write("up\n")
            process.stdin.flush()
            assert line_of(process) == "up"  # its own program runs, under its own name
            assert ancestors(process.pid)[0] == (os.getpid(), own)
        assert start_token(odd.pid) not in {None, own}


@given(
    name=st.binary(max_size=64),
    parent=st.integers(0, 2**31),
    ticks=st.integers(0, 2**63),
    rest=st.integers(0, 9),
)
def test_a_stat_line_is_read_whatever_bytes_the_name_has(name, parent, ticks, rest):
    before = b" ".join([b"S", str(parent).encode(), *[b"-1"] * 17])
    line = b"42 (" + name + b") " + before + b" " + str(ticks).encode() + b" 7" * rest + b"\n"
    assert parsed_stat(line) == (parent, ticks)


def test_ancestors_are_listed_nearest_first_up_to_process_1_without_the_process_itself():
    found = ancestors()
    pids = [pid for pid, _ in found]
    assert pids[0] == os.getppid()
    assert pids[-1] == 1
    assert os.getpid() not in pids
    assert len(set(pids)) == len(pids)
    assert found == [(pid, start_token(pid)) for pid in pids]
    assert ancestors(os.getpid()) == found
    assert ancestors(1) == []


def test_a_grandchild_names_every_process_between_it_and_us():
    script = "import os; from herd.core.processes import *; print(ancestors()[1:]); input()"
    chain = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
    with running(sys.executable, "-c", chain) as child:
        said = line_of(child)
        assert said == repr([(os.getpid(), start_token(os.getpid())), *ancestors()])
        assert child.stdin is not None
        child.stdin.close()
        child.wait(BOUND_S)


def test_a_process_whose_launcher_has_ended_does_not_name_the_launchers_ancestors():
    script = (
        "import os, sys\n"
        "from herd.core.processes import ancestors\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid(); os.read(0, 1)\n"  # the end of the launcher's input comes after its own end
        "print([pid for pid, _ in ancestors()], flush=True)\n"
    )
    with running(sys.executable, "-c", script) as launcher:
        assert launcher.wait(BOUND_S) == 0
        assert launcher.stdin is not None
        launcher.stdin.close()
        said = line_of(launcher)
    assert f"{launcher.pid}," not in said
    assert str(os.getpid()) not in said.strip("[]").split(", ")


def test_only_a_process_with_a_controlling_terminal_has_one_whatever_its_streams_are():
    script = (
        "from herd.core.processes import has_controlling_terminal as has; print('has', has(), flush=True)"
    )
    alone = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    assert alone.stdout == "has False\n"

    child, terminal = pty.fork()
    if not child:
        os.environ["PYTHONPATH"] = str(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", f"import os; os.close(0)\n{script}"])
    try:
        said = b""
        while b"\n" not in said and select.select([terminal], [], [], BOUND_S)[0]:
            said += os.read(terminal, 1_024)
        assert said.strip() == b"has True"
    finally:
        os.waitpid(child, 0)
        os.close(terminal)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ({9: (5, 70), 5: (1, 60), 1: (0, 2)}, [(5, 60), (1, 2)]),
        ({9: (5, 70), 5: (1, 70), 1: (0, 70)}, [(5, 70), (1, 70)]),
        ({9: (5, 70), 5: (1, 71), 1: (0, 2)}, []),  # process 5 began after its child: the pid was used again
        ({9: (5, 70), 5: (4, 60), 4: (1, 61), 1: (0, 2)}, [(5, 60)]),
        ({9: (5, 70), 1: (0, 2)}, []),  # hidden, or ended meanwhile
        ({9: (0, 70)}, []),
        ({}, []),
    ],
)
def test_only_what_can_be_a_parent_is_an_ancestor(shown, expected):
    assert chain(9, lambda pid: _Stat(*shown[pid]) if pid in shown else None) == expected


def test_a_chain_that_never_ends_is_cut():
    assert len(chain(9, lambda pid: _Stat(pid, 1))) == ANCESTORS


def test_looking_leaves_no_file_open():
    has_controlling_terminal()
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        ancestors()
        start_token(1)
        start_token(BEYOND_EVERY_PID)
        has_controlling_terminal()
    assert os.listdir("/proc/self/fd") == before


async def test_the_event_loop_may_look():
    assert ancestors()
    assert start_token(os.getpid())


@pytest.mark.machine
def test_a_proc_of_another_pid_namespace_proves_nothing():
    script = """
import os
from herd.core.errors import RecoveryRequired
from herd.core.processes import ancestors, start_token
for ask in (ancestors, lambda: start_token(os.getpid()), lambda: start_token(1)):
    try:
        print(ask())
    except RecoveryRequired as refused:
        print(refused.code)
"""
    mismatched = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", script]
    with running(*mismatched) as process:
        assert [line_of(process) for _ in range(3)] == [RecoveryRequired.code] * 3


@pytest.mark.machine
def test_process_1_of_another_namespace_is_not_process_1_of_ours():
    script = "from herd.core.processes import *; print(start_token(1)); print(ancestors(), flush=True)"
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", script]
    with running(*inside) as process:
        token = line_of(process)
        assert line_of(process) == "[]"
    theirs, ours = token.split(":"), str(start_token(1)).split(":")
    assert theirs[0] == ours[0]
    assert theirs[1] != ours[1]
