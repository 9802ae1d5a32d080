"""Section send, many at a time: eight sender processes with a hundred messages in flight each.

The speed is told in messages for the time of one bare synced append, so that a slow disk makes it no worse.
Afterwards the receiver reads everything: nothing may be lost, doubled or out of its sender's order, and every
sender must hear that each of its messages was delivered.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from threading import Barrier
from typing import Any

from tests.bench.floors import Appends
from tests.bench.measuring import ROUNDS, Timing
from tests.bench.processes import cpu_until_now
from tests.bench.report import Check, Figure, Finding, Floor, timed_figure
from tests.bench.workshop import TEXT, Workshop, send, session, target
from tests.fakes.herd_session import HerdSession

_SENDERS = 8
_IN_FLIGHT = 100
_APPENDS = 50
_ASKED_EACH_S = 0.1
_WAIT_S = 60.0


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    appends = Appends(home)
    try:
        with ExitStack() as running:
            receiver = running.enter_context(session(home, "receiver"))
            senders = [running.enter_context(session(home, f"sender-{n}")) for n in range(_SENDERS)]
            yield from _measured(_Burst(receiver, senders), appends)
    finally:
        appends.close()


def _measured(burst: "_Burst", appends: Appends) -> Iterator[Finding]:
    rates, floors, used, faults = [], [], [], []
    for number in range(ROUNDS):
        floors.append(1 / statistics.median(appends.sample() for _ in range(_APPENDS)))
        before = burst.cpu()
        rates.append(_SENDERS * _IN_FLIGHT / burst.run(number))
        used.append((burst.cpu() - before) / (_SENDERS * _IN_FLIGHT))
        faults += burst.faults(number)
    floor = Floor("bare synced appends", max(floors), max(floors) / min(floors))
    name = f"{_SENDERS} senders x {_IN_FLIGHT} in flight, to accepted"
    yield Figure(name, max(rates), "/s", floor, spread=max(rates) / min(rates))
    yield timed_figure("the same, CPU of all nine for a message", Timing(tuple(used)))
    yield Check("nothing was lost, doubled or out of order", "; ".join(faults[:5]) or None)


class _Burst:
    """One receiver and its senders, connected."""

    def __init__(self, receiver: HerdSession, senders: Sequence[HerdSession]) -> None:
        self._receiver = receiver
        self._senders = senders
        self._to = target(receiver)
        self._targets = [target(sender) for sender in senders]
        self._sent: list[list[str]] = []
        for sender in senders:
            sender.request("session.list")
            send(sender, self._to)
        self._read_all()

    def cpu(self) -> float:
        """Give the CPU seconds that all of them have used so far."""
        return sum(cpu_until_now(one.pid) for one in (self._receiver, *self._senders))

    def run(self, number: int) -> float:
        """Send everything at once and give the seconds until the receiver has custody of all of it."""
        together = Barrier(_SENDERS)
        with ThreadPoolExecutor(_SENDERS) as threads:
            done = [threads.submit(self._send_all, sender, number, together) for sender in self._senders]
            outcomes = [future.result() for future in done]
        self._sent = [ids for ids, _, _ in outcomes]
        return max(ended for _, _, ended in outcomes) - min(began for _, began, _ in outcomes)

    def faults(self, number: int) -> Iterator[str]:
        """Let the receiver read everything, and say what differs from what was sent."""
        read = self._read_all()
        for who, ids in zip(self._targets, self._sent, strict=True):
            got = [message["text"] for message in read if message["from"]["target"] == who]
            wanted = [_text(number, place) for place in range(_IN_FLIGHT)]
            yield from differences(who, got, wanted)
            if len(set(ids)) != _IN_FLIGHT:
                yield f"round {number}: {who} got {len(set(ids))} message ids for {_IN_FLIGHT} messages"
        for sender, ids in zip(self._senders, self._sent, strict=True):
            yield from _receipts_missing(sender, ids)

    def _send_all(
        self, sender: HerdSession, number: int, together: Barrier
    ) -> tuple[list[str], float, float]:
        together.wait(_WAIT_S)
        began = time.time()
        texts = [_text(number, place) for place in range(_IN_FLIGHT)]
        asked = [sender.begin("session.send", target=self._to, message=text) for text in texts]
        answers = [sender.result(request) for request in asked]
        ids = [str(answer["message_id"]) for answer in answers]
        return ids, began, _acceptance(sender, ids[-1])

    def _read_all(self) -> list[dict[str, Any]]:
        read: list[dict[str, Any]] = []
        while messages := self._receiver.request("session.read")["messages"]:
            read += messages
            ids = sorted({message["message_id"] for message in messages})
            self._receiver.request("session.confirm", message_ids=ids, evidence="bench")
        return read


def _acceptance(sender: HerdSession, last: str) -> float:
    """Give when the last message was accepted, in seconds since the epoch, by the receiver's own word.

    A route goes head first: when the last one is accepted, all before it are. It is asked for seldom, since
    each question about a message that is still pending costs as much as a message, on both sides.
    """
    give_up = time.monotonic() + _WAIT_S
    while (status := sender.request("session.status", message_id=last))["state"] == "pending":
        if time.monotonic() > give_up:
            raise TimeoutError(f"message {last} was not accepted within {_WAIT_S} s")
        time.sleep(_ASKED_EACH_S)
    return datetime.fromisoformat(status["accepted_at"]).timestamp()


def differences(who: str, got: list[str], wanted: list[str]) -> Iterator[str]:
    """Say how what one sender's messages came as differs from what it sent."""
    lost, added = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    if lost:
        yield f"{lost.total()} messages of {who} were lost"
    if added:
        yield f"{added.total()} messages of {who} came that were not sent, or again"
    if not (lost or added) and got != wanted:
        yield f"messages of {who} came out of order"


def _receipts_missing(sender: HerdSession, ids: list[str]) -> Iterator[str]:
    """Wait until the sender has heard that each message was delivered; no telling then runs any more."""
    missing = set(ids)
    give_up = time.monotonic() + _WAIT_S
    while missing and time.monotonic() < give_up:
        receipts = sender.request("session.read", wait_ms=1_000)["receipts"]
        missing -= {receipt["message_id"] for receipt in receipts if receipt["status"] == "delivered"}
    if missing:
        yield f"a sender was not told that {len(missing)} of its messages were delivered"


def _text(number: int, place: int) -> str:
    return f"{number}/{place} {TEXT}"[: len(TEXT)]
