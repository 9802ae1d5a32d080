"""The text that Claude Code's shell runs at each hook event."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from herd.hosts.claude import guard
from herd.hosts.claude.guard import EVENTS, hook_command

SHELLS = ["/bin/sh", "/bin/bash"]
ODD_NAMES = ["plain", "a b", "it's", 'say "x"', "ü", "$HOME", "a*b", "back\\slash", "`id`", "a;b", "-n"]


class Place:
    """A data root with one machine's hooks, and a program that notes how it was run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hooks = root / "0123456789ab" / "hooks"
        self.hooks.mkdir(parents=True)
        self.ran = root / "ran"
        self.script = root / "note it.py"
        self.script.write_text(
            "import os, sys\n"
            f"with open({str(self.ran)!r}, 'a') as file:\n"
            "    file.write(repr(sys.argv[1:]) + '\\n')\n"
            "sys.stderr.write('noise')\n"
            "sys.stdout.write('shown')\n"
            "sys.exit(3)\n"
        )

    def run(
        self, event: str, *, session: str | None = "s-1", shell: str = "/bin/sh", python: str = sys.executable
    ):
        """Run the guard as Claude Code does; this process is its parent."""
        command = hook_command(event, f"{self.root}/*/hooks", python, str(self.script))
        environ = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        environ |= {} if session is None else {"CLAUDE_CODE_SESSION_ID": session}
        return subprocess.run(
            [shell, "-c", command], env=environ, capture_output=True, check=False, input=b"x"
        )

    def flag(self, name: str) -> Path:
        path = self.hooks / name
        path.write_text("socket\ntoken\n")
        return path

    @property
    def runs(self) -> list[str]:
        return self.ran.read_text().splitlines() if self.ran.exists() else []


@pytest.fixture(params=ODD_NAMES)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / request.param)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "root")


@pytest.mark.requirement("D-host-12")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_flag_of_this_session_and_process_runs_the_script_once(odd: Place, shell: str):
    flag = odd.flag(f"s-1-{os.getpid()}")

    ended = odd.run("Stop", shell=shell)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"shown", b"")
    assert odd.runs == [repr([str(flag), "Stop"])]


@pytest.mark.requirement("D-host-12")
@pytest.mark.parametrize("event", EVENTS)
def test_flags_of_others_run_nothing(place: Place, event: str):
    for name in (f"s-2-{os.getpid()}", f"s-1-{os.getppid()}", "s-1-", "1", f"s-1-{os.getpid()}.other"):
        place.flag(name)

    ended = place.run(event)

    assert (ended.returncode, ended.stdout, ended.stderr, place.runs) == (0, b"", b"", [])


@pytest.mark.requirement("D-host-12")
@pytest.mark.parametrize("event", ["SessionStart", "SessionEnd"])
def test_what_tells_of_another_session_needs_no_flag_of_one(place: Place, event: str):
    flag = place.flag(str(os.getpid()))

    place.run(event, session="never-heard-of")

    assert place.runs == [repr([str(flag), event])]


def test_only_a_prompt_looks_for_the_flag_of_prompts(place: Place):
    flag = place.flag(f"s-1-{os.getpid()}.prompt")

    for event in EVENTS:
        place.run(event)

    assert place.runs == [repr([str(flag), "UserPromptSubmit"])]


def test_two_flags_run_the_script_once_since_its_input_can_be_read_once(place: Place):
    flag = place.flag(f"s-1-{os.getpid()}")
    only = place.flag(f"s-1-{os.getpid()}.prompt")

    place.run("UserPromptSubmit")

    assert place.runs == [repr([str(flag), str(only), "UserPromptSubmit"])]


@pytest.mark.requirement("D-host-13")
@pytest.mark.parametrize("shell", SHELLS)
def test_without_python_or_script_nothing_is_said_and_nothing_fails(place: Place, shell: str):
    place.flag(f"s-1-{os.getpid()}")

    gone = place.run("Stop", shell=shell, python="/nowhere/python")
    place.script.unlink()
    lost = place.run("Stop", shell=shell)

    for ended in (gone, lost):
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.requirement("D-host-13")
@pytest.mark.parametrize("session", [None, "", "../../x", "a b", "*"])
def test_whatever_stands_in_the_session_id_is_harmless(place: Place, session: str | None):
    ended = place.run("Stop", session=session)

    assert (ended.returncode, ended.stdout, ended.stderr, place.runs) == (0, b"", b"", [])


@pytest.mark.requirement("D-host-12")
def test_while_nothing_waits_no_input_is_read_and_nothing_but_the_shell_is_needed(place: Place):
    command = hook_command("PostToolBatch", f"{place.root}/*/hooks", sys.executable, str(place.script))
    reading, writing = os.pipe()
    try:
        os.write(writing, b"not to be read")
        environ = {"PATH": "/nowhere", "CLAUDE_CODE_SESSION_ID": "s-1"}
        ended = subprocess.run(["/bin/sh", "-ec", command], stdin=reading, env=environ, check=False)

        assert ended.returncode == 0
        assert os.read(reading, 64) == b"not to be read"
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("event", "glob"),
    [
        ("Other", "/root/*/hooks"),
        ("Stop", "/root/hooks"),
        ("Stop", "root/*/hooks"),
        ("Stop", "/root/*/hooks/"),
        ("Stop", "/root/*/hooks/more"),
    ],
)
def test_another_event_or_place_has_no_command(event: str, glob: str):
    with pytest.raises(ValueError, match="no hook"):
        hook_command(event, glob, "python", "script")


def test_a_root_with_the_pattern_in_its_name_is_quoted_up_to_the_last_one():
    command = guard.hook_command("Stop", "/a/*/hooks/*/hooks", "python", "script")

    assert command.startswith("set --; for f in '/a/*/hooks'/*/hooks/")


def test_flags_below_any_machines_folder_are_found(place: Place):
    other = place.root / "ba9876543210" / "hooks"
    other.mkdir(parents=True)
    flag = other / f"s-1-{os.getpid()}"
    flag.touch()

    place.run("Stop")

    assert place.runs == [repr([str(flag), "Stop"])]


@pytest.mark.parametrize("event", ["SessionStart", "Stop"])
@pytest.mark.parametrize("shell", SHELLS)
def test_a_flag_of_another_machine_hides_none(place: Place, event: str, shell: str):
    name = str(os.getpid()) if event == "SessionStart" else f"s-1-{os.getpid()}"
    stale = place.root / "000000000000" / "hooks" / name
    stale.parent.mkdir(parents=True)
    stale.touch()
    flag = place.flag(name)

    place.run(event, shell=shell)

    assert place.runs == [repr([str(stale), str(flag), event])]
