"""The tools that an agent sees, called over MCP on real sessions: what they take, give and refuse.

Every result is held to the schema its tool declares and to its own text by the client; see
`tests.fakes.mcp_frames`.
"""

import errno
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest

from herd.coordinator import adapter_params
from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.coordinator import Coordinator
from herd.core.clock import SystemClock, shown_time
from herd.core.errors import InvalidParams
from herd.core.identity import SessionName, target_of
from herd.core.limits import DEFAULT_LIMITS, LIST_PAGE, READ_BYTES
from herd.hosts.adapter import adapter_of
from herd.mail import acceptance, inbox, outbox
from herd.mail.inbox import Sender
from herd.mail.wire import Envelope, checked
from herd.mcp.tools import OUTPUTS, TOOLS, Tools
from herd.presence.record import Presence
from tests.fakes import mail
from tests.fakes.coordinators import running, until_async
from tests.fakes.mcp_frames import ERAS, HANDSHAKE, Era, McpError, Refused
from tests.fakes.mcp_streams import McpStreams, served
from tests.fakes.records import LEAD, layout_at, living, session_of

ALICE, BOB = SessionName("claude", "alice"), SessionName("codex", "bob")

PAYLOAD = DEFAULT_LIMITS.mailbox_payload_bytes


class Agent(NamedTuple):
    """A session and its agent's client."""

    coordinator: Coordinator
    client: McpStreams

    @property
    def target(self) -> str:
        return self.coordinator.own.target

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.client.call(tool, **arguments)

    async def refused(self, tool: str, /, **arguments: Any) -> Refused:
        with pytest.raises(Refused) as refused:
            await self.client.call(tool, **arguments)
        return refused.value

    async def stored(self) -> list[Any]:
        """Give everything its mailbox holds of its own messages."""
        work = lambda connection: connection.execute("SELECT * FROM outbox").fetchall()  # noqa: E731
        return await self.coordinator.mailbox.read(work) or []

    async def received(self) -> list[inbox.Incoming]:
        """Give what waits in its inbox."""
        return await self.coordinator.mailbox.read(inbox.undelivered) or []

    async def state(self, message_id: str) -> str:
        row = await self.coordinator.mailbox.run(lambda c: outbox.required(c, message_id))
        return row.receipt.state

    async def until_state(self, message_id: str, state: str) -> None:
        async def reached() -> bool:
            return await self.state(message_id) == state

        await until_async(reached)

    async def holds(self, count: int) -> bool:
        """Tell whether its inbox holds so many messages that were not delivered yet."""
        return await self.coordinator.mailbox.run(inbox.waiting) == count

    async def texts(self, **query: Any) -> list[str]:
        return [message["text"] for message in (await self.call("peer_messages", **query))["messages"]]


@asynccontextmanager
async def an_agent(
    home: Path, session: SessionName, era: Era = HANDSHAKE, *, host: str = "unknown"
) -> AsyncIterator[Agent]:
    async with (
        running(layout_at(home), session, name=session.session_id) as run,
        served(Tools(Settled(run.coordinator), adapter_of(host)), era=era) as client,
    ):
        yield Agent(run.coordinator, await client.open())


@asynccontextmanager
async def agents(home: Path, era: Era = HANDSHAKE) -> AsyncIterator[tuple[Agent, Agent]]:
    """Give alice and bob, each of whom has listed the other."""
    async with an_agent(home, ALICE, era) as alice, an_agent(home, BOB, era) as bob:
        for one in (alice, bob):
            await one.call("list_peers")
        yield alice, bob


async def deliver(agent: Agent, message_id: str, content: str, sender: SessionName = BOB) -> None:
    """Put a message of any size into a session's inbox."""
    to, key = agent.target, sender.key
    envelope = Envelope.model_construct(
        **{name: field.default for name, field in Envelope.model_fields.items()}
        | {
            "version": 1,
            "message_id": message_id,
            "to": to,
            "content": content,
            "created_at": mail.NOW,
            "correlation_id": message_id,
            "conversation": mail.envelope().conversation,
            "sender": None,
        }
    )
    verified = Sender(key, target_of("lead", key), "lead", sender.host, sender.session_id)
    custody_id = agent.coordinator.mailbox.custody_id or ""
    await agent.coordinator.mailbox.run(
        lambda c: acceptance.accept(c, envelope, verified, mail.admission(custody_id, 64, mail.NOW))
    )


