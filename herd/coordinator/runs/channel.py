"""The channel of runs: an adapter's connection bound them, speaks for them, and is the only one that does.

A run's process has no way to Herd but its parent. What it asks comes here by the parent's own connection,
names the run, and is carried out by the session's coordinator; a name of any other run gets nowhere.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herd.coordinator.runs.live import LiveRun
from herd.coordinator.runs.tree import Run, Wanted
from herd.core.errors import HerdError, PeerOffline, QueueFull, TargetEnded
from herd.core.limits import RETRY_WHEN_FULL_MS

if TYPE_CHECKING:
    from herd.coordinator.coordinator import Coordinator
    from herd.rpc.connection import Connection

_log = logging.getLogger("herd.coordinator.runs")


class RunChannel:
    """The runs that one adapter bound.

    Attributes:
        broken: Set once the channel is: whatever is open on it for a run is refused then.
    """

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self._bound: dict[str, Coordinator] = {}

    def bind(self, coordinator: "Coordinator", wanted: Wanted) -> Run:
        """Bind a run, whose requests come by this channel alone.

        Raises:
            TargetEnded: its parent is over, closing, or was not bound by this channel.
            HerdError: see `Runs.bind`.
        """
        if wanted.parent is not None:
            self.require(coordinator, wanted.parent)
        run = coordinator.runs.bind(wanted).run
        self._bound[run.peer_id] = coordinator
        return run

    async def end(self, coordinator: "Coordinator", peer_id: str) -> None:
        """End a run of this channel, and all below it.

        Raises:
            TargetEnded: it is over, closing, or was not bound by this channel.
        """
        self.require(coordinator, peer_id)
        await coordinator.runs.end(peer_id)
        self._bound = {one: whose for one, whose in self._bound.items() if whose.runs.lives(one)}

    def require(self, coordinator: "Coordinator", peer_id: str) -> LiveRun:
        """Give a live run of this channel.

        Raises:
            TargetEnded: it is over, or was not bound by this channel.
        """
        if self._bound.get(peer_id) is not coordinator:
            raise TargetEnded(f"{peer_id} is no live run that this connection bound")
        return coordinator.runs.require(peer_id)

    async def carried_out(
        self, live: LiveRun, connection: "Connection | None", work: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        """Carry out a request of a run, for as long as both the run and the channel last.

        Raises:
            QueueFull: as many requests of this run are open as may be.
            TargetEnded: the run has ended meanwhile, and its time to finish is over.
            PeerOffline: the channel has ended meanwhile.
            HerdError: what the request itself refused.
        """
        most = live.most_open
        if live.open >= most:
            work.close()
            raise QueueFull(
                f"{most} requests of this run are open already", retry_after_ms=RETRY_WHEN_FULL_MS
            )
        live.begun()
        try:
            return await self._raced(live, connection, work)
        finally:
            live.ended()

    def end_all(self) -> None:
        """Refuse what is open on the channel and end the runs that it bound; call it when it has ended."""
        self.broken.set()
        bound, self._bound = self._bound, {}
        for peer_id, coordinator in bound.items():
            with suppress(PeerOffline):  # the coordinator has ended, and its runs with it
                coordinator.tasks.create_task(_ended(coordinator, peer_id))

    async def _raced(
        self, live: LiveRun, connection: "Connection | None", work: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        doing = asyncio.ensure_future(work)
        ends: dict[asyncio.Future[Any], Callable[[], HerdError]] = {
            asyncio.ensure_future(live.over.wait()): lambda: TargetEnded(f"{live.run.peer_id} has ended"),
            asyncio.ensure_future(self.broken.wait()): _gone,
        }
        if connection is not None:
            ends[asyncio.ensure_future(connection.ending())] = _gone
        try:
            await asyncio.wait({doing, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise next(refusal() for end, refusal in ends.items() if end.done())
        finally:
            for one in (doing, *ends):
                one.cancel()
            await asyncio.gather(doing, *ends, return_exceptions=True)


def _gone() -> HerdError:
    return PeerOffline("the channel to the run has ended")


async def _ended(coordinator: "Coordinator", peer_id: str) -> None:
    try:
        await coordinator.runs.end(peer_id)
    except TargetEnded:
        return  # with one above it
    except HerdError as fault:
        _log.warning("run.end.failed", extra={"code": fault.code})  # told to the senders at the next start
