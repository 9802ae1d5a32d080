"""The adapter API: what a session's own host, hooks and command lines may ask, as `session.*`.

The same methods are served on the stdio of `herd session` and on the instance's socket behind
`session.authenticate`. Every shape is strict: an unknown field is refused before anything is done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from herd.coordinator.delivery import Query, shape_message, shape_receipt
from herd.coordinator.sending import Submission
from herd.core.clock import shown_time
from herd.core.errors import InvalidParams, MethodNotFound
from herd.core.identity import TERMINAL
from herd.core.limits import (
    CALL_ID_CHARACTERS,
    CURSOR_CHARACTERS,
    CWD_CHARACTERS,
    LABEL_CHARACTERS,
    QUERY_CHARACTERS,
    READ_WAIT_MS,
    TOPIC_CHARACTERS,
)
from herd.mail.outbox import Outgoing
from herd.mail.receipts import PENDING
from herd.mail.wire import MessageId, checked
from herd.rpc.connection import Connection

if TYPE_CHECKING:
    from herd.coordinator.coordinator import Coordinator

Label = Annotated[str, Field(min_length=1, max_length=LABEL_CHARACTERS)]
Cwd = Annotated[str, Field(min_length=1, max_length=CWD_CHARACTERS)]
Target = Annotated[str, Field(min_length=1, max_length=LABEL_CHARACTERS)]
Digits = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]


class Params(BaseModel):
    """A strict shape in our own spelling."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Nothing(Params):
    """No field at all."""


class BindParams(Params):
    """What `session.bind` takes."""

    host: str
    session_id: str
    created: str = ""
    cwd: Cwd
    name: Label | None = None


class UpdateParams(Params):
    """What `session.update` takes; absent fields stay as they are."""

    cwd: Cwd | None = None
    name: Label | None = None
    activity: Annotated[str, Field(pattern="^(idle|working|waiting|away)$")] | None = None


class ListParams(Params):
    """What `session.list` takes."""

    scope: Annotated[str, Field(pattern="^machine$")] = "machine"
    query: Annotated[str, Field(min_length=1, max_length=QUERY_CHARACTERS)] | None = None
    cursor: Annotated[str, Field(min_length=1, max_length=CURSOR_CHARACTERS)] | None = None


class SendParams(Params):
    """What `session.send` takes."""

    target: Target
    message: Annotated[str, Field(min_length=1)]
    reply_to: MessageId | None = None
    topic: Annotated[str, Field(min_length=1, max_length=TOPIC_CHARACTERS)] | None = None
    no_reply_needed: bool = False
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID_CHARACTERS)] | None = None


class ReadParams(Params):
    """What `session.read` takes. `sender` is spelt `from` outside."""

    after: Digits | None = None
    sender: Target | None = Field(default=None, alias="from")
    reply_to: MessageId | None = None
    message_id: MessageId | None = None
    offset: Annotated[int, Field(ge=0)] = 0
    wait_ms: Annotated[int, Field(ge=0, le=READ_WAIT_MS)] = 0


class ConfirmParams(Params):
    """What `session.confirm` takes: the messages, and with them the receipts that were read, if only those."""

    message_ids: Annotated[list[MessageId], Field(max_length=64)]
    evidence: Label


class MessageParams(Params):
    """What `session.status` and `session.cancel` take."""

    message_id: MessageId


Bind = Callable[[BindParams], "Awaitable[Coordinator]"]


class Sessions(Protocol):
    """Knows which session is served now."""

    def current(self) -> "Coordinator":
        """Give its coordinator.

        Raises:
            NoSession, SessionHeld: there is none to serve, and why.
        """
        ...


class Settled(NamedTuple):
    """One session and no other: behind its own socket."""

    coordinator: "Coordinator"

    def current(self) -> "Coordinator":
        """See `Sessions.current`."""
        return self.coordinator


