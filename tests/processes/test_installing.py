"""`herd install` and `herd uninstall` as commands, on a home with the hosts' configuration files."""

import json
import os
import select
from pathlib import Path

import pytest

from herd.core.errors import CONFLICT, DONE, MAY_PASS, NOT_FOUND, RECOVERY, USAGE
from tests.fakes.command_line import CommandLine, Detached
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.herd_session import WAIT_S
from tests.fakes.host_files import COMMENTED, SERVERS, SETTINGS, snapshot
from tests.processes.conftest import Machine

SYSTEM = "/usr/bin:/bin"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """Give a home in which both hosts have been used."""
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude.json").write_bytes(SERVERS)
    (tmp_path / ".claude" / "settings.json").write_bytes(SETTINGS)
    agent = tmp_path / ".pi" / "agent"
    (agent / "extensions").mkdir(parents=True)
    (agent / "extensions" / "mine.ts").write_bytes(b"export default () => {}\n")
    (agent / "mcp.json").write_bytes(b'{"mcpServers": {"mine": {"command": "x"}}} // mine\n')
    return tmp_path


@pytest.fixture
def shell(home: Path, user: Path) -> CommandLine:
    """Give a shell of that person, without a terminal; no host's program is on its search path."""
    return CommandLine(home, Detached(), environ={"HOME": str(user), "PATH": SYSTEM})


@pytest.mark.requirement("C13", "D-host-09", "D-host-10")
@pytest.mark.parametrize("host", ["claude", "pi"])
def test_install_twice_and_uninstall_leave_every_byte(shell: CommandLine, user: Path, host: str):
    before = snapshot(user)

    first = shell.run("install", host)
    once = snapshot(user)
    second = shell.run("install", host)

    assert [first.status, second.status] == [DONE, DONE]
    changed = {name for name in once if once[name] != before.get(name)}
    assert changed == (
        {".claude.json", ".claude/settings.json"} if host == "claude" else {".pi/agent/extensions/herd.ts"}
    )
    assert snapshot(user) == once
    assert "Everything was in place already; no byte was changed." in second.text
    undone = shell.run("uninstall", host)
    assert undone.status == DONE
    assert snapshot(user) == before
    assert "no byte was changed" in shell.run("uninstall", host).text


@pytest.mark.requirement("C13", "D-host-09")
def test_a_malformed_file_is_refused_and_all_files_are_left(shell: CommandLine, user: Path):
    (user / ".claude" / "settings.json").write_bytes(COMMENTED.replace(b"},\n    /*", b"}\n    /*"))
    before = snapshot(user)

    for words in (("install", "claude"), ("install", "claude", "--dry-run"), ("uninstall", "claude")):
        refused = shell.run(*words)
        assert refused.status == RECOVERY
        assert f"RECOVERY_REQUIRED: {user}/.claude/settings.json, line 9, column 5: , or }}" in refused.stderr
        assert "no file was changed" in refused.stderr
    looked = shell.run("install", "claude", "--check", "--json")

    assert looked.status == RECOVERY
    assert "settings.json, line 9" in looked.json["findings"][0]["detail"]
    assert snapshot(user) == before


@pytest.mark.requirement("D-host-09")
@pytest.mark.parametrize("host", ["claude", "pi"])
def test_a_dry_run_prints_the_change_and_makes_none(shell: CommandLine, home: Path, user: Path, host: str):
    before = snapshot(user)

    told = shell.run("install", host, "--dry-run")
    as_json = shell.run("install", host, "--dry-run", "--json")

    assert told.status == as_json.status == DONE
    assert "Nothing was changed" in told.text
    for one in as_json.json["files"]:
        assert one["diff"].splitlines()[0] in told.text
        assert one["path"] in told.text
    assert snapshot(user) == before
    assert list(home.iterdir()) == []


@pytest.mark.requirement("D-host-11")
def test_without_a_terminal_tools_are_allowed_only_by_the_flag(shell: CommandLine, user: Path):
    settings = user / ".claude" / "settings.json"

    assert "add --allow-tools" in shell.run("install", "claude").text
    assert b"mcp__herd" not in settings.read_bytes()
    assert "--allow-tools" not in shell.run("install", "claude", "--no-allow-tools").text
    assert b"mcp__herd" not in settings.read_bytes()
    shell.run("install", "claude", "--allow-tools")
    for tool in (b"list_peers", b"message_peer", b"peer_messages"):
        assert b'"mcp__herd__' + tool + b'"' in settings.read_bytes()
    assert "--allow-tools" not in shell.run("install", "claude").text
    shell.run("uninstall", "claude")
    assert settings.read_bytes() == SETTINGS


