"""Real coordinators inside the test's own event loop, over real sockets and real mailboxes.

It owns opening one, asking it as a host's adapter does, and looking at what it stored. It is ignorant of what
is asked.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from assignments.worktrees.fake import FakeTopology
from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.coordinator import Coordinator, coordinate
from herd.coordinator.opening import Opening
from herd.core.clock import SystemClock
from herd.core.config import Place
from herd.core.identity import SessionName, target_of
from herd.core.limits import SEND_WAIT_MS
from herd.core.paths import Layout
from herd.mail import inbox, outbox
from herd.mail.inbox import Incoming
from herd.mail.outbox import Outgoing
from herd.presence.record import Presence, Record
from herd.presence.registry import Registry
from tests.fakes.bounds import UNHURRIED

IN_TIME_S = 20.0
"""Seconds within which whatever a test waits for has to come; two busy cores may need some of them."""

NOWHERE = Place("none")


class PatientClock(SystemClock):
    """The kernel's clocks, but for the wait of a send, which has all the time that a busy machine needs."""

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await super().sleep(_patient(seconds))

    def after(self, seconds: float, call: Callable[[], object]) -> Callable[[], object]:
        """See `Clock.after`."""
        return super().after(_patient(seconds), call)


def _patient(seconds: float) -> float:
    return IN_TIME_S if seconds == SEND_WAIT_MS / 1000 else seconds


def opening_of(layout: Layout, session: SessionName, **chosen: Any) -> Opening:
    """Give what a session is opened with: the real things, but a topology that knows no checkout."""
    given = {
        "cwd": f"/work/{session.session_id}",
        "limits": UNHURRIED,
        "topology": FakeTopology({}),
        "place": NOWHERE,
        "jitter": lambda: 0.0,
        "clock": PatientClock(),
        **chosen,
    }
    return Opening(layout=layout, session=session, **given)


class Steps:
    """The fault-test seam: waits for a step, or lets it fail.

    Attributes:
        faults: What each of these steps raises, for as long as it stands here.
    """

    def __init__(self) -> None:
        self.faults: dict[str, Callable[[], BaseException]] = {}
        self._taken: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def __call__(self, step: str) -> None:
        # In the thread of a mailbox, too.
        self._loop.call_soon_threadsafe(self._note, step)
        if step in self.faults:
            raise self.faults[step]()  # noqa: RSE102 - it makes one

    def taken(self, step: str) -> int:
        """Count how often a step was taken, the failed ones included."""
        return self._taken[step]

    async def reached(self, step: str, times: int = 1) -> None:
        """Wait until a step was taken that often."""
        async with asyncio.timeout(IN_TIME_S):
            while self._taken[step] < times:
                news = self._news
                await news.wait()

    def _note(self, step: str) -> None:
        self._taken[step] += 1
        self._news.set()
        self._news = asyncio.Event()


