"""The program that a hook runs, as a process of its own, against a server in the test's hands."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from herd.core.limits import HOOK_INPUT_BYTES
from herd.hosts.claude import hook, wire
from tests.fakes.patient_hook import GIVES_UP_S, patient_hook

STARTS_S = 3.0
"""Seconds within which a process starts on busy cores, besides what it does."""

PYTHON = os.path.realpath(sys.executable)


class Served:
    """A server of one hook: it keeps what came and answers as the test says."""

    def __init__(self, folder: Path, answer: Callable[[socket.socket], None]) -> None:
        self.path = folder / "s"
        self.flag = folder / "flag"
        self.flag.write_text(f"{self.path}\ntoken\n")
        self.came = b""
        self.said = b""
        self._answer = answer
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self.path))
        self._listening.listen()
        self._listening.settimeout(10)
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        try:
            caller, _ = self._listening.accept()
        except TimeoutError:
            return
        with caller:
            caller.settimeout(10)
            with suppress(OSError):
                self._answer(caller)

    def close(self) -> None:
        self.thread.join(15)
        self._listening.close()


@pytest.fixture
def serve(home: Path) -> Iterator[Callable[..., Served]]:
    """Give what makes a server."""
    made: list[Served] = []

    def make(answer: Callable[[Served, socket.socket], None]) -> Served:
        made.append(Served(home, lambda caller: answer(made[0], caller)))
        return made[0]

    yield make
    for server in made:
        server.close()


def run(
    flag: Path, told: bytes = b"{}", event: str = "Stop", program: str = hook.__file__, **more
) -> subprocess.CompletedProcess[bytes]:
    words = [PYTHON, "-I", "-S", program, str(flag), event]
    return subprocess.run(words, input=told, capture_output=True, check=False, env={}, **more)


def exactly(caller: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (part := caller.recv(min(1 << 20, size - len(data)))):
        data += part
    return bytes(data)


def reading_all(server: Served, caller: socket.socket, told: int) -> None:
    size = len(b"HERD1") + 2 + len("token") + 2 + len("Stop") + 1 + 4 + told
    server.came = exactly(caller, size)


def expected(told: bytes, *, cut: bool = False) -> bytes:
    sized = len(told).to_bytes(4, "big") + told
    return b"HERD1" + b"\x00\x05token" + b"\x00\x04Stop" + bytes([cut]) + sized


@pytest.mark.parametrize("told", [b"", b"{}", b'{"a": "\xc3\xbc"}', b"x" * 1_000_000], ids=len)
def test_what_the_host_tells_comes_whole_and_the_answer_is_printed_before_it_is_said_to_be(
    serve, told: bytes
):
    shown = "ü\n".encode() * 2_000

    def answer(server: Served, caller: socket.socket) -> None:
        reading_all(server, caller, len(told))
        caller.sendall(wire.answer(shown))
        server.said = caller.recv(16)

    server = serve(answer)

    ended = run(server.flag, told, program=patient_hook())
    server.thread.join(10)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, shown, b"")
    assert server.came == expected(told)
    assert server.said == b"!"


@pytest.mark.requirement("D-host-12")
@pytest.mark.parametrize("stale", ["", "/nowhere/socket\ntoken\n", "relative\n", None], ids=str)
def test_a_flag_behind_which_nobody_listens_leads_on_to_the_next(serve, home: Path, stale: str | None):
    def answer(server: Served, caller: socket.socket) -> None:
        reading_all(server, caller, 2)
        caller.sendall(wire.answer(b"shown"))

    server = serve(answer)
    first = home / "stale"
    if stale is not None:
        first.write_text(stale)

    words = [PYTHON, "-I", "-S", patient_hook(), str(first), str(server.flag), "Stop"]
    ended = subprocess.run(words, input=b"{}", capture_output=True, check=False, env={})

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"shown", b"")


def test_of_a_longer_input_the_beginning_comes_marked_as_cut(serve):
    told = b"a" * (HOOK_INPUT_BYTES + 1)

    def answer(server: Served, caller: socket.socket) -> None:
        reading_all(server, caller, HOOK_INPUT_BYTES)
        caller.sendall(wire.answer(b""))

    server = serve(answer)

    run(server.flag, told, program=patient_hook())
    server.thread.join(10)

    assert server.came == expected(told[:HOOK_INPUT_BYTES], cut=True)


def test_its_bound_is_the_one_of_the_server():
    assert hook._MOST == HOOK_INPUT_BYTES
    assert hook._SECONDS == GIVES_UP_S


@pytest.mark.requirement("D-host-13")
@pytest.mark.parametrize("silent", ["before_reading", "after_reading", "in_the_answer"])
def test_a_server_that_stops_answering_is_given_up_after_200_ms_in_silence(serve, silent: str):
    over = threading.Event()

    def answer(server: Served, caller: socket.socket) -> None:
        if silent != "before_reading":
            reading_all(server, caller, 2)
        if silent == "in_the_answer":
            caller.sendall(wire.answer(b"x" * 100)[:50])
        over.wait(10)

    server = serve(answer)
    began = time.monotonic()

    ended = run(server.flag)
    took = time.monotonic() - began
    over.set()

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert GIVES_UP_S <= took < GIVES_UP_S + STARTS_S


@pytest.mark.requirement("D-host-13")
def test_a_host_that_never_ends_the_input_does_not_hold_it(serve):
    server = serve(lambda server, caller: reading_all(server, caller, 1 << 20))
    reading, writing = os.pipe()
    words = [PYTHON, "-I", "-S", hook.__file__, str(server.flag), "Stop"]
    try:
        ended = subprocess.run(words, stdin=reading, capture_output=True, check=False, timeout=10)
    finally:
        os.close(reading)
        os.close(writing)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.requirement("D-host-13")
@pytest.mark.parametrize(
    "content", [None, "", "one line", "/nowhere/s\ntoken\n", "\n\n", "a\0b\nc\n", "x" * 9_000]
)
def test_with_nobody_to_ask_it_is_silent(tmp_path: Path, content: str | None):
    flag = tmp_path / "flag"
    if content is not None:
        flag.write_text(content)

    ended = run(flag)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.requirement("D-host-13")
def test_a_server_that_ends_the_connection_is_no_error(serve):
    server = serve(lambda server, caller: None)

    ended = run(server.flag)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.requirement("D-host-13")
def test_an_output_that_nobody_takes_is_not_said_to_be_printed(serve):
    def answer(server: Served, caller: socket.socket) -> None:
        reading_all(server, caller, 2)
        caller.sendall(wire.answer(b"shown"))
        server.said = caller.recv(16)

    server = serve(answer)
    reading, writing = os.pipe()
    os.close(reading)
    words = [PYTHON, "-I", "-S", hook.__file__, str(server.flag), "Stop"]

    ended = subprocess.run(
        words,
        input=b"{}",
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN),
    )
    os.close(writing)
    server.thread.join(10)

    assert (ended.returncode, ended.stderr, server.said) == (0, b"", b"")


def test_it_loads_next_to_nothing():
    loaded = "import runpy, sys; before = set(sys.modules); sys.argv = ['hook', '/nowhere', 'Stop']\n"
    code = loaded + (
        f"source = open({hook.__file__!r}).read()\n"
        "exec(compile(source, 'hook', 'exec'), {'__name__': 'hook'})\n"
        "print(sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run(
        [PYTHON, "-I", "-S", "-c", code.replace("import runpy, sys", "import sys")],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )

    assert ended.stdout.strip() == "['_signal', '_socket']" or ended.stdout.strip() == "['_socket']"
