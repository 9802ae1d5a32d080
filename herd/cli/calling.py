"""How a command reaches the coordinator of its session: over its socket, or by being that coordinator itself.

A session in a host has a coordinator already. The terminal session has one only while a command needs it: the
first command becomes it, and another shell's command goes through the first one's socket. When the first ends
meanwhile, the second asks the next one, or becomes it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from herd.cli.caller import Caller
from herd.cli.context import Context
from herd.client import Client
from herd.core.errors import DeliveryUnknown, NoSession, PeerOffline, SessionHeld
from herd.core.identity import TERMINAL
from herd.core.limits import CLIENT_S, DRAFT_CHARACTERS, LOOK_AGAIN_MS

Call = Callable[[str, dict[str, Any]], dict[str, Any]]


class Way(Protocol):
    """One way to a coordinator."""

    def request(self, method: str, params: dict[str, Any], *, wait_s: float) -> dict[str, Any]:
        """Ask and give the result."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@contextlib.contextmanager
def calling(context: Context, caller: Caller) -> Iterator[Call]:
    """Give a function that asks the caller's coordinator for `session.*` methods.

    Raises:
        HerdError: the coordinator cannot be reached or opened.
    """
    with _Line(context, caller) as line:
        yield line.call


def ask(context: Context, caller: Caller, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Ask one question."""
    with calling(context, caller) as call:
        return call(method, params)


class _Line:
    """The way to the caller's coordinator, found anew where a terminal session's coordinator has ended."""

    def __init__(self, context: Context, caller: Caller) -> None:
        self._context = context
        self._session = caller.session
        self._moves = caller.session.host == TERMINAL
        self._way = self._found(caller)

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask, and ask again where the coordinator that was asked has ended; nothing is sent twice."""
        give_up = time.monotonic() + _patience(params)
        asked = self._repeatable(method, params)
        while True:
            try:
                return self._asked(method, asked)
            except (DeliveryUnknown, NoSession) as fault:
                if not (self._moves and _has_ended(fault)) or time.monotonic() > give_up:
                    raise
            self._way.close()
            time.sleep(LOOK_AGAIN_MS / 1000)  # one that is ending may still be on record
            self._way = self._found(self._caller_now())
            asked = _with_wait_left(asked, give_up)

    def _asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        text = params.get("message", "")
        if method != "session.send" or len(text) <= DRAFT_CHARACTERS or not isinstance(self._way, Client):
            return self._way.request(method, params, wait_s=_patience(params))
        # Too long for one frame, or nearly so: the coordinator puts it together again.
        starts = range(0, len(text) - DRAFT_CHARACTERS, DRAFT_CHARACTERS)
        for start in starts:
            piece = {"text": text[start : start + DRAFT_CHARACTERS]}
            self._way.request("session.draft", piece, wait_s=CLIENT_S)
        rest = {**params, "message": text[starts[-1] + DRAFT_CHARACTERS :], "drafted": True}
        return self._way.request(method, rest, wait_s=_patience(params))

    def _repeatable(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Make a send the same message however often it is asked for; other methods are that already."""
        if method == "session.send" and self._moves and isinstance(self._way, Client):
            return {**params, "call_id": os.urandom(16).hex()}
        return params

    def _found(self, caller: Caller) -> Way:
        give_up = time.monotonic() + CLIENT_S
        while True:
            try:
                if caller.record is not None:
                    return Client(self._context.layout, caller.record)
                return self._own()
            except (SessionHeld, PeerOffline, NoSession):
                # Another shell's command began or ended just now; whoever holds the session is asked again.
                if not self._moves or time.monotonic() > give_up:
                    raise
            time.sleep(LOOK_AGAIN_MS / 1000)
            caller = self._caller_now()

    def _own(self) -> Way:
        from herd.cli.coordinating import OwnCoordinator  # only a command that has to coordinate pays for it

        return OwnCoordinator(self._context.opening(self._session))

    def _caller_now(self) -> Caller:
        return Caller(self._session, self._context.living(self._session))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._way.close()


def _has_ended(fault: DeliveryUnknown | NoSession) -> bool:
    """Tell whether a fault says that the coordinator is over, rather than that it refuses."""
    return isinstance(fault, NoSession) or isinstance(fault.__cause__, ConnectionError)


def _patience(params: dict[str, Any]) -> float:
    return CLIENT_S + float(params.get("wait_ms", 0)) / 1000


def _with_wait_left(params: dict[str, Any], give_up: float) -> dict[str, Any]:
    if "wait_ms" not in params:
        return params
    left = give_up - CLIENT_S - time.monotonic()
    return {**params, "wait_ms": max(0, min(int(left * 1000), params["wait_ms"]))}
