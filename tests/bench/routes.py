"""Section send, by its surroundings: the first message on a route, and a route among many sessions."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.bench.floors import Delivery
from tests.bench.latency import BARE
from tests.bench.measuring import ROUNDS, Sample, Timing, in_turn
from tests.bench.records import ended_sessions, on_record
from tests.bench.report import Figure, Finding, timed_figure, timed_floor
from tests.bench.workshop import Workshop, all_taken, sending, session, target
from tests.fakes.herd_session import HerdSession

_SAMPLES = 60
_RECEIVERS = 5
_RUNNING = 40
_ENDED = 400

_GROWTH_BOUND = 1.5


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    with Delivery(workshop.folder) as floor, session(home, "sender") as sender:
        yield from _first(home, sender, floor)
    yield _among_many(home, workshop.home(wide=True))


def _first(home: Path, sender: HerdSession, floor: Delivery) -> Iterator[Finding]:
    outcomes: list[str] = []
    new = _first_to_each(home, sender, floor, outcomes)
    again = [_first_to_each(home, sender, floor, outcomes) for _ in range(ROUNDS)]
    first = Timing(tuple(found["first"].best for found in again))
    bare = Timing(tuple(found["floor"].best for found in again))
    yield timed_figure("first on a route: dialled and proved", first, timed_floor(BARE, bare))
    made = timed_floor(BARE, new["floor"])
    yield timed_figure("first to a new session: its mailbox made", new["first"], made)
    yield all_taken(outcomes)


def _first_to_each(
    home: Path, sender: HerdSession, floor: Delivery, outcomes: list[str]
) -> dict[str, Timing]:
    """Start some receivers, the same at each call, and send one message to each."""
    with ExitStack() as running:
        receivers = [
            running.enter_context(session(home, f"receiver-{number}")) for number in range(_RECEIVERS)
        ]
        sends = iter([sending(sender, target(one), outcomes) for one in receivers])
        sender.request("session.list")

        def first() -> float:
            return next(sends)()

        found = in_turn({"floor": floor.sample, "first": first}, samples=_RECEIVERS, rounds=1)
        for one in receivers:
            one.end()
    return found


def _among_many(home: Path, crowded: Path) -> Figure:
    ended_sessions(crowded, _ENDED)
    with on_record(crowded, _RUNNING), ExitStack() as running:
        cases: dict[str, Sample] = {}
        for name, place in (("few", home), ("many", crowded)):
            sender, receiver = (running.enter_context(session(place, who)) for who in ("sender", "receiver"))
            to = target(receiver)
            sender.request("session.list")
            cases[name] = sending(sender, to, [])
            cases[name]()
        found = in_turn(cases, samples=_SAMPLES)
    name = f"warm route, beside {_RUNNING} running and {_ENDED} ended sessions"
    return timed_figure(name, found["many"], timed_floor("beside few", found["few"]), _GROWTH_BOUND)