# --- list_peers ------------------------------------------------------------------------------------


@asynccontextmanager
async def a_crowd(home: Path, presences: Sequence[Presence]) -> AsyncIterator[Agent]:
    """Give an agent beside many listed sessions, whose locks this test holds."""
    layout = layout_at(home)
    async with AsyncExitStack() as stack:
        for number, presence in enumerate(presences):
            stack.enter_context(living(layout, session_of(number), presence))
        yield await stack.enter_async_context(an_agent(home, ALICE))


async def pages(agent: Agent, **arguments: Any) -> list[list[dict[str, Any]]]:
    found = []
    page = await agent.call("list_peers", **arguments)
    found.append(page["peers"])
    while "next_cursor" in page:
        page = await agent.call("list_peers", **arguments, cursor=page["next_cursor"])
        found.append(page["peers"])
    return found


@pytest.mark.requirement("A-tools-01", "A-discover-12", "A-limits-16")
async def test_the_pages_together_show_every_peer_once_in_a_stable_order(home: Path):
    crowd = [LEAD._replace(name=f"worker-{number:03}") for number in range(120)]
    async with a_crowd(home, crowd) as agent:
        first, second = await pages(agent), await pages(agent)
        assert [len(page) for page in first] == [LIST_PAGE, LIST_PAGE, 20]
        assert LIST_PAGE == 50
        assert first == second

        peers = [peer for page in first for peer in page]
        assert sorted(peer["name"] for peer in peers) == [one.name for one in crowd]
        assert len({peer["target"] for peer in peers}) == 120
        assert agent.target not in {peer["target"] for peer in peers}
        alone = await agent.call("list_peers", scope="machine")
        assert alone["self"] == {"target": agent.target, "name": "alice", "role": "lead", "kind": "ordinary"}


@pytest.mark.requirement("A-tools-01", "A-discover-12")
async def test_a_query_narrows_and_its_cursor_is_good_for_nothing_else(home: Path):
    crowd = [LEAD._replace(name=f"{'web' if number % 2 else 'api'}-{number:03}") for number in range(130)]
    async with a_crowd(home, crowd) as agent:
        found = await pages(agent, query="WEB")
        assert [len(page) for page in found] == [50, 15]
        assert {peer["name"][:4] for page in found for peer in page} == {"web-"}

        of_query = (await agent.call("list_peers", query="web"))["next_cursor"]
        of_all = (await agent.call("list_peers"))["next_cursor"]
        for wrong in (
            {"cursor": of_query},
            {"cursor": of_query, "query": "api"},
            {"cursor": of_query, "query": "WEB"},
            {"cursor": of_all, "query": "web"},
            {"cursor": of_query[:-4], "query": "web"},
            {"cursor": "nonsense"},
            {"cursor": "WzEsMl0="},
            {"cursor": "é"},
            {"cursor": "x" * 2_049},
            {"cursor": ""},
            {"query": "x" * 257},
            {"query": ""},
            {"scope": "world"},
        ):
            assert (await agent.refused("list_peers", **wrong)).code == "INVALID_PARAMS", wrong
        assert (await agent.call("list_peers", query="x" * 256))["peers"] == []


@pytest.mark.requirement("A-tools-02")
async def test_a_descriptor_holds_labels_and_nothing_that_leads_into_a_session(home: Path):
    inside: dict[str, Any] = {
        "socket": "/run/herdr-secret.sock",
        "pane_id": "pane-secret",
        "tab_id": "tab-secret",
        "workspace_id": "workspace-secret",
    }
    labels: dict[str, Any] = {
        "name": "api",
        "cwd": "/home/me/x",
        "repo": "shop",
        "branch": "main",
        "workspace_label": "space",
        "activity": "idle",
        "since": mail.NOW,
    }
    async with a_crowd(home, [Presence(role="lead", **labels, **inside)]) as agent:
        answer = await agent.client.result(agent.client.begin_call("list_peers"))
        [peer] = answer["structuredContent"]["peers"]
        assert peer.keys() == {"target", *labels}
        told = json.dumps(answer, ensure_ascii=False)
        assert "secret" not in told
        for hidden in (session_of(0).session_id, session_of(0).key, "instance-of", "/run/", "MCowBQ"):
            assert hidden not in told


