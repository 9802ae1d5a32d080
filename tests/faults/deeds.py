"""What a forked process does: coordinate a session, or visit one that sleeps.

It owns the insides of those processes: what they serve, and where and when they die. Importing it imports
everything that such a process may ever need.
"""

import asyncio
import os
import resource
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401 - as below
import filelock  # noqa: F401 - as below
import uuid_utils  # noqa: F401 - imported at the first send, and here before any fork

from assignments.worktrees.fake import FakeTopology
from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.coordinator.authority import Authority
from herd.coordinator.coordinator import Coordinator, coordinate
from herd.coordinator.opening import Opening
from herd.core.build import running_build
from herd.core.clock import SystemClock
from herd.core.config import Place
from herd.core.errors import PeerOffline, QueueFull
from herd.core.identity import SessionName, target_of
from herd.core.locks import wait_until_free
from herd.core.paths import Layout
from herd.mail.inbox import Sender
from herd.mail.reach import VisitReach
from herd.mail.wire import Envelope, read_envelope
from herd.rpc.connection import Connection
from roles.eligibility import Leads
from roles.model import Party
from tests.fakes.bounds import UNHURRIED

VISITED_AT_ONCE = 4
"""Messages that a visitor hands in at once, at most."""

_WAITS_AT_MOST = 20
"""A process that is killed after some time of its own is killed at the latest after so many times as much."""

running_build()  # it reads every file of ours; a child has what the server read


class Fate:
    """Where a process dies or stops, and the record of every step that it took.

    Args:
        log: The file that gets a line for each step; empty for none.
        at: The step at which something happens, empty for nowhere.
        nth: At which passing.
        what: `kill`, or `freeze`: then the thread that took the step goes no further.
        behind: Count passings only from the time that this step was taken,
        behind_nth: at this passing.
    """

    def __init__(
        self,
        *,
        log: str = "",
        at: str = "",
        nth: int = 1,
        what: str = "kill",
        behind: str = "",
        behind_nth: int = 1,
    ) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) if log else -1
        self._at, self._nth, self._what = at, nth, what
        self._behind, self._behind_nth = behind, behind_nth if behind else 0
        self._taken: Counter[str] = Counter()
        self.stopped = threading.Event()
        """Set once a thread is frozen."""

    def __call__(self, step: str) -> None:
        if self._log >= 0:
            os.write(self._log, f"{step}\n".encode())
        if step == self._behind:
            self._behind_nth -= 1
        if step != self._at or self._behind_nth > 0:
            return
        self._taken[step] += 1
        if self._taken[step] == self._nth:
            self._die()

    def _die(self) -> None:
        if self._what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        self.stopped.set()
        threading.Event().wait()


