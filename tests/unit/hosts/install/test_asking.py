"""Asking a program: bounded in time and output, on copies that go away with all that was made among them."""

import os
from pathlib import Path

import pytest

from herd.core.limits import HOST_ANSWER_BYTES
from herd.hosts.install.asking import ask, copies, program_path
from tests.fakes.host_files import Person

ENVIRON = {"PATH": "/usr/bin:/bin"}


def script(folder: Path, text: str, name: str = "program") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_what_it_says_and_how_it_ends_is_told(tmp_path: Path):
    told = ask([script(tmp_path, 'echo "$1 $2"; echo aside >&2; exit 3'), "a", "b"], ENVIRON, str(tmp_path))

    assert told == (3, "a b\naside\n")


def test_it_gets_no_input_and_no_other_variable(tmp_path: Path):
    told = ask([script(tmp_path, "cat; env")], {**ENVIRON, "ONE": "1"}, str(tmp_path))

    assert {line.partition("=")[0] for line in told.text.splitlines()} <= {
        "PATH",
        "ONE",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }


def test_one_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path):
    # Only those that hold the FIFO open for writing keep it from its end.
    os.mkfifo(tmp_path / "held")
    reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    program = script(tmp_path, "exec 3>held\nsleep 600 &\nsleep 600")

    told = ask([program], ENVIRON, str(tmp_path), wait_s=0.5)

    assert told.status is None
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_one_that_cannot_be_started_has_said_why(tmp_path: Path):
    told = ask([str(tmp_path / "none")], ENVIRON, str(tmp_path))

    assert told.status == -1
    assert told.text.endswith("none cannot be started: No such file or directory")


def test_no_more_is_read_than_the_bound(tmp_path: Path):
    told = ask([script(tmp_path, "head -c 3000000 /dev/zero")], ENVIRON, str(tmp_path))

    assert len(told.text) == HOST_ANSWER_BYTES


def test_copies_are_private_and_gone_afterwards_and_those_of_a_killed_run_too(tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir(mode=0o700)
    (folder / ".ask-4194303-x").mkdir()
    (folder / ".ask-4194303-x" / "secret").touch()

    with copies(str(folder), {"a/b": b"1", "c": b"2"}) as place:
        assert Path(place, "a", "b").read_bytes() == b"1"
        assert Path(place).stat().st_mode & 0o777 == 0o700
        Path(place, "more").mkdir()

    assert list(folder.iterdir()) == []


def test_a_program_is_looked_for_on_the_given_path_alone(tmp_path: Path):
    path = script(tmp_path, "", "claude")

    assert program_path("claude", {"PATH": str(tmp_path)}) == path
    assert program_path("claude", {"PATH": str(tmp_path / "none")}) is None


@pytest.mark.requirement("D-host-11")
@pytest.mark.parametrize(
    ("says", "ok", "told"),
    [
        ("echo '  Status: ✔ Connected'", True, "Claude Code says: Status: ✔ Connected"),
        ("echo '  Status: ✘ Failed to connect'", False, "Claude Code says: Status: ✘ Failed to connect"),
        ("echo '  Status: ! Connected · tools fetch failed'", False, "tools fetch failed"),
        ("echo 'No MCP server named \"herd\".'; exit 1", False, 'No MCP server named "herd".'),
        ("exit 1", False, "Claude Code says: nothing"),
        ("printf '\\033[31mred\\033[0m'; exit 1", False, "Claude Code says: red"),
    ],
)
def test_what_claude_code_says_is_judged(person: Person, tmp_path: Path, says: str, ok: bool, told: str):
    script(tmp_path, says, "claude")
    host = person.claude(PATH=f"{tmp_path}:/usr/bin:/bin")

    (finding,) = host.ask({"servers": b"{}", "settings": None})

    assert (finding.ok, finding.unverified) == (ok, False)
    assert told in finding.detail
    assert bool(finding.next_step) != ok


@pytest.mark.requirement("D-host-11")
def test_hooks_that_are_switched_off_are_told(person: Person, tmp_path: Path):
    script(tmp_path, "echo 'Status: ✔ Connected'", "claude")
    host = person.claude(PATH=f"{tmp_path}:/usr/bin:/bin")

    findings = host.ask({"servers": b"{}", "settings": b'{"disableAllHooks": true}'})

    assert [one.ok for one in findings] == [True, False]


@pytest.mark.requirement("D-host-11")
@pytest.mark.parametrize(
    ("says", "ok", "told"),
    [
        (
            'tail -n 1 "$PI_CODING_AGENT_DIR/extensions/herd.ts" | cut -d "\'" -f 2',
            True,
            "Pi loads the extension",
        ),
        (
            "echo 'Error: Failed to load extension \"x\": no'; exit 1",
            False,
            'Failed to load extension "x": no',
        ),
        ("echo 'No models matching'", False, "Pi says: No models matching"),
    ],
)
def test_what_pi_says_is_judged(person: Person, tmp_path: Path, says: str, ok: bool, told: str):
    script(tmp_path, says, "pi")
    host = person.pi(PATH=f"{tmp_path}:/usr/bin:/bin")

    (finding,) = host.ask({"extension": host.targets[0].written(None)[0]})

    assert finding.ok == ok
    assert told in finding.detail
