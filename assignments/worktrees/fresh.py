"""Memberships as they were a moment ago: read before the authority lock, used under it, believed for 2 s.

Under the lock nothing may start a process or ask Herdr. So whoever is about to take it has the folders read
that the verdict will need, and the verdict takes what is remembered, or nothing.
"""

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from assignments.worktrees.groups import Groups, Membership, Unproven
from herd.core.clock import Clock, first_of
from herd.core.limits import (
    LOOKUPS_AT_ONCE,
    TOPOLOGY_FRESH_S,
    TOPOLOGY_KEPT,
    TOPOLOGY_REUSED_S,
    TOPOLOGY_WAIT_S,
)

Folder = tuple[str, str | None]
"""A folder a session works in, and its Herdr workspace where it has one."""


class _Known(NamedTuple):
    began: float
    """When it was begun to be read, in the clock's seconds: what it says was so then at the earliest. Of what
    is unproven, when that was found."""
    membership: Membership


class FreshGroups:
    """Remembers memberships for as long as a verdict may rest on them.

    It belongs to the thread of one event loop; `membership` may be called from any.

    Args:
        groups: Who is asked.
        clock: Judges how old an answer is, and how long one is waited for.

    *Resource handling*: `close` ends what is being read.
    """

    def __init__(self, groups: Groups, clock: Clock) -> None:
        self._groups = groups
        self._clock = clock
        self._known: dict[Folder, _Known] = {}
        self._reading: dict[Folder, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def refresh(self, folders: Collection[Folder]) -> None:
        """Have folders read, and wait `TOPOLOGY_WAIT_S` for that at most; call it before the authority lock.

        What was read within `TOPOLOGY_REUSED_S` is not read anew, and a folder that is being read for
        somebody else is not read twice. A caller that is called off takes the reading from no other.
        """
        self._forget()
        readings = [self._read(folder) for folder in dict.fromkeys(folders) if not self._is_new(folder)]
        waiting = {one for one in readings if one is not None}
        if not waiting:
            return
        all_read = asyncio.Event()

        def read(one: asyncio.Task[None]) -> None:
            waiting.discard(one)
            if not waiting:
                all_read.set()

        for one in tuple(waiting):
            one.add_done_callback(read)
        await first_of(all_read, self._clock, TOPOLOGY_WAIT_S)

    def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """Give what is remembered and at most `TOPOLOGY_FRESH_S` old, else `Unproven`; never waits.

        Args:
            cwd: The folder, spelt as it was for `refresh`.
            workspace_id: The Herdr workspace, likewise.
        """
        known = self._known.get((cwd, workspace_id))
        if known is None or self._age(known) > TOPOLOGY_FRESH_S:
            return Unproven(f"the worktree group of {cwd} was not read within the last {TOPOLOGY_FRESH_S} s")
        return known.membership

    async def close(self) -> None:
        """End what is being read, and with it every process of that."""
        readings = list(self._reading.values())
        for one in readings:
            one.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    def _read(self, folder: Folder) -> "asyncio.Task[None] | None":
        """Give the reading of a folder, begun if need be; None where too many are under way."""
        reading = self._reading.get(folder)
        if reading is None and len(self._reading) < TOPOLOGY_KEPT:
            reading = asyncio.get_running_loop().create_task(self._look(folder))
            self._reading[folder] = reading
            reading.add_done_callback(lambda _: self._reading.pop(folder, None))
        return reading

    async def _look(self, folder: Folder) -> None:
        async with self._room:
            began = self._clock.elapsed()
            try:
                membership = await self._groups.membership(*folder)
            except Exception as error:  # noqa: BLE001 - whatever a source breaks on, it proves nothing
                membership = Unproven(f"reading the worktree group failed: {type(error).__name__}: {error}")
        self._known.pop(folder, None)
        if isinstance(membership, Unproven):
            # No verdict rests on it, so it cannot be out of date; and of a source that hung it says so, which
            # would be too old to be told if it counted from the question.
            began = self._clock.elapsed()
        self._known[folder] = _Known(began, membership)
        while len(self._known) > TOPOLOGY_KEPT:
            del self._known[next(iter(self._known))]

    def _is_new(self, folder: Folder) -> bool:
        known = self._known.get(folder)
        return known is not None and self._age(known) <= TOPOLOGY_REUSED_S

    def _forget(self) -> None:
        for folder in [one for one, known in self._known.items() if self._age(known) > TOPOLOGY_FRESH_S]:
            del self._known[folder]

    def _age(self, known: _Known) -> float:
        return self._clock.elapsed() - known.began