class _Host:
    """Serves the tools of a session, and as `command.*` a command line of it.

    `test.disk` lets writes fail beyond that size of a file, or none with -1; `test.stopped` answers once the
    fate has frozen a thread, which must be the one of the mailbox.
    """

    def __init__(self, coordinator: Coordinator, fate: Fate) -> None:
        self._fate = fate
        self.tools = AdapterApi(Settled(coordinator))
        self._command = AdapterApi(Settled(coordinator), command=True)

    async def request(self, connection: Connection, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "test.disk":
            _limit_files(params["bytes"])
            return {}
        if method == "test.stopped":
            await asyncio.to_thread(self._fate.stopped.wait)
            return {}
        if method.startswith("command."):
            method = method.replace("command.", "session.", 1)
            return await self._command.request(connection, method, params)
        return await self.tools.request(connection, method, params)

    async def unsent(
        self, connection: Connection, method: str, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        await self.tools.unsent(connection, method, params, result)

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        pass


def coordinate_session(
    channel: socket.socket,
    *,
    root: str,
    host: str,
    session_id: str,
    fate: dict[str, Any] | None = None,
    dies_after_s: float = 0,
    of_its_own_time: bool = False,
) -> None:
    """Coordinate a session and serve its host on the channel, until the channel ends.

    Args:
        channel: Speaks JSON-RPC lines.
        root: The folder of this machine, made before.
        host: The host's word.
        session_id: The host's own id.
        fate: The arguments of a `Fate`.
        dies_after_s: Seconds after which the kernel ends the process, whatever it is doing; 0 for never.
        of_its_own_time: Whether those are seconds of computing rather than of waiting.
    """
    _die_after(dies_after_s, of_its_own_time=of_its_own_time)
    session = SessionName(host, session_id)
    step = Fate(**fate or {})
    opening = Opening(
        layout=Layout(root),
        session=session,
        cwd=f"/work/{session_id}",
        limits=UNHURRIED,
        topology=FakeTopology({}),
        place=Place("none"),
        name=session_id,
        step=step,
    )
    asyncio.run(_served(opening, step, channel))


async def _served(opening: Opening, fate: Fate, channel: socket.socket) -> None:
    async with coordinate(opening) as coordinator:
        reader, writer = await asyncio.open_connection(sock=channel)
        host = _Host(coordinator, fate)
        await Connection(reader, writer, host).run()
        host.tools.ended()


def visit_session(
    channel: socket.socket,
    *,
    root: str,
    visitor: str,
    host: str,
    session_id: str,
    begin: int,
    dies_after_s: float,
    of_its_own_time: bool,
) -> None:
    """Hand in messages by visits, some at once, and say on the channel the number of each accepted one.

    Args:
        channel: Gets a line for each message that was accepted.
        root: The folder of this machine.
        visitor: The session id of the sender.
        host: The host of the session that is visited.
        session_id: Its host's own id.
        begin: The number of the first message.
        dies_after_s: See `coordinate_session`.
        of_its_own_time: See `coordinate_session`.
    """
    _die_after(dies_after_s, of_its_own_time=of_its_own_time)
    asyncio.run(_visited(channel, Layout(root), visitor, SessionName(host, session_id), begin))


async def _visited(
    channel: socket.socket, layout: Layout, visitor: str, session: SessionName, number: int
) -> None:
    mine = SessionName("claude", visitor)
    sender = Sender(mine.key, target_of("lead", mine.key), "lead", mine.host, visitor)
    authority = Authority(layout, Leads())
    parties = Party(mine.key, "lead", "ordinary"), Party(session.key, "lead", "ordinary")
    reach = VisitReach(
        layout,
        session.key,
        sender,
        lambda: authority.allowed(*parties),
        limits=UNHURRIED,
        clock=SystemClock(),
    )
    while True:
        try:
            numbers = range(number, number + 1 + number % VISITED_AT_ONCE)
            to = target_of("lead", session.key)
            taken = await reach.accept_together([_numbered(sender.target, to, visitor, n) for n in numbers])
            number = _told(channel, number, len(taken.receipts))
            if taken.refusal is not None:
                raise taken.refusal
        except PeerOffline:
            # A coordinator has it, or another visitor: its end is waited for here, since no visit waits.
            await asyncio.to_thread(wait_until_free, layout.session_lock(session.key))
            await asyncio.to_thread(wait_until_free, layout.mailbox_lock(session.key))
            continue
        except QueueFull as full:
            await asyncio.sleep(full.details["retry_after_ms"] / 1000)


def _told(channel: socket.socket, number: int, count: int) -> int:
    """Say that so many messages from a number on are accepted, and give the number of the next one."""
    for one in range(number, number + count):
        channel.send(f"{one}\n".encode())
    return number + count


def _numbered(sender: str, to: str, visitor: str, number: int) -> Envelope:
    message_id = f"{visitor}-{number}"
    return read_envelope(
        {
            "version": 1,
            "messageId": message_id,
            "from": {"session": sender},
            "to": to,
            "content": f"{visitor} {number}",
            "createdAt": 1_800_000_000_000,
            "correlationId": message_id,
            "conversation": {"id": message_id, "depth": 0},
        }
    )


def _die_after(seconds: float, *, of_its_own_time: bool) -> None:
    """Let the kernel end this process: the default action of a timer's signal asks nobody."""
    if seconds and of_its_own_time:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        seconds *= _WAITS_AT_MOST
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit_files(size: int) -> None:
    """Let every write fail that would go beyond this size of its file; -1 ends that."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size if size >= 0 else hard, hard))


DEEDS: dict[str, Callable[..., None]] = {"coordinate": coordinate_session, "visit": visit_session}
