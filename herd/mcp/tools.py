"""The tools an agent sees, and one call of one of them.

Schemas and descriptions are what a host loads into every session, so they are few and short. A result has
everything in its text, since some hosts show a model nothing else; the structured content repeats it.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from herd.coordinator.adapter_api import AdapterApi, Sessions
from herd.coordinator.capable import require_held
from herd.core.errors import CommunicationDisabled, HerdError, InvalidParams, InvalidRpc
from herd.core.limits import LINE_CHARACTERS, SHOWN_CHARACTERS
from herd.core.refusals import refusal_of
from herd.core.text import printable, quoted
from herd.mail.header import shown_to_model
from herd.mcp.protocol import INVALID_PARAMS, ProtocolError
from herd.mcp.schemas import CAPABILITY_OF, OUTPUTS, TOOLS, offered
from herd.presence.record import OF_SESSIONS

__all__ = ["OUTPUTS", "TOOLS", "Call", "Tools", "refusal_result"]

_log = logging.getLogger("herd.mcp")

_METHODS = {"list_peers": "session.list", "message_peer": "session.send", "peer_messages": "session.read"}
_INPUTS = {tool["name"]: frozenset(tool["inputSchema"]["properties"]) for tool in TOOLS}


class CallIds(Protocol):
    """Knows how a host names one tool call over the session's whole life, and what it makes of results."""

    def call_id(self, meta: dict[str, Any]) -> str | None:
        """Give the id that `_meta` of a call carries; None where the host sends none."""
        ...

    def text_alone(self, meta: dict[str, Any]) -> bool:
        """Tell by a request's `_meta` whether its client shows a model structured content instead of text."""
        ...


