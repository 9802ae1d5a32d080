"""The real Claude Code and the real Pi, asked whether they see what was installed."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from herd.core.errors import DONE, RECOVERY
from herd.hosts.install.claude import TOOLS
from tests.fakes.command_line import CommandLine, Detached, Outcome
from tests.fakes.host_files import COMMENTED, SERVERS, SETTINGS, snapshot
from tests.fakes.model_server import ModelServer
from tests.fakes.real_hosts import program

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]

OFFLINE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "PI_OFFLINE": "1",
    "PI_TELEMETRY": "0",
}


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Give a home in which Claude Code has been used."""
    folder = tmp_path / "person"
    (folder / ".claude").mkdir(parents=True)
    (folder / ".claude.json").write_bytes(SERVERS)
    (folder / ".claude" / "settings.json").write_bytes(SETTINGS)
    return folder


@pytest.fixture
def shell(home: Path, user: Path) -> CommandLine:
    """Give a shell of that person, with the real hosts on its search path."""
    path = f"{program('claude').parent}:{os.environ['PATH']}"
    return CommandLine(home, Detached(), environ={"HOME": str(user), "PATH": path})


def asked(user: Path, home: Path, *words: str, **environ: str) -> Outcome:
    """Run a host's program as the person does, on the person's own files."""
    surroundings = {
        "HOME": str(user),
        "PATH": os.environ["PATH"],
        "HERD_HOME": str(home),
        **OFFLINE,
        **environ,
    }
    ended = subprocess.run(
        [str(program(words[0])), *words[1:]],
        cwd=user,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Outcome(ended.returncode, ended.stdout, ended.stderr.decode(errors="replace"))


@pytest.mark.requirement("D-host-09", "D-host-10", "D-host-11")
@pytest.mark.parametrize("place", [None, "other folder"])
def test_claude_code_sees_the_server_and_is_asked_without_touching_a_file_of_the_person(
    shell: CommandLine, home: Path, user: Path, place: str | None
):
    environ = {} if place is None else {"CLAUDE_CONFIG_DIR": str(user / place)}
    before = snapshot(user)

    done = shell.run("install", "claude", "--allow-tools", environ=environ)
    assert (done.status, done.stderr) == (DONE, "")
    assert "ok   claude mcp get herd: Claude Code says: Status: ✔ Connected" in done.text
    once = snapshot(user)
    looked = shell.run("install", "claude", "--check", environ=environ)
    assert looked.status == DONE
    assert "it uses them without asking" in looked.text
    assert shell.run("install", "claude", environ=environ).status == DONE
    assert snapshot(user) == once
    assert shell.run("uninstall", "claude", environ=environ).status == DONE
    assert snapshot(user) == before

    # The same program on the person's own files, which it then rewrites.
    shell.run("install", "claude", environ=environ)
    seen = asked(user, home, "claude", "mcp", "get", "herd", **environ)
    assert seen.status == DONE
    assert "Scope: User config" in seen.text
    assert "✔ Connected" in seen.text
    assert shell.run("install", "claude", environ=environ).text.count("unchanged") == 2
    shell.run("uninstall", "claude", environ=environ)
    assert asked(user, home, "claude", "mcp", "get", "herd", **environ).status != DONE


@pytest.mark.requirement("D-host-11")
def test_claude_code_that_does_not_see_the_server_is_told(shell: CommandLine, user: Path):
    shell.run("install", "claude")
    file = user / ".claude.json"
    file.write_bytes(file.read_bytes().replace(b"/bin/herd", b"/bin/no-herd"))

    looked = shell.run("install", "claude", "--check")

    assert looked.status == RECOVERY
    assert "LOOK claude mcp get herd: Claude Code says: Status: ✘ Failed to connect" in looked.text


@pytest.mark.requirement("D-host-09", "D-host-11")
@pytest.mark.parametrize("settings", [SETTINGS, COMMENTED])
def test_claude_code_shows_its_model_the_tools_and_reads_settings_without_comments_only(
    shell: CommandLine, home: Path, user: Path, settings: bytes
):
    (user / ".claude" / "settings.json").write_bytes(settings)
    done = shell.run("install", "claude", "--allow-tools")

    with ModelServer() as model:
        key = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": model.url, "CLAUDE_CODE_MAX_RETRIES": "0"}
        said = asked(user, home, "claude", "-p", "--model", "claude-sonnet-4-5", "good morning", **key)
        offered = model.wait("good morning").offered

    assert {f"mcp__herd__{tool}" for tool in TOOLS} <= set(offered)
    told = "reads strict JSON, and ignores the whole file" in done.stderr
    assert told == (settings == COMMENTED)
    assert told == ("settings.json: Invalid or malformed JSON" in said.text + said.stderr)


@pytest.mark.requirement("D-host-09", "D-host-10", "D-host-11")
@pytest.mark.parametrize("place", [None, "other folder"])
def test_pi_loads_the_extension_and_is_asked_without_touching_a_file_of_the_person(
    shell: CommandLine, home: Path, user: Path, place: str | None
):
    environ = {} if place is None else {"PI_CODING_AGENT_DIR": str(user / place)}
    before = snapshot(user)

    done = shell.run("install", "pi", environ=environ)
    assert (done.status, done.stderr) == (DONE, "")
    assert "ok   pi --list-models: Pi loads the extension" in done.text
    once = snapshot(user)
    assert shell.run("install", "pi", "--check", environ=environ).status == DONE
    assert snapshot(user) == once
    assert shell.run("uninstall", "pi", environ=environ).status == DONE
    assert snapshot(user) == before

    # The same program on the person's own files reads this very file: it tells of the fault in it.
    shell.run("install", "pi", environ=environ)
    file = (user / ".pi" / "agent" if place is None else user / place) / "extensions" / "herd.ts"
    file.write_bytes(file.read_bytes() + b"no program at all\n")
    said = asked(user, home, "pi", "--list-models", **environ)
    assert f'Failed to load extension "{file}"' in said.text + said.stderr
    looked = shell.run("install", "pi", "--check", environ=environ)
    assert looked.status == RECOVERY
    assert "Pi says: Error: Failed to load extension" in looked.text


@pytest.mark.requirement("D-host-09")
@pytest.mark.parametrize("host", ["claude", "pi"])
def test_on_a_full_disk_every_file_is_as_it_was(home: Path, tmp_path: Path, host: str):
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=0700", "herd-test", disk], check=True)
    try:
        (disk / ".claude").mkdir()
        (disk / ".claude.json").write_bytes(SERVERS)
        (disk / ".claude" / "settings.json").write_bytes(SETTINGS)
        shell = CommandLine(home, Detached(), environ={"HOME": str(disk), "PATH": "/usr/bin:/bin"})
        for free in (0, 4_096):
            fill(disk, free)
            before = snapshot(disk)
            refused = shell.run("install", host)
            assert refused.status == RECOVERY
            assert "No space left on device; every file is as it was" in refused.stderr
            assert snapshot(disk) == before
            (disk / "filling").unlink()
        assert shell.run("install", host).status == DONE
        assert shell.run("uninstall", host).status == DONE
        assert (disk / ".claude.json").read_bytes() == SERVERS
        assert (disk / ".claude" / "settings.json").read_bytes() == SETTINGS
    finally:
        subprocess.run(["umount", disk], check=True)


def fill(disk: Path, free: int) -> None:
    """Leave a number of bytes on a disk."""
    with (disk / "filling").open("ab", buffering=0) as file:
        for block in (65_536, 4_096):
            with suppress(OSError):
                while True:
                    file.write(b"x" * block)
        file.truncate(file.seek(0, os.SEEK_END) - free)
