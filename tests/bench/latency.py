"""Section send, one message at a time on a warm route, and to a session that sleeps.

What is bounded is the work itself: from the moment at which a coordinator begins to handle the call to the
moment at which it can answer `accepted`, with the outbox's commit, the other process and the inbox's commit
in between. The same call through the pipes of `herd session`, as a host makes it, stands beside it without a
bound, since its floor has no such hop. What a send costs in CPU time is told too: a busy machine moves that
much less.
"""

import time
from collections.abc import Callable, Iterator

from tests.bench.floors import Delivery
from tests.bench.inner import InnerSession
from tests.bench.measuring import Sample, Timing, in_turn, timed
from tests.bench.processes import cpu_until_now
from tests.bench.report import Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop, all_taken, sending, session, target
from tests.fakes.herd_session import HerdSession

_SAMPLES = 60
_SENDS = 100
_WARMING = 120
"""Messages before anything is measured: after the first fold of its log a mailbox's commit need not make the
log's file grow, on either side."""

_WARM_BOUND = 2.5
_VISIT_BOUND = 4.0

BARE = "two synced appends and a round trip"
"""What the floor of a send is made of."""


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    with (
        Delivery(workshop.folder) as floor,
        InnerSession(home, "inner") as inner,
        session(home, "sender") as sender,
        session(home, "receiver") as receiver,
        session(home, "sleeper") as sleeper,
    ):
        for one in (inner, sender):
            one.request("session.list")
        to_sleeper = target(sleeper)
        sleeper.end()
        inner.send_many(target(receiver), _WARMING)
        yield from _latencies(inner, sender, target(receiver), to_sleeper, floor)
        yield _cpu(inner, receiver, floor)


def _latencies(
    inner: InnerSession, sender: HerdSession, running: str, sleeping: str, floor: Delivery
) -> Iterator[Finding]:
    outcomes: list[str] = []
    cases: dict[str, Sample] = {
        "floor": floor.sample,
        "append": floor.appends.sample,
        "round trip": floor.round_trip_sample,
        "call": lambda: timed(lambda: sender.request("session.whoami")),
        "warm": inner.sending(running, outcomes),
        "stdio": sending(sender, running, outcomes),
        "visit": inner.sending(sleeping, outcomes),
    }
    for case in cases.values():  # the mailboxes are made, and the connections
        case()
    outcomes.clear()
    # The two that the bound compares take turns with nothing else, which would push both out of the caches.
    pair = in_turn({name: cases[name] for name in ("floor", "warm")}, samples=_SAMPLES)
    bare = timed_floor(BARE, pair["floor"])
    yield timed_figure("warm route, to accepted", pair["warm"], bare, _WARM_BOUND)
    yield from _figures(in_turn(cases, samples=_SAMPLES))
    yield all_taken(outcomes)


def _figures(found: dict[str, Timing]) -> Iterator[Figure]:
    bare = timed_floor(BARE, found["floor"])
    yield timed_figure("warm route, among other calls", found["warm"], bare)
    warm = timed_floor("warm acceptance", found["warm"])
    yield timed_figure("to a sleeping session, by a visit", found["visit"], warm, _VISIT_BOUND)
    yield timed_figure("warm route, as a host calls (stdio)", found["stdio"], bare)
    trip = timed_floor("round trip", found["round trip"])
    yield timed_figure("a call that stays in the process (whoami, stdio)", found["call"], trip)
    yield timed_figure("one synced append", found["append"])


def _cpu(inner: InnerSession, receiver: HerdSession, floor: Delivery) -> Figure:
    to = target(receiver)

    def both() -> float:
        return time.process_time() + cpu_until_now(receiver.pid)

    cases: dict[str, Sample] = {
        "floor": lambda: _used(floor.cpu, floor.sample),
        "sends": lambda: _used(both, lambda: inner.send_many(to, 1)),
    }
    found = in_turn(cases, samples=1)
    return timed_figure("warm route, CPU of both", found["sends"], timed_floor(BARE, found["floor"]))


def _used(cpu: Callable[[], float], work: Callable[[], object]) -> float:
    before = cpu()
    for _ in range(_SENDS):
        work()
    return (cpu() - before) / _SENDS
