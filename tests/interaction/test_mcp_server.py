"""The MCP server on real streams and sessions: its requests, its two eras, and what counts as evidence."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.coordinator import Coordinator
from herd.core.errors import NoSession
from herd.core.identity import SessionName
from herd.core.limits import HANDOVERS, MCP_FRAME_BYTES
from herd.mail import inbox, outbox
from herd.mail.inbox import Incoming
from herd.mcp.tools import Tools
from tests.fakes import mcp_frames
from tests.fakes.coordinators import running, until_async
from tests.fakes.herd_session import WAIT_S
from tests.fakes.mcp_frames import ERAS, HANDSHAKE, MODERN, SUBSCRIPTION, Era, McpError, Refused
from tests.fakes.mcp_streams import McpStreams, served
from tests.fakes.records import layout_at

eras = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.version)


class Pair(NamedTuple):
    """A session whose agent is served, and another one that writes to it."""

    alice: Coordinator
    bob: Coordinator
    client: McpStreams
    """Of alice's agent."""

    async def send(self, text: str) -> str:
        """Have bob write to alice, and give the message's id once her mailbox has it."""
        api = AdapterApi(Settled(self.bob))
        [peer] = (await api.request(None, "session.list", {}))["peers"]
        sent = await api.request(None, "session.send", {"target": peer["target"], "message": text})

        async def has_left() -> bool:
            question = {"message_id": sent["message_id"]}
            return bool((await api.request(None, "session.status", question))["state"] != "pending")

        await until_async(has_left)
        return str(sent["message_id"])

    async def state(self, message_id: str) -> str:
        """Give what alice's mailbox says of a message."""
        return (await self.row(message_id)).receipt.state

    async def row(self, message_id: str) -> Incoming:
        [row] = await self.alice.mailbox.run(lambda connection: inbox.by_id(connection, message_id))
        return row

    async def read(self, **query: Any) -> list[tuple[str, bool]]:
        """Have alice's agent read, and give the texts, each with whether it was marked `again`."""
        messages = (await self.client.call("peer_messages", **query))["messages"]
        return [(message["text"], message.get("again", False)) for message in messages]


@asynccontextmanager
async def a_pair(home: Path, era: Era = HANDSHAKE, **more: Any) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        alice, bob = [await stack.enter_async_context(a_session(home, name)) for name in ("alice", "bob")]
        client = await stack.enter_async_context(served(Tools(Settled(alice)), era=era, **more))
        yield Pair(alice, bob, await client.open())


@asynccontextmanager
async def a_session(home: Path, name: str) -> AsyncIterator[Coordinator]:
    async with running(layout_at(home), SessionName("claude", name), name=name) as session:
        yield session.coordinator


class NoSessions:
    """See `herd.coordinator.adapter_api.Sessions`: nothing is served."""

    def current(self) -> Coordinator:
        raise NoSession("not yet")


class BrokenSessions:
    """A fault inside Herd."""

    def current(self) -> Coordinator:
        raise ZeroDivisionError("a secret of the inside")


def without_session(era: Era = HANDSHAKE, **more: Any) -> Any:
    return served(Tools(NoSessions()), era=era, **more)


