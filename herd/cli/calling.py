"""How a command reaches the coordinator of its session: over its socket, or by being that coordinator itself.

A session in a host has a coordinator already. The terminal session has one only while a command needs it: the
first command becomes it, and another shell's command goes through the first one's socket.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from herd.cli.caller import Caller
from herd.cli.context import Context
from herd.client import Client
from herd.core.errors import NoSession, PeerOffline, SessionHeld
from herd.core.limits import CLIENT_S

Call = Callable[[str, dict[str, Any]], dict[str, Any]]


@contextlib.contextmanager
def calling(context: Context, caller: Caller) -> Iterator[Call]:
    """Give a function that asks the caller's coordinator for `session.*` methods.

    Raises:
        HerdError: the coordinator cannot be reached or opened.
    """
    give_up = time.monotonic() + CLIENT_S
    while True:
        try:
            opened = _client(context, caller) if caller.record is not None else _own(context, caller)
            break
        except (SessionHeld, PeerOffline, NoSession):
            # Another shell's command began or ended just now; whoever holds the session is asked again.
            if time.monotonic() > give_up or caller.session.host != "terminal":
                raise
            caller = Caller(caller.session, context.living(caller.session))
            time.sleep(0.02)
    with opened as call:
        yield call


def _client(context: Context, caller: Caller) -> contextlib.AbstractContextManager[Call]:
    assert caller.record is not None, "calling() asked"
    client = Client(context.layout, caller.record)

    @contextlib.contextmanager
    def opened() -> Iterator[Call]:
        with client:
            yield lambda method, params: client.request(method, params, wait_s=_patience(params))

    return opened()


def _patience(params: dict[str, Any]) -> float:
    return CLIENT_S + float(params.get("wait_ms", 0)) / 1000


def _own(context: Context, caller: Caller) -> contextlib.AbstractContextManager[Call]:
    hosted = _Hosted(context, caller)
    hosted.start()

    @contextlib.contextmanager
    def opened() -> Iterator[Call]:
        try:
            yield hosted.call
        finally:
            hosted.stop()

    return opened()


class _Hosted:
    """The terminal session's coordinator, on an event loop in a thread of this command."""

    def __init__(self, context: Context, caller: Caller) -> None:
        import asyncio  # only a command that has to coordinate pays for it

        self._context = context
        self._caller = caller
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._done = asyncio.Event()
        self._fault: BaseException | None = None
        self._api: Any = None
        self._thread = threading.Thread(target=self._serve, name="coordinator", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            self._thread.join()
            raise self._fault

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        import asyncio

        future = asyncio.run_coroutine_threadsafe(self._api.request(None, method, params), self._loop)
        result: dict[str, Any] = future.result()
        return result

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._coordinate())
        except BaseException as fault:  # noqa: BLE001 - handed to the command's thread
            self._fault = fault.exceptions[0] if isinstance(fault, BaseExceptionGroup) else fault
        finally:
            self._loop.close()
            self._ready.set()

    async def _coordinate(self) -> None:
        from herd.coordinator.adapter_api import AdapterApi, Settled
        from herd.coordinator.coordinator import coordinate

        async with coordinate(self._context.opening(self._caller.session)) as coordinator:
            self._api = AdapterApi(Settled(coordinator), command=True)
            self._ready.set()
            await self._done.wait()
            self._api.ended()


def ask(context: Context, caller: Caller, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Ask one question."""
    with calling(context, caller) as call:
        return call(method, params)
