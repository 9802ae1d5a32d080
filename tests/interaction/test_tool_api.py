"""`session.tools` and `session.tool`: the tools of `herd mcp` for a host whose extension shows them.

What each gives is compared with what an MCP client gets for the same call on the same session.
"""

from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import pytest

from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.binding import Binding
from herd.core.errors import HerdError, InvalidParams, MethodNotFound
from herd.core.limits import CALL_ID_CHARACTERS, DEFAULT_LIMITS, METHOD_CHARACTERS, READ_BYTES
from herd.hosts.adapter import adapter_of
from herd.mail.receipts import ACCEPTED, DELIVERED
from herd.mcp.tool_api import ToolApi
from herd.mcp.tools import TOOLS, Tools
from tests.fakes.coordinators import running
from tests.fakes.listening import within_bounds
from tests.fakes.mcp_streams import served
from tests.fakes.records import ALICE, BOB


@pytest.fixture
async def alice(layout):
    async with running(layout, ALICE, name="alice") as one:
        yield one


@pytest.fixture
async def bob(layout):
    async with running(layout, BOB, name="bob") as one:
        yield one


class Extension:
    """A host's extension on the stdio of `herd session`."""

    def __init__(self, sessions):
        self.api = ToolApi(AdapterApi(sessions), sessions)

    async def ask(self, method, **params):
        return await within_bounds(self.api.request(None, f"session.{method}", params))

    async def tool(self, name, arguments=None, **more):
        given = {} if arguments is None else {"arguments": arguments}
        return await self.ask("tool", name=name, **given, **more)


@pytest.fixture
def extension(bob):
    return Extension(Settled(bob.coordinator))


@asynccontextmanager
async def mcp_client(session):
    """Give an MCP client of the same session."""
    async with served(Tools(Settled(session.coordinator), adapter_of("unknown"))) as client:
        yield await client.open()


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


async def test_the_tools_are_those_of_the_mcp_server(bob, extension):
    listed = (await extension.ask("tools"))["tools"]
    async with mcp_client(bob) as client:
        tools = (await client.request("tools/list"))["tools"]

    assert listed == [
        {field: tool[field] for field in ("name", "description", "inputSchema")} for tool in tools
    ]
    assert [tool["name"] for tool in listed] == ["list_peers", "message_peer", "peer_messages"]
    for tool in listed:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])


CALLS: list[tuple[str, dict[str, Any] | None]] = [
    ("list_peers", None),
    ("list_peers", {}),
    ("list_peers", {"query": "alice"}),
    ("list_peers", {"query": "nobody at all"}),
    ("list_peers", {"cursor": "no cursor of ours"}),
    ("list_peers", {"scope": "world"}),
    ("list_peers", {"\u202eeliF\x1b[31m": 1}),
    ("message_peer", {}),
    ("message_peer", {"target": "ALICE", "message": ""}),
    ("message_peer", {"target": "alice", "message": "x"}),
    ("message_peer", {"target": "SELF", "message": "x"}),
    ("message_peer", {"target": "lead:0000000000", "message": "x"}),
    ("message_peer", {"target": "ALICE", "message": "x" * (DEFAULT_LIMITS.mailbox_payload_bytes + 1)}),
    ("message_peer", {"target": "ALICE", "message": "x", "reply_to": "no-such-message"}),
    ("message_peer", {"target": "ALICE", "message": "x", "call_id": "chosen"}),
    ("message_peer", {"target": "ALICE", "message": "x", "from": "lead:0000000000"}),
    ("message_peer", {"target": "ALICE", "message": "x", "no_reply_needed": "yes"}),
    ("peer_messages", {"message_id": "SENT"}),
    ("peer_messages", {"message_id": "SENT", "offset": 3}),
    ("peer_messages", {"message_id": "no-such-message"}),
    ("peer_messages", {"message_id": "../x"}),
    ("peer_messages", {"offset": 1}),
    ("peer_messages", {"after": "0", "from": "lead:0000000000"}),
    ("peer_messages", {"wait_ms": 30_001}),
    ("peer_messages", {"wait_ms": "1"}),
    ("peer_messages", {"person": True}),
]


@pytest.mark.requirement("A-tools-11")
@pytest.mark.parametrize(("name", "arguments"), CALLS, ids=str)
async def test_the_same_call_gives_the_same_as_over_mcp(alice, bob, extension, name, arguments):
    await alice.sees(bob)
    await bob.sees(alice)
    sent = await alice.send(bob, "\x1b[1mtext\u2028 to read")
    first = (await bob.ask("drain"))["message_ids"]
    await bob.ask("confirm", message_ids=first, evidence="test")
    names = {"ALICE": alice.target, "SELF": bob.target, "SENT": sent["message_id"]}
    given = (
        None
        if arguments is None
        else {field: names.get(v, v) if isinstance(v, str) else v for field, v in arguments.items()}
    )
    ours = await extension.tool(name, given)
    async with mcp_client(bob) as client:
        theirs = await client.request("tools/call", {"name": name, "arguments": given})

    assert ours["text"] == theirs["content"][0]["text"]
    assert ours["is_error"] == theirs["isError"]
    messages = theirs["structuredContent"].get("messages", [])
    assert ours["message_ids"] == [one["message_id"] for one in messages]
    assert await bob.outgoing() == []


@pytest.mark.requirement("A-tools-11")
async def test_a_refusal_is_a_result_with_its_code_in_front(bob, extension):
    result = await extension.tool("message_peer", {"target": "lead:0000000000", "message": "x"})

    assert result["is_error"] is True
    assert result["text"].startswith("UNKNOWN_TARGET: ")
    assert result["message_ids"] == []


