"""Asking other coordinators for their runs: one of them for one run, or several for a listing.

A run is known from its own coordinator alone, so whoever writes to one or is written to by one asks there, by
one request, and nobody else.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from herd.coordinator.connections import Connections
from herd.coordinator.runs.directory import Entry, read_answer, shown_name
from herd.core.clock import Clock
from herd.core.errors import CapabilityDenied, HerdError, InvalidParams, TargetEnded
from herd.core.limits import (
    DIRECTORIES_AT_ONCE,
    DIRECTORIES_MS,
    DIRECTORY_FRESH_MS,
    DIRECTORY_MS,
)
from herd.mail.inbox import Sender
from herd.presence.record import RECEIVE, SEND, Record
from herd.presence.registry import names_of

if TYPE_CHECKING:
    from herd.rpc.connection import Connection


class Listed(NamedTuple):
    """One run that a listing found, and the record of the session that it belongs to."""

    entry: Entry
    record: Record


class Proved(NamedTuple):
    """A run as a sender, and its own scope; None where that is its session's."""

    sender: Sender
    scope: str | None


class Directories:
    """Asks them for one coordinator.

    Args:
        connections: Where they are reached.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def require_receiving(self, record: Record, peer_id: str) -> None:
        """Let pass a message to a run, by one question to the coordinator it belongs to.

        Raises:
            TargetEnded: that instance has no such run now, and so never again.
            CapabilityDenied: the run receives no messages.
            HerdError: the coordinator could not be asked.
        """
        connection = await self._connections.to(record)
        entry = await _found(connection, record.instance_id, peer_id)
        if entry is None:
            raise TargetEnded(f"the run {peer_id} is over, or was one of another instance")
        if RECEIVE not in entry.capabilities:
            raise CapabilityDenied(f"{peer_id} receives no messages")

    async def collected(self, records: Sequence[Record]) -> list[Listed]:
        """Give the runs of these coordinators, in their order; who fails or is slow hides nobody else."""
        if not records:
            return []
        places = asyncio.Semaphore(DIRECTORIES_AT_ONCE)
        tasks = [asyncio.ensure_future(self._of_one(record, places)) for record in records]
        try:
            await asyncio.wait(tasks, timeout=DIRECTORIES_MS / 1_000)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        answered = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
        return [one for listed in answered for one in listed]

    async def _of_one(self, record: Record, places: asyncio.Semaphore) -> list[Listed]:
        async with places:
            try:
                async with asyncio.timeout(DIRECTORY_MS / 1_000):
                    connection = await self._connections.to(record)
                    result = await connection.request("peer.directory", {})
                entries = read_answer(result, record.instance_id)
            except (HerdError, OSError, TimeoutError):
                return []
            return [Listed(entry, record) for entry in entries]


class Proofs:
    """What one connection's other end has told of the runs it speaks for, while that is fresh.

    Args:
        clock: Says when.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, Entry]] = {}

    async def proved(self, connection: "Connection", caller: Record, session: Sender, peer_id: str) -> Proved:
        """Give the verified context of a run that a message says it is from, and how far it reaches.

        Args:
            connection: The one that the message came on.
            caller: Whose instance that proved to be.
            session: The caller as a sender.
            peer_id: The run.

        Raises:
            InvalidParams: the caller's own directory has no such run.
            CapabilityDenied: the run may not send.
            HerdError: the caller could not be asked.
        """
        entry = await self._entry(connection, caller, peer_id)
        if entry is None:
            raise InvalidParams(
                "from.run is no run that your directory shows to this session", field="from.run"
            )
        if SEND not in entry.capabilities:
            raise CapabilityDenied(f"{peer_id} may not send")
        return Proved(session._replace(target=peer_id, name=shown_name(entry), run=peer_id), entry.scope)

    async def _entry(self, connection: "Connection", caller: Record, peer_id: str) -> Entry | None:
        now = self._clock.elapsed()
        self._known = {one: known for one, known in self._known.items() if known[0] > now}
        if peer_id in self._known:
            return self._known[peer_id][1]
        entry = await _found(connection, caller.instance_id, peer_id)
        if entry is not None:
            self._known[peer_id] = (now + DIRECTORY_FRESH_MS / 1_000, entry)
        return entry


def entries_of_runs(listed: Iterable[Listed], taken: Iterable[str]) -> list[dict[str, Any]]:
    """Give the entries of a list for runs; one that bears another's name gets the end of its peer id.

    Args:
        listed: The runs.
        taken: The names that the list shows already.
    """
    runs = list(listed)
    names = [*taken, *(shown_name(one.entry) for one in runs)]
    return [_entry_of(one, twin=names.count(shown_name(one.entry)) > 1) for one in runs]


def _entry_of(listed: Listed, *, twin: bool) -> dict[str, Any]:
    entry = listed.entry
    name = f"{shown_name(entry)}-{entry.peer_id[-6:]}" if twin else shown_name(entry)
    shape: dict[str, Any] = {"target": entry.peer_id, "name": name, "run_of": names_of(listed.record)[0]}
    return shape if RECEIVE in entry.capabilities else {**shape, "read_only": True}


async def _found(connection: "Connection", instance_id: str, peer_id: str) -> Entry | None:
    result = await connection.request("peer.directory", {"run": peer_id})
    found = [one for one in read_answer(result, instance_id) if one.peer_id == peer_id]
    return found[0] if found else None
