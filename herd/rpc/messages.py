"""JSON-RPC 2.0 messages: which objects are one, and how one is built.

It owns the four shapes and their bounds; which methods exist, what their params hold and what a result
means is decided above. Batches do not exist here.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from herd.core.errors import HerdError, InvalidRpc
from herd.core.limits import METHOD_CHARACTERS, RPC_ID_CHARACTERS, SAFE_INTEGER

RpcId: TypeAlias = str | int | None
"""What pairs a reply with its request; null where no id could be read."""


class Request(NamedTuple):
    """A call that is owed a reply."""

    id: RpcId
    method: str
    params: dict[str, Any]


class Notification(NamedTuple):
    """A call that is owed nothing, and so proves nothing."""

    method: str
    params: dict[str, Any]


class Success(NamedTuple):
    """The reply to a request that was carried out."""

    id: RpcId
    result: Any


class Failure(NamedTuple):
    """The reply to a request that was refused; `error` is the wire's error object."""

    id: RpcId
    error: dict[str, Any]


Message: TypeAlias = Request | Notification | Success | Failure


def parse(frame: Mapping[str, Any]) -> Message:
    """Read one frame as a message.

    Raises:
        InvalidRpc: it is none of the four shapes; the message names the member that is wrong.
    """
    if frame.get("jsonrpc") != "2.0":
        raise InvalidRpc("jsonrpc is not '2.0'")
    members = frame.keys() - {"jsonrpc"}
    if "method" in members:
        return _parsed_call(frame, members)
    if members == {"id", "result"}:
        return Success(_checked_id(frame["id"]), frame["result"])
    if members == {"id", "error"}:
        return Failure(_checked_id(frame["id"]), _checked_error(frame["error"]))
    raise InvalidRpc("the frame is no request, no notification, no success and no failure")


def request(request_id: RpcId, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Give the frame of a request."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Give the frame of a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def success(request_id: RpcId, result: Any) -> dict[str, Any]:
    """Give the frame that answers a request with its result."""
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def failure(request_id: RpcId, error: HerdError) -> dict[str, Any]:
    """Give the frame that answers a request with a refusal; id null where the request could not be read."""
    return {"jsonrpc": "2.0", "id": request_id, "error": error.to_wire()}


def _parsed_call(frame: Mapping[str, Any], members: set[str]) -> Request | Notification:
    if not members <= {"id", "method", "params"}:
        raise InvalidRpc("the frame has members beside id, method and params")
    method = frame["method"]
    if not isinstance(method, str) or not 1 <= len(method) <= METHOD_CHARACTERS or not _is_text(method):
        raise InvalidRpc(f"method is no text of 1 to {METHOD_CHARACTERS} characters")
    params = frame.get("params", {})
    if not isinstance(params, dict):
        raise InvalidRpc("params is no object")
    if "id" in members:
        return Request(_checked_id(frame["id"]), method, params)
    return Notification(method, params)


def _checked_id(value: Any) -> RpcId:
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= RPC_ID_CHARACTERS and _is_text(value):
        return value
    # `type`, since a bool is an int to isinstance, and True would be found under the id 1.
    if type(value) is int and abs(value) <= SAFE_INTEGER:
        return value
    raise InvalidRpc(f"id is not null, a text of at most {RPC_ID_CHARACTERS} characters or a safe integer")


def _is_text(value: str) -> bool:
    # An id or method with a lone surrogate could never be put into the answer.
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _checked_error(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not {"code", "message"} <= value.keys() <= {"code", "message", "data"}:
        raise InvalidRpc("error is no object of code, message and data")
    if type(value["code"]) is not int:
        raise InvalidRpc("error.code is no integer")
    if not isinstance(value["message"], str):
        raise InvalidRpc("error.message is no text")
    return value
