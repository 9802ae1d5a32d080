"""The reference page of the MCP tools and prompts: inputs and results read off `herd/mcp/schemas.py`.

What a field of a result means stands here, since a host that loads the schemas pays for every word in them; a
field that only one of the two knows is refused.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from docs.markdown import Undocumented, page, table
from herd.core.limits import MCP_FRAME_BYTES, READ_BYTES
from herd.mcp.prompts import PROMPTS
from herd.mcp.protocol import HANDSHAKE, MODERN
from herd.mcp.schemas import OUTPUTS, TOOLS

_INTRODUCTION = f"""\
`herd mcp --host NAME [--session ID] [--name N]` serves one agent's host over standard input and output, by
the Model Context Protocol: handshake clients ({" and ".join(HANDSHAKE)}) and modern ones ({MODERN}). A
line has at most {MCP_FRAME_BYTES:,} bytes. Without `--session` every tool answers `NO_SESSION`; while another
process serves the session, `SESSION_HELD`, until that one ends.

A result has everything in its text, and its structured content repeats it. A refusal is a tool error: the
code, what was wrong and what to do next ([errors](errors.md)), as text and as the structured content `code`,
`message`, `hint` and what the code brings along. An unknown field is refused before anything is done.

What `peer_messages` gave counts as delivered when the host makes its next tool call on that connection. A
call that the host cancels before that next one proves nothing, whether or not it was answered: what it
carried is given again, marked `again`. A cancellation that comes later takes nothing back. One result carries
at most {READ_BYTES:,} bytes of messages, and says `more` where there is more."""

_INPUTS = {
    (
        "list_peers",
        "scope",
    ): "only peers within this scope, none wider than the session's own, which holds where it is left out",
    ("message_peer", "topic"): "a few words on what it is about",
    ("message_peer", "no_reply_needed"): "tell the recipient that no answer is expected",
    ("message_peer", "message"): "the text",
    ("message_peer", "expires_in_ms"): (
        "give the message up where it is not delivered in so many milliseconds, at most `max_expiry_ms`; "
        "without it, it is good for ever"
    ),
    ("peer_messages", "wait_ms"): "milliseconds to wait where nothing is there",
}

_RESULTS: Mapping[str, Mapping[str, str]] = {
    "list_peers": {
        "self": "this session",
        "self.target": "its target",
        "self.name": "its name",
        "self.role": "its role",
        "self.kind": "its kind",
        "peers": "the sessions that it may write to, in the order of their targets",
        "peers.target": "the exact target, for `message_peer`",
        "peers.name": "its name; the end of the target behind it where several have that name",
        "peers.cwd": "the folder it works in",
        "peers.repo": "its repository",
        "peers.branch": "its branch",
        "peers.workspace_label": "the label of its workspace",
        "peers.activity": "what its host last said it does",
        "peers.since": "since when",
        "peers.run_of": "of a run: the target of its session",
        "peers.read_only": "whether it is a run that is only shown",
        "next_cursor": "the `cursor` of the next page; absent on the last one",
    },
    "message_peer": {
        "message_id": "the message's id",
        "target": "whom it goes to",
        "status": "`queued`, or the [state](message-states.md) that was reached while the call waited",
        "peer_running": "`false` where nobody runs there now",
        "undrained_minutes": "for how long the host there has left earlier mail lying, from 5 minutes on",
    },
    "peer_messages": {
        "messages": "the messages, oldest first",
        "messages.message_id": "the message's id, for `reply_to`",
        "messages.from": "the sender, as its connection proved it",
        "messages.from.target": "its target",
        "messages.from.name": "its name",
        "messages.from.role": "its role; `terminal` for a person's shell",
        "messages.from.run_of": "of a run: the target of its session",
        "messages.text": "the text, byte for byte",
        "messages.received_at": "when this session's mailbox accepted it",
        "messages.topic": "what it is about",
        "messages.reply_to": "the message of this session that it answers",
        "messages.correlation_id": "the message that its exchange began with, where that is another one",
        "messages.no_reply_needed": "its sender expects no answer",
        "messages.again": "it was given before and nothing proved that it arrived",
        "messages.attachments": "the files that came with it; each is read by `message_id` and `attachment`",
        "messages.attachments.name": "the file's name, or the reference of an attached result",
        "messages.attachments.bytes": "its length",
        "messages.attachment": "the file whose text this is, where one was asked for",
        "messages.attachment.name": "its name",
        "messages.attachment.bytes": "its length",
        "messages.next_offset": "the text goes on there: ask with `message_id` and this `offset`",
        "expired": "messages that came and were not delivered in time; their senders know",
        "expired.message_id": "such a message",
        "expired.from": "the target of its sender",
        "expired.at": "when it expired, in ISO 8601",
        "set_aside": "messages given twice without evidence: they come only by `message_id` or to a person",
        "unreadable": "messages whose text or files are damaged where they are stored",
        "receipts": "what became of messages that this session sent",
        "receipts.message_id": "the message's id",
        "receipts.target": "whom it went to",
        "receipts.status": "its [state](message-states.md)",
        "receipts.at": "when it reached that state",
        "receipts.outcome": "the code of a rejection",
        "cursor": "for `after`",
        "more": "there is more to read now",
        "timed_out": "whether `wait_ms` ran out with nothing to give",
    },
}


def tools_page() -> str:
    """Describe every tool and prompt.

    Raises:
        Undocumented: a field has no meaning here, or one described here does not exist.
    """
    parts = [part for tool in TOOLS for part in _tool_parts(tool)]
    prompts = [(f"`{one['name']}`", _arguments(one), one["description"]) for one in PROMPTS]
    return page(
        "Tools",
        _INTRODUCTION,
        *parts,
        "## Prompts",
        "A host that shows prompts offers these to the person.",
        table(("prompt", "arguments", "what it does"), prompts),
    )


def _tool_parts(tool: dict[str, Any]) -> list[str]:
    name = tool["name"]
    inputs = tool["inputSchema"]
    rows = [
        (
            f"`{field}`",
            _type(schema),
            "no" if field in inputs["required"] else "yes",
            _meaning(name, field, schema),
        )
        for field, schema in inputs["properties"].items()
    ]
    return [
        f"## `{name}`",
        tool["description"],
        table(("input", "type", "may be left out", "meaning"), rows),
        table(("result", "type", "may be absent", "meaning"), _result_rows(name)),
    ]


def _meaning(tool: str, field: str, schema: dict[str, Any]) -> str:
    meaning = schema.get("description") or _INPUTS.get((tool, field))
    if meaning is None:
        raise Undocumented(f"{tool}: {field} says nowhere what it means")
    return str(meaning)


def _result_rows(tool: str) -> list[tuple[str, str, str, str]]:
    fields, meanings = list(_fields(OUTPUTS[tool])), _RESULTS[tool]
    differing = {path for path, _, _ in fields} ^ set(meanings)
    if differing:
        raise Undocumented(
            f"{tool}: {', '.join(sorted(differing))} is in the schema or in docs/tools.py alone"
        )
    return [
        (f"`{path}`", _type(schema), "yes" if optional else "no", meanings[path])
        for path, schema, optional in fields
    ]


def _fields(schema: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, inner in schema["properties"].items():
        yield f"{above}{name}", inner, name not in schema["required"]
        inside = inner.get("items", inner)
        if "properties" in inside:
            yield from _fields(inside, f"{above}{name}.")


def _type(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    words = {"minLength": "not empty", "maxLength": "at most {} characters", "pattern": "`{}`"}
    words |= {"minimum": "from {}", "maximum": "to {}"}
    kind = _KINDS[schema["type"]]
    return ", ".join(
        [kind, *(text.format(schema[bound]) for bound, text in words.items() if bound in schema)]
    )


_KINDS = {
    "array": "list",
    "boolean": "true or false",
    "integer": "whole number",
    "object": "object",
    "string": "text",
}


def _arguments(prompt: dict[str, Any]) -> str:
    return ", ".join(f"`{one['name']}`" for one in prompt.get("arguments", []))
