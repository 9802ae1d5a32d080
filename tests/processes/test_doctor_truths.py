"""What `herd doctor` says is true, whatever was done to the files, and it makes and changes nothing."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from herd.core.identity import SessionName, target_of
from herd.core.locks import _padded, probe
from tests.processes.conftest import Machine

ALICE = SessionName("claude", "alice")
CALLED = f"{target_of('lead', ALICE.key)} (claude alice)"


def whole(place: Path) -> dict[str, tuple[int, int, int, str]]:
    """Give mode, inode, time of change and content of everything below a place."""
    found = {}
    for path in [place, *sorted(place.rglob("*"))]:
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return found


def looks(machine: Machine) -> list[str]:
    shown = machine.cron.run("doctor")
    found = [line for line in shown.text.splitlines() if line.startswith("LOOK")]
    assert shown.status == (8 if found else 0)
    return found


def with_mail(machine: Machine, count: int = 1) -> Path:
    """Give alice messages, running, and her mailbox."""
    machine.session("claude", "alice", name="alice")
    for number in range(count):
        assert machine.shell.run("send", "alice", f"{number} {'x' * 3_000}").status == 0
    return Path(machine.layout.mailbox(ALICE.key))


def asleep(machine: Machine) -> Path:
    alice = machine.session("claude", "alice", name="alice")
    for number in range(8):
        assert machine.shell.run("send", "alice", f"{number} {'x' * 3_000}").status == 0
    alice.end()
    return Path(machine.layout.mailbox(ALICE.key))


# --- a mailbox that no visit would find damaged ------------------------------


def rotten_pages(file: Path) -> None:
    with file.open("r+b") as mailbox:
        mailbox.seek(4_096 * 3)
        mailbox.write(b"\xa5" * 8_192)


def empty_pages_at_the_end(file: Path) -> None:
    pages = file.stat().st_size // 4_096
    with file.open("r+b") as mailbox:
        mailbox.seek(4_096 * (pages - 2))
        mailbox.write(bytes(4_096))


def changed_by(statement: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        mailbox = sqlite3.connect(file)
        mailbox.execute(statement)
        mailbox.commit()
        mailbox.close()

    return change


@pytest.mark.parametrize(
    ("spoil", "wrong"),
    [
        (rotten_pages, "is damaged: "),
        (empty_pages_at_the_end, "is damaged: "),
        (changed_by("DROP TABLE shown"), "is damaged: it has no table shown"),
        (changed_by("ALTER TABLE outbox DROP COLUMN topic"), "is damaged: it has no column outbox.topic"),
        (changed_by("DELETE FROM counter"), "is damaged: it has no row in counter"),
        (
            changed_by("CREATE TRIGGER t AFTER INSERT ON inbox BEGIN DELETE FROM inbox; END"),
            "is damaged: it has a trigger t",
        ),
    ],
)
def test_the_whole_mailbox_of_a_sleeping_session_is_checked(
    machine: Machine, spoil: Callable[[Path], None], wrong: str
):
    file = asleep(machine)
    assert looks(machine) == []
    spoil(file)
    before = whole(machine.home)

    [found] = looks(machine)

    assert found.startswith(f"LOOK session: {CALLED}: RECOVERY_REQUIRED: {file} {wrong}")
    assert whole(machine.home) == before
    # What it calls damaged a start does not take for sound either.
    machine.session("claude", "alice", name="alice")
    [found] = looks(machine)
    assert f"{CALLED} is running and not listed: it is unhealthy: {file} {wrong}" in found


# --- nothing is changed ------------------------------


def test_it_makes_and_changes_nothing(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    assert machine.shell.run("send", "alice", "unread").status == 0
    os.kill(alice.pid, signal.SIGKILL)
    alice.end()
    machine.session("codex", "bob").end()
    layout = machine.layout  # each time that it is asked for, its folders are made
    assert Path(layout.mailbox(ALICE.key) + "-wal").stat().st_size
    shutil.rmtree(layout.hooks)
    for lock in Path(layout.locks).glob("*.mailbox.lock"):
        lock.unlink()
    before = whole(machine.home)

    shown = machine.cron.run("doctor")

    assert shown.status == 0
    assert f"{CALLED} sleeps with 1 undelivered messages" in shown.text
    assert f"ok   folder: {layout.hooks} is not there" in shown.text
    assert whole(machine.home) == before


def test_it_changes_nothing_of_a_running_session(machine: Machine):
    with_mail(machine)
    assert looks(machine) == []
    before = whole(machine.home)

    assert looks(machine) == []

    assert whole(machine.home) == before


@pytest.mark.parametrize("command", ["peers", "inbox", "whoami"])
def test_a_command_without_a_session_leaves_no_data_root(machine: Machine, tmp_path: Path, command: str):
    place = tmp_path / "state"

    shown = machine.cron.run(command, "--json", environ={"HERD_HOME": str(place)})

    assert shown.refusal["code"] == "NO_SESSION"
    assert not place.exists()
    assert machine.shell.run(command, environ={"HERD_HOME": str(place)}).status == 0
    assert place.is_dir()


# --- modes ------------------------------


def socket_of(machine: Machine) -> Path:
    record = json.loads(Path(machine.layout.record(ALICE.key)).read_bytes())
    return Path(record["instance"]["socket"])


PLACES: dict[str, tuple[Callable[[Machine], Path], str]] = {
    "the data root": (lambda machine: machine.home, "data root"),
    "the machine's folder": (lambda machine: Path(machine.layout.root), "data root"),
    "a folder in it": (lambda machine: Path(machine.layout.locks), "folder"),
    "a session's folder": (lambda machine: Path(machine.layout.session_folder(ALICE.key)), "folder"),
    "a session's file": (lambda machine: Path(machine.layout.session_file(ALICE.key)), "file"),
    "a session's mailbox": (lambda machine: Path(machine.layout.mailbox(ALICE.key)), "file"),
    "a session's token": (lambda machine: Path(machine.layout.token(ALICE.key)), "file"),
    "a lock": (lambda machine: Path(machine.layout.session_lock(ALICE.key)), "file"),
    "a record": (lambda machine: Path(machine.layout.record(ALICE.key)), "file"),
    "a socket": (socket_of, "socket"),
}


def test_each_mode_that_lets_others_in_is_named_with_what_mends_it(machine: Machine):
    with_mail(machine)
    for place, (of, what) in PLACES.items():
        path = of(machine)
        right = path.stat().st_mode & 0o777
        wrong = right | (0o055 if right == 0o700 else 0o066)
        path.chmod(wrong)

        shown = machine.cron.run("doctor")
        path.chmod(right)

        found = [line for line in shown.text.splitlines() if line.startswith("LOOK")]
        assert found == [f"LOOK {what}: {path} has mode {wrong:04o}, not {right:04o}"], place
        assert f"       -> If it was always yours alone: chmod {right:o} {path}\n" in shown.text
    assert looks(machine) == []


def test_what_is_no_file_of_ours_is_named_and_foreign_names_are_passed_over(machine: Machine):
    asleep(machine)
    layout = machine.layout
    os.symlink("/etc/passwd", f"{layout.locks}/{'c' * 64}.lock")
    os.link(layout.token(ALICE.key), f"{layout.run}/a second name")
    Path(layout.locks, "notes").touch(0o644)

    assert sorted(looks(machine)) == sorted(
        [
            f"LOOK file: {layout.locks}/{'c' * 64}.lock is a symlink",
            f"LOOK file: {layout.token(ALICE.key)} has a second name, a hard link",
        ]
    )


# --- sessions that run ------------------------------


def test_a_session_that_lists_do_not_show_is_not_called_running(machine: Machine):
    with_mail(machine)
    lock = machine.layout.session_lock(ALICE.key)
    owner = probe(lock).owner
    assert owner is not None
    # What a coordinator does that cannot rewrite its record: the disk is full, the claim is retired in place.
    with Path(lock).open("r+b") as file:
        file.write(_padded(owner._replace(id=None)))
    assert b"alice" not in machine.shell.run("peers").stdout

    assert looks(machine) == [f"LOOK session: {CALLED} is running and not listed: it is unhealthy"]


def test_a_session_whose_record_was_removed_is_said_to_run_unseen(machine: Machine):
    with_mail(machine)
    record = Path(machine.layout.record(ALICE.key))
    owner = probe(machine.layout.session_lock(ALICE.key)).owner
    assert owner is not None
    record.unlink()

    [found] = looks(machine)

    assert (
        f"{CALLED} runs in process {owner.pid}, and its record is missing: nobody sees it ({record})" in found
    )
    assert "is being started" not in found


def test_a_session_file_that_was_removed_while_its_session_runs(machine: Machine):
    with_mail(machine)
    file = Path(machine.layout.session_file(ALICE.key))
    kept = file.read_bytes()
    file.unlink()

    [found] = looks(machine)

    assert f"{CALLED} is running, and {file} is missing" in found
    file.write_bytes(kept)
    file.chmod(0o600)
    assert looks(machine) == []


def test_a_session_folder_or_mailbox_that_was_moved_away_while_its_session_runs(machine: Machine):
    mailbox = with_mail(machine)
    folder, aside = mailbox.parent, mailbox.parent.with_name("aside")
    mailbox.rename(mailbox.with_name("aside"))
    assert f"{mailbox} is missing: its mail goes with it at its end" in looks(machine)[0]
    mailbox.with_name("aside").rename(mailbox)
    folder.rename(aside)
    assert f"its folder {folder} is gone: its mail goes with it at its end" in looks(machine)[0]
    aside.rename(folder)


def test_lock_files_that_were_removed_under_a_running_session_are_named_as_the_cause(machine: Machine):
    mailbox = with_mail(machine)
    pid = json.loads(Path(machine.layout.record(ALICE.key)).read_bytes())["claim"]["pid"]
    Path(machine.layout.mailbox_lock(ALICE.key)).unlink()

    lock = machine.layout.mailbox_lock(ALICE.key)
    removed = (
        f"runs in process {pid}, and nobody holds {lock}: that lock file was removed while the session ran"
    )
    assert looks(machine) == [f"LOOK session: {CALLED} {removed}"]

    Path(machine.layout.session_lock(ALICE.key)).unlink()
    assert looks(machine) == [
        f"LOOK session: {CALLED} {removed.replace(lock, machine.layout.session_lock(ALICE.key))}"
    ]

    # Without its record, its open mailbox alone tells of it.
    Path(machine.layout.record(ALICE.key)).unlink()
    shown = machine.cron.run("doctor").text
    assert f"LOOK session: {CALLED}: {mailbox} is open in process {pid}, although {lock} is free" in shown
    assert "-> End that process, and start the session again" in shown
    assert "cannot be written" not in shown


def test_another_program_that_has_a_sleeping_mailbox_open_is_named(machine: Machine):
    file = asleep(machine)
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN IMMEDIATE")

        [found] = looks(machine)
    finally:
        other.close()

    assert f"{CALLED}: {file} is open in process {os.getpid()}" in found


def test_a_session_that_is_stopped_is_said_not_to_answer(machine: Machine):
    alice = machine.session("claude", "alice", name="alice")
    os.kill(alice.pid, signal.SIGSTOP)
    try:
        [found] = looks(machine)
    finally:
        os.kill(alice.pid, signal.SIGCONT)

    assert found == (
        f"LOOK session: {CALLED} is running and does not answer: process {alice.pid} is stopped or hangs"
    )
    assert looks(machine) == []