class Running:
    """One session that runs, and its host's adapter.

    Args:
        layout: The folders of its machine.
        coordinator: Its coordinator.
    """

    def __init__(self, layout: Layout, coordinator: Coordinator) -> None:
        self.layout = layout
        self.coordinator = coordinator
        self.adapter = AdapterApi(Settled(coordinator))

    @property
    def key(self) -> str:
        return self.coordinator.own.key

    @property
    def target(self) -> str:
        return self.coordinator.own.target

    @property
    def token(self) -> str:
        return content_of(self.layout.token(self.key)).decode()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask as the session's host does; `sender` stands for the field `from`."""
        return await asked(self.adapter, method, **params)

    def other_adapter(self, *, command: bool = False) -> AdapterApi:
        """Give one more adapter: another reader of the same session, or a person's command line."""
        return AdapterApi(Settled(self.coordinator), command=command)

    async def sees(self, *others: "Running") -> None:
        """List the peers, so that they count as shown; those named must be among them."""
        found = await self.ask("list")
        assert {other.target for other in others} <= {peer["target"] for peer in found["peers"]}

    async def send(self, to: "Running | str", message: str = "hello", **more: Any) -> dict[str, Any]:
        """Send a message to a session that was shown."""
        target = to if isinstance(to, str) else to.target
        return await self.ask("send", target=target, message=message, **more)

    async def read(self, **query: Any) -> dict[str, Any]:
        """Read what waits."""
        return await self.ask("read", **query)

    async def texts(self, **query: Any) -> list[str]:
        """Read what waits and give the texts."""
        return [message["text"] for message in (await self.read(**query))["messages"]]

    async def whole(self, message_id: str, **query: Any) -> str:
        """Read one message, or one attached file of it, from its beginning to its end."""
        parts: list[str] = []
        offset: int | None = 0
        while offset is not None:
            (shown,) = (await self.read(message_id=message_id, offset=offset, **query))["messages"]
            parts.append(shown["text"])
            offset = shown.get("next_offset")
        return "".join(parts)

    async def state(self, message_id: str) -> str:
        """Give the state that the session's own outbox shows, asking nobody."""
        row = await self.coordinator.mailbox.run(lambda c: outbox.required(c, message_id))
        return row.receipt.state

    async def incoming(self) -> list[Incoming]:
        """Give every row of the inbox in the order of acceptance."""
        rows: list[Incoming] = await self._rows("inbox", inbox.by_id)
        return rows

    async def outgoing(self) -> list[Outgoing]:
        """Give every row of the outbox in the order of sending."""
        rows: list[Outgoing] = await self._rows("outbox", lambda c, one: [outbox.required(c, one)])
        return rows

    def record(self) -> Record:
        """Read the session's record anew."""
        record = Registry(self.layout).record(self.key)
        assert record is not None, "the session is not on record"
        return record

    def presence(self) -> Presence:
        """Read the session's presence anew."""
        presence = self.record().presence
        assert presence is not None, "the session has no presence"
        return presence

    async def until_state(self, message_id: str, state: str) -> None:
        """Wait until the outbox shows that state."""
        await until_async(lambda: self._is(message_id, state))

    async def until_outcome(self, message_id: str, outcome: str) -> dict[str, Any]:
        """Wait until a message's status has that outcome, and give the status.

        A call may answer, where it waits no longer, before what its first try came to is known.
        """
        told: dict[str, Any] = {}

        async def has_it() -> bool:
            told.update(await self.ask("status", message_id=message_id))
            return told.get("outcome") == outcome

        await until_async(has_it)
        return told

    async def _is(self, message_id: str, state: str) -> bool:
        return await self.state(message_id) == state

    async def _rows(self, table: str, find: Callable[[sqlite3.Connection, str], Any]) -> Any:
        order = {"inbox": "sequence", "outbox": "position"}[table]

        def work(connection: sqlite3.Connection) -> list[Any]:
            ids = connection.execute(f"SELECT DISTINCT message_id FROM {table} ORDER BY {order}").fetchall()
            return [row for (one,) in ids for row in find(connection, one)]

        return await self.coordinator.mailbox.read(work) or []


async def asked(adapter: AdapterApi, method: str, **params: Any) -> dict[str, Any]:
    """Ask through an adapter, within the bound; `sender` stands for the field `from`."""
    if "sender" in params:
        params["from"] = params.pop("sender")
    async with asyncio.timeout(IN_TIME_S):
        return await adapter.request(None, f"session.{method}", params)


@asynccontextmanager
async def running(layout: Layout, session: SessionName, **chosen: Any) -> AsyncIterator[Running]:
    """Run a session until the block ends."""
    async with coordinate(opening_of(layout, session, **chosen)) as coordinator:
        yield Running(layout, coordinator)


def content_of(path: str) -> bytes:
    """Read a small file whole."""
    with open(path, "rb") as file:
        return file.read()


def sleeping_target(session: SessionName) -> str:
    """Give the target of a session that need not run."""
    return target_of("lead", session.key)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds, looking at every turn of the loop."""

    async def holds() -> bool:
        return condition()

    await until_async(holds)


async def until_async(condition: Callable[[], Any]) -> None:
    """Wait until something that is asked for holds."""
    async with asyncio.timeout(IN_TIME_S):
        while not await condition():  # noqa: ASYNC110 - what is looked at has no event of its own
            await asyncio.sleep(0)
