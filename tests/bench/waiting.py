"""Section steady: how soon a reader that waits has a message, once its mailbox has accepted it.

The sender is a peer made by hand in this process, so that the acceptance is seen where it leaves the
coordinator: time runs from the receipt on its socket to the answer on the pipe of `herd session`, with the
counted hand-over's commit in between.
"""

import asyncio
import time
from collections.abc import Iterator

from herd.core.identity import SessionName, target_of
from herd.core.paths import open_layout
from herd.presence.registry import Registry
from tests.bench.floors import Delivery
from tests.bench.measuring import Sample, in_turn
from tests.bench.report import Check, Finding, timed_figure, timed_floor
from tests.bench.workshop import TEXT, Workshop, session
from tests.fakes.herd_session import HerdSession
from tests.fakes.raw_peer import RawConnection, RawPeer

_SAMPLES = 60
_SETTLED_S = 0.01
_WAIT_MS = 20_000

_BOUND = 1.0


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    layout = open_layout(str(home))
    peer, key = RawPeer(SessionName("bench", "by-hand")), SessionName("bench", "reader").key
    with (
        Delivery(workshop.folder) as floor,
        session(home, "reader") as reader,
        peer.registered(layout),
        asyncio.Runner() as runner,
    ):
        record = Registry(layout).record(key)
        assert record is not None, "it coordinates"
        route = _Route(runner, runner.run(peer.proved(record)), reader, target_of("lead", key))
        cases: dict[str, Sample] = {"floor": floor.waking_sample, "reader": route.sample}
        for case in cases.values():
            case()
        found = in_turn(cases, samples=_SAMPLES)
        route.close()
    least = timed_floor("a synced append and three round trips", found["floor"])
    yield timed_figure("a waiting reader, from acceptance to its answer", found["reader"], least, _BOUND)
    yield Check("each had its message", f"{route.missed} had not" if route.missed else None)


class _Route:
    """A connection by hand to a session whose reader waits."""

    def __init__(
        self, runner: asyncio.Runner, connection: RawConnection, reader: HerdSession, to: str
    ) -> None:
        self._runner = runner
        self._connection = connection
        self._reader = reader
        self._to = to
        self.missed = 0

    def sample(self) -> float:
        """Let the reader wait, send, and give the seconds from the receipt to the reader's answer."""
        request = self._reader.begin("session.read", wait_ms=_WAIT_MS)
        self._reader.request("session.whoami")  # so the one before has begun
        time.sleep(_SETTLED_S)
        message_id, accepted = self._runner.run(self._send())
        messages = self._reader.result(request)["messages"]
        elapsed = time.perf_counter() - accepted
        ids = [message["message_id"] for message in messages]
        self.missed += ids != [message_id]
        self._reader.request("session.confirm", message_ids=ids, evidence="bench")
        self._runner.run(self._take_receipt())
        return elapsed

    def close(self) -> None:
        """End the connection."""
        self._runner.run(self._connection.close())

    async def _send(self) -> tuple[str, float]:
        envelope = self._connection.me.envelope(self._to, TEXT)
        receipt = await self._connection.accepted("peer.send", envelope)
        return str(receipt["messageId"]), time.perf_counter()

    async def _take_receipt(self) -> None:
        # An owed receipt would be told again and again beside the next samples.
        self._connection.answer(await self._connection.asked(), {"recorded": True})
