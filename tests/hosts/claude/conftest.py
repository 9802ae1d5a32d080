"""Real Claude Code sessions beside one session that the test itself drives."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from herd.mail.header import NOTICE
from tests.fakes.claude_host import ClaudeFolder, ClaudeTui, until
from tests.fakes.herd_session import HerdSession
from tests.fakes.model_script import Answer
from tests.fakes.model_server import ModelServer, Request

_SETTLED = b"Channel notifications skipped"
"""What Claude Code notes of a server last, once it has asked it for its tools."""

Policy = Callable[[Request], Answer | None]


class ClaudeWorld:
    """A model, Claude Code sessions that ask it, and `other`: a session in the test's hands."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.home = home
        self.policy: Policy = lambda _request: None
        self.model = stack.enter_context(ModelServer(self._answer))
        self.folder = ClaudeFolder(home, self.model.url)
        self.other = stack.enter_context(HerdSession(home, "codex", "other", name="other")).ready()

    def _answer(self, request: Request) -> Answer | None:
        return self.policy(request)

    def claude(self, name: str, *words: str, **more: Any) -> ClaudeTui:
        """Start Claude Code in a folder of that name, and do not wait for it."""
        return self._stack.enter_context(ClaudeTui(self.folder, name, *words, **more))

    def started(self, name: str = "a", *words: str, **more: Any) -> tuple[ClaudeTui, str]:
        """Start Claude Code, wait until it is idle and listed, and give its target too."""
        claude = self.claude(name, *words, **more).ready()
        self.knows_tools(claude)
        return claude, self.listed(lambda peer: peer["cwd"].endswith(f"/{name}"))

    def knows_tools(self, claude: ClaudeTui) -> None:
        """Wait until Claude Code has our tools: what it learns after its first prompt it hides."""
        until(
            lambda: any(_SETTLED in log.read_bytes() for log in self._logs(claude)), "it has no tools of ours"
        )

    def _logs(self, claude: ClaudeTui) -> list[Path]:
        logs = (self.home / ".cache").rglob("mcp-logs-herd/*.jsonl")
        return [log for log in logs if claude.session_id.encode() in log.read_bytes()]

    def listed(self, fits: Callable[[dict[str, Any]], bool]) -> str:
        """Wait until one such peer is listed, and give its target."""
        return str(self.peer(fits)["target"])

    def peer(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until one such peer is listed, and give what is shown of it."""
        found: list[dict[str, Any]] = []

        def one() -> bool:
            found[:] = [peer for peer in self.other.request("session.list")["peers"] if fits(peer)]
            return len(found) == 1

        until(one, "no such peer is listed")
        return found[0]

    def send(self, target: str, text: str, **more: Any) -> str:
        """Send a message from `other`, and give its id."""
        return str(self.other.request("session.send", target=target, message=text, **more)["message_id"])

    def state(self, message_id: str) -> str:
        """Give the state of a message that `other` sent."""
        return str(self.other.request("session.status", message_id=message_id)["state"])

    def becomes(self, message_id: str, state: str) -> bool:
        """Wait until a message that `other` sent has come to a state, by the receipts that come."""
        while self.state(message_id) != state:
            news = self.other.request("session.read", wait_ms=10_000)
            if news["timed_out"]:
                break
        return self.state(message_id) == state

    def flags(self) -> set[str]:
        """Give the names of the flags that stand now."""
        return {path.name for path in self.home.glob("*/hooks/*")}

    def wants(self, claude: ClaudeTui) -> None:
        """Wait until a session's hooks have something to do."""
        until(lambda: f"{claude.session_id}-{claude.pid}" in self.flags(), "no flag stands")

    @property
    def notices(self) -> int:
        """How many turns the notice began."""
        return sum(NOTICE in request.fresh for request in self.model.requests)

    def notify_only(self) -> None:
        """Set `idle = "notify"` for the sessions that start from now on."""
        config = self.home / "config" / "herd" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text('idle = "notify"\n', encoding="utf-8")


@pytest.fixture
def world(home: Path) -> Iterator[Any]:
    """Give a model, a place for Claude Code sessions, and the session `other`."""
    with ExitStack() as stack:
        yield ClaudeWorld(home, stack)
