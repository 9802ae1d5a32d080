"""A session whose coordinator runs in the benchmark's own process, asked without any wire.

What a call costs from the moment at which the coordinator begins to handle it to the moment at which it can
answer is to be seen here alone: a host's pipe is a hop of its own.
"""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from assignments.worktrees.fake import FakeTopology
from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.coordinator import coordinate
from herd.coordinator.opening import Opening
from herd.core.config import Place, load
from herd.core.identity import SessionName
from herd.core.paths import open_layout
from tests.bench.measuring import Sample
from tests.bench.workshop import TEXT
from tests.fakes.herd_session import environment

Result = TypeVar("Result")


class InnerSession:
    """A context manager; the event loop of its coordinator runs while something is asked.

    Args:
        home: The data root.
        session_id: The host's own id of the session.
    """

    def __init__(self, home: Path, session_id: str) -> None:
        settings = load(environment(home))
        opening = Opening(
            layout=open_layout(settings.home),
            session=SessionName("bench", session_id),
            cwd=str(home),
            limits=settings.limits,
            topology=FakeTopology({}),
            place=Place("none"),
        )
        self._runner = asyncio.Runner()
        self._life = coordinate(opening)
        self._coordinator = self._run(self._life.__aenter__())
        self._api = AdapterApi(Settled(self._coordinator))

    def request(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Ask as the session's host does and give the result."""
        return self._run(self._api.request(None, method, params))

    def sending(self, to: str, outcomes: list[str]) -> Sample:
        """Give the sample that sends one message; each adds to `outcomes` what the call said became of it."""
        return lambda: self._run(self._send(to, outcomes))

    def send_many(self, to: str, count: int) -> None:
        """Send messages one after the other."""
        outcomes: list[str] = []
        for _ in range(count):
            self._run(self._send(to, outcomes))

    async def _send(self, to: str, outcomes: list[str]) -> float:
        began = time.perf_counter()
        answer = await self._api.request(None, "session.send", {"target": to, "message": TEXT})
        elapsed = time.perf_counter() - began
        outcomes.append(str(answer["status"]))
        # Answered before the receipt's own row is committed, which would else run beside the next case.
        await self._coordinator.routes.written()
        return elapsed

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._life.__aexit__(kind, error, trace))
        self._runner.close()
