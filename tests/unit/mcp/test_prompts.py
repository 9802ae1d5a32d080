"""The prompts that a person finds: which there are, and what becomes of what the person types into them."""

from typing import Any

import pytest

from herd.mcp.prompts import PROMPTS, prompt_text
from herd.mcp.protocol import ProtocolError


def told(name: str, **arguments: str) -> str:
    result = prompt_text({"name": name, "arguments": arguments})
    [message] = result["messages"]
    assert message["role"] == "user"
    assert message["content"]["type"] == "text"
    text: str = message["content"]["text"]
    return text


@pytest.mark.requirement("D-mcp-10")
def test_a_person_finds_peers_inbox_and_send():
    assert [prompt["name"] for prompt in PROMPTS] == ["peers", "inbox", "send"]
    assert all(prompt["description"] for prompt in PROMPTS)
    assert "list_peers" in told("peers")
    assert "peer_messages" in told("inbox")
    assert "message_peer" in told("send", target="web", message="hello")


def test_the_inbox_does_not_let_the_agent_act_on_what_it_reads():
    assert "not from me" in told("inbox")


def test_prompts_without_arguments_need_none():
    assert prompt_text({"name": "peers"})["description"] == PROMPTS[0]["description"]


@pytest.mark.parametrize(
    ("target", "message"),
    [("web", "hello"), ("{message}", "{target}"), ("{0}", "{}"), ("{{", "}}"), ("%s", "\\1"), ("é", "😀\n")],
)
def test_what_a_person_types_stands_in_the_text_as_it_is(target: str, message: str):
    text = told("send", target=target, message=message)

    assert text.endswith(f"tell it by message_peer: {message}")
    assert f"that {target} means" in text


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"name": "nobody"},
        {"name": ["peers"]},
        {"name": "peers", "arguments": []},
        {"name": "peers", "arguments": None},
        {"name": "send"},
        {"name": "send", "arguments": {"target": "x"}},
        {"name": "send", "arguments": {"target": "x", "message": 7}},
    ],
)
def test_what_no_prompt_can_be_made_of_is_refused(params: dict[str, Any]):
    with pytest.raises(ProtocolError) as refused:
        prompt_text(params)

    assert refused.value.code == -32602
