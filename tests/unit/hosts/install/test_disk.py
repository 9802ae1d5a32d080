"""Foreign files: read with care, changed together, links kept, nothing left lying about."""

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from herd.core.errors import HerdError, RecoveryRequired, ResourceBusy, UnsafeEndpoint
from herd.core.limits import HOST_FILE_BYTES
from herd.hosts.install.claude import claude_lock
from herd.hosts.install.disk import Change, ChangedMeanwhile, apply
from herd.hosts.install.found import find
from tests.fakes.host_files import SERVERS, SETTINGS, Person, snapshot


@pytest.mark.requirement("D-host-09", "D-host-10")
def test_a_link_into_other_folders_stays_and_what_it_leads_to_is_edited(person: Person):
    dotfiles = person.home / "dotfiles"
    (dotfiles / "claude").mkdir(parents=True)
    (dotfiles / "claude" / "settings.json").write_bytes(SETTINGS)
    (person.home / ".claude").symlink_to("dotfiles/claude")
    (dotfiles / "servers.json").write_bytes(SERVERS)
    (dotfiles / "second").symlink_to("servers.json")
    person.servers.symlink_to(dotfiles / "second")
    before = person.snapshot()

    person.install(person.claude())

    assert os.readlink(person.servers) == str(dotfiles / "second")
    assert b'"herd"' in (dotfiles / "servers.json").read_bytes()
    assert {name for name, one in person.snapshot().items() if one != before.get(name)} == {
        "dotfiles/claude/settings.json",
        "dotfiles/servers.json",
    }
    person.uninstall(person.claude())
    assert person.snapshot() == before


@pytest.mark.requirement("D-host-10")
def test_a_link_to_a_file_that_is_not_there_yet_keeps_leading_there(person: Person):
    person.servers.symlink_to("elsewhere.json")
    before = person.snapshot()

    person.install(person.claude())
    assert (person.home / "elsewhere.json").is_file()
    person.uninstall(person.claude())

    assert person.snapshot() == before


def folder(path: Path) -> None:
    path.mkdir()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 50_000_000)


def just_too_large(path: Path) -> None:
    path.touch()
    os.truncate(path, HOST_FILE_BYTES + 1)


def read_only(path: Path) -> None:
    path.write_bytes(SERVERS)
    path.chmod(0o444)


def hard_linked(path: Path) -> None:
    path.write_bytes(SERVERS)
    os.link(path, f"{path}.second")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def link_into_nowhere(path: Path) -> None:
    path.symlink_to("no folder/file")


def below_a_file(path: Path) -> None:
    path.parent.joinpath("file").touch()
    path.symlink_to("file/below")


@pytest.mark.requirement("D-host-09")
@pytest.mark.parametrize(
    ("make", "told"),
    [
        (folder, "is no regular file"),
        (fifo, "is no regular file"),
        (huge, "is larger than"),
        (just_too_large, "is larger than"),
        (read_only, "is read-only"),
        (hard_linked, "has a second name"),
        (link_to_itself, "cannot be opened: Too many levels of symbolic links"),
        (link_into_nowhere, "is a link into"),
        (below_a_file, "cannot be opened: Not a directory"),
    ],
)
def test_what_is_no_plain_file_of_ours_is_refused_before_anything_is_touched(person: Person, make, told: str):
    person.with_files()
    for path in (person.servers, person.claude_settings):
        path.unlink()
        make(path)
        before = {one: stat.S_IFMT(one.lstat().st_mode) for one in person.home.rglob("*")}

        with pytest.raises(HerdError, match=told) as refusal:
            person.install(person.claude())

        assert refusal.value.next_step
        assert {one: stat.S_IFMT(one.lstat().st_mode) for one in person.home.rglob("*")} == before
        assert not os.path.lexists(person.layout.backups)
        for one in person.home.rglob("*"):
            if one.name in ("file", f"{path.name}.second") or one == path:
                one.rmdir() if one.is_dir() and not one.is_symlink() else one.unlink()
        path.write_bytes(SERVERS)


def test_mode_and_group_stay(person: Person):
    person.with_files()
    person.servers.chmod(0o604)

    person.install(person.claude())

    assert stat.S_IMODE(person.servers.stat().st_mode) == 0o604
    assert stat.S_IMODE(person.claude_settings.stat().st_mode) == 0o640


def test_what_a_killed_run_left_is_removed_by_the_next_one(person: Person):
    person.with_files()
    dead = f"{4_194_304 - 1}"
    left = person.home / f".{person.servers.name}.herd-old.{dead}.0123abcd.tmp"
    os.link(person.servers, left)
    unfinished = person.home / f".{person.servers.name}.herd-new.{dead}.0123abcd.tmp"
    unfinished.touch()
    at_work = person.home / f".{person.servers.name}.herd-new.{os.getpid()}.0123abcd.tmp"
    at_work.touch()

    person.install(person.claude())

    assert not left.exists()
    assert not unfinished.exists()
    assert at_work.exists()


def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path):
    first, second = find(str(tmp_path / "a")), find(str(tmp_path / "b"))
    (tmp_path / "b").write_bytes(b"theirs")

    with pytest.raises(ChangedMeanwhile):
        apply([Change(first, b"ours"), Change(second, b"ours")])

    assert {name: one[1] for name, one in snapshot(tmp_path).items()} == {"b": b"theirs"}


def test_a_folder_that_cannot_be_written_is_told_with_its_reason(tmp_path: Path):
    found = find(str(tmp_path / "gone" / "a"))

    with pytest.raises(RecoveryRequired, match="No such file or directory; every file is as it was"):
        apply([Change(found, b"ours")])


def test_claude_code_is_waited_for_while_it_writes(tmp_path: Path):
    path, lock = tmp_path / "file", tmp_path / "file.lock"
    lock.mkdir()
    with pytest.raises(ResourceBusy, match="is being written by Claude Code"), claude_lock(str(path), 0.1):
        pytest.fail("it was held")
    releasing = threading.Thread(target=lock.rmdir)

    releasing.start()
    with claude_lock(str(path)):
        assert lock.is_dir()
    releasing.join()
    assert not lock.exists()


def test_a_lock_whose_holder_was_killed_is_taken(tmp_path: Path):
    lock = tmp_path / "file.lock"
    lock.mkdir()
    os.utime(lock, (time.time() - 60, time.time() - 60))

    with claude_lock(str(tmp_path / "file")):
        assert time.time() - lock.stat().st_mtime < 30

    assert not lock.exists()


@pytest.mark.machine
@pytest.mark.requirement("D-host-09")
def test_a_file_of_another_user_is_refused(person: Person):
    person.with_files()
    os.chown(person.claude_settings, 65_534, 65_534)

    with pytest.raises(UnsafeEndpoint, match="belongs to user 65534, not to 0"):
        person.install(person.claude())

    assert person.servers.read_bytes() == SERVERS
