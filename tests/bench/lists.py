"""Section list: who is there, read from the registry and asked on the command line.

Everything here waits for nothing but the processor, so CPU time is what is compared.
"""

import gc
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from herd.core.identity import peer_id_of, session_key, target_of
from herd.core.paths import Layout
from herd.presence.registry import Registry
from tests.bench.floors import PASS, parse_all
from tests.bench.measuring import Sample, cpu_timed, in_turn
from tests.bench.processes import cost
from tests.bench.records import on_record
from tests.bench.report import Check, Finding, timed_figure, timed_floor
from tests.bench.workshop import HERD, Workshop
from tests.fakes.herd_session import environment

_SAMPLES = {10: 200, 100: 50, 1_000: 12}
"""How often each size is sampled in each round."""

_PEERS = 20
_STARTS = 20

_COLD_BOUND = 3.0
_WARM_BOUND = 2.0
_PEERS_BOUND = 5.0


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    for count in _SAMPLES:
        with on_record(workshop.home(), count) as layout:
            yield from _registry(layout, count)
    home = workshop.home()
    with on_record(home, _PEERS):
        yield from _command(home)


def _registry(layout: Layout, count: int) -> Iterator[Finding]:
    kept = Registry(layout)
    listed = len(kept.listed())
    yield Check(f"all {count} records are listed", None if listed == count else f"{listed} are")
    cases: dict[str, Sample] = {
        "floor": lambda: cpu_timed(lambda: parse_all(layout.peers)),
        "cold": lambda: _cold(layout),
        "warm": lambda: cpu_timed(kept.listed),
    }
    gc.collect()
    gc.freeze()  # what stands here for other processes is no burden of a process that lists
    found = in_turn(cases, samples=_SAMPLES[count])
    gc.unfreeze()
    floor = timed_floor("files read and parsed", found["floor"])
    yield timed_figure(f"{count} records, cold, CPU", found["cold"], floor, _COLD_BOUND)
    yield timed_figure(f"{count} records, warm, CPU", found["warm"], floor, _WARM_BOUND)


def _cold(layout: Layout) -> float:
    """List as a new process does, which has neither read a record nor computed a name before."""
    for computed in (session_key, target_of, peer_id_of):
        computed.cache_clear()
    return cpu_timed(Registry(layout).listed)


def _command(home: Path) -> Iterator[Finding]:
    child_environment = {
        name: value for name, value in environment(home).items() if not name.startswith("PYTHON")
    }
    peers = (HERD, "peers", "--as", "bench")
    yield Check(f"`herd peers` lists all {_PEERS} sessions", _not_listed(peers, child_environment))
    cases: dict[str, Sample] = {
        "floor": lambda: cost(PASS, child_environment).cpu,
        "peers": lambda: cost(peers, child_environment).cpu,
    }
    found = in_turn(cases, samples=_STARTS)
    floor = timed_floor("python -c pass", found["floor"])
    yield timed_figure(f"`herd peers`, {_PEERS} sessions, CPU", found["peers"], floor, _PEERS_BOUND)


def _not_listed(peers: tuple[str, ...], child_environment: Mapping[str, str]) -> str | None:
    ended = subprocess.run([*peers, "--json"], env=child_environment, stdout=subprocess.PIPE, check=True)
    listed = len(json.loads(ended.stdout)["peers"])
    return None if listed == _PEERS else f"{listed} are"
