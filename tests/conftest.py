"""What holds for every test: no blocked event loop, no home of the user's, no process left behind.

Shared fixtures stand here; fakes stand in `tests/fakes`.
"""

import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings as hypothesis_settings

_ROOT = Path(__file__).parent.parent
_OURS = ("herd", "roles", "assignments", "federation")

_MAY_BLOCK = {
    "herd/core/config.py": "the settings are read once, before anything is served",
    "herd/core/files.py": "one small private file, read whole or replaced whole",
    "herd/core/locks.py": "a probe of a kernel lock and its owner record of 256 bytes; it never waits",
    "herd/core/paths.py": "the checks of our own folders: a few calls of stat",
    "herd/core/processes.py": "files of /proc, which are memory",
    "herd/hosts/claude/flags.py": "names in our own folder: links made and removed, a lock that never waits",
    "herd/hosts/claude/session_file.py": "a host's own file of some hundred bytes, read once a change",
    "herd/presence": "instance records of at most 8,192 bytes, re-read only when their stat has changed",
}
"""Where our code may touch the file system on the event loop, and why that is meant.

Only calls of `os` and `io` are let through. SQLite, sleeping, a blocking socket and a lock that another
thread holds fail a test wherever they happen.
"""

_LEFT_BEHIND_S = 20.0
"""Seconds that a process which is ending has to be gone after the last test of its module."""

_NO_HOME = "/dev/null/a-test-that-needs-a-home-asks-for-the-fixture"
"""No folder can ever be made here, not by root either."""

_LIVES_ON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers that the standard library starts once a process and keeps until that process ends."""

# Two busy cores make a deadline for one example a coin toss; the time limit of the test stands.
hypothesis_settings.register_profile("herd", deadline=None)
hypothesis_settings.load_profile("herd")

_tag = f"{os.getpid()}-{time.monotonic_ns()}"


def pytest_configure() -> None:
    """Keep the user's own Herd out of reach, and mark every process that a test starts."""
    os.environ["HERD_HOME"] = _NO_HOME
    os.environ["XDG_CONFIG_HOME"] = _NO_HOME
    os.environ["XDG_STATE_HOME"] = _NO_HOME
    os.environ["HERD_TEST_RUN"] = _tag


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an empty private data root that `HERD_HOME` names; settings would be read from `config` below it.

    It lies right under /tmp, since one socket for each instance has to fit below it.
    """
    folder = Path(tempfile.mkdtemp(prefix="herd-", dir="/tmp"))
    monkeypatch.setenv("HERD_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    yield folder
    shutil.rmtree(folder)


class _EveryFunction(Container[str], Iterable[str]):
    """The functions of a file, all of them."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())


@cache
def _files_that_may_block() -> list[str]:
    places = [_ROOT / place for place in _MAY_BLOCK]
    files = [path for place in places for path in ([place] if place.suffix else place.rglob("*.py"))]
    return [str(path) for path in files]


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fail a test in which code of ours blocks the event loop; `_MAY_BLOCK` holds what is meant to."""
    with blockbuster_ctx(list(_OURS)) as detector:
        for name, function in detector.functions.items():
            if name.startswith(("os.", "io.")):
                for path in _files_that_may_block():
                    function.can_block_in(path, _EveryFunction())
        yield detector


@pytest.fixture(autouse=True, scope="module")
def no_process_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a module after whose last test a process is left that it started, and end that process."""
    before = _started_by_us()
    yield
    left = _still_running(_started_by_us() - before)
    for pid in left:
        _kill(pid)
    if left:
        names = "; ".join(f"{pid}: {command}" for pid, command in left.items())
        pytest.fail(f"{request.node.name} left processes behind: {names}", pytrace=False)


def _started_by_us() -> set[int]:
    """Find the descendants of this process, and those whose parents ended but that carry our mark."""
    children: dict[int, list[int]] = {}
    found = set()
    for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended meanwhile, or it is another user's
        if f"HERD_TEST_RUN={_tag}".encode() in environment:
            found.add(pid)
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found - {os.getpid()}


def _still_running(pids: set[int]) -> dict[int, str]:
    """Give the command lines of those processes that have not ended within the bound."""
    deadline = time.monotonic() + _LEFT_BEHIND_S
    running = {}
    for pid in pids:
        command = _command(pid)
        if not command or any(name in command for name in _LIVES_ON):
            continue
        if not _ends(pid, max(0.0, deadline - time.monotonic())):
            running[pid] = command
    return running


def _command(pid: int) -> str:
    """Give a process's command line: empty once it has ended, waited for or not."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()


def _ends(pid: int, seconds: float) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
