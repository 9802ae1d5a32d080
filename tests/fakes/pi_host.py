"""Real Pi processes with Herd's extension and a scripted model, driven over Pi's RPC mode.

`PiFolder` is a home with Pi's settings in it; `PiRpc` is one process. No wait is without a bound.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from herd.hosts.pi.files import extension_text
from tests.fakes.herd_session import environment
from tests.fakes.real_hosts import program

WAIT_S = 20.0
"""Seconds within which whatever a test waits for has to come."""

MODEL = "herd/scripted"

HERD_COMMAND = str(Path(sys.executable).parent / "herd")
"""The command `herd` of this environment, as an installed extension names it."""

Record = dict[str, Any]


class PiFolder:
    """A home of Pi: its model is the scripted one, its extension is ours.

    Args:
        home: The data root of Herd, and the home of every process.
        model_url: Where the scripted model answers.
        herd: The command that the extension starts.
    """

    def __init__(self, home: Path, model_url: str, *, herd: str = HERD_COMMAND) -> None:
        self.home = home
        agent = home / ".pi" / "agent"
        self.extension = agent / "extensions" / "herd.ts"
        self.extension.parent.mkdir(parents=True)
        model = {"id": "scripted", "name": "Scripted", "input": ["text"], "contextWindow": 200_000}
        provider = {"baseUrl": f"{model_url}/v1", "api": "openai-completions", "apiKey": "x"}
        provider["models"] = [model]  # type: ignore[assignment]
        (agent / "models.json").write_text(json.dumps({"providers": {"herd": provider}}), encoding="utf-8")
        self.install(herd)

    def install(self, herd: str = HERD_COMMAND) -> None:
        """Put the extension where Pi looks for it."""
        text = extension_text(herd, {"HERD_HOME": str(self.home)})
        self.extension.write_text(text, encoding="utf-8")

    def work(self, name: str) -> Path:
        """Give a folder to work in; its name becomes the session's."""
        folder = self.home / "work" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def environ(self) -> dict[str, str]:
        """Give the variables of a Pi process: nothing is fetched, nothing reported."""
        return environment(self.home, PI_OFFLINE="1", PI_TELEMETRY="0", TERM="xterm-256color")


class PiRpc:
    """One `pi --mode rpc`; leaving the context ends it in order.

    Args:
        folder: Its home.
        name: The folder it works in.
        words: More arguments, such as `--session-id ID`.
    """

    def __init__(self, folder: PiFolder, name: str, *words: str) -> None:
        self.name = name
        self.records: list[Record] = []
        self._changed = threading.Condition()
        self._asked = 0
        self.process = subprocess.Popen(
            [program("pi"), "--mode", "rpc", "--model", MODEL, *words],
            cwd=folder.work(name),
            env=folder.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.errors = b""
        self._readers = [threading.Thread(target=target) for target in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> float:
        """End it as its client does, by the end of its input; gives the seconds that took."""
        began = time.monotonic()
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
            self.process.wait(WAIT_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(WAIT_S)
            for reader in self._readers:
                reader.join(WAIT_S)
            for stream in (self.process.stdout, self.process.stderr):
                assert stream is not None
                stream.close()
        return time.monotonic() - began

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            record = json.loads(line)  # anything else on standard output breaks the client, and so this test
            with self._changed:
                self.records.append(record)
                self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors = self.process.stderr.read()

    # --- asking ---------------------------------------------------------------------------------------

    def ask(self, kind: str, **more: Any) -> Record:
        """Send a command and give its answer."""
        self._asked += 1
        own = f"test-{self._asked}"
        self.send({"id": own, "type": kind, **more})
        answer = self.wait(lambda record: record.get("type") == "response" and record.get("id") == own)
        assert answer["success"], answer
        return answer

    def send(self, record: Record) -> None:
        """Send a record and wait for nothing."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(record).encode() + b"\n")
        self.process.stdin.flush()

    def mark(self) -> int:
        """Give the number of records so far, for `since`."""
        with self._changed:
            return len(self.records)

    def wait(self, fits: Callable[[Record], bool], *, since: int = 0) -> Record:
        """Give the first record that fits, among those from number `since` on."""

        def found() -> Record | None:
            return next((record for record in self.records[since:] if fits(record)), None)

        with self._changed:
            if not self._changed.wait_for(lambda: found() is not None, WAIT_S):
                kinds = [record.get("type") for record in self.records]
                raise AssertionError(f"{self.name}: no such record among {kinds[-30:]}; {self.errors!r}")
            record = found()
        assert record is not None
        return record

    def settled(self, since: int = 0) -> Record:
        """Wait until a run has ended."""
        return self.wait(lambda record: record["type"] == "agent_settled", since=since)

    def footers(self, *, since: int = 0) -> list[str | None]:
        """Give what Herd showed in the footer, one after the other; None where it took that away."""
        with self._changed:
            records = self.records[since:]
        return [record.get("statusText") for record in records if _is_footer(record)]

    def footer(self, text: str | None, *, since: int = 0) -> int:
        """Wait until Herd shows this in the footer, None for nothing, and give the mark from then."""
        self.wait(lambda record: _is_footer(record) and record.get("statusText") == text, since=since)
        return self.mark()

    def prompt(self, text: str) -> int:
        """Let a person prompt, and give the mark from before."""
        mark = self.mark()
        self.ask("prompt", message=text)
        return mark

    def run(self, text: str) -> str:
        """Let a person prompt, wait until the run has ended, and give the model's last words."""
        self.settled(self.prompt(text))
        words = self.ask("get_last_assistant_text")["data"]["text"]
        return str(words)

    def session_id(self) -> str:
        """Give the id of the session it has now."""
        return str(self.ask("get_state")["data"]["sessionId"])

    def children(self) -> list[int]:
        """Give the processes `herd session` that it runs."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = []
        for pid in map(int, path.read_text(encoding="ascii").split()):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"session" in words and os.fsencode(HERD_COMMAND) in words:
                found.append(pid)
        return found


def _is_footer(record: Record) -> bool:
    return record.get("method") == "setStatus" and record.get("statusKey") == "herd"