@pytest.mark.requirement("H-list-22")
async def test_activity_is_one_of_four_and_since_when_it_began(home: Path):
    async with agents(home) as (alice, bob):
        api, clock = AdapterApi(Settled(bob.coordinator)), SystemClock()
        assert "activity" not in (await alice.call("list_peers"))["peers"][0]
        for activity in ("idle", "working", "waiting", "away"):
            before = clock.wall_ms()
            await api.request(None, "session.update", {"activity": activity})
            after = clock.wall_ms()
            [peer] = (await alice.call("list_peers"))["peers"]
            assert peer["activity"] == activity
            assert (shown_time(before) or "") <= peer["since"] <= (shown_time(after) or "")
            await api.request(None, "session.update", {"activity": activity, "name": "bob"})
            assert (await alice.call("list_peers"))["peers"] == [peer]
        with pytest.raises(InvalidParams):
            await api.request(None, "session.update", {"activity": "asleep"})
    schema = OUTPUTS["list_peers"]["properties"]["peers"]["items"]["properties"]["activity"]
    assert schema == {"enum": ["idle", "working", "waiting", "away"]}


@pytest.mark.requirement("H-list-23")
async def test_equal_names_are_told_apart_by_the_end_of_their_targets(home: Path):
    crowd = [LEAD._replace(name="worker") for _ in range(3)] + [LEAD._replace(name="other")]
    async with a_crowd(home, crowd) as agent:
        peers = (await agent.call("list_peers"))["peers"]
        names = [peer["name"] for peer in peers]
        assert len(set(names)) == 4
        assert "other" in names
        for peer in peers:
            if peer["name"] != "other":
                assert peer["name"].startswith("worker-")
                assert peer["target"].endswith(peer["name"].removeprefix("worker-"))


# --- message_peer ----------------------------------------------------------------------------------


@pytest.mark.requirement("A-tools-03", "A-tools-04", "D-mcp-06")
@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.version)
async def test_a_message_and_its_answer_with_every_field(home: Path, era: Era):
    async with agents(home, era) as (alice, bob):
        topic = "t" * 256
        sent = await alice.call(
            "message_peer", target=bob.target, message="question", topic=topic, no_reply_needed=True
        )
        assert sent["target"] == bob.target
        assert sent["status"] == "accepted"
        assert await alice.state(sent["message_id"]) == "accepted"

        [message] = (await bob.call("peer_messages", wait_ms=5_000))["messages"]
        assert message["from"] == {"target": alice.target, "name": "alice", "role": "lead"}
        assert (message["message_id"], message["text"]) == (sent["message_id"], "question")
        assert (message["topic"], message["no_reply_needed"]) == (topic, True)
        assert message.keys().isdisjoint({"again", "reply_to", "next_offset"})

        answer = await bob.call(
            "message_peer", target=alice.target, message="answer", reply_to=sent["message_id"]
        )
        [reply] = (await alice.call("peer_messages", wait_ms=5_000))["messages"]
        assert (reply["text"], reply["reply_to"]) == ("answer", sent["message_id"])
        assert reply["message_id"] == answer["message_id"]
        assert reply.keys().isdisjoint({"topic", "no_reply_needed"})