class Tools:
    """What every call needs.

    Args:
        sessions: Gives the coordinator that this process serves now.
        call_ids: The host's way of naming calls.
        capabilities: What the session is to have once there is one; all that sessions have where None.
    """

    def __init__(
        self,
        sessions: Sessions,
        call_ids: CallIds | None = None,
        *,
        capabilities: Collection[str] | None = None,
    ) -> None:
        self.sessions = sessions
        self.call_ids = call_ids
        self._capabilities = OF_SESSIONS if capabilities is None else capabilities

    def listed(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Give the tools as `tools/list` shows them to whoever asks with these params."""
        tools = self.offered()
        if not self.gives_text_alone(params):
            return tools
        return [{name: value for name, value in tool.items() if name != "outputSchema"} for tool in tools]

    def offered(self) -> list[dict[str, Any]]:
        """Give the tools for which the session has the capability: none while Herd is switched off."""
        try:
            held: Collection[str] = self.sessions.current().capabilities
        except CommunicationDisabled:
            return []
        except Exception:  # noqa: BLE001 - whatever it is may be mended at any time, and a call tells it
            held = self._capabilities
        return offered(held)

    def held(self) -> Collection[str]:
        """Give the capabilities of the session served now, or those it is to have."""
        try:
            return self.sessions.current().capabilities
        except HerdError:
            return self._capabilities

    def gives_text_alone(self, params: dict[str, Any]) -> bool:
        """Tell whether structured content is left out, so that the model gets the text with its header."""
        meta = params.get("_meta")
        return self.call_ids is not None and isinstance(meta, dict) and self.call_ids.text_alone(meta)


class Call:
    """One call of a tool, and what it handed over until there is evidence of it.

    Args:
        tools: What every call needs.
        api: Who holds what it hands over; the call itself where None.
        branches: Those of the host's conversation up to this call; None where it has none.
    """

    def __init__(
        self, tools: Tools, api: AdapterApi | None = None, *, branches: Sequence[str] | None = None
    ) -> None:
        self._branches = branches
        self._tools = tools
        self._api = api or AdapterApi(tools.sessions)
        self._settled = False

    @property
    def settled(self) -> bool:
        """See `herd.hosts.adapter.Handed`."""
        return self._settled

    @property
    def holds(self) -> bool:
        """Whether it handed over messages of which nothing is proved."""
        return self._api.holds

    async def run(self, params: dict[str, Any]) -> dict[str, Any]:
        """Carry it out and give the result, shaped for its client; see `_run`.

        Raises:
            ProtocolError: there is no such tool, or the arguments are no object.
        """
        result = await self._run(params)
        if self._tools.gives_text_alone(params):
            del result["structuredContent"]
        return result

    async def _run(self, params: dict[str, Any]) -> dict[str, Any]:
        """Carry it out and give the result; a refusal is a result too, and so is a fault of ours.

        Raises:
            ProtocolError: there is no such tool, or the arguments are no object.
        """
        name, arguments = _named(params)
        try:
            if name in CAPABILITY_OF:
                require_held(self._tools.held(), name, CAPABILITY_OF[name])
            return _result(name, await self._answer(name, arguments, params))
        except HerdError as refusal:
            return refusal_result(refusal)
        except asyncio.CancelledError:
            # Passed on if this call was cancelled. Otherwise something that it waited for was, such as a
            # session that ended, and the host is owed an answer.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return refusal_result(_fault(name))
        except OSError as fault:
            return refusal_result(refusal_of(fault) or _fault(name))
        except Exception:  # noqa: BLE001 - `_fault` logs it, and no fault of one call ends the others
            return refusal_result(_fault(name))

    async def proved(self, evidence: str = "the host's next tool call") -> None:
        """Take it as proved that the host has what this call handed over."""
        self._settled = True
        await self._api.proved(evidence)

    def take_back(self, *, excused: bool = False) -> None:
        """Give back what this call handed over.

        Args:
            excused: The host itself said that it does not have it.
        """
        self._settled = True
        self._api.ended(excused=excused)

    async def put_back(self) -> None:
        """Give back what this call handed over as if it never had: it did not reach the session."""
        self._settled = True
        await self._api.put_back()

    def named(self, params: dict[str, Any]) -> str | None:
        """Give the host's own name of this call, from what it was called with; None where it has none."""
        meta = params.get("_meta")
        known = self._tools.call_ids
        return known.call_id(meta) if known is not None and isinstance(meta, dict) else None

    async def _answer(self, name: str, arguments: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        for field in arguments.keys() - _INPUTS[name]:
            shown = quoted(field[:SHOWN_CHARACTERS])
            raise InvalidParams(f"{shown}: is no field of {name}", field=printable(field))
        if name == "message_peer":
            arguments = {**arguments, **self._call_id(params)}
            if self._branches is not None:
                arguments["branches"] = self._branches
        return await self._api.request(None, _METHODS[name], arguments)

    def _call_id(self, params: dict[str, Any]) -> dict[str, str]:
        call_id = self.named(params)
        return {} if call_id is None else {"call_id": call_id}


def _named(params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Give the tool that is called and its arguments.

    Raises:
        ProtocolError: there is no such tool, or the arguments are no object.
    """
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or name not in {*_METHODS, *CAPABILITY_OF}:
        raise ProtocolError(INVALID_PARAMS, f"there is no tool {str(name)[:64]!r}")
    if arguments is None:  # some hosts say so that there are none
        arguments = {}
    if not isinstance(arguments, dict):
        raise ProtocolError(INVALID_PARAMS, "arguments is an object")
    return name, arguments


def _result(name: str, answer: dict[str, Any]) -> dict[str, Any]:
    text = _read_text(answer) if name == "peer_messages" else _json(answer)
    return {"content": [{"type": "text", "text": text}], "structuredContent": answer, "isError": False}


def refusal_result(refusal: HerdError) -> dict[str, Any]:
    """Give a refusal as the result of a tool: code, what was wrong, what to do next, and its details."""
    body = refusal.to_tool()
    lines = [f"{refusal.code}: {refusal.message}", refusal.next_step]
    if refusal.details:
        lines.append(_json(refusal.details))
    text = "\n".join(printable(line, LINE_CHARACTERS) for line in lines)
    return {"content": [{"type": "text", "text": text}], "structuredContent": body, "isError": True}


def _fault(name: str) -> InvalidRpc:
    """Log the exception being handled, and give what the host is told of it."""
    fault = secrets.token_hex(4)
    _log.exception("mcp.call.failed fault=%s tool=%s", fault, name)
    return InvalidRpc(f"internal fault {fault}; nothing that was accepted is lost")


def _read_text(answer: dict[str, Any]) -> str:
    """Give what a read gave: each message under its header, then the rest of the answer as JSON."""
    rest = {field: value for field, value in answer.items() if field != "messages" or not value}
    messages = [
        f"{shown_to_model(message)}\n{_json(_beside_the_text(message))}" for message in answer["messages"]
    ]
    return "\n\n".join([*messages, _json(rest)])


def _beside_the_text(message: dict[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in message.items() if field != "text"}


def _json(value: Any) -> str:
    """Give a value as one line of JSON in which no foreign character can act on a terminal or a reader."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {_json(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return json.dumps(value)
