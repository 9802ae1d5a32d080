"""Section send, one message at a time on a warm route, and to a session that sleeps.

What is timed is the call of a host: from the request on the pipe of `herd session` to the answer `accepted`,
with the outbox's commit, the other process and the inbox's commit in between. What it costs in CPU time
stands beside it, since a busy machine moves that much less.
"""

from collections.abc import Callable, Iterator

from tests.bench.floors import Delivery
from tests.bench.measuring import Sample, Timing, in_turn, timed
from tests.bench.processes import cpu_until_now
from tests.bench.report import Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop, all_taken, send, sending, session, target
from tests.fakes.herd_session import HerdSession

_SAMPLES = 60
_SENDS = 100

_WARM_BOUND = 2.5
_VISIT_BOUND = 4.0

BARE = "two synced appends and a round trip"
"""What the floor of a send is made of."""


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    with (
        Delivery(workshop.folder) as floor,
        session(home, "sender") as sender,
        session(home, "receiver") as receiver,
        session(home, "sleeper") as sleeper,
    ):
        sender.request("session.list")
        to_sleeper = target(sleeper)
        sleeper.end()
        yield from _latencies(sender, target(receiver), to_sleeper, floor)
        yield _cpu(sender, receiver, floor)


def _latencies(sender: HerdSession, running: str, sleeping: str, floor: Delivery) -> Iterator[Finding]:
    outcomes: list[str] = []
    cases: dict[str, Sample] = {
        "floor": floor.sample,
        "append": floor.appends.sample,
        "round trip": floor.round_trip_sample,
        "call": lambda: timed(lambda: sender.request("session.whoami")),
        "warm": sending(sender, running, outcomes),
        "visit": sending(sender, sleeping, outcomes),
    }
    for case in cases.values():  # the mailboxes are made, and the connection
        case()
    outcomes.clear()
    yield from _figures(in_turn(cases, samples=_SAMPLES))
    yield all_taken(outcomes)


def _figures(found: dict[str, Timing]) -> Iterator[Figure]:
    yield timed_figure(
        "warm route, to accepted", found["warm"], timed_floor(BARE, found["floor"]), _WARM_BOUND
    )
    warm = timed_floor("warm acceptance", found["warm"])
    yield timed_figure("to a sleeping session, by a visit", found["visit"], warm, _VISIT_BOUND)
    trip = timed_floor("round trip", found["round trip"])
    yield timed_figure("a call that stays in the process (whoami)", found["call"], trip)
    yield timed_figure("one synced append", found["append"])


def _cpu(sender: HerdSession, receiver: HerdSession, floor: Delivery) -> Figure:
    to = target(receiver)

    def both() -> float:
        return cpu_until_now(sender.pid) + cpu_until_now(receiver.pid)

    cases: dict[str, Sample] = {
        "floor": lambda: _used(floor.cpu, floor.sample),
        "sends": lambda: _used(both, lambda: send(sender, to)),
    }
    found = in_turn(cases, samples=1)
    return timed_figure("warm route, CPU of both", found["sends"], timed_floor(BARE, found["floor"]))


def _used(cpu: Callable[[], float], work: Callable[[], object]) -> float:
    before = cpu()
    for _ in range(_SENDS):
        work()
    return (cpu() - before) / _SENDS