@pytest.mark.requirement("A-tools-04", "D-mcp-07")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"target": "lead:0000000000", "message": "x"}, "UNKNOWN_TARGET"),
        ({"target": "bob", "message": "x"}, "UNKNOWN_TARGET"),
        ({"target": "SELF", "message": "x"}, "UNKNOWN_TARGET"),
        ({"target": "BOB", "message": "x" * (PAYLOAD + 1)}, "MESSAGE_TOO_LARGE"),
        ({"target": "BOB", "message": "é" * (PAYLOAD // 2 + 1)}, "MESSAGE_TOO_LARGE"),
        ({"target": "BOB", "message": "x", "reply_to": "no-such-message"}, "INVALID_REPLY"),
        ({"target": "BOB"}, "INVALID_PARAMS"),
        ({"message": "x"}, "INVALID_PARAMS"),
        ({"target": "BOB", "message": ""}, "INVALID_PARAMS"),
        ({"target": "BOB", "message": "x", "topic": "t" * 257}, "INVALID_PARAMS"),
        ({"target": "BOB", "message": "lone \ud800"}, "INVALID_PARAMS"),
    ],
)
async def test_a_refused_message_is_a_typed_error_and_nothing_is_stored(
    home: Path, arguments: dict[str, Any], code: str
):
    async with agents(home) as (alice, bob):
        names = {"SELF": alice.target, "BOB": bob.target}
        given = {name: names.get(value, value) for name, value in arguments.items()}
        refused = await refused_as_written(alice, "message_peer", given)
        assert refused.code == code
        assert refused.message
        assert refused.hint
        assert await alice.stored() == []
        assert await bob.texts() == []


async def refused_as_written(agent: Agent, tool: str, arguments: dict[str, Any]) -> Refused:
    """Call a tool with arguments that may hold half a character, and give its refusal."""
    frame = {"jsonrpc": "2.0", "id": "w", "method": "tools/call", "params": {"name": tool}}
    frame["params"]["arguments"] = arguments  # type: ignore[index]
    agent.client.write(json.dumps(frame).encode() + b"\n")
    with pytest.raises(Refused) as refused:
        await agent.client.content("w", tool)
    return refused.value


async def test_a_message_for_a_session_that_sleeps_says_that_nobody_runs_there(home: Path):
    async with an_agent(home, ALICE) as alice:
        async with an_agent(home, BOB) as bob:
            await alice.call("list_peers")
        sent = await alice.call("message_peer", target=bob.target, message="for later")
        assert (sent["status"], sent["peer_running"]) == ("accepted", False)
        async with an_agent(home, BOB) as bob:
            assert await bob.texts() == ["for later"]


async def as_claude(agent: Agent, tool_use_id: object, **arguments: Any) -> dict[str, Any]:
    """Call message_peer as Claude Code does, with what it tells of a call; the request's id is always one."""
    params = {"name": "message_peer", "arguments": arguments, "_meta": {"claudecode/toolUseId": tool_use_id}}
    return await agent.client.content(agent.client.begin("tools/call", params, request_id=1), "message_peer")


async def test_a_call_that_its_host_repeats_is_the_same_message(home: Path):
    async with an_agent(home, ALICE, host="claude") as alice, an_agent(home, BOB) as bob:
        await alice.call("list_peers")
        first, repeated, other = [
            await as_claude(alice, tool_use_id, target=bob.target, message="once")
            for tool_use_id in ("toolu_1", "toolu_1", "toolu_2")
        ]
        assert first["message_id"] == repeated["message_id"] != other["message_id"]
        with pytest.raises(Refused, match="MESSAGE_ID_CONFLICT"):
            await as_claude(alice, "toolu_1", target=bob.target, message="something else")

        await until_async(lambda: bob.holds(2))
        assert await bob.texts() == ["once", "once"]


@pytest.mark.parametrize("host", ["claude", "codex", "unknown"])
@pytest.mark.parametrize("tool_use_id", ["", None, 7, ["toolu_1"]])
async def test_a_request_s_own_id_makes_no_two_calls_one_message(home: Path, host: str, tool_use_id: object):
    async with an_agent(home, ALICE, host=host) as alice, an_agent(home, BOB) as bob:
        await alice.call("list_peers")
        for _ in range(2):
            await as_claude(alice, tool_use_id, target=bob.target, message="twice")
        await until_async(lambda: bob.holds(2))


# --- peer_messages ---------------------------------------------------------------------------------


@pytest.mark.requirement("A-tools-05")
async def test_a_read_gives_what_is_asked_for_of_the_own_mailbox_alone(home: Path):
    async with agents(home) as (alice, bob):
        question = await alice.call("message_peer", target=bob.target, message="question")
        assert await bob.texts() == ["question"]
        await bob.call("message_peer", target=alice.target, message="unasked")
        answer = await bob.call(
            "message_peer", target=alice.target, message="answer", reply_to=question["message_id"]
        )
        assert await alice.texts(from_="lead:0000000000") == []
        assert await alice.texts(message_id=answer["message_id"]) == ["answer"]
        assert await alice.texts(reply_to=question["message_id"]) == []
        assert await alice.texts(from_=bob.target) == ["unasked"]
        assert (await alice.refused("peer_messages", message_id="somebody-elses")).code == "UNKNOWN_TARGET"
        assert (
            await alice.refused("peer_messages", message_id=question["message_id"])
        ).code == "UNKNOWN_TARGET"


@pytest.mark.requirement("A-tools-05")
async def test_a_read_after_a_cursor_gives_the_receipts_since_then(home: Path):
    async with agents(home) as (alice, bob):
        start = (await alice.call("peer_messages"))["cursor"]
        sent = await alice.call("message_peer", target=bob.target, message="question")
        await bob.texts()
        await bob.call("list_peers")
        await alice.until_state(sent["message_id"], "delivered")

        receipt = {"message_id": sent["message_id"], "target": bob.target, "status": "delivered"}
        later = await alice.call("peer_messages", after=start)
        [told] = later["receipts"]
        assert {**told, "at": None} == {**receipt, "at": None}
        assert (await alice.call("peer_messages", after=start))["receipts"] == [told]
        assert (await alice.call("peer_messages", after=later["cursor"]))["receipts"] == []
        assert (await alice.call("peer_messages"))["receipts"] == []


@pytest.mark.requirement("A-tools-06")
async def test_running_out_of_time_is_a_result_that_says_so(home: Path):
    async with agents(home) as (alice, _):
        assert (await alice.call("peer_messages", wait_ms=1))["timed_out"] is True
        assert (await alice.call("peer_messages", wait_ms=0))["timed_out"] is False
        assert (await alice.call("peer_messages"))["timed_out"] is False


@pytest.mark.requirement("A-tools-06")
async def test_the_longest_wait_is_honoured_to_its_end(home: Path):
    async with agents(home) as (alice, bob):
        wait = alice.client.begin_call("peer_messages", wait_ms=30_000)
        await bob.call("message_peer", target=alice.target, message="at last")
        content = await alice.client.content(wait, "peer_messages")
        assert [message["text"] for message in content["messages"]] == ["at last"]
        assert content["timed_out"] is False


@pytest.mark.requirement("A-tools-06")
@pytest.mark.parametrize("wait_ms", [-1, -1.0, 30_001, 30_001.0, 10**30, 1e300, 1.5, "1", True, [1], {}])
async def test_any_other_wait_is_refused(home: Path, wait_ms: object):
    async with an_agent(home, ALICE) as alice:
        assert (await alice.refused("peer_messages", wait_ms=wait_ms)).code == "INVALID_PARAMS"


@pytest.mark.requirement("A-tools-06")
async def test_a_whole_number_is_one_however_it_is_written(home: Path):
    async with an_agent(home, ALICE) as alice:
        assert (await alice.call("peer_messages", wait_ms=1.0))["timed_out"] is True
        assert (await alice.call("peer_messages", wait_ms=0.0))["timed_out"] is False


@pytest.mark.requirement("A-tools-13")
async def test_32_unread_messages_arrive_whole_over_several_calls(home: Path):
    texts = [f"{number:04}".ljust(7_000, "x") for number in range(32)]
    async with agents(home) as (alice, bob):
        for text in texts:
            await bob.call("message_peer", target=alice.target, message=text)
        await until_async(lambda: alice.holds(32))

        found: list[str] = []
        more = True
        while more:
            answer = await alice.call("peer_messages")
            given = [message["text"] for message in answer["messages"]]
            assert 0 < sum(len(text.encode()) for text in given) <= READ_BYTES == 24 * 1024
            found += given
            more = answer.get("more", False)
            assert more == (len(found) < 32)
        assert found == texts
        assert await alice.texts() == []


@pytest.mark.requirement("A-tools-14")
@pytest.mark.parametrize("letter", ["x", "é", "漢", "😀"])
async def test_a_text_longer_than_one_result_comes_whole_in_parts(home: Path, letter: str):
    text = "".join(f"{number:05}{letter}" for number in range(9_000))
    async with agents(home) as (alice, bob):
        await bob.call("message_peer", target=alice.target, message="makes the mailbox")
        await alice.texts(wait_ms=5_000)
        await deliver(alice, "a-long-one", text)

        [message] = (await alice.call("peer_messages"))["messages"]
        parts = [message["text"]]
        while "next_offset" in message:
            offset = message["next_offset"]
            [message] = (await alice.call("peer_messages", message_id="a-long-one", offset=offset))[
                "messages"
            ]
            parts.append(message["text"])
        assert "".join(parts) == text
        assert len(parts) > 2
        assert all(len(part.encode()) <= READ_BYTES for part in parts)


# --- what a tool says of itself --------------------------------------------------------------------


@pytest.mark.requirement("A-tools-15")
async def test_a_message_takes_files_and_a_lifetime_each_alone_and_both_together(home: Path):
    attached = home / "plan.txt"
    attached.write_text("the plan\n", encoding="utf-8")
    files, lifetime = {"files": [str(attached)]}, {"expires_in_ms": 600_000}
    async with agents(home) as (alice, bob):
        for more in (files, lifetime, files | lifetime):
            sent = await alice.call("message_peer", target=bob.target, message="see", **more)
            assert sent["status"] == "accepted"
            [message] = (await bob.call("peer_messages", message_id=sent["message_id"]))["messages"]
            assert [one["name"] for one in message.get("attachments", [])] == ["plan.txt"] * ("files" in more)
            rows = await bob.received()
            assert (
                [row.lifetime_ms is not None for row in rows if row.message_id == sent["message_id"]]
            ) == ["expires_in_ms" in more]
            await bob.call("list_peers")


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("list_peers", {"more": 1}),
    ("list_peers", {"scope": 1}),
    ("list_peers", {"query": ["x"]}),
    ("list_peers", {"query": None, "quary": "x"}),
    ("message_peer", {"target": "BOB", "message": "x", "from": "lead:0000000000"}),
    ("message_peer", {"target": "BOB", "message": "x", "sender": "me"}),
    ("message_peer", {"target": "BOB", "message": "x", "role": "manager"}),
    ("message_peer", {"target": "BOB", "message": "x", "call_id": "chosen"}),
    ("message_peer", {"target": "BOB", "message": "x", "files": "/etc/passwd"}),
    ("message_peer", {"target": "BOB", "message": "x", "expires_in_ms": "1"}),
    ("message_peer", {"target": "BOB", "message": "x", "expires_in_ms": True}),
    ("message_peer", {"target": ["BOB"], "message": "x"}),
    ("message_peer", {"target": "BOB", "message": {"text": "x"}}),
    ("message_peer", {"target": "BOB", "message": "x", "no_reply_needed": "yes"}),
    ("message_peer", {"target": "BOB", "message": "x", "no_reply_needed": 1}),
    ("message_peer", {"target": "BOB", "message": "x", "reply_to": 7}),
    ("peer_messages", {"sender": "BOB"}),
    ("peer_messages", {"person": True}),
    ("peer_messages", {"after": 0}),
    ("peer_messages", {"after": "-1"}),
    ("peer_messages", {"offset": "0"}),
    ("peer_messages", {"message_id": "../x"}),
    ("peer_messages", {"from": 1}),
]


