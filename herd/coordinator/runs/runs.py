"""The runs of one session's coordinator: bound, found and ended.

They live in this process's memory and die with it: a run has no life after its instance, and what its mailbox
still holds is told to the senders as ended, now or at the session's next start.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from herd.coordinator.runs.live import LiveRun
from herd.coordinator.runs.tree import Run, Tree, Wanted
from herd.core.errors import CapabilityDenied
from herd.mail import inbox
from herd.mail.inbox import Incoming
from herd.mail.steps import RUN_END_AFTER, RUN_END_BEFORE
from herd.presence.record import RECEIVE
from herd.presence.scopes import Extent, includes

if TYPE_CHECKING:
    from herd.coordinator.joining import Joined


class Runs:
    """Every run of one coordinator.

    Args:
        joined: The coordinator's parts, of which each run gets its own or shares them.
        capabilities: What the session itself may do.
        published: Told when there are some for the first time, or none any more.
    """

    def __init__(
        self,
        joined: "Joined",
        capabilities: tuple[str, ...],
        *,
        published: Callable[[], None],
    ) -> None:
        self._joined = joined
        self._published = published
        self._tree = Tree(joined.own.instance_id, capabilities, joined.opening.limits.published_runs)
        self._live: dict[str, LiveRun] = {}
        self._over: set[str] = set()
        """Those of which the mailbox does not know yet that they are over."""

    def __len__(self) -> int:
        return len(self._live)

    def live(self) -> list[LiveRun]:
        """Give every run that lives and is not closing, in the order in which they were bound."""
        return [self._live[run.peer_id] for run in self._tree.live]

    def shown_to(self, caller: Extent) -> list[Run]:
        """Give the live runs whose own scope takes a caller in, in the order in which they were bound."""
        return [live.run for live in self.live() if includes(live.own.as_party().extent, caller)]

    def lives(self, peer_id: str) -> bool:
        """Tell whether a run of this very instance lives and is not closing."""
        return any(run.peer_id == peer_id for run in self._tree.live)

    def all_parts(self) -> list[LiveRun]:
        """Give every run that may still wait for something, the closing ones too."""
        return list(self._live.values())

    def find(self, peer_id: str | None) -> LiveRun | None:
        """Give a run's parts, be it closing; None where there is no such run any more."""
        return None if peer_id is None else self._live.get(peer_id)

    def require(self, peer_id: str) -> LiveRun:
        """Give a run that lives and is not closing.

        Raises:
            TargetEnded: there is none of that peer id, now or any more.
        """
        return self._live[self._tree.require(peer_id).peer_id]

    def require_receiving(self, peer_id: str) -> LiveRun:
        """Give a run that messages may be sent to.

        Raises:
            TargetEnded: see `require`.
            CapabilityDenied: it was bound without the capability, as an external one is.
        """
        live = self.require(peer_id)
        if RECEIVE not in live.run.capabilities:
            raise CapabilityDenied(f"{peer_id} receives no messages")
        return live

    def bind(self, wanted: Wanted) -> LiveRun:
        """Bind a run: from now on it has a peer id by which it is reached and shown.

        Raises:
            InvalidParams, TargetEnded, QueueFull: see `Tree.bind`.
            HerdError: this session cannot serve it now.
        """
        self._joined.health.require()
        first = not len(self._tree)
        run = self._tree.bind(wanted)
        live = self._live[run.peer_id] = LiveRun(run, self._joined)
        if first:
            self._published()
        return live

    async def end(self, peer_id: str) -> None:
        """End a run and all below it, and tell the senders of what it has not read.

        Nobody is admitted to it from the first moment on. What it sent and no mailbox has goes nowhere.

        Raises:
            TargetEnded: it is over, or closing already.
            HerdError: the mailbox cannot be written; the run is over nevertheless.
        """
        closing = self._tree.close(peer_id)
        await self._joined.tasks.finish(self._ended([run.peer_id for run in closing]))

    async def end_all(self) -> None:
        """End every run, as the coordinator itself does."""
        # Those below another end with it, and say that they are over already. What cannot be written down is
        # told to the senders at the session's next start.
        ending = [self.end(run.peer_id) for run in self._tree.live]
        await asyncio.gather(*ending, return_exceptions=True)

    async def write_down(self) -> None:
        """Write down which runs are over, and have the senders of what they have not read told.

        Raises:
            HerdError: it cannot be written now.
        """
        if not self._over:
            return
        joined, over = self._joined, set(self._over)
        joined.opening.step(RUN_END_BEFORE)
        rows = await joined.mailbox.read(_runs_ended(over)) or []
        joined.opening.step(RUN_END_AFTER)
        self._over -= over
        for row in rows:
            joined.row_changed(row)

    async def _ended(self, peer_ids: list[str]) -> None:
        joined = self._joined
        lives = [self._live[peer_id] for peer_id in peer_ids]
        await asyncio.gather(*(live.end() for live in lives))
        self._over.update(peer_ids)
        try:
            await self.write_down()
        finally:
            for peer_id in peer_ids:
                self._tree.retire(peer_id)
                del self._live[peer_id]
            if not len(self._tree):
                self._published()
        joined.routes.retry()  # what they sent and is pending is settled: see `LocalCarrier.carry`


def _runs_ended(peer_ids: set[str]) -> Callable[[sqlite3.Connection], list[Incoming]]:
    return lambda connection: inbox.runs_ended(connection, peer_ids)
