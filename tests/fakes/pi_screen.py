"""One real Pi in a terminal, which is a tmux with a server of its own: what a person types and sees."""

import subprocess
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.fakes.pi_host import MODEL, WAIT_S, PiFolder
from tests.fakes.real_hosts import program


class PiScreen:
    """Pi as a person runs it; leaving the context ends it and its terminal."""

    def __init__(self, folder: PiFolder, name: str, *words: str) -> None:
        self._tmux = ["tmux", "-S", str(folder.home / "tmux"), "-f", "/dev/null"]
        self._environ = folder.environ()
        command = [str(program("pi")), "--model", MODEL, "--name", name, *words]
        # `exec` in place of a shell's child: the terminal ends with Pi.
        self._run("new-session", "-d", "-x", "140", "-y", "50", "-c", str(folder.work(name)), "--", *command)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_over():
            self._run("kill-server")

    def _is_over(self) -> bool:
        ended = subprocess.run([*self._tmux, "has-session"], capture_output=True, check=False, timeout=WAIT_S)
        return ended.returncode != 0

    def _run(self, *words: str) -> str:
        ended = subprocess.run(
            [*self._tmux, *words],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=WAIT_S,
            check=True,
        )
        return ended.stdout

    def type(self, text: str) -> None:
        """Type characters, and press no key after them."""
        self._run("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press keys, by the names that tmux has for them."""
        self._run("send-keys", *keys)

    def shown(self) -> str:
        """Give what is on the screen, with what lies above it."""
        return self._run("capture-pane", "-p", "-J", "-S", "-500")

    def title(self) -> str:
        """Give the title that the terminal was told."""
        return self._run("display-message", "-p", "#{pane_title}").strip()

    def until(self, fits: Callable[[str], bool]) -> str:
        """Look at the screen until it fits, and give it."""
        deadline = time.monotonic() + WAIT_S
        while not fits(screen := self.shown()):
            if time.monotonic() > deadline:
                raise AssertionError(f"this is on the screen instead:\n{screen}")
        return screen

    def ended(self) -> bool:
        """Wait until Pi has ended, and with it the terminal."""
        deadline = time.monotonic() + WAIT_S
        while not (over := self._is_over()) and time.monotonic() < deadline:
            pass  # each look is a process of its own
        return over
