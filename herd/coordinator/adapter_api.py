"""The adapter API: what a session's own host, hooks and command lines may ask, as `session.*`.

The same methods are served on the stdio of `herd session` and on the instance's socket behind
`session.authenticate`. Every shape is strict: an unknown field is refused before anything is done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from herd.coordinator.adapter_params import (
    BindParams,
    BindRunParams,
    ComposeParams,
    ConfirmParams,
    DraftParams,
    DrainParams,
    EndRunParams,
    ForRun,
    HistoryParams,
    ListParams,
    MessageParams,
    Nothing,
    Params,
    PurgeParams,
    ReadParams,
    ReleaseParams,
    ResultParams,
    SendParams,
    SubscribeParams,
    TextParams,
    UpdateParams,
    WaitingParams,
)
from herd.coordinator.capable import require_capable
from herd.coordinator.delivery import Handed, Query
from herd.coordinator.pieces import Pieces
from herd.coordinator.registering import Made
from herd.coordinator.runs.channel import RunChannel
from herd.coordinator.runs.requests import require_delegated
from herd.coordinator.runs.tree import Wanted
from herd.coordinator.sending import Sent, Submission
from herd.coordinator.shapes import (
    shape_attachment,
    shape_expired,
    shape_message,
    shape_receipt,
    shape_status,
    shape_waiting,
)
from herd.coordinator.subscription import Subscription
from herd.core.errors import InvalidParams, MethodNotFound
from herd.core.identity import TERMINAL
from herd.core.limits import NAMED_IN_ONE_READ
from herd.mail.receipts import PENDING
from herd.mail.wire import checked
from herd.rpc.connection import Connection

if TYPE_CHECKING:
    from herd.coordinator.coordinator import Coordinator
    from herd.coordinator.runs.live import LiveRun

    Speaker: TypeAlias = Coordinator | LiveRun
    """Who asks: the session itself, or one of its runs. Both have the parts that serve a request."""

__all__ = ["AdapterApi", "BindParams", "Sessions", "Settled", "shape_status"]

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
        self._subscriptions: dict[str | None, Subscription] = {}
        self._runs = RunChannel()
        self._pieces = Pieces()
        self._connection: Connection | None = None

    async def request(
        self,
        connection: Connection | None,
        method: str,
        params: dict[str, Any],
    ) -> dict[str, Any]:
        """See `Handler.request`; an adapter inside the coordinator's own process has no connection."""
        if method == "session.bind":
            return await self._bound(checked(BindParams, params))
        try:
            return await self._served_by(connection, method, params)
        except BaseException:
            if method == "session.draft":
                self._pieces.refused()
            raise

    async def _served_by(
        self, connection: Connection | None, method: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        serve = _METHODS.get(method)
        if serve is None:
            raise MethodNotFound(f"there is no method {method}")
        shape, call = serve
        wanted = checked(shape, {field: value for field, value in params.items() if value is not None})
        async with self._binding:  # a request behind session.bind waits for it
            coordinator = self._sessions.current()
        require_capable(coordinator.capabilities, method, waits=getattr(wanted, "wait_ms", 0) > 0)
        self._served.add(coordinator)
        self._connection = connection  # only now: another request may have come while this one waited
        if method in _OF_PRESENCE:
            coordinator.renew()
        if isinstance(wanted, ForRun) and wanted.run is not None:
            live = self._runs.require(coordinator, wanted.run)
            require_delegated(live, method, wanted)
            return await self._runs.carried_out(live, connection, call(self, live, wanted))
        result: dict[str, Any] = await call(self, coordinator, wanted)
        return result

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        """Drop it: nothing is done without an answer."""

    async def unsent(
        self,
        connection: Connection,  # noqa: ARG002 - the seam's shape
        method: str,
        params: dict[str, Any],
        result: dict[str, Any],
    ) -> None:
        """See `Handler.unsent`: what an answer handed over stays undelivered, and was never handed over."""
        if method not in _HANDING_OVER:
            return
        ids = result.get("message_ids") or [one["message_id"] for one in result.get("messages", ())]
        run = params.get("run")
        for coordinator in self._served:
            speaker = coordinator if run is None else self._runs.require(coordinator, run)
            await speaker.delivery.unsent(self, ids)

    def ended(self, *, excused: bool = False) -> None:
        """Give back what this adapter holds without evidence; call it when it has ended.

        Args:
            excused: The host itself said that it does not have it.
        """
        for subscription in self._subscriptions.values():
            subscription.end()
        self._runs.end_all()
        for coordinator in self._served:
            coordinator.delivery.release(self, excused=excused)

    @property
    def holds(self) -> bool:
        """Whether this adapter holds messages without evidence."""
        return any(coordinator.delivery.holds(self) for coordinator in self._served)

    async def put_back(self) -> None:
        """Give back what this adapter holds as if it had never been handed over."""
        for coordinator in self._served:
            await coordinator.delivery.put_back(self)

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

    async def _bind_run(self, coordinator: "Coordinator", params: BindRunParams) -> dict[str, Any]:
        run = self._runs.bind(coordinator, Wanted(**params.model_dump()))
        return {"target": run.peer_id, "name": run.name, "capabilities": list(run.capabilities)}

    async def _end_run(self, coordinator: "Coordinator", params: EndRunParams) -> dict[str, Any]:
        await self._runs.end(coordinator, params.run)
        return {}

    async def _update(self, coordinator: "Coordinator", params: UpdateParams) -> dict[str, Any]:
        coordinator.update(**params.model_dump())
        return {}

    async def _whoami(self, coordinator: "Coordinator", _: Nothing) -> dict[str, Any]:
        return coordinator.whoami()

    async def _list(self, coordinator: "Speaker", params: ListParams) -> dict[str, Any]:
        coordinator.retry()
        page = await coordinator.listing.page(
            params.query, params.cursor, scope=params.scope, show=not self._command
        )
        # The answer is shown to models: where the session lives and what code runs it are no part of it.
        me = coordinator.whoami()
        return {
            "self": {
                field: me[field] for field in ("target", "name", "role", "kind", "run_of") if field in me
            },
            **page,
        }

    async def _send(self, coordinator: "Speaker", params: SendParams) -> dict[str, Any]:
        fields = params.model_dump(exclude={"drafted", "run"})
        fields["files"] = tuple(params.files or ())
        pieces = self._pieces.taken(needed=params.drafted)
        if params.drafted:
            fields["message"] = "".join([*pieces, params.message])
        kept: list[str] | None = pieces

        def queued() -> None:
            nonlocal kept
            kept = None

        try:
            await coordinator.delivery.require_let_through(params.reply_to)
            sent = await coordinator.sending.send(Submission(**fields), command=self._command, queued=queued)
        except BaseException:
            if kept is not None:
                self._pieces.give_back(kept)
            raise
        return self._told(coordinator, sent)

    async def _compose(self, coordinator: "Coordinator", params: ComposeParams) -> dict[str, Any]:
        from herd.coordinator.composing import compose  # only hosts with a composer need it

        composed = await compose(coordinator, params)
        if isinstance(composed, Sent):
            return {"sent": self._told(coordinator, composed)}
        return {"references": composed}

    async def _references(self, _: "Coordinator", params: TextParams) -> dict[str, Any]:
        from herd.coordinator.composing import found_in

        return found_in(params.text)

    def _told(self, coordinator: "Speaker", sent: Sent) -> dict[str, Any]:
        state = sent.row.receipt.state
        answer: dict[str, Any] = {
            "message_id": sent.row.message_id,
            "target": sent.row.recipient,
            "status": "queued" if state == PENDING else state,
        }
        coordinator.delivery.said(sent.row)
        if state == PENDING:
            return answer  # of a message that is still queued nothing is claimed about who has it
        # Of a run nobody can tell by its session's mail whether it takes its own.
        lying = None if sent.row.to_run else coordinator.undrained_at(sent.row.recipient_key)
        optional = {"peer_running": None if sent.running else False, "undrained_minutes": lying}
        return {**answer, **{field: value for field, value in optional.items() if value is not None}}

    async def _draft(self, coordinator: "Coordinator", params: DraftParams) -> dict[str, Any]:
        if params.first:
            self._pieces.begin()
        return {"bytes": self._pieces.add(params.text, coordinator.opening.limits.mailbox_payload_bytes)}

    async def _result(self, coordinator: "Coordinator", params: ResultParams) -> dict[str, Any]:
        return (await coordinator.registering.register(Made(**params.model_dump())))._asdict()

    async def _read(self, coordinator: "Speaker", params: ReadParams) -> dict[str, Any]:
        if params.offset and params.message_id is None:
            raise InvalidParams("offset goes on within one message: give its message_id", field="offset")
        if params.attachment is not None and params.message_id is None:
            raise InvalidParams(
                "attachment is a file of one message: give its message_id", field="attachment"
            )
        query = Query(
            after=None if params.after is None else int(params.after),
            sender=params.sender,
            reply_to=params.reply_to,
            message_id=params.message_id,
            offset=params.offset,
            attachment=params.attachment,
            wait_ms=params.wait_ms,
        )
        person = self._command and coordinator.own.session.host == TERMINAL
        handed = await coordinator.delivery.read(self, query, person=person)
        # However many there are, an answer has to fit into a frame; it names the first ones.
        set_aside = (await coordinator.delivery.set_aside())[:NAMED_IN_ONE_READ]
        answer: dict[str, Any] = {
            "messages": _shown(handed, params.offset),
            "receipts": [shape_receipt(row) for row in handed.receipts],
            "cursor": str(handed.cursor),
            "timed_out": bool(params.wait_ms) and not (handed.messages or handed.receipts or handed.expired),
        }
        optional: dict[str, Any] = {
            "more": handed.more,
            "set_aside": set_aside,
            "unreadable": coordinator.delivery.damaged[:NAMED_IN_ONE_READ],
            "expired": [shape_expired(event) for event in handed.expired],
        }
        return {**answer, **{field: value for field, value in optional.items() if value}}

    async def _confirm(self, coordinator: "Speaker", params: ConfirmParams) -> dict[str, Any]:
        await coordinator.delivery.confirm(self, params.message_ids, params.evidence)
        return {}

    async def _waiting(self, coordinator: "Speaker", params: WaitingParams) -> dict[str, Any]:
        rows, unreadable, more = await coordinator.delivery.waiting(review=params.review)
        answer = {"messages": [shape_waiting(row) for row in rows], "unreadable": unreadable, "more": more}
        optional: dict[str, Any] = {
            "set_aside": await coordinator.delivery.set_aside(),
            "held_back": await coordinator.delivery.held_back(),
        }
        return {**answer, **{field: value for field, value in optional.items() if value}}

    async def _let_through(self, coordinator: "Coordinator", _: Nothing) -> dict[str, Any]:
        count = await coordinator.delivery.held_back()
        coordinator.delivery.let_through()
        return {"let_through": count}

    async def _drain(self, coordinator: "Speaker", params: DrainParams) -> dict[str, Any]:
        return (await coordinator.delivery.drain(self, params.most))._asdict()

    async def _release(self, coordinator: "Speaker", params: ReleaseParams) -> dict[str, Any]:
        if params.counted:
            coordinator.delivery.release(self, params.message_ids, excused=True)
        else:
            await coordinator.delivery.put_back(self, params.message_ids)
        return {}

    async def _subscribe(self, coordinator: "Speaker", params: SubscribeParams) -> dict[str, Any]:
        if params.after is not None and not params.events:
            raise InvalidParams("after: goes with events alone", field="after")
        if params.run is not None and params.events:
            raise InvalidParams("events: the journal is the session's own, and no run's", field="events")
        after = None if params.after is None else int(params.after)
        connection = self._connection  # before anything is waited for: the next request may have none
        subscription = self._subscriptions.setdefault(params.run, Subscription(params.run))
        return await subscription.begin(coordinator, connection, events=params.events, after=after)

    async def _history(self, coordinator: "Coordinator", params: HistoryParams) -> dict[str, Any]:
        messages, more = await coordinator.records.history(**params.model_dump())
        return {"messages": messages, "more": True} if more else {"messages": messages}

    async def _purge(self, coordinator: "Coordinator", params: PurgeParams) -> dict[str, Any]:
        return {"removed": await coordinator.records.purge(params.message_id)}

    async def _status(self, coordinator: "Speaker", params: MessageParams) -> dict[str, Any]:
        return await coordinator.status(params.message_id)

    async def _cancel(self, coordinator: "Speaker", params: MessageParams) -> dict[str, Any]:
        return shape_status(await coordinator.cancel(params.message_id))


def _shown(handed: Handed, offset: int) -> list[dict[str, Any]]:
    if handed.attachment is not None:
        return [shape_attachment(*handed.attachment, offset)]
    return [shape_message(row, offset) for row in handed.messages]


_OF_PRESENCE = frozenset(
    {"session.update", "session.whoami", "session.list", "session.send", "session.compose"}
)
"""The calls that show or change that the session is there, and so notice where its record was removed."""

_HANDING_OVER = frozenset({"session.read", "session.drain", "session.tool"})

_METHODS: dict[str, tuple[type[Params], Any]] = {
    "session.bind_run": (BindRunParams, AdapterApi._bind_run),  # noqa: SLF001
    "session.end_run": (EndRunParams, AdapterApi._end_run),  # noqa: SLF001
    "session.update": (UpdateParams, AdapterApi._update),  # noqa: SLF001 - the table of this class
    "session.whoami": (Nothing, AdapterApi._whoami),  # noqa: SLF001
    "session.list": (ListParams, AdapterApi._list),  # noqa: SLF001
    "session.send": (SendParams, AdapterApi._send),  # noqa: SLF001
    "session.compose": (ComposeParams, AdapterApi._compose),  # noqa: SLF001
    "session.references": (TextParams, AdapterApi._references),  # noqa: SLF001
    "session.draft": (DraftParams, AdapterApi._draft),  # noqa: SLF001
    "session.result": (ResultParams, AdapterApi._result),  # noqa: SLF001
    "session.read": (ReadParams, AdapterApi._read),  # noqa: SLF001
    "session.waiting": (WaitingParams, AdapterApi._waiting),  # noqa: SLF001
    "session.let_through": (Nothing, AdapterApi._let_through),  # noqa: SLF001
    "session.drain": (DrainParams, AdapterApi._drain),  # noqa: SLF001
    "session.confirm": (ConfirmParams, AdapterApi._confirm),  # noqa: SLF001
    "session.release": (ReleaseParams, AdapterApi._release),  # noqa: SLF001
    "session.subscribe": (SubscribeParams, AdapterApi._subscribe),  # noqa: SLF001
    "session.history": (HistoryParams, AdapterApi._history),  # noqa: SLF001
    "session.purge": (PurgeParams, AdapterApi._purge),  # noqa: SLF001
    "session.status": (MessageParams, AdapterApi._status),  # noqa: SLF001
    "session.cancel": (MessageParams, AdapterApi._cancel),  # noqa: SLF001
}
