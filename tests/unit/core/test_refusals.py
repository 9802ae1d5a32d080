"""What an `OSError` over a file amounts to: a system in want, or a place that is not safe."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock  # noqa: F401 - a lock imports it at its first use, which takes a descriptor
import pytest

from herd.core.errors import BY_CODE, RecoveryRequired, SystemWant, UnsafeEndpoint
from herd.core.files import private_folder, read_private
from herd.core.locks import AuthorityLock, HeldLock, probe, wait_until_free
from herd.core.refusals import mending, refusal_of, refused

SPACE = (errno.ENOSPC, errno.EDQUOT)
DISK = (errno.EROFS, errno.EIO)
ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = tmp_path / "a.lock"
    place.touch(mode=0o600)
    return str(place)


def fault(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), *([] if path is None else [path]))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("numbers", "hint"),
    [(SPACE, "Free space"), (DISK, "Mend the disk"), (ROOM, "Raise the limit on open files")],
)
def test_what_is_refused_for_want_of_something_may_pass_and_says_what_mends_it(
    path: str, numbers: tuple[int, ...], hint: str
):
    for number in numbers:
        refusal = refused("it cannot be opened", fault(number), path)
        assert type(refusal) is SystemWant
        assert (refusal.code, refusal.may_pass) == ("RECOVERY_REQUIRED", True)
        assert refusal.message == f"it cannot be opened: {os.strerror(number)}"
        assert refusal.next_step.startswith(hint)
        assert (mending(fault(number)) or "").startswith(hint)


def test_the_wire_knows_one_class_of_its_code():
    assert BY_CODE[SystemWant.code] is RecoveryRequired


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_what_is_forbidden_although_the_mode_allows_it_is_the_systems(path: str, number: int):
    absent = os.path.join(os.path.dirname(path), "absent", "b.lock")
    assert type(refused("no", fault(number), path)) is SystemWant
    assert type(refused("no", fault(number), absent)) is SystemWant


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o644])
def test_what_the_mode_forbids_is_unsafe(path: str, number: int, mode: int):
    os.chmod(path, mode)
    refusal = refused("no", fault(number), path)
    assert type(refusal) is UnsafeEndpoint
    assert "0600" in refusal.next_step


@pytest.mark.parametrize("kind", ["link", "second name", "socket"])
def test_a_wrong_type_or_link_is_unsafe(path: str, kind: str):
    if kind == "second name":
        os.link(path, f"{path}.2")
    else:
        os.unlink(path)
        os.symlink("/nowhere", path) if kind == "link" else os.mkfifo(path, 0o600)
    assert type(refused("no", fault(errno.EACCES), path)) is UnsafeEndpoint


@pytest.mark.parametrize("number", [errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EADDRINUSE])
def test_other_faults_are_of_the_place(path: str, number: int):
    assert type(refused("no", fault(number), path)) is UnsafeEndpoint


@pytest.mark.machine
def test_a_file_or_folder_of_another_user_is_unsafe(path: str, tmp_path: Path):
    os.chown(path, 65_534, 65_534)
    assert type(refused("no", fault(errno.EACCES), path)) is UnsafeEndpoint
    os.chown(tmp_path, 65_534, 65_534)
    assert type(refused("no", fault(errno.EACCES), str(tmp_path / "absent"))) is UnsafeEndpoint


def test_a_bare_fault_over_a_file_has_its_class_and_names_the_file(path: str):
    known = {
        errno.EMFILE: SystemWant,
        errno.EROFS: SystemWant,
        errno.EACCES: SystemWant,
        errno.ELOOP: UnsafeEndpoint,
        errno.ENOENT: RecoveryRequired,
    }
    for number, kind in known.items():
        refusal = refusal_of(fault(number, path))
        assert type(refusal) is kind
        assert refusal is not None
        assert path in refusal.message


@pytest.mark.parametrize(
    "bare", [ConnectionResetError(errno.ECONNRESET, "reset"), TimeoutError(), fault(errno.EACCES)]
)
def test_a_fault_that_tells_of_no_file_is_none_of_these(bare: OSError):
    assert refusal_of(bare) is None


def test_a_bare_fault_for_want_of_something_needs_no_file():
    assert type(refusal_of(fault(errno.EMFILE))) is SystemWant


# --- the files of ours that are opened ---------------------------------------------------------------


@pytest.mark.parametrize("use", [HeldLock.acquire, probe, wait_until_free])
def test_a_lock_that_no_descriptor_is_left_for_is_not_called_unsafe(path: str, use):
    with pytest.raises(SystemWant, match="Too many open files") as caught, no_descriptors():
        use(path)
    assert caught.value.next_step.startswith("Raise the limit")


def test_neither_is_the_authority_lock(path: str):
    lock = AuthorityLock(path, path, path)
    for use in (lock.try_shared, lambda: lock.shared(0), lambda: lock.exclusive(0), lock.generation):
        with pytest.raises(SystemWant), no_descriptors():
            use()


def test_nor_a_file_that_is_read_or_a_folder_that_is_made(path: str, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SystemWant), no_descriptors():
        read_private(path, 10)

    def full(*_: object) -> None:
        raise fault(errno.ENOSPC)

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(SystemWant, match="No space left"):
        private_folder(f"{path}.folder")
