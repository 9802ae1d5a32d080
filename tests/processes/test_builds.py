"""Which code runs: the build that is reported, code replaced under a session, what a command loads."""

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from herd.core.build import PACKAGES, installed_in
from herd.core.errors import HerdError, RestartRequired
from herd.core.identity import SessionName
from herd.core.version import VERSION
from tests.fakes.command_line import CommandLine
from tests.fakes.herd_session import HERD, ROOT, HerdSession, environment
from tests.processes.conftest import Machine

NEW_VERSION = "99.0.0"


class Copy:
    """A copy of our code that a test may replace."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
        self.marks = folder / "ran"

    @property
    def environ(self) -> dict[str, str]:
        """What makes a process run this copy."""
        return {"PYTHONPATH": str(self.root)}

    def update(self) -> None:
        """Install another version, which works as well."""
        version = self.root / "herd" / "core" / "version.py"
        version.write_text(f'"""The version."""\n\nVERSION = "{NEW_VERSION}"\n', encoding="utf-8")

    def replace_everything(self) -> None:
        """Install code in the place of every module that leaves a mark where it runs."""
        for path in self.root.rglob("*.py"):
            code = f"open({str(self.marks)!r}, 'a').write({str(path)!r} + '\\n')\nraise SystemExit(77)\n"
            path.write_text(code, encoding="utf-8")

    def ran(self) -> list[str]:
        """Tell which of the new modules ran."""
        return self.marks.read_text(encoding="utf-8").splitlines() if self.marks.exists() else []


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path / "copy")


def outcome(session: HerdSession, method: str, **params: Any) -> dict[str, Any] | HerdError:
    try:
        return session.request(method, **params)
    except HerdError as refusal:
        return refusal


# --- the build that is reported ------------------------------


@pytest.mark.requirement("H-build-06")
def test_a_session_reports_the_build_it_runs_also_after_another_was_installed(machine: Machine, copy: Copy):
    before = {"version": VERSION, "sha256": installed_in(str(copy.root)).sha256}
    session = machine.session("claude", "alice", environ=copy.environ)
    copy.update()

    assert session.request("session.whoami")["build"] == before
    session.request("session.update", name="another name")
    record = Path(machine.layout.record(SessionName("claude", "alice").key)).read_bytes()
    assert json.loads(record)["build"] == before
    assert json.loads(record)["presence"]["name"] == "another name"
    shown = machine.command_line(machine.host, environ=copy.environ).run("whoami", "--json").json
    assert shown["build"] == before
    session.end()
    again = machine.session("claude", "alice", environ=copy.environ)
    now = {"version": NEW_VERSION, "sha256": installed_in(str(copy.root)).sha256}
    assert again.request("session.whoami")["build"] == now != before


def test_the_version_is_shown_with_the_beginning_of_the_build(machine: Machine, copy: Copy):
    shown = machine.command_line(machine.cron.parent, environ=copy.environ).run("--version")

    assert shown.text == f"herd {VERSION} · {installed_in(str(copy.root)).sha256[:12]}\n"
    assert (shown.status, shown.stderr) == (0, "")


@pytest.mark.requirement("H-build-07")
def test_sessions_and_commands_of_two_builds_exchange_mail_on_one_machine(machine: Machine, copy: Copy):
    copy.update()
    old = machine.session("claude", "old", name="old")
    new = machine.session("codex", "new", name="new", environ=copy.environ)
    assert (
        old.request("session.whoami")["build"]["sha256"] != new.request("session.whoami")["build"]["sha256"]
    )

    for sender, reader, name in ((old, new, "new"), (new, old, "old")):
        target = sender.until_listed(name)
        message = sender.send(target, f"to {name}")
        [read] = reader.request("session.read", wait_ms=5_000)["messages"]
        assert read["text"] == f"to {name}"
        reader.request("session.confirm", message_ids=[message], evidence="a test")
        assert sender.request("session.status", message_id=message)["state"] == "delivered"
    updated = machine.command_line(machine.terminal, environ=copy.environ)
    assert updated.run("send", "old", "from a newer command").status == 0
    assert old.request("session.read", wait_ms=5_000)["messages"][0]["text"] == "from a newer command"


# --- code replaced under a running session ------------------------------


@pytest.mark.requirement("H-build-09")
def test_a_running_session_never_runs_a_module_that_was_replaced_since_its_start(
    machine: Machine, copy: Copy
):
    session = machine.session("claude", "alice", environ=copy.environ)
    peer = machine.session("codex", "bob", name="bob")
    copy.replace_everything()

    target = session.until_listed("bob")
    sent = outcome(session, "session.send", target=target, message="x")
    answers = [
        sent,
        outcome(session, "session.read"),
        outcome(session, "session.status", message_id="no-such-message"),
        outcome(session, "session.cancel", message_id="no-such-message"),
        outcome(session, "session.update", cwd=str(copy.root), activity="working"),
        outcome(session, "session.whoami"),
    ]
    peer.send(peer.request("session.list")["peers"][0]["target"], "y")
    answers.append(outcome(session, "session.read", wait_ms=2_000))

    assert session.end() == 0
    assert session.stderr == ""
    assert copy.ran() == []
    refusals = [one for one in answers if isinstance(one, HerdError)]
    assert {one.code for one in refusals} <= {"UNKNOWN_TARGET", "RESTART_REQUIRED"}


@pytest.mark.requirement("H-build-09")
def test_what_would_need_a_replaced_module_ends_with_restart_required(machine: Machine, copy: Copy):
    # What a session needs is loaded at its start, so a module has to be there that is not: the git topology
    # is loaded with the session, which is not named yet.
    unbound = machine.starting(None, environ=copy.environ)
    assert isinstance(outcome(unbound, "session.whoami"), HerdError)
    copy.replace_everything()

    refusal = outcome(unbound, "session.bind", host="claude", session_id="alice", cwd="/")

    assert isinstance(refusal, RestartRequired)
    assert "replaced after this process started" in refusal.message
    assert refusal.next_step == RestartRequired.hint
    assert unbound.end() == 0
    assert copy.ran() == []
    assert os.listdir(machine.layout.peers) == []


@pytest.mark.requirement("H-build-09")
def test_the_coordinator_of_a_terminal_session_runs_no_replaced_module_either(machine: Machine, copy: Copy):
    peer = machine.session("claude", "alice", name="alice")
    old = machine.command_line(machine.terminal, environ=copy.environ)
    with old.start("inbox", "--wait", "--json") as waiting:
        target = peer.until_listed("terminal")
        copy.replace_everything()
        peer.send(target, "while new code lies there")
        shown = waiting.outcome()

    assert shown.status == 0, shown.stderr
    assert shown.json["messages"][0]["text"] == "while new code lies there"
    assert copy.ran() == []


# --- what is installed and loaded ------------------------------


@pytest.mark.requirement("D-code-08")
def test_the_distribution_gives_the_command_herd(home: Path):
    distribution = importlib.metadata.distribution("herd-coordinator")
    [command] = [one for one in distribution.entry_points if one.group == "console_scripts"]
    assert (command.name, command.value) == ("herd", "herd.cli.main:main")

    installed = Path(sys.executable).parent / "herd"
    shown = subprocess.run(
        [installed, "--version"],
        env={**environment(home), "PYTHONPATH": ""},
        cwd="/",
        capture_output=True,
        check=False,
        encoding="utf-8",
    )

    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"herd {distribution.version} · ")


@pytest.mark.requirement("D-code-09")
@pytest.mark.parametrize("name", ["roles", "federation", "assignments"])
@pytest.mark.parametrize("form", ["package", "module"])
@pytest.mark.parametrize(
    "words", [["peers"], ["session", "--host", "claude", "--session", "x"], ["--version"]]
)
def test_another_package_of_our_names_stops_every_command_with_a_hint(
    machine: Machine, tmp_path: Path, name: str, form: str, words: list[str]
):
    place = tmp_path / (f"{name}/__init__.py" if form == "package" else f"{name}.py")
    place.parent.mkdir(exist_ok=True)
    place.write_text("raise SystemExit(77)\n", encoding="utf-8")
    shadowed = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}

    refused = machine.command_line(machine.terminal, environ=shadowed).run(*words, "--json")

    assert (refused.status, refused.stdout) == (9, b"")
    assert refused.refusal["code"] == "PACKAGE_SHADOWED"
    assert str(tmp_path / name) in refused.refusal["message"]
    assert "pipx install herd-coordinator" in refused.refusal["hint"]
    assert os.listdir(machine.layout.sessions) == []


def test_a_folder_of_our_name_that_is_no_package_shadows_nothing(machine: Machine, tmp_path: Path):
    for name in ("roles", "assignments", "federation"):
        (tmp_path / name / "tasks").mkdir(parents=True)
    beside = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}

    shown = machine.command_line(machine.terminal, environ=beside, cwd=tmp_path).run("peers")

    assert (shown.status, shown.stderr) == (0, "")


LOADED = """
import atexit, sys
from herd.cli import main
status = main.main(sys.argv[1:])
sys.stderr.write(" ".join(sys.modules))
sys.exit(status)
"""


def loaded(commands: CommandLine, *words: str) -> set[str]:
    """Run a command and give the modules that it loaded."""
    ended = commands.run(*words)
    assert ended.status == 0, ended.stderr
    return {name.partition(".")[0] for name in ended.stderr.split()} | set(ended.stderr.split())


@pytest.mark.requirement("D-code-02")
def test_a_command_loads_only_what_it_uses(machine: Machine):
    machine.session("claude", "alice", name="alice")
    measured = (sys.executable, "-c", LOADED)
    shell = machine.command_line(machine.terminal, herd=measured)
    inside = machine.command_line(machine.host, herd=measured)
    machine.session("codex", "bob", name="bob", parent=machine.new_host())

    never = {"mcp", "asyncssh", "iroh", "herd.mcp", "federation"}
    for commands in (shell, inside):
        assert loaded(commands, "send", "bob", "hello") & never == set()
        assert loaded(commands, "inbox") & never == set()
        dear = {"sqlite3", "filelock", "psutil", "pydantic", "asyncio", "cryptography", "dataclasses"}
        more = {
            "pathlib",
            "uuid",
            "logging",
            "subprocess",
            "tempfile",
            "inspect",
            "herd.coordinator",
            "herd.mail",
        }
        assert loaded(commands, "peers") & (never | dear | more) == set()
        assert loaded(commands, "peers", "--json", "bob") & (never | dear | more) == set()
        assert loaded(commands, "whoami") & (never | dear) == set()
    # Who only goes through a coordinator that runs needs none of what coordinating takes.
    assert loaded(inside, "send", "bob", "hello") & {"sqlite3", "filelock", "pydantic", "asyncio"} == set()


def test_the_command_of_the_tests_is_the_one_that_is_installed():
    assert HERD[1:] == ("-m", "herd.cli.main")
