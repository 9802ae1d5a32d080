"""Locks for life, probes and the authority lock, as one process sees them."""

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.errors import InvalidParams, LockTimeout, RecoveryRequired, UnsafeEndpoint
from herd.core.limits import LOCK_BUSY_MS, OWNER_RECORD_BYTES
from herd.core.lock_files import LockFile
from herd.core.locks import AuthorityLock, HeldLock, LockState, Owner, _owner, _record, probe, wait_until_free

FREE = LockState(held=False, owner=None)
WITHOUT_OWNER = LockState(held=True, owner=None)
SOMEBODY = Owner(4_711, "boot:4026531836:99", "0197-generation")
BOUND_S = 10


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "session.lock")


@pytest.fixture
def authority(tmp_path: Path) -> AuthorityLock:
    return AuthorityLock(*(str(tmp_path / f"authority.{kind}") for kind in ("lock", "gate", "generation")))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def running(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Run something in a thread, and see to it that it ends."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield thread
    thread.join(BOUND_S)
    assert not thread.is_alive()


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


# --- held for life ---


def test_a_lock_excludes_every_other_holder_until_it_is_released(path):
    with HeldLock.acquire(path):
        with pytest.raises(LockTimeout):
            HeldLock.acquire(path, wait_ms=0)
        assert probe(path).held
    assert not probe(path).held
    HeldLock.acquire(path, wait_ms=0).release()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_a_lock_file_is_private_under_any_umask_and_stays_when_the_lock_is_released(path, mask):
    with umask(mask):
        held = HeldLock.acquire(path)
    before = os.stat(path)
    held.release()
    after = os.stat(path)
    assert stat.S_IMODE(before.st_mode) == 0o600
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.requirement("H-locks-04")
def test_only_the_kernel_frees_or_refuses_a_lock_and_a_file_that_cannot_be_opened_is_another_error(path):
    living = Owner(os.getpid(), "start", "id")
    Path(path).touch(mode=0o600)
    Path(path).write_bytes(_record(living))
    held = HeldLock.acquire(path, wait_ms=0)  # free, although a living process is named
    held.write_owner(Owner(2**22 + 1, "start", None))  # beyond every pid: held, although nobody is named
    with pytest.raises(LockTimeout):
        HeldLock.acquire(path, wait_ms=0)
    held.release()
    os.chmod(path, 0o644)
    with pytest.raises(UnsafeEndpoint, match=r"session\.lock"):
        HeldLock.acquire(path, wait_ms=0)


def test_a_busy_lock_names_its_holder(path):
    with HeldLock.acquire(path) as held:
        with pytest.raises(LockTimeout) as refused:
            HeldLock.acquire(path, wait_ms=0)
        assert refused.value.details == {"holder": None}
        held.write_owner(SOMEBODY)
        with pytest.raises(LockTimeout, match="4711") as refused:
            HeldLock.acquire(path, wait_ms=0)
        assert refused.value.details == {"holder": {"pid": 4_711, "start": SOMEBODY.start, "id": SOMEBODY.id}}


@pytest.mark.requirement("H-locks-13")
def test_a_busy_lock_is_tried_for_200_ms_and_a_probe_is_never_called_its_holder(path):
    with HeldLock.acquire(path):
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            HeldLock.acquire(path)
        assert time.monotonic() - started >= LOCK_BUSY_MS / 1_000 == 0.2

    probing = LockFile(path, write=False)  # a probe that is held up in the middle, longer than the 200 ms
    assert probing.take(LOCK_SH)
    done = threading.Event()

    def acquire() -> None:
        HeldLock.acquire(path, wait_ms=10).release()
        done.set()

    with running(acquire):
        assert not done.wait(0.1)
        probing.close()
    assert done.is_set()


def test_a_lock_that_becomes_free_while_it_is_tried_is_taken(path):
    first = HeldLock.acquire(path)
    taken = []
    with running(lambda: taken.append(HeldLock.acquire(path, wait_ms=BOUND_S * 1_000))):
        first.release()
    assert probe(path).held
    taken[0].release()


def test_release_twice_or_from_another_thread_frees_once_and_harms_nobody(path):
    first = HeldLock.acquire(path)
    with running(first.release):
        pass
    with HeldLock.acquire(path, wait_ms=0):
        first.release()
        assert probe(path).held


def test_a_lock_is_not_inherited_by_programs_that_its_holder_starts(path):
    with HeldLock.acquire(path), LockFile(f"{path}2", write=True):
        script = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') \
                  if os.path.exists(f'/proc/self/fd/{n}')))"
        seen = subprocess.run(
            [sys.executable, "-c", script], close_fds=False, capture_output=True, check=True
        )
    assert b".lock" not in seen.stdout


def test_a_missing_folder_is_refused_and_not_made(tmp_path):
    with pytest.raises(UnsafeEndpoint, match="missing"):
        HeldLock.acquire(str(tmp_path / "locks" / "a.lock"))
    assert list(tmp_path.iterdir()) == []


# --- what is no lock file ---


def _symlink(place: Path) -> None:
    target = place.with_name("target")
    target.touch(mode=0o600)
    place.symlink_to(target)


def _socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(place.parent)  # its path may be too long for a socket's
        listener.bind(place.name)
    place.chmod(0o600)


UNSAFE = {
    "symlink": _symlink,
    "dangling symlink": lambda place: place.symlink_to(place.with_name("target")),
    "symlink to itself": lambda place: place.symlink_to(place),
    "folder": lambda place: place.mkdir(mode=0o700),
    "fifo": lambda place: os.mkfifo(place, 0o600),
    "socket": _socket,
    "readable by the group": lambda place: (place.touch(), place.chmod(0o640)),
    "writable by everybody": lambda place: (place.touch(), place.chmod(0o602)),
    "below a file": lambda place: (place.parent.rmdir(), place.parent.touch()),
}


def _tree(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(entry), entry.lstat().st_mode) for entry in folder.rglob("*"))


