"""The two formats in which a host asks a model: Anthropic Messages and OpenAI Chat Completions.

Only what Claude Code and Pi need of them, streaming and not.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.fakes.model_script import Answer, Part

_ids = count(1)


def anthropic_parts(body: dict[str, Any]) -> Iterator[Part]:
    """Give the texts and tool results of an Anthropic request in their order."""
    for block in _blocks(body.get("system")):
        yield Part("system", block.get("text", ""), -1)
    for place, message in enumerate(body.get("messages", [])):
        for block in _blocks(message["content"]):
            if block["type"] == "text":
                yield Part(message["role"], block["text"], place)
            elif block["type"] == "tool_result":
                text = "\n".join(part.get("text", "") for part in _blocks(block.get("content")))
                yield Part("tool", text, place)


def openai_parts(body: dict[str, Any]) -> Iterator[Part]:
    """Give the texts and tool results of an OpenAI request in their order."""
    for place, message in enumerate(body.get("messages", [])):
        role = "system" if message["role"] == "developer" else message["role"]
        text = "\n".join(block.get("text", "") for block in _blocks(message.get("content")))
        if text or role == "tool":
            yield Part(role, text, place)


def _blocks(content: Any) -> list[dict[str, Any]]:
    if not content:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def anthropic_tools(body: dict[str, Any]) -> list[str]:
    """Give the names of the tools that an Anthropic request offers."""
    return [tool["name"] for tool in body.get("tools") or []]


def openai_tools(body: dict[str, Any]) -> list[str]:
    """Give the names of the tools that an OpenAI request offers."""
    return [tool["function"]["name"] for tool in body.get("tools") or []]


def anthropic_message(answer: Answer, model: str) -> dict[str, Any]:
    """Give an answer as one Anthropic message."""
    content: list[dict[str, Any]] = [
        {"type": "tool_use", "id": f"toolu_{next(_ids)}", "name": call.name, "input": call.arguments}
        for call in answer.calls
    ]
    return {
        "id": f"msg_{next(_ids)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content or [{"type": "text", "text": answer.text}],
        "stop_reason": "tool_use" if content else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def anthropic_events(message: dict[str, Any]) -> Iterator[str]:
    """Give the same message as server-sent events."""
    start = {**message, "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": start})
    for index, block in enumerate(message["content"]):
        at = {"index": index}
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event({"type": "content_block_start", **at, "content_block": empty})
        yield _event({"type": "content_block_delta", **at, "delta": delta})
        yield _event({"type": "content_block_stop", **at})
    end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}})
    yield _event({"type": "message_stop"})


def _event(data: dict[str, Any]) -> str:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def openai_message(answer: Answer, model: str) -> dict[str, Any]:
    """Give an answer as one OpenAI chat completion."""
    calls = [
        {
            "id": f"call_{next(_ids)}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for call in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else answer.text}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": f"chatcmpl_{next(_ids)}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def openai_events(completion: dict[str, Any]) -> Iterator[str]:
    """Give the same completion as server-sent events."""
    choice = completion["choices"][0]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(delta["tool_calls"])]
    chunk = {**completion, "object": "chat.completion.chunk"}
    del chunk["usage"]
    first = {"index": 0, "delta": delta, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    for choices in ([first], [last]):
        yield f"data: {json.dumps({**chunk, 'choices': choices})}\n\n"
    yield f"data: {json.dumps({**chunk, 'choices': [], 'usage': completion['usage']})}\n\n"
    yield "data: [DONE]\n\n"