@pytest.mark.requirement("A-tools-10")
@pytest.mark.parametrize(("tool", "arguments"), WRONG)
async def test_an_unknown_field_or_a_wrong_type_is_refused_before_any_effect(
    home: Path, tool: str, arguments: dict[str, Any]
):
    async with agents(home) as (alice, bob):
        await bob.call("message_peer", target=alice.target, message="waits")
        given = {name: bob.target if value == "BOB" else value for name, value in arguments.items()}

        refused = await refused_as_written(alice, tool, given)
        assert refused.code == "INVALID_PARAMS"
        assert refused.body["field"] in refused.message
        assert refused.message.isprintable()
        assert await alice.stored() == []
        assert await bob.texts() == []
        [row] = await alice.coordinator.mailbox.run(inbox.undelivered)
        assert row.handovers == 0


@pytest.mark.parametrize("name", ["send_message", "", "LIST_PEERS", None, 7, "session.purge"])
async def test_a_tool_that_does_not_exist_is_a_protocol_error(home: Path, name: object):
    async with an_agent(home, ALICE) as alice:
        with pytest.raises(McpError) as refused:
            await alice.client.request("tools/call", {"name": name, "arguments": {}})
        assert refused.value.code == -32602


@pytest.mark.requirement("A-tools-10")
async def test_the_name_of_an_unknown_field_is_shown_and_cannot_act(home: Path):
    async with an_agent(home, ALICE) as alice:
        refused = await refused_as_written(alice, "list_peers", {"\u202eeliF\x1b[31m\nx" * 100: 1})
        assert refused.code == "INVALID_PARAMS"
        for told in (refused.message, refused.body["field"]):
            assert "eliF" in told
            assert told.isprintable()
            assert len(told) < 1_000