@pytest.mark.requirement("D-host-11")
@pytest.mark.parametrize(("answer", "allows"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_a_person_at_a_terminal_is_asked(machine: Machine, user: Path, answer: bytes, allows: bool):
    at_terminal = AtTerminal(machine)
    shell = machine.command_line(at_terminal, environ={"HOME": str(user), "PATH": SYSTEM})

    with shell.start("install", "claude") as running:
        asked = at_terminal.until(b"[y/N]")
        os.write(at_terminal.person, answer)
        assert running.outcome().status == DONE

    assert b"without asking each time?" in asked
    assert (b"mcp__herd__list_peers" in (user / ".claude" / "settings.json").read_bytes()) == allows


class AtTerminal:
    """Starts a command whose standard input and standard error are one terminal."""

    def __init__(self, machine: Machine) -> None:
        self._terminal = machine.terminal
        self.person, self._process = self._terminal.open()

    def start(self, arguments, *, stdin, stdout, stderr, cwd, env):
        return self._terminal.start(
            arguments, stdin=self._process, stdout=stdout, stderr=self._process, cwd=cwd, env=env
        )

    def until(self, text: bytes) -> bytes:
        told = b""
        while text not in told:
            assert select.select([self.person], [], [], WAIT_S)[0], told
            told += os.read(self.person, 4_096)
        return told


def test_looking_has_an_exit_status_for_each_state(shell: CommandLine, user: Path):
    assert shell.run("install", "claude", "--check").status == NOT_FOUND
    shell.run("install", "claude")

    looked = shell.run("install", "claude", "--check")
    assert looked.status == MAY_PASS
    assert "there is no program `claude` on PATH to ask" in looked.text

    (user / ".claude" / "settings.json").write_bytes(SETTINGS)
    looked = shell.run("install", "claude", "--check")
    assert looked.status == RECOVERY
    assert f"{user}/.claude/settings.json lacks Herd's entries" in looked.text


def test_the_doctor_sees_what_an_installation_has_lost(shell: CommandLine, user: Path):
    assert "claude" not in shell.run("doctor").text
    shell.run("install", "claude")
    shell.run("install", "pi")
    assert shell.run("doctor").status == DONE
    extension = user / ".pi" / "agent" / "extensions" / "herd.ts"
    extension.unlink()
    servers = user / ".claude.json"
    servers.write_bytes(servers.read_bytes().replace(b'"--host"', b'"--hosts"'))

    found = shell.run("doctor")

    assert found.status == RECOVERY
    assert f"LOOK pi: file: {extension} lacks Herd's entries" in found.text
    assert "LOOK claude: claude: " in found.text
    assert "mcpServers.herd is not Herd's" in found.text


def test_bad_words_are_refused_with_their_status(shell: CommandLine, user: Path):
    before = snapshot(user)

    assert shell.run("install", "emacs").status == USAGE
    assert shell.run("install").status == USAGE
    assert shell.run("install", "claude", "--check", "--dry-run").status == USAGE
    assert shell.run("install", "claude", "--allow-tools", "--no-allow-tools").status == USAGE
    refused = shell.run("install", "claude", "--json", environ={"CLAUDE_CONFIG_DIR": "here"})
    assert refused.status == USAGE
    assert refused.refusal["code"] == "INVALID_PARAMS"
    (user / ".pi" / "agent" / "extensions" / "herd.ts").write_bytes(b"// mine\n")
    refused = shell.run("install", "pi", "--json")
    assert refused.status == CONFLICT
    assert refused.refusal["code"] == "RESOURCE_BUSY"
    (user / ".pi" / "agent" / "extensions" / "herd.ts").unlink()
    assert snapshot(user) == before


@pytest.mark.requirement("A-config-01", "A-config-10")
def test_what_was_installed_is_on_without_any_setting(
    shell: CommandLine, machine: Machine, home: Path, user: Path
):
    assert shell.run("install", "claude").status == DONE
    entry = json.loads((user / ".claude.json").read_bytes())["mcpServers"]["herd"]
    assert entry["args"] == ["mcp", "--host", "claude"]
    assert entry["env"] == {"HERD_HOME": str(home)}
    assert not (home / "config").exists()
    before = snapshot(user)

    with HerdMcp(
        home, "claude", "one", name="api", herd=(entry["command"],), environ={"HOME": str(user)}
    ) as api:
        api.open()
        assert machine.session("pi", "two").until_listed("api").startswith("lead:")

    # Herd's own settings are a file of its own: it changes, and nothing of the host does.
    (home / "config" / "herd").mkdir(parents=True)
    (home / "config" / "herd" / "config.toml").write_text("[limits]\ninbox_messages = 9\n", encoding="utf-8")
    assert "no byte was changed" in shell.run("install", "claude").text
    assert snapshot(user) == before


def test_without_a_host_every_host_is_looked_at_and_taken_out_of(shell: CommandLine, user: Path):
    before = snapshot(user)
    assert shell.run("install").status == USAGE
    assert shell.run("install", "--check").status == NOT_FOUND
    assert shell.run("install", "pi").status == DONE

    checked = shell.run("install", "--check")
    assert "Herd is not installed into Claude Code" in checked.text
    assert checked.status == MAY_PASS  # no program is there that could be asked
    assert shell.run("install", "claude", "--no-allow-tools").status == DONE
    assert shell.run("uninstall").status == DONE
    assert snapshot(user) == before
    assert shell.run("install", "--check").status == NOT_FOUND
