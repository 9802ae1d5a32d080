"""What a strict client of the Model Context Protocol writes, and what it makes of the answers. Pure.

It knows both eras, and holds every result of a tool to the schema that the server declared for it and to its
own text. It is ignorant of how frames travel.
"""

import json
from typing import Any, NamedTuple

import jsonschema

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
VERSION = "io.modelcontextprotocol/protocolVersion"

CANCELLED = "notifications/cancelled"


class Era(NamedTuple):
    """How a client speaks."""

    version: str
    modern: bool

    @property
    def envelope(self) -> dict[str, Any]:
        """What each request's params bear besides their own."""
        if not self.modern:
            return {}
        info = {"name": "tests", "version": "1"}
        words = {"protocolVersion": self.version, "clientInfo": info, "clientCapabilities": {}}
        return {"_meta": {f"io.modelcontextprotocol/{name}": value for name, value in words.items()}}


OLDER = Era("2025-06-18", modern=False)
HANDSHAKE = Era("2025-11-25", modern=False)
MODERN = Era("2026-07-28", modern=True)
ERAS = (OLDER, HANDSHAKE, MODERN)


class McpError(Exception):
    """A JSON-RPC error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]
        self.data = error.get("data")


class Refused(Exception):
    """A tool error: its structured content, whose code, message and hint stand in its text as well."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__(f"{body['code']}: {body['message']}")
        self.code: str = body["code"]
        self.message: str = body["message"]
        self.hint: str = body["hint"]
        self.body = body


def request(
    request_id: str | int, method: str, params: dict[str, Any] | None = None, *, era: Era
) -> dict[str, Any]:
    """Give a request as the era has it; `_meta` of the params is kept."""
    given = params or {}
    meta = {**era.envelope.get("_meta", {}), **given.get("_meta", {})}
    whole = {**given, **({"_meta": meta} if meta else {})}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": whole}


def notification(method: str, **params: Any) -> dict[str, Any]:
    """Give a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def opening(era: Era) -> tuple[str, dict[str, Any]]:
    """Give the method and params of a connection's first request."""
    if era.modern:
        return "server/discover", {}
    client = {"name": "tests", "version": "1"}
    return "initialize", {"protocolVersion": era.version, "capabilities": {}, "clientInfo": client}


def line(frame: Any) -> bytes:
    """Give a frame's bytes."""
    return json.dumps(frame, ensure_ascii=False).encode() + b"\n"


def result_of(answer: dict[str, Any], era: Era) -> dict[str, Any]:
    """Give the result of an answer that has what its era wants and nothing of the other.

    Raises:
        McpError: it is an error.
    """
    assert answer["jsonrpc"] == "2.0"
    if "error" in answer:
        assert answer.keys() == {"jsonrpc", "id", "error"}
        raise McpError(answer["error"])
    assert answer.keys() == {"jsonrpc", "id", "result"}
    result: dict[str, Any] = answer["result"]
    if era.modern:
        assert result["resultType"] == "complete"
        assert result["_meta"][SERVER_INFO]["name"] == "herd"
    else:
        assert result.keys().isdisjoint({"resultType", "ttlMs", "cacheScope"})
    return result


def content_of(result: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Give the structured content of a tool's result, once it fits the schema and its text says the same.

    Raises:
        Refused: it is a tool error.
    """
    (block,) = result["content"]
    assert block["type"] == "text"
    content: dict[str, Any] = result["structuredContent"]
    # A refusal too: some clients hold it to the schema as well.
    jsonschema.validate(content, schema, cls=jsonschema.Draft202012Validator)
    if result["isError"]:
        _check_refusal(block["text"], content)
        raise Refused(content)
    assert "code" not in content
    assert told_in(block["text"]) == content
    return content


def told_in(text: str) -> dict[str, Any]:
    """Read out of a result's text all that it says, as its structured content would say it."""
    *blocks, rest = text.split("\n\n")
    told: dict[str, Any] = json.loads(rest)
    if "receipts" not in told:
        assert not blocks
        return told
    return {**told, "messages": [_message_in(block) for block in blocks]}


def _message_in(block: str) -> dict[str, Any]:
    header, warning, text, beside = block.split("\n")
    message: dict[str, Any] = {**json.loads(beside), "text": json.loads(text)}
    assert message["message_id"] in header
    assert message["from"]["target"] in header
    assert "not from the user" in warning
    return message


def _check_refusal(text: str, body: dict[str, Any]) -> None:
    first, hint, *details = text.split("\n")
    assert first == f"{body['code']}: {body['message']}"
    assert hint == body["hint"]
    told = json.loads(details[0]) if details else {}
    words = {"code", "message", "hint"}
    assert told == {name: value for name, value in body.items() if name not in words}
