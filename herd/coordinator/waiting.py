"""Trying again when somebody comes back: a watch on the records, open only while something waits."""

from collections.abc import Callable

from herd.core.watch import FolderWatch


class Waiting:
    """Wakes what waits for a peer at each change of presence.

    While nothing waits there is no watch, so an idle session does not wake up for others' changes.

    Args:
        peers: The folder of the records.
        retry: Tries again whatever waits; it is called again only once something waits anew.
    """

    def __init__(self, peers: str, retry: Callable[[], None]) -> None:
        self._peers = peers
        self._retry = retry
        self._watch: FolderWatch | None = None

    def begin(self) -> None:
        """Note that something waits from now on."""
        if self._watch is None:
            try:
                self._watch = FolderWatch(self._peers, self._changed)
            except OSError:
                return  # watches are used up, or the folder is gone: the pauses between tries remain

    def end(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _changed(self, _: str | None) -> None:
        self.end()
        self._retry()
