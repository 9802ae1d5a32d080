"""Real Pi sessions beside one session that the test itself drives."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from herd.core.paths import Layout, open_layout
from tests.fakes.herd_session import HerdSession
from tests.fakes.model_script import Answer
from tests.fakes.model_server import ModelServer, Request
from tests.fakes.pi_host import WAIT_S, PiFolder, PiRpc

Policy = Callable[[Request], Answer | None]


class PiWorld:
    """A model, Pi sessions that ask it, and `other`: a session of another host, in the test's hands."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.home = home
        self.policy: Policy = lambda _request: None
        self.model = stack.enter_context(ModelServer(self._answer))
        self.folder = PiFolder(home, self.model.url)
        self.other = stack.enter_context(HerdSession(home, "codex", "other", name="other")).ready()

    @property
    def layout(self) -> Layout:
        """The folders of this machine."""
        return open_layout(str(self.home))

    def _answer(self, request: Request) -> Answer | None:
        return self.policy(request)

    def pi(self, name: str, *words: str) -> PiRpc:
        """Start a Pi session of that name, and do not wait for it."""
        return self._stack.enter_context(PiRpc(self.folder, name, "--name", name, *words))

    def target(self, name: str) -> str:
        """Wait until a session of that name is listed, and give its target."""
        return self.other.until_listed(name)

    def started(self, name: str, *words: str) -> tuple[PiRpc, str]:
        """Start a Pi session, wait until the other sees it, and give its target too."""
        pi = self.pi(name, *words)
        return pi, self.target(name)

    def state(self, message_id: str) -> str:
        """Give the state of a message that `other` sent."""
        return str(self.other.request("session.status", message_id=message_id)["state"])

    def becomes(self, message_id: str, state: str) -> bool:
        """Wait until a message that `other` sent has come to a state, and give whether it has."""
        deadline = time.monotonic() + WAIT_S
        while self.state(message_id) != state and time.monotonic() < deadline:
            self.other.request("session.read", reply_to=message_id, wait_ms=250)
        return self.state(message_id) == state

    def shows(self, name: str, activity: str) -> bool:
        """Wait until the session of that name is listed with this activity, and give whether it is."""
        deadline = time.monotonic() + WAIT_S
        while (found := self._activity(name)) != activity and time.monotonic() < deadline:
            pass  # each look asks another process
        return found == activity

    def _activity(self, name: str) -> str | None:
        peers = self.other.request("session.list")["peers"]
        return next((peer.get("activity") for peer in peers if peer["name"] == name), None)

    def wake_nobody(self) -> None:
        """Set `idle = "notify"` for the sessions that start from now on."""
        config = self.home / "config" / "herd" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text('idle = "notify"\n', encoding="utf-8")


@pytest.fixture
def world(home: Path) -> Iterator[Any]:
    """Give a model, a place for Pi sessions, and the session `other`."""
    with ExitStack() as stack:
        yield PiWorld(home, stack)