@pytest.mark.parametrize("name", ["send_message", "LIST_PEERS", "session.read", "x" * METHOD_CHARACTERS])
async def test_a_tool_that_does_not_exist_is_refused_by_name(extension, name):
    refusal = await refused(extension.tool(name, {}), InvalidParams)

    assert name[:64] in refusal.message


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * (METHOD_CHARACTERS + 1)}, "name"),
        ({"name": 7}, "name"),
        ({"name": "list_peers", "arguments": []}, "arguments"),
        ({"name": "list_peers", "arguments": "x"}, "arguments"),
        ({"name": "list_peers", "call_id": ""}, "call_id"),
        ({"name": "list_peers", "call_id": 7}, "call_id"),
        ({"name": "list_peers", "call_id": "x" * (CALL_ID_CHARACTERS + 1)}, "call_id"),
        ({"name": "list_peers", "_meta": {"call_id": "x"}}, "_meta"),
        ({"name": "list_peers", "session_id": "other"}, "session_id"),
    ],
)
async def test_a_field_that_is_not_as_described_is_named(extension, params, field):
    refusal = await refused(extension.ask("tool", **params), InvalidParams)

    assert refusal.message.startswith(field)


async def test_the_list_of_tools_takes_no_field(extension):
    await refused(extension.ask("tools", all=True), InvalidParams)


async def test_the_tools_are_listed_before_a_session_is_named_and_a_call_says_that_none_is():
    extension = Extension(Binding())

    assert len((await extension.ask("tools"))["tools"]) == len(TOOLS)
    result = await extension.tool("list_peers")
    assert result["is_error"]
    assert result["text"].startswith("NO_SESSION: ")


async def test_every_other_method_is_that_of_the_adapter(alice, bob, extension):
    assert await extension.ask("whoami") == await bob.ask("whoami")
    assert await extension.ask("drain") == {"text": "", "message_ids": [], "more": False}
    await refused(extension.ask("nonsense"), MethodNotFound)


async def test_the_session_s_socket_has_no_tools(bob):
    for method in ("tools", "tool"):
        await refused(bob.adapter.request(None, f"session.{method}", {}), MethodNotFound)


# --- which message a call is -----------------------------------------------------------------------


async def test_a_call_that_is_made_again_is_the_same_message(alice, bob, extension):
    await extension.tool("list_peers")
    arguments = {"target": alice.target, "message": "once"}
    first = await extension.tool("message_peer", arguments, call_id="call-1")
    await bob.until_state(_message_id(first), ACCEPTED)
    again, other, unnamed = [
        await extension.tool("message_peer", arguments, **more)
        for more in ({"call_id": "call-1"}, {"call_id": "call-2"}, {})
    ]
    changed = await extension.tool("message_peer", {**arguments, "message": "else"}, call_id="call-1")

    assert changed["text"].startswith("MESSAGE_ID_CONFLICT: ")
    assert _message_id(first) == _message_id(again)
    assert len({_message_id(one) for one in (first, other, unnamed)}) == 3
    assert len(await bob.outgoing()) == 3


def _message_id(result):
    assert not result["is_error"], result
    return result["text"].partition('"message_id": "')[2].partition('"')[0]


async def test_a_call_id_changes_nothing_about_the_other_tools(bob, extension):
    plain = await extension.tool("list_peers")

    assert await extension.tool("list_peers", call_id="call-1") == plain
    assert (await extension.tool("peer_messages", call_id="call-1"))["is_error"] is False


# --- what a call hands over ------------------------------------------------------------------------


async def test_what_a_call_gave_is_held_until_the_extension_says_that_the_host_has_it(alice, bob, extension):
    await alice.sees(bob)
    sent = await alice.send(bob)
    result = await extension.tool("peer_messages")
    assert result["message_ids"] == [sent["message_id"]]
    await extension.tool("peer_messages")  # which is no evidence here, as it would be over MCP
    (held,) = await bob.incoming()
    await extension.ask("confirm", message_ids=result["message_ids"], evidence="tool result 7")
    (row,) = await bob.incoming()

    assert (held.receipt.state, held.handovers) == (ACCEPTED, 1)
    assert (row.receipt.state, row.evidence) == (DELIVERED, "tool result 7")


async def test_what_a_call_gave_and_the_host_threw_away_is_given_again(alice, bob, extension):
    await alice.sees(bob)
    await alice.send(bob)
    first = await extension.tool("peer_messages")
    await extension.ask("release", message_ids=first["message_ids"])
    second = await extension.tool("peer_messages")
    await extension.ask("release", message_ids=second["message_ids"], counted=False)
    extension.api.ended()

    assert second["message_ids"] == first["message_ids"]
    assert '"again": true' in second["text"]
    assert (await bob.incoming())[0].handovers == 1


async def test_an_extension_that_ended_gives_back_what_its_calls_gave(alice, bob, extension):
    await alice.sees(bob)
    await alice.send(bob)
    await extension.tool("peer_messages")
    extension.api.ended()

    assert (await bob.read())["messages"][0]["again"] is True


async def test_a_long_answer_names_every_message_in_it(alice, bob, extension):
    await alice.sees(bob)
    sent = [(await alice.send(bob, "x" * 7_000))["message_id"] for _ in range(8)]
    found = []
    while len(found) < len(sent):
        result = await extension.tool("peer_messages")
        assert 0 < len(result["message_ids"]) <= READ_BYTES // 7_000
        found += result["message_ids"]

    assert found == sent
