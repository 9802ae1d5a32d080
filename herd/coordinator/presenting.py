"""The session's presence while its coordinator lives: published, enriched, withdrawn, and published anew."""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from assignments.worktrees.checkout import extent_at
from assignments.worktrees.groups import Grouped, Unproven
from assignments.worktrees.topology import Whereabouts
from herd.coordinator.opening import Locks, Opening
from herd.coordinator.own import Own
from herd.coordinator.tasks import Tasks, in_thread
from herd.core.build import running_build
from herd.core.errors import HerdError, RecoveryRequired
from herd.core.files import private_folder
from herd.core.identity import TERMINAL
from herd.core.limits import CWD_CHARACTERS, SUBPROCESS_S
from herd.core.locks import Owner
from herd.core.processes import start_token
from herd.core.refusals import mending, refusal_of
from herd.presence.publisher import Instance, Publisher
from herd.presence.record import Presence, clipped
from herd.presence.session_file import SessionFile, amend_session_file
from herd.rpc.handshake import Identity
from roles.model import Folder

_log = logging.getLogger("herd.coordinator")


class Presenting:
    """What is published about one session.

    Args:
        opening: What the coordinator was opened with.
        own: The session; its name and extent may change.
        publisher: Writes the record.
        tasks: Runs the look-ups.
        unwritable: Told when the record cannot be written.
    """

    def __init__(
        self,
        opening: Opening,
        own: Own,
        publisher: Publisher,
        tasks: Tasks,
        unwritable: Callable[[HerdError], None],
    ) -> None:
        self._opening = opening
        self._own = own
        self._publisher = publisher
        self._tasks = tasks
        self._unwritable = unwritable
        self._cwd = opening.cwd
        self._located = opening.cwd
        self._locating = asyncio.Lock()
        self._labels = Whereabouts()
        self._activity: str | None = None
        self._since: int | None = None
        self._undrained: int | None = None
        self._runs: bool | None = None
        self._over = False

    @property
    def cwd(self) -> str:
        """The working directory that is published."""
        return self._cwd

    def publish(self) -> None:
        """Begin a new generation with what is known now, and look labels and worktree group up behind it."""
        self._own.group = None  # what was proven for an earlier generation proves nothing about this one
        self._write(lambda: self._publisher.publish(self._presence()))
        self._tasks.create_task(self._enrich())
        self._look_up_group()
        if self._cwd != self._located:
            self._tasks.create_task(self._locate())  # what the disk refused when the session moved

    def renew(self, *, listed: bool) -> None:
        """Put the session on record again where somebody removed its record; one stat where nobody did.

        Args:
            listed: Whether with a presence, under a new claim; without one while it is unhealthy.
        """
        if self._over or self._publisher.on_record:
            return
        _log.warning("presence.record.gone")
        if listed:
            self.publish()
        else:
            self.announce()

    def announce(self) -> None:
        """Put the instance on record without a presence: it can be shaken hands with, and is not listed."""
        self._write(self._publisher.announce)

    def withdraw(self) -> None:
        """End the generation; the claim is retired even where the record cannot be rewritten."""
        try:
            self._publisher.withdraw()
        except (OSError, HerdError) as fault:
            _log.warning("presence.withdraw.failed", extra={"reason": str(fault)})

    def end(self) -> None:
        """Withdraw for good: nothing puts the session on record again."""
        self._over = True
        self.withdraw()

    def moved(self, endpoint: str) -> None:
        """Note that the instance listens elsewhere now."""
        self._publisher.move(endpoint)

    def remove(self) -> None:
        """End the record."""
        try:
            self._publisher.remove()
        except (OSError, HerdError) as fault:
            _log.warning("presence.remove.failed", extra={"reason": str(fault)})

    def update(self, *, cwd: str | None, name: str | None, activity: str | None) -> None:
        """Take what the host reports. It changes labels, no generation and no right."""
        if activity is not None and activity != self._activity:
            self._activity, self._since = activity, self._opening.clock.wall_ms()
        if name is not None:
            self._own.name = clipped(name) or self._own.name
        moved = cwd is not None and cwd != self._cwd
        if moved:
            self._cwd, self._labels = cwd or self._cwd, Whereabouts()
            self._own.folder = Folder(self._cwd, self._opening.place.workspace_id)
        self._relabel()
        if moved:
            self._tasks.create_task(self._enrich())
            self._tasks.create_task(self._locate())
            self._look_up_group()

    def undrained(self, since: int | None) -> None:
        """Show since when mail has waited for the host, in milliseconds since the epoch; None: none does."""
        self._undrained = since
        self._relabel()

    def runs(self, *, some: bool) -> None:
        """Show whether the session has runs."""
        self._runs = some or None
        self._relabel()

    def _relabel(self) -> None:
        claim = self._publisher.claim
        self._write(lambda: self._publisher.enrich(claim, lambda _: self._presence()))

    async def _enrich(self) -> None:
        cwd = self._cwd
        labels = await self._opening.topology.whereabouts(cwd)
        if cwd == self._cwd and labels != self._labels:
            self._labels = labels
            self._relabel()

    async def _locate(self) -> None:
        """Take the ids of the folder that the session is in now: where it was counts until they are known.

        They are durable before they are published, since a visitor judges by what is durable.
        """
        async with self._locating:
            cwd = self._cwd
            if cwd == self._located:
                return
            extent = await in_thread(extent_at, cwd, self._opening.scope)
            if not await self._amended(extent=extent):
                return
            self._located, self._own.extent = cwd, extent
        self._relabel()

    def _look_up_group(self) -> None:
        if self._own.session.host != TERMINAL:  # no verdict asks for that one's
            self._tasks.create_task(self._group())

    async def _group(self) -> None:
        """Have the worktree group proven, and publish it, if it is another, in a generation of its own.

        A proof is durable before it is published; what could not be proven is published as none, and what
        was durable stays: it was the last group.
        """
        folder = self._own.folder
        if folder is None:
            return
        try:
            async with asyncio.timeout(SUBPROCESS_S):
                found = await self._opening.groups.membership(folder.cwd, folder.workspace_id)
        except TimeoutError:
            found = Unproven("no answer came in time")
        async with self._locating:
            group = found.key if isinstance(found, Grouped) else None
            if self._own.folder != folder or self._over:
                return
            if not isinstance(found, Unproven) and not await self._amended(group=group):
                return
        if self._own.folder != folder or self._own.group == group:
            return
        self._own.group = group
        if self._publisher.presence is not None and not self._over:
            self._write(lambda: self._publisher.publish(self._presence()))

    async def _amended(self, **changes: Any) -> bool:
        """Change the session's file; False where the disk refuses, which is told."""
        file = SessionFile(self._own.session, kind=self._own.kind, role=self._own.role)
        try:
            await in_thread(lambda: amend_session_file(self._opening.layout, file, **changes))
        except HerdError as fault:
            self._unwritable(fault)
            return False
        except OSError as fault:
            self._unwritable(refusal_of(fault) or RecoveryRequired(f"session.json: {fault}"))
            return False
        return True

    def _write(self, write: Callable[[], object]) -> None:
        try:
            private_folder(self._opening.layout.peers)  # whoever removed it may have removed nothing else
            write()
        except HerdError as fault:
            self._unwritable(fault)
        except OSError as fault:
            self._unwritable(
                RecoveryRequired(
                    f"this session's record cannot be written: {os.strerror(fault.errno or 0)}",
                    hint=mending(fault)
                    or "Free space or mend the disk of the data root; mail is kept, and it goes on then.",
                )
            )

    def _presence(self) -> Presence:
        place = self._opening.place
        return Presence(
            role=self._own.role,
            socket=place.socket,
            cwd=clipped(self._cwd, CWD_CHARACTERS),
            name=self._own.name,
            repo=clipped(self._labels.repo),
            branch=clipped(self._labels.branch),
            workspace_label=clipped(self._labels.workspace_label),
            activity=self._activity,
            since=self._since,
            pane_id=place.pane_id,
            tab_id=place.tab_id,
            workspace_id=place.workspace_id,
            scope=self._own.extent.scope,
            workspace=self._own.extent.workspace,
            repository=self._own.extent.repository,
            undrained_since=self._undrained,
            runs=self._runs,
            group=self._own.group,
        )


def publisher_of(
    opening: Opening,
    own: Own,
    locks: Locks,
    identity: Identity,
    endpoint: str,
) -> Publisher:
    """Give the publisher of a session's record, and note in its mailbox's lock who holds that."""
    start = start_token(os.getpid()) or ""
    locks.mailbox.write_owner(Owner(os.getpid(), start, None))
    instance = Instance(
        session=own.session,
        kind=own.kind,
        pid=os.getpid(),
        start=start,
        host_pid=opening.host_pid,
        host_start=opening.host_start,
        instance_id=own.instance_id,
        endpoint=endpoint,
        public_key=identity.keys.public_key,
        capabilities=opening.capabilities,
        build=running_build(),
    )
    return Publisher(opening.layout, locks.session, instance)
