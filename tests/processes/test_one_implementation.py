"""Behind MCP tools, a host's extension and the command line stands one implementation; who writes where."""

import json
from typing import Any

import pytest

from herd.core.errors import InvalidParams
from herd.core.limits import DEFAULT_LIMITS
from herd.mail.header import NOTICE
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.herd_session import WAIT_S

C4 = "\x1b[31mred\x1b[0m \x1b]0;owned\x07 \u202eevil\u202c"


REFUSED: list[tuple[str, dict[str, Any], tuple[str, ...], str]] = [
    (
        "message_peer",
        {"target": "lead:0000000000", "message": "x"},
        ("send", "lead:0000000000", "x"),
        "UNKNOWN_TARGET",
    ),
    (
        "message_peer",
        {"target": "BOB", "message": "x", "files": ["/no/such/file"]},
        ("send", "BOB", "x", "--file", "/no/such/file"),
        "INVALID_PARAMS",
    ),
    (
        "message_peer",
        {"target": "BOB", "message": "x", "expires_in_ms": DEFAULT_LIMITS.max_expiry_ms + 1},
        ("send", "BOB", "x", f"--expires-in={DEFAULT_LIMITS.max_expiry_ms + 1}"),
        "INVALID_PARAMS",
    ),
    (
        "message_peer",
        {"target": "BOB", "message": "x", "reply_to": "no-such-message"},
        ("send", "BOB", "x", "--reply-to", "no-such-message"),
        "INVALID_REPLY",
    ),
    (
        "message_peer",
        {"target": "BOB", "message": "x", "topic": "t" * 257},
        ("send", "BOB", "x", "--topic", "t" * 257),
        "INVALID_PARAMS",
    ),
    ("message_peer", {"target": "BOB", "message": ""}, ("send", "BOB", ""), "INVALID_PARAMS"),
    ("message_peer", {"target": "", "message": "x"}, ("send", "", "x"), "INVALID_PARAMS"),
    ("peer_messages", {"message_id": "no-such"}, ("inbox", "--message", "no-such"), "UNKNOWN_TARGET"),
    ("peer_messages", {"message_id": "a b"}, ("inbox", "--message", "a b"), "INVALID_PARAMS"),
]

GIVEN: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("list_peers", {}, ("peers",)),
    ("list_peers", {"query": "bob"}, ("peers", "bob")),
    ("list_peers", {"query": "nobody"}, ("peers", "nobody")),
    ("peer_messages", {"message_id": "GOT"}, ("inbox", "--message", "GOT")),
    ("message_peer", {"target": "BOB", "message": "sent"}, ("send", "BOB", "sent")),
]


def filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {field: filled(one, names) for field, one in value.items()}
    if isinstance(value, tuple):
        return tuple(filled(one, names) for one in value)
    return names.get(value, value) if isinstance(value, str) else value


def settled(answer: dict[str, Any]) -> dict[str, Any]:
    """Give an answer without what differs between two times of asking: a new message's id, the cursor."""
    changing = {"cursor", "receipts", *(["message_id"] if "status" in answer else [])}
    return {field: value for field, value in answer.items() if field not in changing}


