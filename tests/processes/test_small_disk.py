"""A data root on a disk of 2 MB that becomes full during a send, with every session a process of its own."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import RecoveryRequired
from tests.fakes.herd_session import WAIT_S, HerdSession
from tests.processes.conftest import Machine

pytestmark = pytest.mark.machine

LEFT = 4_096
"""Bytes that stay free."""


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a data root on a small disk of its own, in place of the usual one."""
    folder = Path(tempfile.mkdtemp(prefix="herd-", dir="/tmp"))
    options = ["-t", "tmpfs", "-o", "size=2m,mode=0700", "herd-test", str(folder)]
    subprocess.run(["mount", *options], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path) -> None:
    """Fill the disk but for the last 4 KiB."""
    number = os.open(folder / "filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    with suppress(OSError):
        while True:
            os.write(number, b"x" * LEFT)
    os.ftruncate(number, max(0, os.fstat(number).st_size - LEFT))
    os.close(number)


class Sender:
    """Sends texts of 6 kB, and keeps what became of each."""

    def __init__(self, session: HerdSession, target: str) -> None:
        self.session = session
        self.target = target
        self.sent: dict[str, str] = {}

    def begin(self) -> tuple[int, str]:
        text = f"{len(self.sent)} " + "x" * 6_000
        return self.session.begin("session.send", target=self.target, message=text), text

    def end(self, begun: tuple[int, str]) -> None:
        request, text = begun
        self.sent[str(self.session.result(request)["message_id"])] = text

    def send_until_refused(self) -> RecoveryRequired:
        for _ in range(200):
            try:
                self.end(self.begin())
            except RecoveryRequired as refusal:
                return refusal
        raise AssertionError("the disk never became full")


def until(ask: Callable[[], Any]) -> Any:
    """Ask until the answer is no refusal for want of the disk, which somebody who keeps asking delays not."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        with suppress(RecoveryRequired):
            return ask()
    raise TimeoutError(f"the disk was still in want after {WAIT_S:.0f} s")


def take(session: HerdSession, wait_ms: int) -> list[dict[str, Any]]:
    messages = session.request("session.read", wait_ms=wait_ms)["messages"]
    ids = [message["message_id"] for message in messages]
    session.request("session.confirm", message_ids=ids, evidence="a test")
    return list(messages)


@pytest.mark.requirement("C12")
@pytest.mark.timeout(240)
def test_c12_a_disk_that_becomes_full_during_a_send_refuses_keeps_all_and_goes_on_with_room(
    machine: Machine, home: Path
):
    alice = machine.session("claude", "alice", name="alice")
    bob = machine.session("codex", "bob", name="bob", parent=machine.new_host())
    sender = Sender(alice, alice.until_listed("bob"))
    earlier = bob.send(bob.until_listed("alice"), "earlier")
    read_before = sender.session.send(sender.target, "read before")
    assert [message["text"] for message in take(bob, 20_000)] == ["read before"]

    begun = sender.begin()
    fill(home)
    with suppress(RecoveryRequired):
        sender.end(begun)
    refusal = sender.send_until_refused()
    assert "full" in refusal.message or "No space left" in refusal.message
    refused = machine.inside.run("send", sender.target, "by a command line", "--json")
    assert refused.status == RecoveryRequired.exit_status
    assert refused.refusal["code"] == "RECOVERY_REQUIRED"
    assert "pace" in refused.refusal["message"] + refused.refusal["hint"]
    for session in (alice, bob):  # which only wait for room, and keep nobody busy meanwhile
        assert session.stderr.count("presence.withdraw.failed") < 100

    (home / "filler").unlink()
    kept = until(lambda: alice.request("session.read", wait_ms=0)["messages"])
    assert [(message["message_id"], message["text"]) for message in kept] == [(earlier, "earlier")]
    until(lambda: sender.end(sender.begin()))
    got: dict[str, str] = {}
    deadline = time.monotonic() + WAIT_S
    while not sender.sent.keys() <= got.keys():
        assert time.monotonic() < deadline, f"{len(sender.sent.keys() - got.keys())} are missing"
        for message in until(lambda: take(bob, 1_000)):
            assert message["message_id"] not in got
            got[message["message_id"]] = message["text"]

    assert {one: got[one] for one in sender.sent} == sender.sent
    assert alice.request("session.status", message_id=read_before)["state"] == "delivered"
    for session in (alice, bob):
        assert session.end() == 0
    alice = machine.session("claude", "alice")
    assert alice.request("session.status", message_id=read_before)["state"] == "delivered"
    assert [message["text"] for message in take(alice, 0)] == ["earlier"]
