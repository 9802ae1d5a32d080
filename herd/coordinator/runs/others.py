"""The runs that one session or run may see and write to: those of others, asked for, and those of its own."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herd.coordinator.own import Own
from herd.coordinator.runs.directories import Directories, Listed
from herd.coordinator.runs.directory import Entry
from herd.presence.record import Record

if TYPE_CHECKING:
    from herd.coordinator.runs.runs import Runs
    from herd.coordinator.runs.tree import Run


class ListedRuns:
    """The view of one coordinator.

    Args:
        own: Its session.
        runs: Gives its own runs.
        record: Gives its own record as it is now; None while it has none.
        directories: Asks others for theirs.
    """

    def __init__(
        self,
        own: Own,
        runs: "Callable[[], Runs]",
        record: Callable[[], Record | None],
        directories: Directories,
    ) -> None:
        self._own = own
        self._runs = runs
        self._record = record
        self._directories = directories

    async def listed(self, peers: Sequence[Record], viewer: Own) -> list[Listed]:
        """Give the runs that a list shows to the session or to one of its runs.

        Only coordinators are asked whose record says that they have some, so that a list costs no connection
        where there are none.

        Args:
            peers: The listed sessions that may be written to.
            viewer: The session or the run.
        """
        asked = [peer for peer in peers if peer.presence is not None and peer.presence.runs]
        own = [live.run for live in self._runs().live() if live.run.peer_id != viewer.run]
        record = self._record() if own else None
        inside = [] if record is None else [Listed(_entry(run, record), record) for run in own]
        return inside + await self._directories.collected(asked)

    def is_inside(self, target: str, viewer: Own) -> bool:
        """Tell whether a target names this very session or a run of it, and not the viewer itself."""
        if target in viewer.names:
            return False
        # The session itself is named by its target alone: it knows no peer id of its own.
        return self._runs().lives(target) or (viewer.run is not None and target == viewer.session_target)

    async def require_receiving(self, record: Record, peer_id: str) -> None:
        """Let pass a message to a run of that record's session; see `Directories.require_receiving`."""
        if record.key == self._own.key:
            self._runs().require_receiving(peer_id)
        else:
            await self._directories.require_receiving(record, peer_id)


def _entry(run: "Run", record: Record) -> Entry:
    return Entry.model_construct(
        peer_id=run.peer_id,
        run_id=run.run_id,
        instance_id=record.instance_id,
        name=run.name,
        capabilities=list(run.capabilities),
        parent=run.parent,
    )