@pytest.fixture(params=UNSAFE)
def unsafe(request, tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "locks" / "a.lock"
    place.parent.mkdir(mode=0o700)
    UNSAFE[request.param](place)
    return str(place)


@pytest.mark.parametrize("use", [HeldLock.acquire, probe, wait_until_free])
def test_what_is_no_private_regular_file_is_refused_by_name_and_left_as_it_is(unsafe, tmp_path, use):
    before, files = _tree(tmp_path), open_files()
    with pytest.raises(UnsafeEndpoint, match=r"a\.lock"):
        use(unsafe)
    assert _tree(tmp_path) == before
    assert open_files() == files


@pytest.mark.parametrize("place", range(3))
def test_the_authority_lock_refuses_unsafe_files_and_keeps_nothing_locked(unsafe, tmp_path, place):
    paths = [str(tmp_path / name) for name in ("one", "two", "three")]
    paths[place] = unsafe
    lock, files = AuthorityLock(*paths), open_files()
    with pytest.raises(UnsafeEndpoint, match=r"a\.lock"):
        lock.exclusive(0)
    if place < 2:
        with pytest.raises(UnsafeEndpoint, match=r"a\.lock"):
            lock.try_shared()
    else:
        with pytest.raises(UnsafeEndpoint, match=r"a\.lock"):
            lock.generation()
        lock.shared(0).release()
        lock.close()
    assert open_files() == files


@pytest.mark.parametrize("use", [HeldLock.acquire, probe, wait_until_free])
@pytest.mark.machine
def test_a_lock_file_of_another_user_is_refused(path, use):
    Path(path).touch(mode=0o600)
    os.chown(path, 65_534, 65_534)
    with pytest.raises(UnsafeEndpoint, match="65534"):
        use(path)


def test_an_unsafe_file_that_is_held_is_called_unsafe_not_busy(path):
    with HeldLock.acquire(path):
        os.chmod(path, 0o666)
        with pytest.raises(UnsafeEndpoint):
            HeldLock.acquire(path, wait_ms=0)
        with pytest.raises(UnsafeEndpoint):
            probe(path)


# --- the owner record ---


def test_an_owner_record_is_replaced_whole_and_keeps_its_length(path):
    with HeldLock.acquire(path) as held:
        held.write_owner(SOMEBODY)
        inode = os.stat(path).st_ino
        held.write_owner(Owner(1, "s", None))
        assert probe(path) == LockState(held=True, owner=Owner(1, "s", None))
        text = Path(path).read_bytes()
        assert text.rstrip() == b'{"pid":1,"start":"s","id":null}'
        assert (len(text), text[-1:], os.stat(path).st_ino) == (OWNER_RECORD_BYTES, b"\n", inode)


def test_the_record_of_a_killed_holder_is_not_taken_for_the_next_ones(path):
    Path(path).touch(mode=0o600)
    Path(path).write_bytes(_record(SOMEBODY))
    assert probe(path) == FREE
    with HeldLock.acquire(path):
        assert probe(path) == WITHOUT_OWNER


def test_a_released_lock_has_no_owner_and_takes_none(path):
    held = HeldLock.acquire(path)
    held.write_owner(SOMEBODY)
    held.release()
    assert probe(path) == FREE
    with pytest.raises(RecoveryRequired, match=r"session\.lock"):
        held.write_owner(Owner(1, "s", None))
    with HeldLock.acquire(path):
        with pytest.raises(RecoveryRequired):
            held.write_owner(SOMEBODY)
        assert probe(path) == WITHOUT_OWNER


def test_an_owner_record_that_is_too_long_is_refused_and_the_old_one_stands(path):
    longest = OWNER_RECORD_BYTES - 1 - len('{"pid":1,"start":"","id":null}')
    with HeldLock.acquire(path) as held:
        held.write_owner(SOMEBODY)
        with pytest.raises(InvalidParams, match="256"):
            held.write_owner(Owner(1, "s" * (longest + 1), None))
        assert probe(path).owner == SOMEBODY
        held.write_owner(Owner(1, "s" * longest, None))
        assert probe(path).owner == Owner(1, "s" * longest, None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"\0" * 256,
        b"[" * 256,
        b'{"pid":1,"start":"s"}',
        b'{"pid":true,"start":"s","id":null}',
        b'{"pid":0,"start":"s","id":null}',
        b'{"pid":-1,"start":"s","id":null}',
        b'{"pid":1.0,"start":"s","id":null}',
        b'{"pid":"1","start":"s","id":null}',
        b'{"pid":1,"start":null,"id":null}',
        b'{"pid":1,"start":"s","id":7}',
        b'{"pid":1,"start":"s","id":null}' + b" " * 300 + b"x" * 10_000_000,
    ],
)
def test_a_held_lock_with_an_unreadable_record_is_held_by_nobody_known(path, content):
    with HeldLock.acquire(path):
        Path(path).write_bytes(content)
        state = probe(path)
        with pytest.raises(LockTimeout) as refused:
            HeldLock.acquire(path, wait_ms=0)
    assert state.held
    assert (state.owner is None) == (len(content) < 1_000)
    assert (refused.value.details["holder"] is None) == (state.owner is None)


