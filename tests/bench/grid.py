"""Section grid: a ring of sessions, each a process of its own, by their number and by the size of a message.

Sample after sample one session writes to the next. Its first message on that route is the cold one: it dials
and proves. Nothing of a model or its provider is in any figure.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Any, NamedTuple

from tests.bench.measuring import percentile
from tests.bench.processes import cpu_until_now, memory
from tests.bench.report import Check, Figure, Finding
from tests.bench.workshop import Workshop, session, target
from tests.fakes.herd_session import HerdSession

PEERS = (2, 10, 50)
SIZES = (128, 1_024, 8_000)
GRID = tuple(product(PEERS, SIZES))
SHARES = (0.50, 0.95, 0.99)

_WARM_EACH = 4
"""Messages of each session on its warm route."""

_WARM_BOUND_MS = 50.0
"""Of the 95th percentile on a warm route, with the most peers and 1,024 bytes."""

_WAIT_S = 30.0


class Ring(NamedTuple):
    """What one combination gave.

    Attributes:
        cold: Seconds to `accepted` of each first message on a route.
        warm: Likewise of the later ones.
        inbox: Seconds of each read with its confirmation.
        cpu: CPU seconds of each process from the first message to the last.
        memory: PSS of each process at the end, in MiB.
        sent: The ids that were answered `accepted`, or that were at last.
        failed: What the calls were refused with.
        read: The ids that were read.
    """

    cold: list[float]
    warm: list[float]
    inbox: list[float]
    cpu: list[float]
    memory: list[float]
    sent: list[str]
    failed: list[str]
    read: list[str]


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure every combination."""
    for peers, size in GRID:
        yield from told(peers, size, run(workshop, peers, size))


def run(workshop: Workshop, peers: int, size: int, warm_each: int = _WARM_EACH) -> Ring:
    """Run one ring."""
    home = workshop.home(wide=True)
    ring = Ring([], [], [], [], [], [], [], [])
    with ExitStack() as running:
        sessions = [running.enter_context(session(home, f"peer-{number}")) for number in range(peers)]
        targets = [target(one) for one in sessions]
        for number, one in enumerate(sessions):
            _shown(one, targets[(number + 1) % peers])
        before = [cpu_until_now(one.pid) for one in sessions]
        for sample in range(peers * (1 + warm_each)):
            _exchange(ring, sessions, targets, sample, size)
        ring.cpu.extend(cpu_until_now(one.pid) - used for one, used in zip(sessions, before, strict=True))
        ring.memory.extend(memory(one.pid).proportional for one in sessions)
    return ring


def told(peers: int, size: int, ring: Ring) -> Iterator[Finding]:
    """Tell what one ring gave."""
    name = f"{peers} x {size:,} B"
    for what, seconds in (("cold", ring.cold), ("warm", ring.warm), ("inbox", ring.inbox)):
        for share in SHARES:
            bounded = (what, size, peers, share) == ("warm", 1_024, max(PEERS), 0.95)
            yield Figure(
                f"{name}, {what}, p{share * 100:.0f}",
                percentile(seconds, share) * 1_000,
                "ms",
                bound=_WARM_BOUND_MS if bounded else None,
                absolute=bounded,
            )
    yield Figure(f"{name}, CPU of a process, the most", max(ring.cpu) * 1_000, "ms")
    yield Figure(f"{name}, PSS of a process, the most", max(ring.memory), "MiB")
    yield Check(f"{name}, nothing failed, was lost or came twice", "; ".join(faults(ring)) or None)


def faults(ring: Ring) -> list[str]:
    """Say what went wrong: failures, losses and duplicates, each by their number."""
    lost = Counter(ring.sent) - Counter(ring.read)
    doubled = Counter(ring.read) - Counter(ring.sent)
    counts = (("failed", len(ring.failed)), ("lost", lost.total()), ("doubled", doubled.total()))
    return [f"{count} {what}" for what, count in counts if count]


def _shown(one: HerdSession, wanted: str) -> None:
    cursor: dict[str, Any] = {}
    while True:
        page = one.request("session.list", **cursor)
        if wanted in {peer["target"] for peer in page["peers"]}:
            return
        cursor = {"cursor": page["next_cursor"]}


def _exchange(
    ring: Ring, sessions: Sequence[HerdSession], targets: Sequence[str], sample: int, size: int
) -> None:
    peers = len(sessions)
    sender, to = sessions[sample % peers], (sample + 1) % peers
    began = time.perf_counter()
    answer = sender.request("session.send", target=targets[to], message="x" * size)
    while answer["status"] == "queued":
        if time.perf_counter() - began > _WAIT_S:
            ring.failed.append(answer["message_id"])
            return
        answer["status"] = _state(sender, answer["message_id"])
    elapsed = time.perf_counter() - began
    if answer["status"] != "accepted":
        ring.failed.append(answer["status"])
        return
    (ring.cold if sample < peers else ring.warm).append(elapsed)
    ring.sent.append(answer["message_id"])
    began = time.perf_counter()
    messages = sessions[to].request("session.read", wait_ms=int(_WAIT_S * 1_000))["messages"]
    ids = [message["message_id"] for message in messages]
    sessions[to].request("session.confirm", message_ids=ids, evidence="bench")
    ring.inbox.append(time.perf_counter() - began)
    ring.read.extend(ids)


def _state(sender: HerdSession, message_id: str) -> str:
    state = str(sender.request("session.status", message_id=message_id)["state"])
    return "queued" if state == "pending" else state
