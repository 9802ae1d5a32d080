"""How a turn of Claude Code came to its end: by itself, or cut off by the person.

Nothing tells of a turn that was cut off but what does not come: its last hook. Where no hook was due, or none
of this turn was seen, the transcript says what the turn ended with; Claude Code writes it a moment after it
shows the session idle.
"""

import asyncio
import glob
import os
from collections.abc import Callable

from herd.hosts.claude import transcript
from herd.hosts.claude.events import STOP, Event
from herd.hosts.claude.flags import is_flag_session
from herd.hosts.claude.session_file import IDLE, State

_LOOKS = 15
_LOOK_S = 0.1
"""How often, and how far apart, the transcript is looked at before its silence counts as a turn cut off."""


class Turns:
    """The turn that runs now, or ran last.

    Args:
        settings: The folder of Claude Code's settings; None where nobody can tell.
    """

    def __init__(self, settings: str | None) -> None:
        self._settings = settings
        self._began: int | None = None
        self._session: str | None = None
        self._stopped = False
        self._seen = True

    def changed(self, before: State | None, state: State) -> None:
        """Take note that the host does something else now."""
        # A server that comes while something runs, as after `/mcp reconnect`, need not have come into a turn.
        self._seen = before is not None and (self._seen or before.status == IDLE)
        was_idle = before is None or before.status == IDLE
        if was_idle and state.status != IDLE:
            self._began, self._session, self._stopped = state.changed, state.session_id, False
        elif was_idle and before is not None:
            # What was between the two was too short to be seen.
            self._began, self._session = before.changed, before.session_id

    def heard(self, event: Event, *, prolongs: bool) -> None:
        """Take note of a hook, and whether its answer keeps the turn from ending."""
        if not event.of_subagent:
            self._stopped = event.name == STOP and not prolongs

    async def was_cut(self, state: State, path: str | None, gone: Callable[[], bool]) -> bool:
        """Tell whether the turn that ended with this state was cut off, which it was where nothing tells.

        Args:
            state: What the host does since.
            path: The transcript, as far as a hook has told it.
            gone: Tells that the answer is wanted no longer.
        """
        if self._stopped or self._session not in {None, state.session_id}:
            return False  # `/resume` and `/clear` change the session, and Escape does not
        for _ in range(_LOOKS):
            ended = await asyncio.to_thread(self._ended, state.session_id, path)
            if ended is not None:
                return not ended
            if gone():
                break
            await asyncio.sleep(_LOOK_S)
        return self._seen

    def _ended(self, session_id: str, path: str | None) -> bool | None:
        found = path if path is not None else self._found(session_id)
        if found is None:
            return not self._seen
        return transcript.ended(found, self._began or 0)

    def _found(self, session_id: str) -> str | None:
        """Find the transcript of a session that no hook has told it of; a moved session may have several."""
        if self._settings is None or not is_flag_session(session_id):
            return None
        folders = os.path.join(glob.escape(self._settings), "projects", "*")
        paths = glob.glob(os.path.join(folders, f"{session_id}.jsonl"))
        return max(paths, key=_written, default=None)


def _written(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0
