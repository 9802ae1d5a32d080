"""Section bodies: what a message with a file of 1 MiB costs until the other session's mailbox has it.

Beside it stands what nobody can do without: to digest those bytes, to write and sync them, and to copy them
through a socket, once each.
"""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.measuring import Sample, in_turn
from tests.bench.report import Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop, all_taken, session, target
from tests.fakes.herd_session import HerdSession

_BYTES = 1_048_576
_BOUND = 5.0
_SAMPLES = 15


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    data = b"0123456789abcde\n" * (_BYTES // 16)
    path = home / "attached.txt"
    path.write_bytes(data)
    outcomes: list[str] = []
    with session(home, "sender") as sender, session(home, "receiver") as receiver:
        sender.request("session.list")
        cases: dict[str, Sample] = {
            "floor": lambda: _floor(home, data),
            "file": lambda: _sent(sender, target_of_it, path, outcomes),
        }
        target_of_it = target(receiver)
        timings = in_turn(cases, samples=_SAMPLES)
    floor = timed_floor("digest, sync and copy 1 MiB", timings["floor"])
    yield timed_figure("send a file of 1 MiB until accepted", timings["file"], floor, _BOUND)
    yield all_taken(outcomes)


def _sent(sender: HerdSession, to: str, path: Path, outcomes: list[str]) -> float:
    began = time.perf_counter()
    sent = sender.request("session.send", target=to, message="see the file", files=[str(path)])
    elapsed = time.perf_counter() - began
    outcomes.append(str(sent["status"]))
    sender.request("session.read")  # behind the commit of the receipt's own row
    return elapsed


def _floor(folder: Path, data: bytes) -> float:
    began = time.perf_counter()
    hashlib.sha256(data).digest()
    number = os.open(folder / "written", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(number, data)
        os.fdatasync(number)
    finally:
        os.close(number)
    here, there = socket.socketpair()
    with here, there:
        sending = threading.Thread(target=here.sendall, args=(data,))
        sending.start()
        left = len(data)
        while left:
            left -= len(there.recv(left))
        sending.join()
    return time.perf_counter() - began
