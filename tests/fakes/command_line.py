"""Real command lines: inside an agent's host, in a terminal of their own, and with neither.

It owns who starts a process and which terminal controls it, since that decides whose command line it is. It
is ignorant of what the commands do.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

from tests.fakes.herd_session import HERD, WAIT_S, Child, Parent, environment

_HOST = """
import json, os, socket, subprocess, sys
channel = socket.socket(fileno=int(sys.argv[1]))
children = {}
while True:
    data, given, _, _ = socket.recv_fds(channel, 1 << 20, 3)
    if not data:
        break
    asked = json.loads(data)
    if "wait" in asked:
        answer = children.pop(asked["wait"]).wait()
    else:
        streams = dict(zip(("stdin", "stdout", "stderr"), given))
        child = subprocess.Popen(asked["arguments"], **streams, cwd=asked["cwd"], env=asked["env"])
        children[child.pid] = child
        answer = child.pid
    for number in given:
        os.close(number)
    channel.sendall(json.dumps(answer).encode())
"""

_TAKE_TERMINAL = ': <>"$0"; exec "$@"'
"""A session leader without a controlling terminal gets the first one that it opens."""


class Host:
    """A process that starts others, as an agent program starts its session's server and its shell commands.

    Args:
        inside: The host that starts this one; the test itself where it is None.
    """

    def __init__(self, inside: "Host | None" = None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        self._channel.settimeout(WAIT_S)
        with theirs:
            self._process = _started_host(inside, theirs)

    @property
    def pid(self) -> int:
        """The pid that a coordinator started here puts on record as its host's."""
        return self._process.pid

    def start(
        self, arguments: list[str], *, stdin: int, stdout: int, stderr: int, cwd: str, env: dict[str, str]
    ) -> Child:
        """See `Parent.start`."""
        asked = {"arguments": arguments, "cwd": cwd, "env": env}
        return _HostedChild(self, self._ask(asked, [stdin, stdout, stderr]))

    def status(self, pid: int) -> int:
        """Give the exit status of a child that has ended."""
        return self._ask({"wait": pid}, [])

    def kill(self) -> None:
        """Kill the host alone; what it started lives on."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)

    def close(self) -> None:
        """End the host."""
        self._channel.close()
        self._process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, asked: dict[str, Any], given: list[int]) -> int:
        socket.send_fds(self._channel, [json.dumps(asked).encode()], given)
        return int(self._channel.recv(1 << 16))


def _started_host(inside: Host | None, channel: socket.socket) -> Child:
    bare = {name: os.environ[name] for name in ("PATH", "HERD_TEST_RUN")}
    if inside is None:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOST, str(channel.fileno())],
            pass_fds=[channel.fileno()],
            stdin=subprocess.DEVNULL,
            env=bare,
            start_new_session=True,
        )
    # What a host starts gets three descriptors and no more, so the channel is its standard input.
    return inside.start(
        [sys.executable, "-I", "-S", "-c", _HOST, "0"],
        stdin=channel.fileno(),
        stdout=2,
        stderr=2,
        cwd="/",
        env=bare,
    )


class _HostedChild:
    """See `herd_session.Child`."""

    def __init__(self, host: Host, pid: int) -> None:
        self.pid = pid
        self._host = host
        self._process = os.pidfd_open(pid)
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            if not select.select([self._process], [], [], timeout)[0]:
                raise TimeoutError(f"process {self.pid} still runs")
            os.close(self._process)
            self._status = self._host.status(self.pid)
        return self._status

    def __del__(self) -> None:
        if self._status is None:
            with suppress(OSError):
                os.close(self._process)


class Detached:
    """Starts processes that no host and no terminal has anything to do with, as cron does."""

    def start(
        self, arguments: list[str], *, stdin: int, stdout: int, stderr: int, cwd: str, env: dict[str, str]
    ) -> Child:
        """See `Parent.start`."""
        return subprocess.Popen(
            arguments, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env, start_new_session=True
        )


class Terminal:
    """Starts each process in a terminal of its own, which controls it, wherever its standard streams lead."""

    def __init__(self, parent: Parent | None = None) -> None:
        self._parent = parent or Detached()
        self._open = ExitStack()

    def open(self) -> tuple[int, int]:
        """Give the two sides of a new terminal: the person's, and the one that a process gets."""
        person, process = os.openpty()
        self._open.callback(os.close, person)
        self._open.callback(os.close, process)
        return person, process

    def start(
        self, arguments: list[str], *, stdin: int, stdout: int, stderr: int, cwd: str, env: dict[str, str]
    ) -> Child:
        """See `Parent.start`."""
        tty = next((one for one in (stdin, stdout) if os.isatty(one)), None) or self.open()[1]
        words = ["sh", "-c", _TAKE_TERMINAL, os.ttyname(tty), *arguments]
        return self._parent.start(words, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env)

    def close(self) -> None:
        """Close every terminal, as when the windows are closed."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Outcome(NamedTuple):
    """What a command left."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as the UTF-8 that it has to be."""
        return self.stdout.decode("utf-8")

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as the one JSON object that it has to be."""
        parsed: dict[str, Any] = json.loads(self.stdout)
        return parsed

    @property
    def refusal(self) -> dict[str, Any]:
        """Standard error as the one JSON object that it has to be."""
        parsed: dict[str, Any] = json.loads(self.stderr)
        return parsed


class Running:
    """A command that was started; as a context manager it is killed at the end if it still runs."""

    def __init__(self, child: Child, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        self.child = child
        self._stdout = stdout
        self._stderr = stderr

    @property
    def pid(self) -> int:
        """The pid of the process."""
        return self.child.pid

    def outcome(self, wait_s: float = WAIT_S) -> Outcome:
        """Wait until it has ended and give what it left."""
        status = self.child.wait(wait_s)
        told = [os.pread(file.fileno(), 1 << 24, 0) for file in (self._stdout, self._stderr)]
        return Outcome(status, told[0], told[1].decode(errors="replace"))

    def shown(self) -> bytes:
        """Give its output until now."""
        return os.pread(self._stdout.fileno(), 1 << 24, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.child.wait(0)
        except (TimeoutError, subprocess.TimeoutExpired):
            os.kill(self.pid, signal.SIGKILL)
            self.child.wait(WAIT_S)
        self._stdout.close()
        self._stderr.close()


class CommandLine:
    """Runs `herd` commands on one data root.

    Args:
        home: The data root.
        parent: Who starts them: a `Host`, a `Terminal`, or `Detached`.
        environ: Variables to add, or to put in place of those of `environment`.
        cwd: Where they run; the data root where it is None.
        herd: The command `herd`, where it is another copy of the code.
    """

    def __init__(
        self,
        home: Path,
        parent: Parent,
        *,
        environ: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        herd: tuple[str, ...] = HERD,
    ) -> None:
        self.parent = parent
        self._environ = {**environment(home), **(environ or {})}
        self._cwd = str(cwd or home)
        self.herd = herd

    def run(
        self, *words: str | bytes, stdin: bytes | int = b"", environ: Mapping[str, str] | None = None
    ) -> Outcome:
        """Run `herd WORDS...` to its end; see `start`."""
        with self.start(*words, stdin=stdin, environ=environ) as running:
            return running.outcome()

    def start(
        self,
        *words: str | bytes,
        stdin: bytes | int = b"",
        stdout: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Running:
        """Start `herd WORDS...`.

        Args:
            words: The arguments; bytes are passed as they are.
            stdin: What it reads, or the descriptor that it reads from.
            stdout: The descriptor that it writes to; a file where it is None, for `Running.outcome`.
            environ: Variables to add.
        """
        told, complained = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - see Running
        with ExitStack() as stack:
            if isinstance(stdin, bytes):
                source = stack.enter_context(tempfile.TemporaryFile())
                source.write(stdin)
                source.seek(0)
                stdin = source.fileno()
            child = self.parent.start(
                [*self.herd, *map(os.fsdecode, words)],
                stdin=stdin,
                stdout=told.fileno() if stdout is None else stdout,
                stderr=complained.fileno(),
                cwd=self._cwd,
                env={**self._environ, **(environ or {})},
            )
        return Running(child, told, complained)
