"""Installing and uninstalling as a whole: every byte, all or nothing, whatever happened in between."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import RecoveryRequired
from herd.hosts.install.host import Host
from herd.hosts.install.installing import Installer
from tests.fakes.host_files import COMMENTED, SERVERS, SETTINGS, Person

HOSTS = pytest.mark.parametrize("name", ["claude", "claude with tools", "pi"])


def described(person: Person, name: str) -> Host:
    return person.pi() if name == "pi" else person.claude(tools="tools" in name)


def edited(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_bytes().decode("utf-8-sig"))
    return value


@pytest.mark.requirement("D-host-09", "D-host-10", "C13")
@HOSTS
@pytest.mark.parametrize(
    ("servers", "settings"),
    [
        (SERVERS, SETTINGS),
        (SERVERS, COMMENTED),
        (b"{}", b"{}"),
        (b"", b""),
        (b"\xef\xbb\xbf" + SERVERS.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf{\r\n}"),
        (json.dumps(json.loads(SERVERS)).encode(), b'{"hooks":{"Stop":[]}}\n'),
        (b"null-free \xc3\xbc".join([b'{"a": "', b'"}\n\n\n']), b' { "permissions" : { } } '),
    ],
)
def test_a_second_installation_changes_no_byte_and_uninstalling_restores_all(
    person: Person, name: str, servers: bytes, settings: bytes
):
    person.with_files(servers, settings)
    host = described(person, name)
    before = person.snapshot()

    first = person.install(host)
    once = person.snapshot()
    second = person.install(host)

    assert {one.what for one in first.outcomes} <= {"edited", "created"}
    assert once != before
    assert {one.what for one in second.outcomes} == {"unchanged"}
    assert second.changes == []
    assert person.snapshot() == once
    assert {one.what for one in person.uninstall(host).outcomes} <= {"restored", "removed"}
    assert person.snapshot() == before


@pytest.mark.requirement("D-host-10")
@HOSTS
def test_what_was_not_there_before_is_gone_afterwards(person: Person, name: str):
    host = described(person, name)

    person.install(host)
    assert person.snapshot() != {}
    person.uninstall(host)

    assert person.snapshot() == {}
    assert person.uninstall(host).changes == []


@pytest.mark.requirement("D-host-09")
@HOSTS
def test_a_plan_changes_nothing(person: Person, name: str):
    person.with_files()
    before = person.snapshot()

    plan = Installer(described(person, name), person.layout).plan_install()

    assert all(one.diff().startswith("--- ") for one in plan.outcomes)
    assert person.snapshot() == before
    assert not os.path.lexists(person.layout.backups)


@pytest.mark.requirement("D-host-09")
@pytest.mark.parametrize("which", ["servers", "settings"])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            b'{\n  "a": 1,\n  "mcpServers": {',
            "line 3, column 18: a member's name in quotation marks, or }, is exp",
        ),
        (b'{"hooks": [}', "line 1, column 12: a value is expected"),
        (b"[]", "line 1: the whole file is not an object"),
        (b'{\n"mcpServers": [], "hooks": null}', "line 2: "),
        (b'{"a": "\xff"}', "line 1: byte 7 is no UTF-8"),
        (b"\x00", "line 1, column 1"),
    ],
)
def test_a_malformed_file_is_refused_before_any_file_is_touched(
    person: Person, which: str, content: bytes, told: str
):
    person.with_files(**{which: content})
    before = person.snapshot()
    path = person.servers if which == "servers" else person.claude_settings

    with pytest.raises(RecoveryRequired) as refusal:
        person.install(person.claude())

    assert refusal.value.message.startswith(f"{path}, {told}")
    assert refusal.value.message.endswith("no file was changed")
    assert person.snapshot() == before
    assert not os.path.lexists(person.layout.backups)


@pytest.mark.requirement("D-host-10")
def test_what_others_changed_in_between_stays_and_exactly_ours_goes(person: Person):
    person.with_files()
    host = person.claude(tools=True)
    person.install(host)
    # As the host rewrites its file: another order, another layout, more members.
    servers = {"machineID": "m", **edited(person.servers), "userID": "u"}
    servers["mcpServers"]["another"] = {"command": "x"}
    person.servers.write_text(json.dumps(servers, indent=2), encoding="utf-8")
    settings = edited(person.claude_settings)
    settings["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "later"}]})
    settings["hooks"]["SessionStart"][0]["hooks"].append({"type": "command", "command": "beside ours"})
    settings["permissions"]["allow"].append("Bash(make)")
    person.claude_settings.write_text(json.dumps(settings), encoding="utf-8")

    plan = person.uninstall(host)

    assert [one.what for one in plan.outcomes] == ["edited", "edited"]
    expected = {**json.loads(SERVERS), "machineID": "m", "userID": "u"}
    expected["mcpServers"]["another"] = {"command": "x"}
    assert edited(person.servers) == expected
    left = json.loads(SETTINGS)
    left["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "later"}]})
    left["hooks"]["SessionStart"] = [{"hooks": [{"type": "command", "command": "beside ours"}]}]
    left["permissions"]["allow"].append("Bash(make)")
    assert edited(person.claude_settings) == left


@pytest.mark.requirement("D-host-10")
def test_an_upgrade_after_the_host_rewrote_its_file_is_undone_to_what_the_host_wrote(person: Person):
    person.with_files()
    host = person.claude(tools=True)
    person.install(host)
    rewritten = json.dumps({**edited(person.servers), "numStartups": 42}, indent=2).encode()
    person.servers.write_bytes(rewritten)
    assert person.install(person.claude()).outcomes[0].what == "unchanged"

    person.uninstall(host)

    expected = {**json.loads(SERVERS), "numStartups": 42}
    assert person.servers.read_bytes() == json.dumps(expected, indent=2).encode()
    assert person.claude_settings.read_bytes() == SETTINGS


def test_without_its_record_an_installation_is_found_by_its_entries(person: Person):
    person.with_files()
    host = person.claude(tools=True)
    person.install(host)
    os.unlink(os.path.join(person.layout.backups, "claude.json"))

    assert person.install(host).outcomes[0].what == "unchanged"
    os.unlink(os.path.join(person.layout.backups, "claude.json"))
    person.uninstall(host)

    assert edited(person.servers) == json.loads(SERVERS)
    assert edited(person.claude_settings) == json.loads(SETTINGS)


def test_a_damaged_record_is_refused_and_kept(person: Person):
    person.install(person.claude())
    ledger = Path(person.layout.backups, "claude.json")
    ledger.write_bytes(b'{"version": 2}')
    before = person.snapshot()

    for act in (person.install, person.uninstall):
        with pytest.raises(RecoveryRequired, match="damaged or of a newer version"):
            act(person.claude())

    assert person.snapshot() == before
    assert ledger.read_bytes() == b'{"version": 2}'