class AdapterApi:
    """Serves one adapter: one stdio, one authenticated connection, or one call of a tool.

    Args:
        sessions: Which session is served.
        bind: Serves the session that `session.bind` names; None where the session is settled.
        command: Whether the caller is a person's command line: it may name anything that resolves now, and
            nothing counts as shown by it.
    """

    def __init__(self, sessions: Sessions, bind: Bind | None = None, *, command: bool = False) -> None:
        self._sessions = sessions
        self._bind = bind
        self._command = command
        self._binding = asyncio.Lock()
        self._served: set[Coordinator] = set()

    async def request(
        self,
        connection: Connection | None,  # noqa: ARG002 - one adapter, one object: it need not know which
        method: str,
        params: dict[str, Any],
    ) -> dict[str, Any]:
        """See `Handler.request`; an adapter inside the coordinator's own process has no connection."""
        if method == "session.bind":
            return await self._bound(checked(BindParams, params))
        serve = _METHODS.get(method)
        if serve is None:
            raise MethodNotFound(f"there is no method {method}")
        shape, call = serve
        wanted = checked(shape, params)
        async with self._binding:  # a request behind session.bind waits for it
            coordinator = self._sessions.current()
        self._served.add(coordinator)
        result: dict[str, Any] = await call(self, coordinator, wanted)
        return result

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        """Drop it: nothing is done without an answer."""

    def ended(self) -> None:
        """Give back what this adapter holds without evidence; call it when it has ended."""
        for coordinator in self._served:
            coordinator.delivery.release(self)

    async def proved(self, evidence: str) -> None:
        """Record evidence that the host has everything this adapter was handed."""
        for coordinator in self._served:
            await coordinator.delivery.confirm_held(self, evidence)

    async def _bound(self, params: BindParams) -> dict[str, Any]:
        async with self._binding:
            if self._bind is None:
                raise InvalidParams("this connection's session is settled", field="session_id")
            me = (await self._bind(params)).own
        return {"target": me.target, "role": me.role, "kind": me.kind, "instance_id": me.instance_id}

    async def _update(self, coordinator: "Coordinator", params: UpdateParams) -> dict[str, Any]:
        coordinator.update(cwd=params.cwd, name=params.name, activity=params.activity)
        return {}

    async def _whoami(self, coordinator: "Coordinator", _: Nothing) -> dict[str, Any]:
        return coordinator.whoami()

    async def _list(self, coordinator: "Coordinator", params: ListParams) -> dict[str, Any]:
        coordinator.retry()
        page = await coordinator.listing.page(params.query, params.cursor, show=not self._command)
        me = {field: value for field, value in coordinator.whoami().items() if field != "build"}
        return {"self": me, **page}

    async def _send(self, coordinator: "Coordinator", params: SendParams) -> dict[str, Any]:
        sent = await coordinator.sending.send(Submission(**params.model_dump()), command=self._command)
        state = sent.row.receipt.state
        answer: dict[str, Any] = {
            "message_id": sent.row.message_id,
            "target": sent.row.recipient,
            "status": "queued" if state == PENDING else state,
        }
        return answer if sent.running else {**answer, "peer_running": False}

    async def _read(self, coordinator: "Coordinator", params: ReadParams) -> dict[str, Any]:
        query = Query(
            after=None if params.after is None else int(params.after),
            sender=params.sender,
            reply_to=params.reply_to,
            message_id=params.message_id,
            offset=params.offset,
            wait_ms=params.wait_ms,
        )
        person = self._command and coordinator.own.session.host == TERMINAL
        handed = await coordinator.delivery.read(self, query, person=person)
        answer: dict[str, Any] = {
            "messages": [shape_message(row, params.offset) for row in handed.messages],
            "receipts": [shape_receipt(row) for row in handed.receipts],
            "cursor": str(handed.cursor),
            "timed_out": bool(params.wait_ms) and not (handed.messages or handed.receipts),
        }
        return {**answer, "more": True} if handed.more else answer

    async def _confirm(self, coordinator: "Coordinator", params: ConfirmParams) -> dict[str, Any]:
        await coordinator.delivery.confirm(self, params.message_ids, params.evidence)
        return {}

    async def _status(self, coordinator: "Coordinator", params: MessageParams) -> dict[str, Any]:
        return shape_status(*await coordinator.status(params.message_id))

    async def _cancel(self, coordinator: "Coordinator", params: MessageParams) -> dict[str, Any]:
        return shape_status(await coordinator.cancel(params.message_id))


def shape_status(row: Outgoing, refusal: str | None = None) -> dict[str, Any]:
    """Give a receipt as `session.status` and `herd status` show it; absent steps are left out.

    Args:
        row: The outbox row.
        refusal: The code of the last refusal, for a message that is still pending and was refused.
    """
    receipt = row.receipt
    outcome = refusal if receipt.state == PENDING else receipt.outcome
    times = {
        step: shown_time(getattr(receipt, step)) for step in ("accepted_at", "delivered_at", "replied_at")
    }
    shape = {**receipt._asdict(), **times, "outcome": outcome}
    return {name: value for name, value in shape.items() if value is not None}


_METHODS: dict[str, tuple[type[Params], Any]] = {
    "session.update": (UpdateParams, AdapterApi._update),  # noqa: SLF001 - the table of this class
    "session.whoami": (Nothing, AdapterApi._whoami),  # noqa: SLF001
    "session.list": (ListParams, AdapterApi._list),  # noqa: SLF001
    "session.send": (SendParams, AdapterApi._send),  # noqa: SLF001
    "session.read": (ReadParams, AdapterApi._read),  # noqa: SLF001
    "session.confirm": (ConfirmParams, AdapterApi._confirm),  # noqa: SLF001
    "session.status": (MessageParams, AdapterApi._status),  # noqa: SLF001
    "session.cancel": (MessageParams, AdapterApi._cancel),  # noqa: SLF001
}
