"""The faked Herdr keeps to Herdr's wire: by its raw bytes, and by the word of a client that others wrote."""

import asyncio
import json
import os
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from assignments.worktrees.herdr_fake import FakeHerdr
from assignments.worktrees.herdr_fake_world import HerdrWorld, Repository, Row, Workspace
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.herd_session import ROOT
from tests.fakes.real_hosts import program

ASKS = ROOT / "tests" / "hosts" / "herdr" / "asks.py"

ROWS = (
    Row("/r/shop"),
    Row("/w/fix", "fix", linked=True),
    Row("/w/at", None, linked=True),
    Row("/w/gone", "gone", linked=True, prunable=True),
)
SPACES = (
    Workspace("w1", "/r/shop/src", agent_name="rev", session_path="/s/1.jsonl"),
    Workspace("w2", "/w/fix", agent=None),
    Workspace("wG", "/elsewhere"),
)
WORLD = HerdrWorld((Repository("/r/shop/.git", ROWS),), SPACES)


@pytest.fixture
async def served() -> AsyncIterator[FakeHerdr]:
    with tempfile.TemporaryDirectory(prefix="herdr-", dir="/tmp") as folder:
        async with FakeHerdr(f"{folder}/herdr.sock", WORLD) as herdr:
            yield herdr


async def sent(herdr: FakeHerdr, data: bytes) -> list[Any]:
    """Send bytes and give every line that comes until the server closes."""
    async with asyncio.timeout(IN_TIME_S):
        reader, writer = await asyncio.open_unix_connection(herdr._path)
        writer.write(data)
        lines = (await reader.read()).splitlines()
        writer.close()
    return [json.loads(line) for line in lines]


def request(method: str, **params: Any) -> bytes:
    return json.dumps({"id": "q:1", "method": method, "params": params}).encode() + b"\n"


async def result(herdr: FakeHerdr, method: str, **params: Any) -> Any:
    [answer] = await sent(herdr, request(method, **params))
    assert answer["id"] == "q:1"
    return answer["result"]


async def code(herdr: FakeHerdr, method: str, **params: Any) -> str:
    [answer] = await sent(herdr, request(method, **params))
    return str(answer["error"]["code"])


class TestWire:
    async def test_its_socket_is_private(self, served):
        found = await asyncio.to_thread(os.stat, served._path)

        assert stat.S_IMODE(found.st_mode) == 0o600

    async def test_a_connection_has_one_answer_and_what_is_piped_behind_is_lost(self, served):
        [answer] = await sent(served, request("ping") + request("agent.list"))

        assert answer["result"]["type"] == "pong"
        assert served.asked == [("ping", {})]

    @pytest.mark.parametrize(
        "line",
        [
            b"{}\n",
            b"x\n",
            b'{"id":"1","method":"ping"}\n',
            request("agent.send"),
            b'{"id":1,"method":2,"params":{}}\n',
        ],
    )
    async def test_what_is_no_request_is_refused_without_an_id(self, served, line):
        [answer] = await sent(served, line)

        assert answer["id"] == ""
        assert answer["error"]["code"] == "invalid_request"

    @pytest.mark.parametrize("line", [b"\n", b"  \n", b"x" * 1_100_000 + b"\n"])
    async def test_an_empty_line_and_one_that_is_too_long_get_no_answer(self, served, line):
        with suppress(ConnectionError):  # closed while some of it was still on its way
            assert await sent(served, line) == []


class TestShapes:
    async def test_worktrees_are_listed_by_folder_workspace_or_the_focused_one(self, served):
        by = [
            await result(served, "worktree.list", **how)
            for how in ({}, {"cwd": "/w/fix/a"}, {"workspace_id": "w2"})
        ]

        assert by[0] == by[1] == by[2]
        assert by[0]["source"] == {
            "repo_key": "/r/shop/.git",
            "repo_name": "shop",
            "repo_root": "/r/shop",
            "source_checkout_path": "/r/shop",
            "source_workspace_id": "w1",
        }
        assert [row.get("open_workspace_id") for row in by[0]["worktrees"]] == ["w1", "w2", None, None]
        assert [row.get("branch") for row in by[0]["worktrees"]] == ["main", "fix", None, "gone"]

    async def test_what_is_optional_is_left_out_and_never_null(self, served):
        for method in ("ping", "worktree.list", "agent.list", "workspace.list", "session.snapshot"):
            assert "null" not in json.dumps(await result(served, method))

    async def test_its_errors_are_those_of_herdr(self, served):
        assert await code(served, "worktree.list", cwd="/elsewhere") == "not_git_worktree"
        assert await code(served, "worktree.list", workspace_id="wG") == "not_git_worktree"
        assert await code(served, "worktree.list", workspace_id="w9") == "workspace_not_found"
        assert await code(served, "worktree.list", workspace_id="w1", cwd="/r") == "invalid_request"
        assert await code(served, "worktree.list", cwd="shop") == "invalid_request"

    async def test_older_protocols_tell_fewer_capabilities(self, served):
        served.world = WORLD._replace(protocol=20)

        pong = await result(served, "ping")

        assert (pong["version"], pong["protocol"]) == ("0.8.2", 20)
        assert set(pong["capabilities"]) == {"live_handoff", "detached_server_daemon"}


@pytest.mark.machine
class TestIndependentClient:
    """herdr-python-sdk has its models from the schema of a real Herdr, and refuses what does not fit them.

    It needs a newer Python than we do, which `.ci/hosts` finds, and so runs in a process of its own.
    """

    async def test_it_understands_every_answer(self, served):
        assert await understood(served) == {
            "protocol": 22,
            "agents": [["rev", "/s/1.jsonl"], [None, None]],
            "workspaces": ["w1", "w2", "wG"],
            "panes": ["w1:p1", "w2:p1", "wG:p1"],
            "group": "/r/shop/.git",
            "worktrees": [[row.path, row.branch] for row in ROWS],
            "elsewhere": "not_git_worktree",
        }

    async def test_it_refuses_another_protocol_than_its_own(self, served):
        served.world = WORLD._replace(protocol=20)

        assert await understood(served) == {"refused": "another protocol"}


async def understood(herdr: FakeHerdr) -> dict[str, Any]:
    """Give what the client that others wrote understands of a faked Herdr."""
    asking = await asyncio.create_subprocess_exec(
        program("herdr-python"), str(ASKS), herdr._path, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(IN_TIME_S):
        told, _ = await asking.communicate()
    assert asking.returncode == 0
    shown: dict[str, Any] = json.loads(told)
    return shown