@pytest.mark.parametrize("arguments", [[], ["x"], "", "x", 0, 7, False, True])
async def test_arguments_that_are_no_object_are_a_protocol_error(home: Path, arguments: object):
    async with an_agent(home, ALICE) as alice:
        with pytest.raises(McpError) as refused:
            await alice.client.request("tools/call", {"name": "list_peers", "arguments": arguments})
        assert refused.value.code == -32602


@pytest.mark.parametrize("more", [{}, {"arguments": None}, {"arguments": {}}])
async def test_a_tool_without_arguments_needs_none(home: Path, more: dict[str, Any]):
    async with an_agent(home, ALICE) as alice:
        result = await alice.client.request("tools/call", {"name": "list_peers", **more})
        assert result["isError"] is False


SHAPES: dict[str, type[adapter_params.Params]] = {
    "list_peers": adapter_params.ListParams,
    "message_peer": adapter_params.SendParams,
    "peer_messages": adapter_params.ReadParams,
}
VALUES: dict[str, list[Any]] = {
    "scope": ["machine", "world", 1],
    "query": ["x", "x" * 256, "", "x" * 257, 1],
    "cursor": ["x", "x" * 2_048, "", "x" * 2_049, 7],
    "target": ["lead:0000000000", "", 1],
    "message": ["x", "", [], 1.5],
    "reply_to": ["0-aZ", "x" * 128, "x" * 129, "", "a b", "é", 1],
    "topic": ["x", "x" * 256, "", "x" * 257, {}],
    "no_reply_needed": [True, False, 1, "true"],
    "after": ["0", "9" * 18, "9" * 19, "", "x", 1],
    "from": ["lead:0000000000", "", 1],
    "message_id": ["0-aZ", "", "_", 1],
    "offset": [0, 10**9, -1, 1.5, "1"],
    "wait_ms": [0, 30_000, -1, 30_001, "1"],
    "files": [[], ["a"], ["x" * 4_096] * 32, ["x"] * 33, [""], ["x" * 4_097], "a", [1]],
    "expires_in_ms": [1, 600_000, 0, -1, "1", 1.5, True],
    "attachment": ["1", "x" * 255, "x" * 256, "", 1],
}


@pytest.mark.parametrize(
    ("tool", "field", "value"),
    [
        (tool["name"], field, value)
        for tool in TOOLS
        for field in tool["inputSchema"]["properties"]
        for value in VALUES[field]
    ],
)
def test_the_schema_of_a_tool_says_what_it_takes(tool: str, field: str, value: object):
    [schema] = [one["inputSchema"] for one in TOOLS if one["name"] == tool]
    needed = {"target": "lead:0000000000", "message": "x"} if tool == "message_peer" else {}
    arguments = {**needed, field: value}
    try:
        checked(SHAPES[tool], arguments)
        taken = True
    except InvalidParams:
        taken = False

    assert jsonschema.Draft202012Validator(schema).is_valid(arguments) == taken


async def test_what_the_system_refuses_is_told_with_what_mends_it_and_is_no_fault(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def refusing(*_: object, **__: object) -> dict[str, Any]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with an_agent(home, ALICE) as alice:
        monkeypatch.setattr(alice.coordinator.listing, "page", refusing)
        refused = await alice.refused("list_peers")

    assert refused.body["code"] == "RECOVERY_REQUIRED"
    assert refused.body["hint"].startswith("Raise the limit on open files")
    assert not any(record.exc_info for record in caplog.records)