async def until(condition: Callable[[], bool], client: McpStreams) -> None:
    """Let the server work until something holds; each look is a round trip to it."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await client.answered_so_far()


def waits(coordinator: Coordinator) -> bool:
    """Tell whether a reader waits for mail."""
    return bool(coordinator.delivery._happened._waiters)


# --- evidence --------------------------------------------------------------------------------------


async def ping(client: McpStreams) -> None:
    await client.request("ping")


async def tools_list(client: McpStreams) -> None:
    await client.request("tools/list")


async def prompts(client: McpStreams) -> None:
    await client.request("prompts/list")
    await client.request("prompts/get", {"name": "inbox"})


async def unknown_method(client: McpStreams) -> None:
    with pytest.raises(McpError):
        await client.request("resources/list")


async def a_stream(client: McpStreams) -> None:
    client.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id="s")
    client.cancel("s")
    await client.answered_so_far()


async def a_cancellation_of_nothing(client: McpStreams) -> None:
    client.cancel("never asked")
    await client.answered_so_far()


@pytest.mark.requirement("D-evidence-03", "A-tools-08")
@pytest.mark.parametrize(
    ("era", "proves_nothing"),
    [
        (HANDSHAKE, ping),
        (MODERN, a_stream),
        *((era, one) for era in ERAS for one in (tools_list, prompts, unknown_method)),
        *((era, a_cancellation_of_nothing) for era in ERAS),
    ],
)
async def test_the_next_tool_call_is_the_evidence_and_nothing_else_is(
    home: Path, era: Era, proves_nothing: Callable[[McpStreams], Awaitable[None]]
):
    async with a_pair(home, era) as pair:
        message_id = await pair.send("one")
        assert await pair.read() == [("one", False)]
        assert (await pair.row(message_id)).handovers == 1

        await proves_nothing(pair.client)
        assert await pair.state(message_id) == "accepted"

        await pair.client.call("list_peers")
        assert await pair.state(message_id) == "delivered"
        assert await pair.read() == []


@pytest.mark.requirement("D-evidence-03")
async def test_a_refused_tool_call_is_evidence_too(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")
        await pair.read()

        with pytest.raises(Refused):
            await pair.client.call("message_peer", target="lead:0000000000", message="x")
        assert await pair.state(message_id) == "delivered"


@pytest.mark.requirement("D-evidence-03", "D-evidence-04", "A-tools-08")
@eras
async def test_a_cancellation_after_the_answer_takes_the_evidence_away(home: Path, era: Era):
    async with a_pair(home, era) as pair:
        message_id = await pair.send("one")
        read = pair.client.begin_call("peer_messages")
        await pair.client.content(read, "peer_messages")

        pair.client.cancel(read)
        await pair.client.call("list_peers")
        assert await pair.state(message_id) == "accepted"

        assert await pair.read() == [("one", True)]
        await pair.client.call("list_peers")
        assert await pair.state(message_id) == "delivered"


@pytest.mark.requirement("D-evidence-04")
async def test_however_often_a_host_cancels_what_the_calls_carried_comes_again(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")
        for _ in range(2 * HANDOVERS):
            read = pair.client.begin_call("peer_messages")
            await pair.client.content(read, "peer_messages")
            pair.client.cancel(read)

        assert await pair.read() == [("one", True)]
        assert await pair.state(message_id) == "accepted"


async def test_a_cancellation_behind_the_next_call_comes_too_late(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")
        read = pair.client.begin_call("peer_messages")
        await pair.client.content(read, "peer_messages")

        pair.client.send(
            mcp_frames.request("b", "tools/call", {"name": "list_peers"}, era=HANDSHAKE),
            mcp_frames.notification(mcp_frames.CANCELLED, requestId=read),
        )
        await pair.client.content("b", "list_peers")
        assert await pair.state(message_id) == "delivered"


async def test_a_call_that_is_cancelled_at_once_is_evidence_for_the_one_before(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")
        await pair.read()

        pair.client.send(
            mcp_frames.request("b", "tools/call", {"name": "list_peers"}, era=HANDSHAKE),
            mcp_frames.notification(mcp_frames.CANCELLED, requestId="b"),
        )
        assert await pair.read() == []
        assert await pair.state(message_id) == "delivered"


async def test_a_call_that_came_together_with_a_read_proves_nothing_of_it(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")

        pair.client.send(
            mcp_frames.request("a", "tools/call", {"name": "peer_messages"}, era=HANDSHAKE),
            mcp_frames.request("b", "tools/call", {"name": "list_peers"}, era=HANDSHAKE),
        )
        assert (await pair.client.content("a", "peer_messages"))["messages"] != []
        await pair.client.content("b", "list_peers")
        assert await pair.state(message_id) == "accepted"

        await pair.client.call("list_peers")
        assert await pair.state(message_id) == "delivered"


@pytest.mark.requirement("D-evidence-04")
async def test_what_a_client_that_left_never_proved_is_given_again_to_the_next(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")
        await pair.read()
        assert await pair.client.end() == []
        assert await pair.state(message_id) == "accepted"

        async with served(Tools(Settled(pair.alice))) as again:
            [message] = (await again.call("peer_messages"))["messages"]
            assert (message["text"], message["again"]) == ("one", True)


async def test_evidence_that_cannot_be_written_down_keeps_the_message(home: Path, caplog):
    async with a_session(home, "bob") as bob:
        async with a_session(home, "alice") as alice, served(Tools(Settled(alice))) as client:
            pair = Pair(alice, bob, await client.open())
            await pair.send("one")
            await pair.read()
            await alice.mailbox.close()

            with pytest.raises(Refused, match="PEER_OFFLINE"):
                await client.call("peer_messages")
            await client.request("ping")

        assert "mcp.evidence.failed" in caplog.text
        async with a_session(home, "alice") as alice, served(Tools(Settled(alice))) as client:
            assert await Pair(alice, bob, client).read() == [("one", True)]


# --- waiting and cancelling ------------------------------------------------------------------------


@pytest.mark.requirement("A-tools-07")
@eras
async def test_a_cancelled_wait_ends_at_once_and_leaves_no_waiter(home: Path, era: Era):
    async with a_pair(home, era) as pair:
        before = asyncio.all_tasks()
        read = pair.client.begin_call("peer_messages", wait_ms=30_000)
        await until(lambda: waits(pair.alice), pair.client)

        pair.client.cancel(read)
        await until(lambda: asyncio.all_tasks() <= before, pair.client)
        assert not waits(pair.alice)
        assert not pair.client.has_answer(read)

        message_id = await pair.send("one")
        assert (await pair.row(message_id)).handovers == 0
        assert await pair.read() == [("one", False)]


@pytest.mark.requirement("A-tools-07")
@pytest.mark.parametrize("turns", [*range(12), 20, 40, 80])
async def test_whenever_a_read_is_cancelled_its_message_comes_once(home: Path, turns: int):
    async with a_pair(home) as pair:
        read = pair.client.begin_call("peer_messages", wait_ms=30_000)
        await until(lambda: waits(pair.alice), pair.client)
        sending = asyncio.create_task(pair.send("one"))
        for _ in range(turns):
            await asyncio.sleep(0)
        pair.client.cancel(read)
        message_id = await sending
        assert await pair.state(message_id) == "accepted"

        # The answer may have been written before the cancellation was read; the client ignores it then.
        assert [text for text, _ in await pair.read(wait_ms=5_000)] == ["one"]
        await pair.client.call("list_peers")
        assert await pair.state(message_id) == "delivered"
        assert await pair.read() == []


async def test_a_wait_ends_with_what_comes(home: Path):
    async with a_pair(home) as pair:
        read = pair.client.begin_call("peer_messages", wait_ms=30_000)
        await until(lambda: waits(pair.alice), pair.client)
        await pair.send("one")

        content = await pair.client.content(read, "peer_messages")
        assert [message["text"] for message in content["messages"]] == ["one"]
        assert content["timed_out"] is False


async def test_calls_that_run_together_are_answered_under_their_own_ids(home: Path):
    async with a_pair(home) as pair:
        client = pair.client
        waiting = [client.begin_call("peer_messages", wait_ms=30_000, request_id=f"w{n}") for n in range(2)]
        await until(lambda: waits(pair.alice), client)
        lists = [client.begin_call("list_peers", request_id=number) for number in range(100, 110)]
        for one in reversed(lists):
            assert len((await client.content(one, "list_peers"))["peers"]) == 1
        assert not any(map(client.has_answer, waiting))

        await pair.send("only one of them gets it")
        await until(lambda: any(map(client.has_answer, waiting)), client)
        [first] = [one for one in waiting if client.has_answer(one)]
        messages = (await client.content(first, "peer_messages"))["messages"]
        assert [message["text"] for message in messages] == ["only one of them gets it"]

        [second] = [one for one in waiting if one != first]
        await pair.send("and the other this")
        messages = (await client.content(second, "peer_messages"))["messages"]
        assert [message["text"] for message in messages] == ["and the other this"]


async def test_messages_that_are_sent_together_arrive_in_their_order(home: Path):
    async with a_pair(home) as pair:
        [peer] = (await pair.client.call("list_peers"))["peers"]
        arguments = [{"target": peer["target"], "message": str(number)} for number in range(20)]
        pair.client.send(
            *(
                mcp_frames.request(f"s{one['message']}", "tools/call", call, era=HANDSHAKE)
                for one in arguments
                for call in [{"name": "message_peer", "arguments": one}]
            )
        )
        for number in range(20):
            sent = await pair.client.content(f"s{number}", "message_peer")
            assert sent["status"] in {"queued", "accepted"}

        texts: list[str] = []
        async with asyncio.timeout(WAIT_S):
            while len(texts) < 20:
                answer = await AdapterApi(Settled(pair.bob)).request(None, "session.read", {"wait_ms": 5_000})
                texts += [message["text"] for message in answer["messages"]]
        assert texts == [str(number) for number in range(20)]


async def test_more_calls_than_may_run_at_once_are_refused_and_the_rest_goes_on(home: Path):
    async with a_pair(home, requests=2) as pair:
        running = [pair.client.begin_call("peer_messages", wait_ms=30_000) for _ in range(2)]
        with pytest.raises(Refused) as refused:
            await pair.client.call("list_peers")
        assert refused.value.code == "QUEUE_FULL"
        assert refused.value.body["retry_after_ms"] > 0

        pair.client.cancel(running[0])
        assert (await pair.client.call("list_peers"))["self"]["name"] == "alice"


async def test_a_send_whose_call_is_cancelled_is_sent_once_or_not_at_all(home: Path):
    async with a_pair(home) as pair:
        [peer] = (await pair.client.call("list_peers"))["peers"]
        call = pair.client.begin_call("message_peer", target=peer["target"], message="half")
        pair.client.cancel(call)
        await pair.client.call("list_peers")

        rows = await pair.alice.mailbox.run(lambda connection: outbox.changed_after(connection, 0, 50))
        pending = await pair.alice.mailbox.run(outbox.pending)
        assert len(pending) + len(rows) <= 1


async def test_the_end_of_the_input_ends_what_waits(home: Path):
    async with a_pair(home) as pair:
        pair.client.begin_call("peer_messages", wait_ms=30_000)
        await until(lambda: waits(pair.alice), pair.client)

        assert await pair.client.end() == []
        assert not waits(pair.alice)


# --- requests and ids ------------------------------------------------------------------------------


@pytest.mark.requirement("D-mcp-03")
@eras
async def test_an_unknown_method_is_answered_so_and_the_connection_goes_on(era: Era):
    unknown = ["resources/list", "logging/setLevel", "completion/complete", "", "tools/list ", "x" * 5_000]
    unknown += ["ping", "initialize/x"] if era.modern else ["server/discover", "subscriptions/listen"]
    async with without_session(era) as client:
        await client.open()
        for method in unknown:
            with pytest.raises(McpError) as refused:
                await client.request(method)
            assert refused.value.code == -32601

        assert len((await client.request("tools/list"))["tools"]) == 3


async def test_an_unknown_notification_is_not_answered():
    async with without_session() as client:
        await client.open()
        client.send(
            mcp_frames.notification("notifications/roots/list_changed"),
            mcp_frames.notification("notifications/cancelled"),
            mcp_frames.notification("notifications/cancelled", requestId=[1]),
            mcp_frames.notification("tools/call", name="list_peers"),
            {"jsonrpc": "2.0", "id": 7, "result": {}},
            {"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "x"}},
        )
        await client.answered_so_far()
        assert client.others == []


@pytest.mark.parametrize("request_id", [0, -1, 1, 2**63, "", "1", "é😀", "\ud800", "x" * 10_000])
async def test_an_id_comes_back_as_it_was(request_id: str | int):
    async with without_session() as client:
        client.write(json.dumps(mcp_frames.request(request_id, "ping", era=HANDSHAKE)).encode() + b"\n")
        answer = await client.frame()
        assert (type(answer["id"]), answer["id"]) == (type(request_id), request_id)


async def test_a_text_and_a_number_are_two_ids(home: Path):
    async with a_pair(home) as pair:
        pair.client.begin_call("peer_messages", wait_ms=30_000, request_id=1)
        pair.client.begin_call("peer_messages", wait_ms=30_000, request_id="1")
        await until(lambda: waits(pair.alice), pair.client)
        pair.client.cancel("1")
        await pair.send("one")

        assert (await pair.client.content(1, "peer_messages"))["messages"] != []
        assert not pair.client.has_answer("1")


async def test_an_id_that_is_in_use_is_refused_without_settling_its_call(home: Path):
    async with a_pair(home) as pair:
        pair.client.begin_call("peer_messages", wait_ms=30_000, request_id="twice")
        await until(lambda: waits(pair.alice), pair.client)
        pair.client.begin_call("list_peers", request_id="twice")
        pair.client.begin("ping", request_id="twice")
        await pair.client.answered_so_far()
        assert [(frame["id"], frame["error"]["code"]) for frame in pair.client.others] == [(None, -32600)] * 2

        message_id = await pair.send("one")
        [message] = (await pair.client.content("twice", "peer_messages"))["messages"]
        assert message["message_id"] == message_id


async def test_an_id_may_be_used_again_once_it_was_answered(home: Path):
    async with a_pair(home) as pair:
        message_id = await pair.send("one")
        pair.client.begin_call("peer_messages", request_id=5)
        await pair.client.content(5, "peer_messages")
        pair.client.begin_call("list_peers", request_id=5)
        await pair.client.content(5, "list_peers")

        assert await pair.state(message_id) == "delivered"


WRONG_LINES: list[tuple[bytes, int]] = [
    (b"{", -32700),
    (b"nonsense", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700),
    (b'\xff{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"p\xed\xa0\x80"}', -32700),
    (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":-1e999}}', -32700),
    (b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}', -32700),
    (b"[" * 100_000, -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]', -32600),
    (b'"ping"', -32600),
    (b"null", -32600),
    (b"7", -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600),
]


@pytest.mark.parametrize(("line", "code"), WRONG_LINES, ids=lambda value: repr(value)[:40])
@eras
async def test_a_bad_line_is_answered_without_an_id_and_the_connection_goes_on(
    era: Era, line: bytes, code: int
):
    async with without_session(era) as client:
        await client.open()
        client.write(line + b"\n")
        answer = await client.frame()
        assert (answer["id"], answer["error"]["code"]) == (None, code)

        assert (await client.request("tools/list"))["tools"] != []


@pytest.mark.parametrize(
    "frame",
    [
        {"id": 9, "method": "ping"},
        {"jsonrpc": "1.0", "id": 9, "method": "ping"},
        {"jsonrpc": "2.0", "id": 9, "method": 7},
        {"jsonrpc": "2.0", "id": 9, "method": "ping", "params": []},
        {"jsonrpc": "2.0", "id": 9, "method": "ping", "params": None},
    ],
)
async def test_a_malformed_request_with_an_id_is_answered_under_it(frame: dict[str, Any]):
    async with without_session() as client:
        await client.open()
        client.send(frame)
        with pytest.raises(McpError) as refused:
            await client.result(9)
        assert refused.value.code == -32600


async def test_empty_lines_and_carriage_returns_are_no_requests():
    async with without_session() as client:
        client.write(b'\n \r\n\t\n{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n\n')
        assert (await client.frame())["id"] == 1
        await client.answered_so_far()
        assert client.others == []


@pytest.mark.requirement("D-mcp-05")
async def test_a_line_of_one_mebibyte_is_read_and_a_longer_one_refused():
    head, tail = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"', b'"}}'
    room = MCP_FRAME_BYTES - len(head) - len(tail)
    assert MCP_FRAME_BYTES == 1_048_576
    async with without_session() as client:
        client.write(head + b"x" * room + tail + b"\n")
        assert (await client.frame())["result"] == {}

        client.write(head + b"x" * (room + 1) + tail + b"\n")
        answer = await client.frame()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)

        client.write(b"x" * (3 * MCP_FRAME_BYTES) + b'\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        assert (await client.frame())["error"]["code"] == -32700
        assert (await client.frame())["id"] == 2


async def test_what_was_read_before_is_looked_at_first():
    left = mcp_frames.line(mcp_frames.request(1, "ping", era=HANDSHAKE)) + b'{"jsonrpc":"2.0","id":2,'
    async with without_session(left=left) as client:
        assert (await client.frame())["id"] == 1
        client.write(b'"method":"ping"}\n')
        assert (await client.frame())["id"] == 2


# --- the two eras ----------------------------------------------------------------------------------


@pytest.mark.parametrize("era", [MODERN])
async def test_a_modern_connection_wants_its_envelope_on_every_request(era: Era):
    meta = era.envelope["_meta"]
    version, capabilities = mcp_frames.VERSION, "io.modelcontextprotocol/clientCapabilities"
    wrong: list[tuple[str, dict[str, Any], int]] = [
        ("tools/list", {}, -32602),
        ("tools/list", {version: era.version}, -32602),
        ("tools/list", {capabilities: {}}, -32602),
        ("tools/list", {version: 7, capabilities: {}}, -32602),
        ("tools/list", {**meta, version: "2027-01-01"}, -32022),
        ("tools/call", {**meta, version: "2025-11-25"}, -32022),
        ("initialize", {}, -32022),
    ]
    async with without_session(era) as client:
        await client.open()
        for number, (method, given, code) in enumerate(wrong, start=100):
            client.send({"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": given}})
            with pytest.raises(McpError) as refused:
                await client.result(number)
            assert refused.value.code == code
        assert refused.value.data == {"supported": ["2026-07-28"], "requested": ""}
        assert await client.request("tools/list")


async def test_a_probe_of_an_unknown_version_is_told_which_are_known_and_fixes_nothing():
    newer = Era("2099-01-01", modern=True)
    async with without_session() as client:
        client.send(mcp_frames.request(1, "server/discover", era=newer))
        with pytest.raises(McpError) as refused:
            await client.result(1)
        assert refused.value.code == -32022
        assert refused.value.data == {"supported": ["2026-07-28"], "requested": "2099-01-01"}

        await client.open()
        assert await client.request("ping") == {}


async def test_a_handshake_connection_refuses_the_envelope():
    async with without_session() as client:
        await client.open()
        client.send(mcp_frames.request(9, "tools/list", era=MODERN))
        with pytest.raises(McpError) as refused:
            await client.result(9)
        assert refused.value.code == -32600


@pytest.mark.parametrize(
    ("wanted", "spoken"),
    [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        (7, "2025-11-25"),
    ],
)
async def test_a_handshake_is_answered_with_a_version_that_is_spoken_here(wanted: object, spoken: str):
    async with without_session() as client:
        result = await client.request("initialize", {"protocolVersion": wanted})
        assert result["protocolVersion"] == spoken
        assert result["capabilities"] == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
        assert result["serverInfo"]["name"] == "herd"


async def test_a_modern_client_may_begin_with_any_request():
    async with without_session(MODERN) as client:
        lists = await client.request("tools/list")
        assert (lists["ttlMs"], lists["cacheScope"]) == (0, "private")
        with pytest.raises(Refused, match="NO_SESSION"):
            await client.call("list_peers")
        discovered = await client.request("server/discover")
        assert discovered["supportedVersions"] == ["2026-07-28"]


@pytest.mark.parametrize("era", [era for era in ERAS if not era.modern])
async def test_a_handshake_client_is_told_of_a_change_unasked(era: Era):
    async with without_session(era) as client:
        await client.server.changed("tools")  # nobody has said anything yet
        await client.open()
        await client.server.changed("tools")
        await client.server.changed("prompts")
        await client.answered_so_far()
        assert client.others == [
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
            {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"},
        ]


async def test_a_modern_client_is_told_of_the_changes_it_listens_for():
    async with without_session(MODERN) as client:
        await client.open()
        await client.server.changed("tools")
        wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourcesListChanged": True}
        client.begin("subscriptions/listen", {"notifications": wanted}, request_id="tools")
        client.begin("subscriptions/listen", {"notifications": {"promptsListChanged": True}}, request_id=0)
        await client.answered_so_far()
        of_tools, of_prompts = ({"_meta": {SUBSCRIPTION: one}} for one in ("tools", 0))
        acknowledged = "notifications/subscriptions/acknowledged"
        assert client.others == [
            mcp_frames.notification(acknowledged, notifications={"toolsListChanged": True}, **of_tools),
            mcp_frames.notification(acknowledged, notifications={"promptsListChanged": True}, **of_prompts),
        ]

        client.others.clear()
        await client.server.changed("tools")
        await client.server.changed("prompts")
        await client.answered_so_far()
        assert client.others == [
            mcp_frames.notification("notifications/tools/list_changed", **of_tools),
            mcp_frames.notification("notifications/prompts/list_changed", **of_prompts),
        ]


async def test_a_stream_that_its_client_ended_is_silent_and_not_answered():
    async with without_session(MODERN) as client:
        await client.open()
        client.begin("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, request_id="s")
        client.cancel("s")
        await client.server.changed("tools")
        await client.answered_so_far()
        await client.server.changed("tools")
        await client.answered_so_far()

        assert [frame["method"] for frame in client.others[:1]] == [
            "notifications/subscriptions/acknowledged"
        ]
        assert not client.has_answer("s")
        assert await client.end() == []


async def test_the_server_ends_the_streams_when_it_ends():
    async with without_session(MODERN) as client:
        await client.open()
        client.begin("subscriptions/listen", {"notifications": {}}, request_id="s")
        acknowledged, ended = await client.end()
        assert acknowledged["params"] == {"notifications": {}, "_meta": {SUBSCRIPTION: "s"}}
        assert ended["id"] == "s"
        assert mcp_frames.result_of(ended, MODERN)["_meta"][SUBSCRIPTION] == "s"


async def test_a_stream_keeps_its_id_and_their_number_is_bounded():
    async with without_session(MODERN, requests=2) as client:
        await client.open()
        for name in ("a", "b"):
            client.begin("subscriptions/listen", {"notifications": {}}, request_id=name)
        client.begin("tools/list", request_id="a")
        client.begin("subscriptions/listen", {"notifications": {}}, request_id="c")
        client.begin("subscriptions/listen", {"notifications": "all"}, request_id="d")
        for name, code in (("c", -32600), ("d", -32602)):
            with pytest.raises(McpError) as refused:
                await client.result(name)
            assert refused.value.code == code
        in_use = [frame["error"]["code"] for frame in client.others if "error" in frame]
        assert in_use == [-32600]


# --- faults ----------------------------------------------------------------------------------------


@eras
async def test_a_fault_inside_is_told_without_its_cause_and_ends_nothing(era: Era, caplog):
    async with served(Tools(BrokenSessions()), era=era) as client:
        await client.open()
        with pytest.raises(Refused) as refused:
            await client.call("list_peers")
        assert refused.value.code == "INVALID_RPC"
        assert "secret" not in str(refused.value.body)
        assert "a secret of the inside" in caplog.text

        assert len((await client.request("tools/list"))["tools"]) == 3


async def test_a_session_that_ends_under_a_call_does_not_leave_it_unanswered(home: Path):
    async with a_pair(home) as pair:
        waiting = pair.client.begin_call("peer_messages", wait_ms=1_000)
        await until(lambda: waits(pair.alice), pair.client)
        await pair.alice.stop()
        with pytest.raises(Refused):
            await pair.client.content(waiting, "peer_messages")
