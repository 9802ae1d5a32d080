"""Texts longer than one answer carries, put together page by page before they are shown and confirmed."""

from typing import Any

from herd.cli import output
from herd.cli.calling import Call
from herd.core.errors import HerdError


def whole_texts(call: Call, answer: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Give an answer of `session.read` with whole texts, and the ids of messages that are whole in it.

    A text of which a later page cannot be read keeps its `next_offset`, and why is said on standard error:
    what was not shown to its end is not to be confirmed.

    Args:
        call: Asks the session's coordinator.
        answer: As `session.read` gave it.
    """
    messages = [_whole(call, message) for message in answer["messages"]]
    cut = {message["message_id"] for message in messages if "next_offset" in message}
    # Evidence is given by id alone: of two messages with one id none is confirmed while one of them is cut.
    shown = [message["message_id"] for message in messages if message["message_id"] not in cut]
    return {**answer, "messages": messages}, shown


def _whole(call: Call, message: dict[str, Any]) -> dict[str, Any]:
    parts = [message["text"]]
    offset: int | None = message.get("next_offset")
    while offset is not None:
        try:
            page = _page(call, message, offset)
        except HerdError as fault:
            output.remark(f"message {message['message_id']} cannot be read on: {fault.message}")
            break
        if page is None:
            output.remark(f"message {message['message_id']} cannot be read on: it is not there any more")
            break
        parts.append(page["text"])
        offset = page.get("next_offset")
    rest = {} if offset is None else {"next_offset": offset}
    return {name: value for name, value in message.items() if name != "next_offset"} | {
        "text": "".join(parts),
        **rest,
    }


def _page(call: Call, message: dict[str, Any], offset: int) -> dict[str, Any] | None:
    # Two senders may have given one id; only the page of this sender belongs to this text.
    pages = call("session.read", {"message_id": message["message_id"], "offset": offset})["messages"]
    return next((one for one in pages if one["from"]["target"] == message["from"]["target"]), None)
