"""What belongs into Claude Code's files, and what of it a person may change."""

import json
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import InvalidParams, ResourceBusy
from herd.hosts.claude import guard
from herd.hosts.install.claude import TOOLS, allows_tools, denied_tools
from tests.fakes.host_files import COMMENTED, SETTINGS, Person


def value(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(path.read_bytes())
    return parsed


def ours(settings: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [one for one in settings["hooks"][event] if "hook.py" in one["hooks"][0]["command"]]


@pytest.mark.requirement("D-host-09", "A-config-10")
def test_exactly_these_entries_are_written(person: Person):
    person.with_files()
    servers, settings = value(person.servers), value(person.claude_settings)

    person.install(person.claude())

    written = value(person.servers)
    assert written["mcpServers"].pop("herd") == {
        "type": "stdio",
        "command": str(person.command),
        "args": ["mcp", "--host", "claude"],
        "env": {"HERD_HOME": person.settings.home},
        "alwaysLoad": True,
    }
    assert written == servers
    written = value(person.claude_settings)
    for event in guard.EVENTS:
        (entry,) = ours(written, event)
        assert entry.get("matcher") == ("*" if event.startswith("PostToolUse") else None)
        (hook,) = entry["hooks"]
        root = person.settings.home
        script = str(Path(guard.__file__).with_name("hook.py"))
        assert hook == {
            "type": "command",
            "command": guard.hook_command(event, f"{root}/*/hooks", "/usr/bin/python3", script),
            "timeout": 5,
        }
        written["hooks"][event].remove(entry)
    assert {name: one for name, one in written["hooks"].items() if one} == settings["hooks"]
    assert {**written, "hooks": settings["hooks"]} == settings
    assert not Path(person.settings.config_file).exists()


@pytest.mark.requirement("D-host-09")
def test_comments_stay_and_the_person_is_told_what_the_host_makes_of_them(person: Person):
    person.with_files(settings=COMMENTED)

    plan = person.install(person.claude(tools=True))

    text = person.claude_settings.read_bytes()
    for comment in (b"// what I may do without being asked", b"// harmless", b"/* none yet */"):
        assert comment in text
    (remark,) = plan.outcomes[1].remarks
    assert remark.startswith(f"{person.claude_settings}, line 2: Claude Code reads strict JSON")
    assert remark.endswith("ignores the whole file because of a comment")


def test_the_server_is_told_the_data_root_in_which_the_hooks_look(person: Person):
    for plan in (person.claude(HERD_HOME=person.settings.home), person.claude()):
        person.install(plan)
        assert value(person.servers)["mcpServers"]["herd"]["env"] == {"HERD_HOME": person.settings.home}
    assert person.settings.home in person.claude_settings.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("rules", "denied"),
    [
        ([], []),
        (["mcp__herd__message_peer", "Bash(rm *)"], ["mcp__herd__message_peer"]),
        (["mcp__herd"], ["mcp__herd"]),
        (["mcp__herder__message_peer"], []),
    ],
)
def test_a_rule_that_denies_our_tools_is_found(rules: list[str], denied: list[str]):
    settings = json.dumps({"permissions": {"deny": rules}}).encode()

    assert denied_tools(settings) == denied
    assert denied_tools(None) == []


@pytest.mark.requirement("D-host-11")
def test_tools_are_allowed_only_where_that_was_asked_for_and_only_ours_leave(person: Person):
    person.with_files(settings=SETTINGS.replace(b'"WebFetch"', b'"mcp__herd__list_peers"'))
    assert not allows_tools(person.claude_settings.read_bytes())

    person.install(person.claude())
    assert value(person.claude_settings)["permissions"]["allow"] == [
        "Bash(git status)",
        "mcp__herd__list_peers",
    ]
    person.install(person.claude(tools=True))
    assert allows_tools(person.claude_settings.read_bytes())
    assert set(value(person.claude_settings)["permissions"]["allow"]) == {
        "Bash(git status)",
        *(f"mcp__herd__{tool}" for tool in TOOLS),
    }
    person.install(person.claude())
    assert allows_tools(person.claude_settings.read_bytes())
    text = person.claude_settings.read_bytes()
    person.claude_settings.write_bytes(text.replace(b'"opus"', b'"sonnet"'))

    person.uninstall(person.claude(tools=True))

    # What the person had allowed before is the person's.
    left = SETTINGS.replace(b'"WebFetch"', b'"mcp__herd__list_peers"').replace(b'"opus"', b'"sonnet"')
    assert person.claude_settings.read_bytes() == left


def test_an_older_installation_is_renewed_and_what_a_person_added_to_it_stays(person: Person):
    person.install(person.claude())
    servers, settings = value(person.servers), value(person.claude_settings)
    entry = servers["mcpServers"]["herd"]
    entry.update(command="/old/herd", alwaysLoad=False, timeout=9, env={"MINE": "1"})
    entry["args"].append("--name")
    (hook,) = settings["hooks"]["Stop"][0]["hooks"]
    hook.update(command="/old/python /lib/herd/hosts/claude/hook.py Stop", timeout=60)
    settings["hooks"]["Stop"].append({"hooks": [dict(hook)]})
    person.servers.write_text(json.dumps(servers), encoding="utf-8")
    person.claude_settings.write_text(json.dumps(settings), encoding="utf-8")

    person.install(person.claude())

    renewed = value(person.servers)["mcpServers"]["herd"]
    own = {"MINE": "1", "HERD_HOME": person.settings.home}
    assert renewed == {**entry, "command": str(person.command), "env": own}
    (again,) = value(person.claude_settings)["hooks"]["Stop"]
    assert again["hooks"][0]["timeout"] == 60
    assert again["hooks"][0]["command"].startswith("set --; for f in ")


@pytest.mark.parametrize(
    "foreign",
    [{"command": "other"}, {"command": "x", "args": ["mcp"]}, "text", {"args": "mcp --host claude"}],
)
def test_a_server_of_that_name_that_is_not_ours_is_refused(person: Person, foreign: object):
    person.with_files(servers=json.dumps({"mcpServers": {"herd": foreign}}).encode())
    before = person.snapshot()

    with pytest.raises(ResourceBusy, match=r"mcpServers\.herd is not Herd's; no file was changed"):
        person.install(person.claude())
    person.uninstall(person.claude(tools=True))

    assert person.snapshot() == before


@pytest.mark.requirement("D-host-09", "D-host-10")
def test_another_folder_of_claude_code_has_both_files_and_is_remembered(person: Person):
    chosen = person.home / "work claude"
    host = person.claude(CLAUDE_CONFIG_DIR=str(chosen))

    person.install(host)
    assert sorted(person.snapshot()) == [
        "work claude",
        "work claude/.claude.json",
        "work claude/settings.json",
    ]
    # Later the variable is not set, and there is a second installation.
    person.install(person.claude())
    assert person.servers.exists()
    person.uninstall(person.claude(tools=True))

    assert person.snapshot() == {}


def test_the_file_of_old_versions_is_the_one_where_it_exists(person: Person):
    old = person.home / ".claude" / ".config.json"
    old.parent.mkdir()
    old.write_bytes(b"{}")

    person.install(person.claude())

    assert "herd" in value(old)["mcpServers"]
    assert not person.servers.exists()


@pytest.mark.parametrize("chosen", ["", "relative", "~/claude"])
def test_a_folder_that_is_another_one_in_every_place_is_refused(person: Person, chosen: str):
    with pytest.raises(InvalidParams, match=r"CLAUDE_CONFIG_DIR is .*, which is not absolute"):
        person.claude(CLAUDE_CONFIG_DIR=chosen)


def test_without_the_program_it_says_that_nobody_was_asked(person: Person):
    (finding,) = person.claude().ask({})

    assert finding.ok
    assert finding.unverified
    assert "no program `claude` on PATH" in finding.detail
