"""The official client against real `herd mcp` processes, in each of its modes: it judges the server.

It checks every tool's structured content against the tool's output schema by itself, and raises where an
answer has not what the protocol wants.
"""

import asyncio
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ToolsListChanged
from mcp_types import CallToolResult, ToolListChangedNotification

from tests.fakes.herd_session import HERD, WAIT_S, environment
from tests.fakes.mcp_frames import Refused, told_in
from tests.fakes.watching import command_line_of, processes_of

MODES = ("auto", "legacy", "2026-07-28")
modes = pytest.mark.parametrize("mode", MODES)

pytestmark = [pytest.mark.requirement("D-mcp-01", "D-mcp-09")]


class Agent:
    """One session's agent with the official client."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self._schemas: dict[str, Any] = {}

    async def learn(self) -> None:
        """List the tools, as a host does before it calls any."""
        self._schemas = {tool.name: tool.output_schema for tool in (await self.client.list_tools()).tools}

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool and give its structured content; see `mcp_frames.content_of`."""
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        return self.content(tool, await self.client.call_tool(tool, given))

    def content(self, tool: str, result: CallToolResult) -> dict[str, Any]:
        """Give the structured content of a result.

        Raises:
            Refused: it is a tool error.
        """
        content: dict[str, Any] = result.structured_content or {}
        jsonschema.validate(content, self._schemas[tool], cls=jsonschema.Draft202012Validator)
        [block] = result.content
        if result.is_error:
            assert getattr(block, "text", "").startswith(f"{content['code']}: {content['message']}\n")
            raise Refused(content)
        assert told_in(getattr(block, "text", "")) == content
        return content

    async def target_of(self, name: str) -> str:
        peers = (await self.call("list_peers"))["peers"]
        return next(str(peer["target"]) for peer in peers if peer["name"] == name)

    async def reaches(self, sent: dict[str, Any], status: str) -> None:
        """Wait until a message that was sent has a status."""
        reached = sent["status"]
        while reached != status:
            read = await self.call("peer_messages", after="0", wait_ms=1_000)
            reached = {one["message_id"]: one["status"] for one in read["receipts"]}.get(sent["message_id"])

    async def texts(self, **query: Any) -> list[str]:
        return [message["text"] for message in (await self.call("peer_messages", **query))["messages"]]


class Place:
    """Starts agents on one data root; their standard error is kept apart from the test's."""

    def __init__(self, home: Path, stack: AsyncExitStack) -> None:
        self.home = home
        self._stack = stack
        self.told = stack.enter_context(tempfile.TemporaryFile("w", encoding="utf-8"))  # noqa: SIM115

    async def agent(self, mode: str, session_id: str | None, name: str, cwd: Path | None = None) -> Agent:
        """Start a server as a host does, and connect to it."""
        words = ["mcp", "--host", "claude", "--name", name]
        words += ["--session", session_id] if session_id is not None else []
        return await self.connected(mode, [*HERD[1:], *words], name, cwd)

    async def connected(self, mode: str, words: list[str], name: str, cwd: Path | None = None) -> Agent:
        parameters = StdioServerParameters(
            command=sys.executable, args=words, env=environment(self.home), cwd=cwd or self.home
        )
        client = Client(stdio_client(parameters, errlog=self.told), mode=mode, read_timeout_seconds=WAIT_S)
        agent = Agent(await self._stack.enter_async_context(client), name)
        await agent.learn()
        return agent


@asynccontextmanager
async def a_place(home: Path) -> AsyncIterator[Place]:
    async with asyncio.timeout(2 * WAIT_S), AsyncExitStack() as stack:
        yield Place(home, stack)


# --- what the server says --------------------------------------------------------------------------


@modes
async def test_tools_and_prompts_are_listed_and_the_server_says_who_it_is(home: Path, mode: str):
    async with a_place(home) as place:
        client = (await place.agent(mode, None, "nobody")).client
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["list_peers", "message_peer", "peer_messages"]
        assert all(tool.input_schema and tool.output_schema and tool.description for tool in tools)
        if mode != "2026-07-28":  # a client that is told the version asks for nothing else
            assert client.server_info is not None
            assert client.server_info.name == "herd"
            assert "another session's words" in (client.instructions or "")
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")

        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["peers", "inbox", "send"]
        prompt = await client.get_prompt("send", {"target": "web", "message": "hello"})
        assert "hello" in str(prompt.messages[0].content)


@modes
async def test_refusals_are_tool_errors_and_unknown_names_protocol_errors(home: Path, mode: str):
    async with a_place(home) as place:
        bound, unbound = await place.agent(mode, "s", "alice"), await place.agent(mode, None, "nobody")
        for agent, arguments, code in (
            (unbound, {"target": "x", "message": "y"}, "NO_SESSION"),
            (bound, {"target": "lead:0000000000", "message": "y"}, "UNKNOWN_TARGET"),
            (bound, {"target": "lead:0000000000"}, "INVALID_PARAMS"),
            (bound, {"target": "lead:0000000000", "message": "y", "from_": "x"}, "INVALID_PARAMS"),
        ):
            with pytest.raises(Refused) as refused:
                await agent.call("message_peer", **arguments)
            assert refused.value.code == code
            assert refused.value.hint
        with pytest.raises(MCPError):
            await bound.client.call_tool("no_such_tool", {})
        with pytest.raises(MCPError):
            await bound.client.get_prompt("no_such_prompt")
        assert (await bound.call("list_peers"))["peers"] == []


