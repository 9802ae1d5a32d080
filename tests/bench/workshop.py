"""Where a benchmark works: a folder on a real disk, data roots in it, and sessions that run on them.

It owns what has to be thrown away afterwards. It is ignorant of what is measured.
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.floors import MESSAGE_BYTES
from tests.bench.measuring import Sample
from tests.bench.report import Check
from tests.fakes.herd_session import HerdSession

HERD = str(Path(sys.executable).with_name("herd"))
"""The command as it is installed for people."""

AS_INSTALLED = {"PYTHONWARNINGS": "", "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": ""}
"""What the tests' sessions are started with and a person's are not; an empty variable counts as unset."""

_WIDE_LIMITS = """\
[limits]
inbox_messages = 100000
pending_requests = 512
rate_per_second = 100000
rate_burst = 100000
storage_bytes = 2000000000
inline_attachment_bytes = 1048576
mailbox_payload_bytes = 1048576
"""
"""Settings for a benchmark that asks for more at once than one session's host does."""

TEXT = "x" * MESSAGE_BYTES
"""The text of every message whose latency is measured."""


class Workshop:
    """A context manager that removes at its end whatever was made in it.

    Args:
        parent: Where its folder is made. /var/tmp is on a disk where /tmp may be memory, and short enough for
            a socket's path.
    """

    def __init__(self, parent: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hb-", dir=parent))
        self._homes = 0

    def home(self, *, wide: bool = False) -> Path:
        """Make an empty data root.

        Args:
            wide: Whether with settings that let bursts through; most people have no settings, and reading
                them costs a start some milliseconds.
        """
        self._homes += 1
        home = self.folder / f"{self._homes}"
        home.mkdir(mode=0o700)
        if wide:
            settings = home / "config" / "herd"
            settings.mkdir(parents=True, mode=0o700)
            (settings / "config.toml").write_text(_WIDE_LIMITS, encoding="utf-8")
        return home

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder)


def session(home: Path, session_id: str) -> HerdSession:
    """Start a session as a host's extension does, and wait until it coordinates."""
    started = HerdSession(home, "bench", session_id, herd=(HERD,), environ=AS_INSTALLED)
    try:
        return started.ready()
    except BaseException:
        started.close()
        raise


def target(one: HerdSession) -> str:
    """Give the target of a session."""
    return str(one.request("session.whoami")["target"])


def send(sender: HerdSession, to: str) -> str:
    """Send `TEXT` and give what the call said became of it."""
    return str(sender.request("session.send", target=to, message=TEXT)["status"])


def sending(sender: HerdSession, to: str, outcomes: list[str]) -> Sample:
    """Give the sample that sends one message; each adds to `outcomes` what the call said became of it."""

    def sample() -> float:
        began = time.perf_counter()
        outcomes.append(send(sender, to))
        elapsed = time.perf_counter() - began
        # Answered behind the commit of the receipt's own row, which would else run beside the next case.
        sender.request("session.read")
        return elapsed

    return sample


def all_taken(outcomes: list[str]) -> Check:
    """Check that no send was refused; one that a busy machine made late is answered `queued`."""
    other = sorted(set(outcomes) - {"accepted", "queued"})
    return Check("every one of these sends was taken", f"some were {', '.join(other)}" if other else None)
