"""Processes that are forked in milliseconds from one that has imported everything, to be killed by thousands.

It owns a server process without threads and without an event loop, its children, and the tidings of their
ends. It is ignorant of what the children do: `tests/faults/deeds.py` says it.
"""

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

IN_TIME_S = 40.0
"""Seconds within which whatever a story waits for has to come, on two cores that others use as well."""

_ROOT = Path(__file__).parents[2]
_FRAME_BYTES = 65_536


class Fork(NamedTuple):
    """A child of the server, and our end of the socket that it holds."""

    pid: int
    socket: socket.socket
    ended: "asyncio.Future[int]"
    """Its exit status once it has ended and the kernel has freed what it held; a signal's number negative."""

    def kill(self) -> None:
        """End it now; `ended` says when it is gone. A pid is not given away before we were told its end."""
        if not self.ended.done():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """The server process.

    *Resource handling*: `close` ends it, and it ends its children; so does the end of this process.
    """

    def __init__(self) -> None:
        self.control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "tests.faults.forks", str(far.fileno())]
        with far:
            self._process = subprocess.Popen(command, pass_fds=[far.fileno()], cwd=_ROOT)
        self.control.settimeout(IN_TIME_S)
        assert json.loads(self.control.recv(_FRAME_BYTES)) == {"ready": True}
        self.control.setblocking(False)

    def close(self) -> None:
        """End the server and what it started."""
        self.control.close()
        self._process.wait(IN_TIME_S)

    @asynccontextmanager
    async def forks(self) -> AsyncIterator["Forks"]:
        """Fork on the running event loop; at the end every child is killed and gone."""
        loop = asyncio.get_running_loop()
        forks = Forks(self.control)
        loop.add_reader(self.control, forks.told)
        try:
            yield forks
        finally:
            await forks.end()
            loop.remove_reader(self.control)


class Forks:
    """The children of one test.

    Args:
        control: The socket of the server.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._forking = asyncio.Lock()
        self._forked: asyncio.Future[int] | None = None
        self._living: dict[int, Fork] = {}
        self._sockets: list[socket.socket] = []

    async def fork(self, deed: str, **given: Any) -> Fork:
        """Fork a child that does a deed of `tests/faults/deeds.py` with what is given."""
        near, far = socket.socketpair()
        near.setblocking(False)
        self._sockets.append(near)
        loop = asyncio.get_running_loop()
        async with self._forking, asyncio.timeout(IN_TIME_S):
            self._forked = loop.create_future()
            with far:
                socket.send_fds(self._control, [json.dumps({"deed": deed, **given}).encode()], [far.fileno()])
            pid = await self._forked
        return self._living[pid]._replace(socket=near)

    def told(self) -> None:
        """Take what the server has to tell."""
        frame = json.loads(self._control.recv(_FRAME_BYTES))
        pid = frame["pid"]
        if "status" in frame:
            self._living.pop(pid).ended.set_result(frame["status"])
            return
        assert self._forked is not None, "nothing was asked for"
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._living[pid] = Fork(pid, self._control, ended)
        self._forked.set_result(pid)

    async def end(self) -> None:
        """Kill every child that is left, and wait until all are gone."""
        left = list(self._living.values())
        for fork in left:
            fork.kill()
        async with asyncio.timeout(IN_TIME_S):
            for fork in left:
                await fork.ended
        for near in self._sockets:
            near.close()


def main() -> None:
    """Serve: fork for each frame that comes, and tell each child's end."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the test's affair, which closes the socket then
    from tests.faults.deeds import DEEDS

    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    _tell(control, ready=True)
    children: dict[int, int] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is control:
                if not _forked(control, selector, children, DEEDS):
                    return _killed(children)
            else:
                _reap(control, selector, children, key.fd)


def _forked(
    control: socket.socket,
    selector: selectors.BaseSelector,
    children: dict[int, int],
    deeds: dict[str, Callable[..., None]],
) -> bool:
    """Fork for one frame; False where the socket has ended."""
    frame, descriptors, _, _ = socket.recv_fds(control, _FRAME_BYTES, 1)
    if not frame:
        return False
    given = json.loads(frame)
    pid = os.fork()
    if pid == 0:
        _do(control, selector, deeds[given.pop("deed")], descriptors[0], given)
    os.close(descriptors[0])
    handle = os.pidfd_open(pid)
    children[handle] = pid
    selector.register(handle, selectors.EVENT_READ)
    _tell(control, pid=pid)
    return True


def _do(
    control: socket.socket,
    selector: selectors.BaseSelector,
    deed: Callable[..., None],
    descriptor: int,
    given: dict[str, Any],
) -> None:
    """Be the child, to its end."""
    status = 1
    try:
        for key in list(selector.get_map().values()):
            if key.fileobj is not control:
                os.close(key.fd)
        selector.close()
        control.close()
        deed(socket.socket(fileno=descriptor), **given)
        status = 0
    except BaseException:  # noqa: BLE001 - a child that went on would be a second server
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _reap(
    control: socket.socket, selector: selectors.BaseSelector, children: dict[int, int], handle: int
) -> None:
    pid = children.pop(handle)
    selector.unregister(handle)
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        _tell(control, pid=pid, status=os.waitstatus_to_exitcode(status))


def _killed(children: dict[int, int]) -> None:
    for pid in children.values():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _tell(control: socket.socket, **frame: Any) -> None:
    control.send(json.dumps(frame).encode())


if __name__ == "__main__":
    main()