@given(st.binary(max_size=OWNER_RECORD_BYTES))
def test_no_content_makes_the_reader_of_a_record_fail(content):
    owner = _owner(content)
    assert owner is None or owner.pid > 0


_word = st.text(st.characters(max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=15)


@given(st.integers(1, 2**31), _word, st.none() | _word)
def test_an_owner_record_says_what_was_written_in_exactly_its_bytes(pid, start, ident):
    owner = Owner(pid, start, ident)
    assert _owner(_record(owner)) == owner
    assert len(_record(owner)) == OWNER_RECORD_BYTES


# --- probing and waiting ---


def test_a_probe_of_an_absent_file_sees_a_free_lock_and_makes_nothing(path, tmp_path):
    assert probe(path) == FREE
    assert wait_until_free(path) is None
    assert list(tmp_path.iterdir()) == []


def test_probes_leave_a_held_lock_held_and_no_file_open(path):
    with HeldLock.acquire(path) as held:
        held.write_owner(SOMEBODY)
        files = open_files()
        for _ in range(50):
            assert probe(path) == LockState(held=True, owner=SOMEBODY)
        assert open_files() == files
        with pytest.raises(LockTimeout):
            HeldLock.acquire(path, wait_ms=0)


def test_waiting_ends_with_the_release_and_takes_nothing(path):
    held = HeldLock.acquire(path)
    waiting = threading.Event()
    free = threading.Event()

    def wait() -> None:
        waiting.set()
        wait_until_free(path)
        free.set()

    with running(wait):
        assert waiting.wait(BOUND_S)
        assert not free.wait(0.05)
        held.release()
        assert free.wait(BOUND_S)
    HeldLock.acquire(path, wait_ms=0).release()


# --- the authority lock ---


def test_any_number_holds_it_shared_and_each_release_ends_its_own_hold_only(authority):
    first, second = authority.shared(0), authority.shared(0)
    third = authority.try_shared()
    first.release()
    first.release()
    for hold in (second, third):
        with pytest.raises(LockTimeout):
            authority.exclusive(0)
        hold.release()
    with authority.exclusive(0) as alone:
        assert alone.exclusive
    assert not first.exclusive


def test_it_is_held_alone_against_readers_and_other_writers(authority):
    with authority.exclusive(0):
        assert authority.try_shared() is None
        for attempt in (authority.shared, authority.exclusive):
            with pytest.raises(LockTimeout, match=r"authority\.lock"):
                attempt(0)
    authority.shared(0).release()


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_its_files_are_private_under_any_umask(authority, tmp_path, mask):
    with umask(mask):
        authority.exclusive(0).release()
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in tmp_path.iterdir()}
    assert modes == {f"authority.{kind}": 0o600 for kind in ("lock", "gate", "generation")}


def test_a_writer_that_waits_lets_no_new_reader_in(authority):
    reader = authority.shared(0)
    changed = threading.Event()

    def change() -> None:
        with authority.exclusive(BOUND_S):
            changed.set()

    with running(change):
        deadline = time.monotonic() + BOUND_S
        while (late := authority.try_shared()) is not None and time.monotonic() < deadline:
            late.release()
        assert late is None
        assert not changed.is_set()
        reader.release()
        assert changed.wait(BOUND_S)


