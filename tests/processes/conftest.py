"""Hosts, sessions and command lines of one data root, all ended with their test."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from herd.core.identity import SessionName
from herd.core.locks import HeldLock
from herd.core.paths import Layout, open_layout
from tests.fakes.command_line import CommandLine, Detached, Host, Terminal
from tests.fakes.herd_session import HerdSession, Parent


class Machine:
    """Everything that a test starts on one data root.

    Sessions are started by `host`, a process beside the test: so a command in a terminal has no host.
    """

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home = home
        self._stack = stack
        self.host = self.new_host()
        self.terminal = stack.enter_context(Terminal())
        self.shell = self.command_line(self.terminal)
        """A person's shell."""
        self.inside = self.command_line(self.host)
        """The shell of an agent that `host` is."""
        self.cron = self.command_line(Detached())
        """Neither."""

    @property
    def layout(self) -> Layout:
        """The folders of this machine."""
        return open_layout(str(self.home))

    def new_host(self, inside: Host | None = None) -> Host:
        """Start another host."""
        return self._stack.enter_context(Host(inside))

    def command_line(self, parent: Parent, **more: Any) -> CommandLine:
        """Give command lines of another parent, or with other surroundings."""
        return CommandLine(self.home, parent, **more)

    def session(self, host: str | None, session_id: str = "", **more: Any) -> HerdSession:
        """Start a session and wait until it coordinates."""
        return self.starting(host, session_id, **more).ready()

    def starting(self, host: str | None, session_id: str = "", **more: Any) -> HerdSession:
        """Start a session."""
        more.setdefault("parent", self.host)
        return self._stack.enter_context(HerdSession(self.home, host, session_id, **more))

    @contextmanager
    def visited(self, session: SessionName) -> Iterator[None]:
        """Hold a session's mailbox, as a visitor does for a moment."""
        with HeldLock.acquire(self.layout.mailbox_lock(session.key)):
            yield


@pytest.fixture
def machine(home: Path) -> Iterator[Machine]:
    """Give a data root with nothing on it, and what starts things there."""
    with ExitStack() as stack:
        yield Machine(home, stack)
