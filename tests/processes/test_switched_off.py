"""`enabled = false`: nothing communicates, nothing is made, and everything that is asked for says why."""

import os
from pathlib import Path
from typing import Any

import pytest

from docs.adapter_api import served
from docs.adapter_methods import METHODS
from herd.core.errors import CommunicationDisabled
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.mcp_frames import ERAS, Era
from tests.processes.conftest import Machine

pytestmark = pytest.mark.requirement("A-config-02", "A-errors-04")

CALLS = [
    ["peers"],
    ["send", "lead:abcd", "hello"],
    ["inbox"],
    ["inbox", "--look"],
    ["inbox", "--session", "lead:abcd"],
    ["status", "m-1"],
    ["status", "m-1", "--session", "lead:abcd"],
    ["cancel", "m-1"],
    ["whoami"],
    ["session", "--host", "pi", "--session", "alice"],
]


@pytest.fixture
def off(machine: Machine) -> Machine:
    file = machine.home / "config" / "herd" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text("enabled = false\n", encoding="utf-8")
    return machine


def made(machine: Machine) -> list[str]:
    """Give what there is of a data root: every file and folder below the home but for the settings."""
    return sorted(
        name for place, _, names in os.walk(machine.home) for name in names if name != "config.toml"
    )


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_every_command_is_refused_with_what_to_do(off: Machine, words: list[str]):
    before = made(off)
    for commands in (off.shell, off.inside):
        shown = commands.run(*words)
        assert (shown.status, shown.stdout) == (CommunicationDisabled.exit_status, b"")
        first, _, hint = shown.stderr.partition("\n")
        assert first.startswith("herd: COMMUNICATION_DISABLED: ")
        assert str(off.home / "config" / "herd" / "config.toml") in first
        assert hint.strip() == "Enable Herd for every session concerned and restart them."
    assert made(off) == before


def test_an_extension_is_refused_whatever_it_asks(off: Machine):
    before = made(off)
    session = off.starting(None)
    needed: dict[str, dict[str, Any]] = {
        "session.bind": {"host": "pi", "session_id": "alice", "cwd": "/"},
        "session.send": {"target": "lead:abcd", "message": "hello"},
        "session.confirm": {"message_ids": [], "evidence": "x"},
        "session.status": {"message_id": "m-1"},
        "session.cancel": {"message_id": "m-1"},
        "session.release": {"message_ids": []},
        "session.purge": {"message_id": "m-1"},
        "session.bind_run": {"run_id": "a run"},
        "session.end_run": {"run": "peer-" + "0" * 32},
        "session.result": {"agent": "researcher", "text": "found"},
    }
    asked = [
        name for name in METHODS if name not in {"session.authenticate", "session.tool", "session.tools"}
    ]
    assert len(asked) > 8
    shapes = served()
    for method in asked:
        required = (
            shapes[method].model_json_schema(by_alias=True).get("required", []) if method in shapes else []
        )
        assert method in needed or set(required) <= {"text"}, "it is asked as it has to be"
        needed.setdefault(method, dict.fromkeys(required, "hello"))
        with pytest.raises(CommunicationDisabled):
            session.request(method, **needed.get(method, {}))

    assert session.request("session.tools") == {"tools": []}
    called = session.request("session.tool", name="list_peers", arguments={})
    assert called["is_error"]
    assert called["text"].startswith("COMMUNICATION_DISABLED: ")
    assert made(off) == before
    assert session.end() == 0


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.version)
@pytest.mark.parametrize(("host", "session_id"), [("claude", None), ("claude", "alice"), ("codex", None)])
def test_no_tool_is_offered_and_a_call_of_one_says_why(
    off: Machine, era: Era, host: str, session_id: str | None
):
    before = made(off)
    with HerdMcp(off.home, host, session_id, parent=off.host, era=era) as server:
        server.open()
        assert server.request("tools/list")["tools"] == []
        assert server.request("prompts/list")["prompts"] == []
        for name in ("list_peers", "message_peer", "peer_messages"):
            arguments = {"target": "x", "message": "y"} if name == "message_peer" else {}
            result = server.request("tools/call", {"name": name, "arguments": arguments})
            assert result["isError"]
            assert result["structuredContent"]["code"] == "COMMUNICATION_DISABLED"
        assert made(off) == before


def test_the_doctor_says_that_it_is_switched_off(off: Machine):
    shown = off.shell.run("doctor")

    assert "`enabled = false` switches Herd off" in shown.text


def test_switching_it_on_is_all_it_takes(off: Machine):
    Path(off.home, "config", "herd", "config.toml").write_text("enabled = true\n", encoding="utf-8")

    assert off.shell.run("peers").status == 0
    off.session("pi", "alice", name="alice")
    assert "alice" in off.shell.run("peers").text
