"""The tools over the adapter API, for a host whose extension shows them: `session.tools` and `session.tool`.

They are the very tools of `herd mcp`, carried out by the same code; what a call hands over is held by the
extension's connection until it says that the host has it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from herd.coordinator.adapter_api import AdapterApi, Sessions
from herd.coordinator.adapter_params import Branches, Nothing, Params
from herd.core.errors import InvalidParams
from herd.core.limits import CALL_ID_CHARACTERS, METHOD_CHARACTERS
from herd.mail.wire import checked
from herd.mcp.protocol import ProtocolError
from herd.mcp.tools import Call, Tools
from herd.rpc.connection import Connection

_CALL_ID = "call_id"
_SHOWN = ("name", "description", "inputSchema")


class ToolParams(Params):
    """What `session.tool` takes."""

    name: Annotated[str, Field(min_length=1, max_length=METHOD_CHARACTERS)]
    arguments: Annotated[dict[str, Any], Field(default_factory=dict)]
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID_CHARACTERS)] | None = None
    branches: Branches | None = None


class _Given(NamedTuple):
    """Names a call as the extension did."""

    def call_id(self, meta: Mapping[str, Any]) -> str | None:
        """See `herd.mcp.tools.CallIds`."""
        return meta.get(_CALL_ID)

    def text_alone(self, meta: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the seam's shape
        """See `herd.mcp.tools.CallIds`."""
        return False


class ToolApi:
    """An adapter API with the tools in front.

    Args:
        api: Serves every other method.
        sessions: Which session is served.
    """

    def __init__(self, api: AdapterApi, sessions: Sessions) -> None:
        self._api = api
        self._tools = Tools(sessions, _Given())

    async def request(
        self, connection: Connection | None, method: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        """See `Handler.request`."""
        if method == "session.tools":
            checked(Nothing, params)
            return {"tools": [{field: tool[field] for field in _SHOWN} for tool in self._tools.offered()]}
        if method == "session.tool":
            return await self._called(checked(ToolParams, params))
        return await self._api.request(connection, method, params)

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        """See `Handler.notification`."""
        self._api.notification(connection, method, params)

    async def unsent(
        self, connection: Connection, method: str, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        """See `Handler.unsent`."""
        await self._api.unsent(connection, method, params, result)

    def ended(self) -> None:
        """See `AdapterApi.ended`."""
        self._api.ended()

    async def _called(self, wanted: ToolParams) -> dict[str, Any]:
        params = {"name": wanted.name, "arguments": wanted.arguments, "_meta": {_CALL_ID: wanted.call_id}}
        try:
            result = await Call(self._tools, self._api, branches=wanted.branches).run(params)
        except ProtocolError as error:
            raise InvalidParams(str(error)) from None
        messages = result["structuredContent"].get("messages", [])
        return {
            "text": result["content"][0]["text"],
            "is_error": result["isError"],
            "message_ids": [message["message_id"] for message in messages],
        }