def test_a_reader_waits_for_a_change_and_then_gets_in(authority):
    change = authority.exclusive(0)
    got = threading.Event()

    def judge() -> None:
        with authority.shared(BOUND_S):
            got.set()

    with running(judge):
        assert not got.wait(0.03)
        change.release()
    assert got.is_set()


def test_a_writer_that_gave_up_leaves_the_gate_open_and_counts_nothing(authority):
    authority.shared(0).release()
    files = open_files()
    with authority.shared(0):
        with pytest.raises(LockTimeout) as refused:
            authority.exclusive(0.01)
        assert refused.value.details == {"holder": None}
        authority.shared(0).release()
    assert authority.generation() == 0
    assert open_files() == files


def test_the_generation_counts_each_change_on_entering_also_one_that_fails(authority):
    seen = [authority.generation()]
    for _ in range(3):
        with authority.exclusive(0):
            seen.append(authority.generation())
    with pytest.raises(ZeroDivisionError), authority.exclusive(0):
        raise ZeroDivisionError
    assert [*seen, authority.generation()] == [0, 1, 2, 3, 4]
    with authority.shared(0):
        assert authority.generation() == 4


@pytest.mark.parametrize(
    "content", [b"\n", b"12\n", b"0" * 19 + b"\n", b"0" * 19 + b"x\n", b"9" * 22, b"-" * 21]
)
def test_a_damaged_generation_is_reported_and_kept_and_the_lock_is_free_again(authority, tmp_path, content):
    file = tmp_path / "authority.generation"
    file.touch(mode=0o600)
    file.write_bytes(content)
    for use in (authority.generation, authority.exclusive):
        with pytest.raises(RecoveryRequired, match=r"authority\.generation"):
            use()
    assert file.read_bytes() == content
    authority.shared(0).release()


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_hold_that_is_dropped_is_reported_and_ended(authority, kind):
    hold = getattr(authority, kind)(0)
    with pytest.warns(ResourceWarning, match="dropped"):
        del hold
    authority.exclusive(0).release()


def test_shared_holds_stand_on_the_same_two_files_and_close_or_the_end_of_all_closes_them(authority):
    before = open_files()
    holds = [authority.shared(0) for _ in range(5)]
    assert len(open_files() - before) == 2
    for hold in holds:
        hold.release()
    assert len(open_files() - before) == 2, "the next one opens none"
    authority.close()
    assert open_files() == before
    with authority.shared(0):
        assert len(open_files() - before) == 2
    del authority._shared
    assert open_files() == before


@pytest.mark.parametrize("which", ["lock", "gate"])
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_not_at_its_path_any_more_is_not_what_the_next_hold_stands_on(
    authority, tmp_path, which, how
):
    path = tmp_path / f"authority.{which}"
    old = authority.shared(0)
    path.unlink()
    if how == "replaced":
        path.touch(mode=0o600)
    with authority.shared(0):
        other = AuthorityLock(
            *(str(tmp_path / f"authority.{kind}") for kind in ("lock", "gate", "generation"))
        )
        with pytest.raises(LockTimeout):
            other.exclusive(0)
    old.release()
    other.exclusive(0).release()


@pytest.mark.parametrize("which", ["lock", "gate"])
def test_a_file_that_others_may_write_meanwhile_is_refused_although_it_is_open(authority, tmp_path, which):
    authority.shared(0).release()
    path = tmp_path / f"authority.{which}"
    path.chmod(0o666)
    with pytest.raises(UnsafeEndpoint, match=which):
        authority.try_shared()
    path.chmod(0o600)
    authority.shared(0).release()


def test_a_forked_child_holds_nothing_and_opens_files_of_its_own(authority):
    hold = authority.shared(0)
    child = os.fork()
    if not child:
        hold.release()
        mine = authority.try_shared()
        os._exit(0 if mine is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(LockTimeout):
        authority.exclusive(0)
    hold.release()
    authority.exclusive(0).release()


async def test_the_event_loop_may_try_it_shared_and_probe(authority, path):
    with HeldLock.acquire(path):
        assert probe(path) == WITHOUT_OWNER
    hold = authority.try_shared()
    assert authority.generation() == 0
    hold.release()


def test_shared_and_exclusive_locks_of_one_file_are_told_apart(path):
    with LockFile(path, write=True) as first, LockFile(path, write=False) as second:
        assert first.take(LOCK_SH)
        assert second.take(LOCK_SH)
        assert not second.take(LOCK_EX)
        first.free()
        assert second.take(LOCK_EX)
        assert not first.take(LOCK_SH)
