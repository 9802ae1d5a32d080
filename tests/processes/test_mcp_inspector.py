"""The MCP inspector, as a command, against real `herd mcp` processes: one more client that is not ours."""

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from herd.mcp.tools import TOOLS
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.herd_session import HERD, environment
from tests.fakes.mcp_frames import told_in
from tests.fakes.real_hosts import program

pytestmark = [pytest.mark.machine, pytest.mark.timeout(600)]

SCHEMAS = {tool["name"]: tool["outputSchema"] for tool in TOOLS}


@pytest.fixture(scope="module")
def inspector() -> Path:
    """Give the inspector's command."""
    return program("mcp-inspector")


class Inspected:
    """One session, whose server the inspector starts anew for each of its runs."""

    def __init__(self, inspector: Path, home: Path) -> None:
        self._inspector = inspector
        self._home = home

    def __call__(self, method: str, *words: str) -> dict[str, Any]:
        server = (*HERD, "mcp", "--host", "claude", "--session", "inspected", "--name", "inspected")
        # It gives its server no variable but those.
        given = [
            word for name, value in environment(self._home).items() for word in ("-e", f"{name}={value}")
        ]
        ended = subprocess.run(
            [self._inspector, "--cli", *given, *server, "--method", method, *words],
            cwd=self._home,
            env=environment(self._home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            encoding="utf-8",
        )
        assert ended.stdout, ended.stderr
        told: dict[str, Any] = json.loads(ended.stdout)
        return told

    def call(self, tool: str, **arguments: str) -> dict[str, Any]:
        given = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
        return self("tools/call", "--tool-name", tool, *given)


@pytest.fixture
def inspected(inspector: Path, home: Path) -> Inspected:
    return Inspected(inspector, home)


def content(tool: str, result: dict[str, Any]) -> dict[str, Any]:
    structured: dict[str, Any] = result["structuredContent"]
    assert not result.get("isError")
    jsonschema.validate(structured, SCHEMAS[tool], cls=jsonschema.Draft202012Validator)
    assert told_in(result["content"][0]["text"]) == structured
    return structured


def test_the_inspector_lists_tools_and_prompts(inspected: Inspected):
    tools = inspected("tools/list")["tools"]
    prompts = inspected("prompts/list")["prompts"]

    assert [(tool["name"], tool["outputSchema"]) for tool in tools] == list(SCHEMAS.items())
    assert [prompt["name"] for prompt in prompts] == ["peers", "inbox", "send"]


def test_the_inspector_s_calls_reach_another_session_and_back(inspected: Inspected, home: Path):
    with HerdMcp(home, "codex", "other", name="other") as other:
        other.open()
        [peer] = content("list_peers", inspected.call("list_peers"))["peers"]
        assert peer["name"] == "other"
        sent = content("message_peer", inspected.call("message_peer", target=peer["target"], message="a=b é"))
        assert sent["status"] in {"queued", "accepted"}
        [message] = other.call("peer_messages", wait_ms=10_000)["messages"]
        assert (message["message_id"], message["text"]) == (sent["message_id"], "a=b é")

        other.call("message_peer", target=message["from"]["target"], message="back")
        [back] = content("peer_messages", inspected.call("peer_messages"))["messages"]
        assert back["text"] == "back"


def test_the_inspector_shows_a_refusal_as_a_tool_error(inspected: Inspected):
    result = inspected.call("message_peer", target="lead:0000000000", message="x")

    assert result["isError"] is True
    assert result["structuredContent"]["code"] == "UNKNOWN_TARGET"
    assert result["content"][0]["text"].startswith("UNKNOWN_TARGET: ")
