"""Real coordinators in the test's own process, without a command, a host or git.

It owns what they are opened with; who needs a real process takes `HerdSession` or `HerdMcp`.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from assignments.worktrees.fake import FakeTopology
from herd.coordinator.coordinator import Coordinator, coordinate
from herd.coordinator.opening import Opening
from herd.core.config import Place
from herd.core.identity import SessionName
from herd.core.limits import DEFAULT_LIMITS
from herd.core.paths import Layout


def opening_of(layout: Layout, session_id: str, *, host: str = "claude", **more: Any) -> Opening:
    """Give what a coordinator of a session is opened with; its name is the session's id."""
    usual: dict[str, Any] = {
        "cwd": f"/home/me/{session_id}",
        "limits": DEFAULT_LIMITS,
        "topology": FakeTopology({}),
        "place": Place("none"),
        "name": session_id,
    }
    return Opening(layout=layout, session=SessionName(host, session_id), **{**usual, **more})


@asynccontextmanager
async def coordinators(layout: Layout, *session_ids: str, **more: Any) -> AsyncIterator[list[Coordinator]]:
    """Coordinate sessions until the block ends."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(coordinate(opening_of(layout, session_id, **more)))
            for session_id in session_ids
        ]