@pytest.mark.requirement("A-tools-11")
def test_the_same_input_gives_the_same_over_mcp_an_extension_and_the_command_line(machine):
    """One session: served by `herd mcp`, then by `herd session` with commands inside its host."""
    bob = machine.session("codex", "bob", name="bob", parent=machine.new_host())
    names = {"BOB": bob.request("session.whoami")["target"]}
    over_mcp: list[dict[str, Any]] = []
    with HerdMcp(machine.home, "claude", "alice", parent=machine.host, name="alice") as mcp:
        mcp.open()
        mcp.call("list_peers")
        alice = mcp.call("list_peers")["self"]["target"]
        bob.request("session.list")
        names["GOT"] = bob.send(alice, f"for all three {C4}", topic="a topic")
        mcp.call("peer_messages", wait_ms=30_000)
        mcp.call("peer_messages")  # which is the evidence
        for tool, arguments in [(one[0], one[1]) for one in (*GIVEN, *REFUSED)]:
            over_mcp.append(mcp.request("tools/call", {"name": tool, "arguments": filled(arguments, names)}))
        assert mcp.end() == 0
    session = machine.session("claude", "alice", name="alice")

    for (tool, arguments, words), theirs in zip(GIVEN, over_mcp[: len(GIVEN)], strict=True):
        asked = {"name": tool, "arguments": filled(arguments, names)}
        extension = session.request("session.tool", **asked)
        command = machine.inside.run(*filled(words, names), "--json")
        assert theirs["isError"] is extension["is_error"] is False
        assert command.status == 0, command.stderr
        content = theirs["structuredContent"]
        assert settled(command.json) == settled(content)
        if tool != "message_peer":
            assert extension["text"] == theirs["content"][0]["text"]
        else:
            assert settled(json.loads(extension["text"])) == settled(content)

    for (tool, arguments, words, code), theirs in zip(REFUSED, over_mcp[len(GIVEN) :], strict=True):
        asked = {"name": tool, "arguments": filled(arguments, names)}
        extension = session.request("session.tool", **asked)
        command = machine.inside.run(*filled(words, names), "--json")
        assert theirs["isError"] is extension["is_error"] is True
        assert extension["text"] == theirs["content"][0]["text"]
        assert command.status != 0
        assert (command.refusal["code"], theirs["structuredContent"]["code"]) == (code, code)
        assert extension["text"].startswith(f"{code}: ")


@pytest.mark.requirement("A-boundary-13", "D-host-08", "C4")
def test_what_a_peer_writes_reaches_no_terminal_and_no_stdout_by_itself(machine):
    """The coordinator tells its adapter in frames and by counts alone; the text comes when asked for."""
    session = machine.session("pi", "bob")
    assert session.request("session.subscribe") == {"notice": NOTICE}
    target = session.request("session.whoami")["target"]
    with HerdMcp(machine.home, "codex", "carol", parent=machine.new_host()) as mcp:
        mcp.open()
        carol = mcp.call("list_peers")["self"]["target"]
        alice = machine.session("claude", "alice", parent=machine.new_host(), name=C4)
        alice.request("session.list")
        for to in (target, carol):
            alice.send(to, C4, topic=C4)
        told = session.line(wait_s=WAIT_S)
        assert told == {
            "jsonrpc": "2.0",
            "method": "peer_update",
            "params": {"unread": 1, "wake": True},
        }
        session.request("session.update", activity="idle")
        assert all(frame["method"] == "peer_update" for frame in session.others)
        before = len(mcp.raw)
        mcp.request("prompts/list")
        assert "evil" not in mcp.raw[before:].decode()
        assert mcp.others == []

        for one in (session, mcp, alice):
            assert one.stderr == ""
    assert "evil" in session.request("session.drain")["text"]


def test_an_extension_may_send_everything_at_once(machine):
    """The session is named by the first of four requests that come in one write."""
    session = machine.starting(None)
    bind = {"host": "pi", "session_id": "bob", "cwd": "/"}
    asked = [
        session.begin("session.bind", **bind),
        session.begin("session.subscribe"),
        session.begin("session.tool", name="list_peers"),
        session.begin("session.tools"),
    ]
    answers = [session.result(one) for one in asked]

    assert answers[1] == {"notice": NOTICE}
    assert answers[2]["is_error"] is False
    assert [tool["name"] for tool in answers[3]["tools"]] == ["list_peers", "message_peer", "peer_messages"]
    with pytest.raises(InvalidParams):
        session.request("session.tool", name="no_tool")
    assert session.end() == 0


def test_a_session_that_holds_mail_of_the_one_before_ends_in_order(machine):
    session = machine.starting(None)
    alice = machine.session("claude", "alice", parent=machine.new_host())
    bind = {"host": "pi", "cwd": "/"}
    target = session.request("session.bind", session_id="bob", **bind)["target"]
    session.request("session.subscribe")
    alice.request("session.list")
    alice.send(target, "held")
    assert session.request("session.drain")["message_ids"]
    session.request("session.bind", session_id="carol", **bind)

    assert session.end() == 0
    assert session.stderr == ""
