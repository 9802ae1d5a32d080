"""What a person may ask about a session's mail over time, and what may be removed of it on their word."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

from herd.coordinator.shapes import size_of
from herd.core.clock import Clock, first_of
from herd.core.errors import MessageIdConflict, ResourceBusy, UnknownTarget
from herd.core.limits import ANSWER_BYTES, KEPT_AT_ONCE
from herd.core.moments import Moment
from herd.mail import inbox
from herd.mail.history import history
from herd.mail.inbox import Incoming
from herd.mail.mailbox import Mailbox
from herd.mail.retention import note_resolved, remove_unread, strip


class Records:
    """One session's.

    Args:
        mailbox: The session's own.
        instance_id: That of the coordinator.
        held: Tells by its number whether a reader holds a message without evidence.
        removed: Told each received row that was removed, whose sender has to hear of it.
        clock: Says when.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        instance_id: str,
        *,
        held: Callable[[int], bool],
        removed: Callable[[Incoming], None],
        clock: Clock,
    ) -> None:
        self._held = held
        self._mailbox = mailbox
        self._instance_id = instance_id
        self._removed = removed
        self._clock = clock
        self._moved = asyncio.Event()

    def changed(self) -> None:
        """Wake whoever follows."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def history(
        self, *, most: int, left: bool, skip: int = 0, wait_ms: int = 0
    ) -> tuple[list[dict[str, Any]], bool]:
        """Give what `herd.mail.history.history` does, as much of it as one answer carries; tells of more.

        Args:
            most: How many messages at most.
            skip: How many of the newest are left out: those that earlier answers gave.
            left: Only what former instances, and runs that ended, left unresolved.
            wait_ms: Milliseconds to wait for the next change before looking; 0 looks at once.
        """
        if wait_ms:
            await first_of(self._moved, self._clock, wait_ms / 1000)
        others = self._instance_id if left else None
        found = await self._mailbox.read(
            lambda connection: history(connection, most=most, skip=skip, left_by_others_than=others)
        )
        return _fitting(found or [])

    async def purge(self, message_id: str | None) -> int:
        """Remove the texts of all resolved mail now, or one undelivered message; gives how many messages.

        Raises:
            UnknownTarget: no message of that id is in the inbox.
            MessageIdConflict: it is resolved already.
            ResourceBusy: a reader holds it just now, and may have shown it to the model.
        """
        if message_id is None:
            return await self._purge_resolved()
        now = Moment.now(self._clock)
        rows = await self._mailbox.read(
            lambda connection: remove_one(connection, message_id, now, held=self._held)
        )
        if rows is None:
            raise UnknownTarget("no message has come to this session")
        for row in rows:
            self._removed(row)
        return len(rows)

    async def _purge_resolved(self) -> int:
        count = 0
        while True:
            now = Moment.now(self._clock)

            def work(connection: sqlite3.Connection, now: Moment = now) -> int:
                return purge_resolved(connection, now)

            removed = await self._mailbox.read(work) or 0
            count += removed
            if removed < KEPT_AT_ONCE:
                return count


def _fitting(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    """Give the newest of them, as many as fit, and whether any were left out."""
    size = 0
    for count, message in enumerate(reversed(messages)):
        size += size_of(message)
        if count and size > ANSWER_BYTES:
            return messages[-count:], True
    return messages, False


def purge_resolved(connection: sqlite3.Connection, now: Moment) -> int:
    """Remove the texts of resolved mail; gives how many, fewer than `KEPT_AT_ONCE` where none are left."""
    note_resolved(connection, now)
    return strip(connection, now, 0)


def remove_one(
    connection: sqlite3.Connection,
    message_id: str,
    now: Moment,
    *,
    held: Callable[[int], bool] = lambda _: False,
) -> list[Incoming]:
    """Remove an undelivered message; gives its rows. Raises as `Records.purge` does."""
    known = inbox.by_id(connection, message_id)
    if not known:
        raise UnknownTarget(
            f"no message {message_id} came to this session", hint="`herd inbox --look` shows what waits."
        )
    if any(held(row.sequence) for row in known):
        raise ResourceBusy(f"a reader of this session holds message {message_id} just now")
    rows = remove_unread(connection, message_id, now)
    if not rows:
        raise MessageIdConflict(
            f"message {message_id} is {known[0].receipt.state} already",
            hint="`herd purge` without an id removes the texts of resolved mail.",
        )
    return rows
