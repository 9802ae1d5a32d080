"""Section send, one message at a time: warm, to a sleeping session, and the first one on a route.

What is timed is the call of a host: from the request on the pipe of `herd session` to the answer `accepted`,
with the outbox's commit, the other process and the inbox's commit in between.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench.floors import Delivery
from tests.bench.measuring import ROUNDS, Sample, Timing, in_turn, timed
from tests.bench.records import ended_sessions, on_record
from tests.bench.report import Check, Figure, Finding, Floor
from tests.bench.workshop import TEXT, Workshop, send, session, target
from tests.fakes.herd_session import HerdSession

_SAMPLES = 60
_RECEIVERS = 5
_RUNNING = 40
_ENDED = 400

_WARM_BOUND = 2.5
_VISIT_BOUND = 4.0
_GROWTH_BOUND = 1.5

_FLOOR = "two synced appends and a round trip"


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home, crowded = workshop.home(wide=True), workshop.home(wide=True)
    with Delivery(workshop.folder) as floor:
        with session(home, "sender").ready() as sender:
            yield from _warm_and_sleeping(home, sender, floor)
            yield from _first_on_a_route(home, sender, floor)
        yield from _beside_many(home, crowded)


def _warm_and_sleeping(home: Path, sender: HerdSession, floor: Delivery) -> Iterator[Finding]:
    with session(home, "receiver").ready() as receiver, session(home, "sleeper").ready() as sleeper:
        sender.request("session.list")
        to_sleeper = target(sleeper)
        sleeper.end()
        outcomes: list[str] = []
        cases: dict[str, Sample] = {
            "floor": floor.sample,
            "append": floor.appends.sample,
            "round trip": floor.round_trip_sample,
            "call": lambda: timed(lambda: sender.request("session.whoami")),
            "warm": _sending(sender, target(receiver), outcomes),
            "visit": _sending(sender, to_sleeper, outcomes),
        }
        for case in cases.values():  # the mailboxes are made, and the connection
            case()
        outcomes.clear()
        found = in_turn(cases, samples=_SAMPLES)
    yield from _warm_figures(found)
    late = len(outcomes) - outcomes.count("accepted")
    yield Check("every one of these sends was answered `accepted`", f"{late} were not" if late else None)


def _warm_figures(found: dict[str, Timing]) -> Iterator[Figure]:
    bare = _floor(_FLOOR, found["floor"])
    yield _figure("warm route, 1 KiB, to accepted", found["warm"], bare, _WARM_BOUND)
    warm = _floor("warm acceptance", found["warm"])
    yield _figure("to a sleeping session, by a visit", found["visit"], warm, _VISIT_BOUND)
    trip = _floor("round trip", found["round trip"])
    yield _figure("a call that stays in the process (whoami)", found["call"], trip)
    yield _figure("one synced append", found["append"])


def _beside_many(home: Path, crowded: Path) -> Iterator[Finding]:
    ended_sessions(crowded, _ENDED)
    with on_record(crowded, _RUNNING), ExitStack() as running:
        cases: dict[str, Sample] = {}
        for name, place in (("alone", home), ("beside many", crowded)):
            sender, receiver = (running.enter_context(session(place, who)) for who in ("sender", "receiver"))
            receiver.ready(), sender.request("session.list")
            cases[name] = _sending(sender, target(receiver), [])
            cases[name]()
        found = in_turn(cases, samples=_SAMPLES)
    alone = _floor("the same among two sessions", found["alone"])
    name = f"warm route, beside {_RUNNING} running and {_ENDED} ended sessions"
    yield _figure(name, found["beside many"], alone, _GROWTH_BOUND)


def _first_on_a_route(home: Path, sender: HerdSession, floor: Delivery) -> Iterator[Finding]:
    names = [f"receiver-{number}" for number in range(_RECEIVERS)]
    outcomes: list[str] = []

    def timing() -> dict[str, Timing]:
        with ExitStack() as running:
            receivers = [running.enter_context(session(home, name)) for name in names]
            sends = iter([_sending(sender, target(one), outcomes) for one in receivers])
            sender.request("session.list")

            def first() -> float:
                return next(sends)()

            cases: dict[str, Sample] = {"floor": floor.sample, "first": first}
            found = in_turn(cases, samples=_RECEIVERS, rounds=1)
            for one in receivers:
                one.end()
        return found

    new = timing()
    restarted = [timing() for _ in range(ROUNDS)]
    first = Timing(tuple(found["first"].best for found in restarted))
    bare = Timing(tuple(found["floor"].best for found in restarted))
    yield _figure("first on a route: dialled and proved", first, _floor(_FLOOR, bare))
    yield _figure("first to a new session: its mailbox made", new["first"], _floor(_FLOOR, new["floor"]))


def _sending(sender: HerdSession, to: str, outcomes: list[str]) -> Sample:
    def sample() -> float:
        began = time.perf_counter()
        outcomes.append(send(sender, to, TEXT))
        elapsed = time.perf_counter() - began
        # Answered behind the commit of the receipt's own row, which would else run beside the next case.
        sender.request("session.read")
        return elapsed

    return sample


def _floor(name: str, timing: Timing) -> Floor:
    return Floor(name, timing.best * 1_000, timing.spread)


def _figure(name: str, timing: Timing, floor: Floor | None = None, bound: float | None = None) -> Figure:
    return Figure(name, timing.best * 1_000, "ms", floor, bound, timing.spread)
