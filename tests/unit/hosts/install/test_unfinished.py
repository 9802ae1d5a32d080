"""An installation that cannot be finished: a step that fails, a host that writes meanwhile, a kill."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from herd.core.errors import RecoveryRequired, ResourceBusy
from herd.core.limits import BACKUPS_KEPT
from herd.hosts.install.host import Host
from herd.hosts.install.installing import Installer
from tests.fakes.herd_session import ROOT
from tests.fakes.host_files import SERVERS, SETTINGS, Person, failing_at

HOSTS = pytest.mark.parametrize("name", ["claude", "claude with tools", "pi"])


def described(person: Person, name: str) -> Host:
    return person.pi() if name == "pi" else person.claude(tools="tools" in name)


def refused(act: Callable[[], object]) -> str | None:
    try:
        act()
    except RecoveryRequired as refusal:
        return refusal.message
    return None


@pytest.mark.requirement("D-host-09", "D-host-10")
@HOSTS
@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("undoing", [False, True])
def test_whatever_step_fails_every_file_is_as_it_was(person: Person, name: str, fresh: bool, undoing: bool):
    if not fresh:
        person.with_files()
    host = described(person, name)
    act = person.uninstall if undoing else person.install
    if undoing:
        person.install(host)
    before, kept = person.snapshot(), sorted(os.listdir(person.layout.root))
    number = 0
    while True:
        number += 1
        step, called = failing_at(number, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some file"))
        refusal = refused(lambda: act(host, step))  # noqa: B023 - called at once
        if refusal is None:
            break
        assert refusal == "some file cannot be written: No space left on device; every file is as it was"
        assert person.snapshot() == before
        assert os.path.exists(os.path.join(person.layout.backups, f"{host.name}.json")) == undoing
    assert number > 4 * len(host.targets)
    assert len(called) == number - 1
    assert person.snapshot() != before
    if not undoing:
        person.uninstall(host)
        assert person.snapshot() == before
    assert set(kept) <= set(os.listdir(person.layout.root))


@pytest.mark.requirement("D-host-09")
@pytest.mark.parametrize("fresh", [True, False])
def test_a_file_that_the_host_writes_meanwhile_is_not_overwritten(person: Person, fresh: bool):
    if not fresh:
        person.with_files()
    host = person.claude()
    before = person.snapshot()
    theirs = b'{"written": "by the host"}'

    def meanwhile(word: str, path: str) -> None:
        if word == "write" and path == str(person.claude_settings):
            person.servers.write_bytes(theirs)

    with pytest.raises(ResourceBusy, match=r"\.claude\.json was changed by another program just now"):
        person.install(host, meanwhile)

    after = person.snapshot()
    assert after.pop(".claude.json")[1] == theirs
    before.pop(".claude.json", None)
    assert after == before


@pytest.mark.requirement("D-host-09")
def test_what_was_there_is_kept_beside_the_data_for_this_user_alone(person: Person):
    person.with_files()
    for _ in range(BACKUPS_KEPT + 3):
        person.install(person.claude())
        person.uninstall(person.claude())

    folder = Path(person.layout.backups)
    copies = [one for one in (folder / "claude").iterdir() if one.name.endswith("settings.json")]
    assert len(copies) == BACKUPS_KEPT
    assert sum(one.read_bytes() == SETTINGS for one in copies) == BACKUPS_KEPT // 2
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_what_the_host_wrote_meanwhile_is_read_anew(person: Person):
    person.with_files()
    theirs = SERVERS.replace(b"41", b"42")

    def meanwhile(word: str, path: str) -> None:
        if word == "write" and path == str(person.claude_settings):
            person.servers.write_bytes(theirs)

    Installer(person.claude(), person.layout, meanwhile).install()

    assert b'"herd"' in person.servers.read_bytes()
    Installer(person.claude(), person.layout).uninstall()
    assert person.servers.read_bytes() == theirs


KILLED = """
import os, sys
from pathlib import Path
from tests.fakes.host_files import Person

def run(person, undoing, number):
    host = person.pi() if sys.argv[2] == "pi" else person.claude(tools=True)
    calls = []
    def step(word, path):
        calls.append(word)
        if len(calls) == number:
            os._exit(9)
    (person.uninstall if undoing else person.install)(host, step)
    os._exit(0)

number = 0
for undoing in (False, True):
    status = 9
    number = 0
    while status == 9:
        number += 1
        folder = Path(sys.argv[1], f"{undoing}-{number}")
        folder.mkdir()
        person = Person(folder).with_files()
        (person.home / ".pi" / "agent" / "extensions").mkdir(parents=True)
        host = person.pi() if sys.argv[2] == "pi" else person.claude(tools=True)
        before = person.snapshot()
        person.install(host)
        if not undoing:  # over an older one, whose files are written anew
            file = Path(host.targets[0].path)
            file.write_bytes(file.read_bytes().replace(b"peer_messages", b"mail"))
            person.uninstall(person.pi(force=True) if sys.argv[2] == "pi" else host)
            assert person.snapshot() == before
        child = os.fork()
        if not child:
            run(person, undoing, number)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        lock = person.home / ".claude.json.lock"
        if lock.exists():  # Claude Code takes it away after 10 s, as we do
            lock.rmdir()
        if number % 2:
            person.install(host)
        person.uninstall(host)
        assert person.snapshot() == before, (undoing, number)
    assert number > 6, number
print("done")
"""


@pytest.mark.requirement("D-host-10")
@pytest.mark.parametrize("name", ["claude", "pi"])
def test_after_a_kill_at_any_step_it_can_be_gone_on_with_and_undone(tmp_path: Path, name: str):
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), name],
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )

    assert ended.stdout == "done\n", ended.stderr