@modes
async def test_a_wait_that_the_client_cancels_loses_nothing(home: Path, mode: str):
    async with a_place(home) as place:
        alice, bob = await place.agent(mode, "a", "alice"), await place.agent(mode, "b", "bob")
        to_alice = await bob.target_of("alice")
        with anyio.move_on_after(0) as at_once:
            await alice.call("peer_messages", wait_ms=30_000)
        assert at_once.cancelled_caught

        async with anyio.create_task_group() as group:
            group.start_soon(lambda: alice.call("peer_messages", wait_ms=30_000))
            await alice.call("list_peers")  # sent behind the wait, so that one has arrived
            group.cancel_scope.cancel()
        await bob.call("message_peer", target=to_alice, message="after it")

        [message] = (await alice.call("peer_messages", wait_ms=10_000))["messages"]
        assert (message["text"], "again" in message) == ("after it", False)
        await alice.call("list_peers")
        [receipt] = (await bob.call("peer_messages", wait_ms=10_000))["receipts"]
        assert (receipt["message_id"], receipt["status"]) == (message["message_id"], "delivered")


# --- changes of the lists --------------------------------------------------------------------------

CHANGES_AT_EVERY_CALL = """
import asyncio
from herd.core.errors import NoSession
from herd.mcp.opening import answer_first, take_over
from herd.mcp.server import Server
from herd.mcp.tools import Tools
from herd.rpc.stdio import stdio_streams

class Sessions:
    def current(self):
        tasks.append(asyncio.get_running_loop().create_task(server.changed("tools")))
        raise NoSession("this server only tells of changes")

async def serve():
    global server
    reader, writer = await stdio_streams(opened.source, opened.sink)
    server = Server(reader, writer, Tools(Sessions()), modern=opened.modern)
    await server.run(opened.left)

tasks = []
opened = answer_first(*take_over())
asyncio.run(serve())
"""


async def test_a_handshake_client_is_told_of_a_changed_list(home: Path):
    told: list[Any] = []
    heard = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            told.append(message)
            heard.set()

    async with a_place(home) as place:
        parameters = StdioServerParameters(
            command=sys.executable, args=["-c", CHANGES_AT_EVERY_CALL], env=environment(home), cwd=home
        )
        async with Client(
            stdio_client(parameters, errlog=place.told), mode="legacy", message_handler=hear
        ) as client:
            for _ in range(2):
                heard.clear()
                assert (await client.call_tool("list_peers")).is_error
                async with asyncio.timeout(WAIT_S):
                    await heard.wait()
    assert len(told) == 2


@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
async def test_a_modern_client_hears_of_a_changed_list_while_it_listens(home: Path, mode: str):
    async with a_place(home) as place:
        client = (await place.connected(mode, ["-c", CHANGES_AT_EVERY_CALL], "listener")).client
        assert (await client.call_tool("list_peers")).is_error
        async with client.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
            assert changes.honored.tools_list_changed
            assert changes.honored.prompts_list_changed
            assert (await client.call_tool("list_peers")).is_error
            async with asyncio.timeout(WAIT_S):
                assert await anext(changes) == ToolsListChanged()
        assert (await client.list_tools()).tools != []


# --- the main job ----------------------------------------------------------------------------------


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Give a repository with one commit, and a linked worktree of it."""
    repository, worktree = tmp_path / "shop", tmp_path / "shop-checkout"
    identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org")
    for words in (
        ("init", "-q", "-b", "main", str(repository)),
        ("-C", str(repository), *identity, "commit", "-q", "--allow-empty", "-m", "Begin"),
        ("-C", str(repository), "worktree", "add", "-q", str(worktree), "-b", "checkout"),
    ):
        subprocess.run(("git", *words), check=True, env=environment(tmp_path))
    return repository, worktree


def kill_the_server_of(home: Path, session_id: str) -> None:
    """End a session's server as a crash does."""
    words = f"\0--session\0{session_id}\0".encode()
    [pid] = [one for one in processes_of(home) if words in command_line_of(one)]
    process = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        select.select([process], [], [], WAIT_S)
    finally:
        os.close(process)


@modes
async def test_three_sessions_find_each_other_and_exchange_messages(
    home: Path, checkouts: tuple[Path, Path], mode: str
):
    repository, worktree = checkouts
    async with a_place(home) as place:
        api = await place.agent(mode, "11", "api", repository)
        web = await place.agent(mode, "22", "web", repository)
        async with a_place(home) as ending:
            checkout = await ending.agent(mode, "33", "checkout", worktree)
            for agent, others in (
                (api, ["checkout", "web"]),
                (web, ["api", "checkout"]),
                (checkout, ["api", "web"]),
            ):
                assert sorted(peer["name"] for peer in (await agent.call("list_peers"))["peers"]) == others

            sent = await api.call("message_peer", target=await api.target_of("checkout"), message="cents?")
            [question] = (await checkout.call("peer_messages", wait_ms=10_000))["messages"]
            assert question["message_id"] == sent["message_id"]
            await checkout.call(
                "message_peer",
                target=question["from"]["target"],
                message="Yes, as integers.",
                reply_to=sent["message_id"],
            )
            answer = await api.call("peer_messages", wait_ms=10_000, reply_to=sent["message_id"])
            assert [(one["text"], one["reply_to"]) for one in answer["messages"]] == [
                ("Yes, as integers.", sent["message_id"])
            ]
            to_checkout = await api.target_of("checkout")
            assert await web.target_of("checkout") == to_checkout
            one = await api.call("message_peer", target=to_checkout, message="one")
            await api.reaches(one, "accepted")
            await asyncio.to_thread(kill_the_server_of, home, "33")
        for agent, text in ((api, "two"), (web, "three")):
            later = await agent.call("message_peer", target=to_checkout, message=text)
            assert (later["status"], later["peer_running"]) == ("accepted", False)

        again = await place.agent(mode, "33", "checkout", worktree)
        assert await again.texts(wait_ms=10_000) == ["one", "two", "three"]
        assert await again.texts() == []
        await api.reaches(sent, "replied")
