"""Section mcp: what a `herd mcp` costs to start, alone and twenty at once, and what it and its tools hold.

A host waits ten seconds at most for the first answer, keeps one server for each of its sessions, and loads
the tool list into each of them.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from herd.mcp.lines import encoded
from tests.bench.floors import PASS
from tests.bench.measuring import ROUNDS, Sample, in_turn
from tests.bench.processes import Cost, cost, cpu_until_now, memory, on_two_cores
from tests.bench.report import Figure, Finding, Floor, timed_figure
from tests.bench.workshop import AS_INSTALLED, HERD, TEXT, Workshop, send, session
from tests.fakes import mcp_frames
from tests.fakes.herd_mcp import HerdMcp
from tests.fakes.herd_session import HerdSession, environment

_SERVERS = 20
_SAMPLES = 5
_SETTLED_S = 1.0
_GRACE_S = 1.0

_TOGETHER_BOUND = 1.0
_FIRST_CALL_BOUND = 20.0
_MORE_BOUND_MIB = 5.0
_TOOLS_BOUND_BYTES = 4_096


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home()
    with server(home, "warms-the-caches") as first:
        first.open().call("list_peers")
        yield Figure(
            "the tool list without output schemas",
            tool_list_bytes(list(first.tools.values())),
            "B",
            bound=_TOOLS_BOUND_BYTES,
        )
    with on_two_cores():
        yield _together(workshop.home())
    yield from _first_call(workshop.home())
    yield from _memory(workshop)


def server(home: Path, session_id: str) -> HerdMcp:
    """Start a server of a session as a host does, and say nothing to it yet."""
    return HerdMcp(home, "claude", session_id, herd=(HERD,), environ=AS_INSTALLED)


def call(one: HerdMcp, tool: str) -> dict[str, Any]:
    """Call a tool and give its result as it came; holding it to its schema would take time of its own."""
    return one.result(one.begin_call(tool))


def tool_list_bytes(tools: Sequence[Mapping[str, Any]]) -> int:
    """Count what a host loads of a tool list, as it stands on the wire; a model is not shown the outputs."""
    bare = [{name: value for name, value in tool.items() if name != "outputSchema"} for tool in tools]
    return len(encoded({"tools": bare}).rstrip(b"\n"))


def _together(home: Path) -> Finding:
    def started() -> float:
        with ExitStack() as running:
            began = time.perf_counter()
            servers = [running.enter_context(server(home, f"s{number}")) for number in range(_SERVERS)]
            asked = [(one, one.begin(*mcp_frames.opening(one.era))) for one in servers]
            for one, request in asked:
                one.result(request)
            return time.perf_counter() - began

    def passed() -> float:
        return sum(cost(PASS, _surroundings(home)).wall for _ in range(_SERVERS))

    found = in_turn({"floor": passed, "servers": started}, samples=1)
    interpreters = found["floor"]
    name = f"{_SERVERS} interpreters, one by one, and {_GRACE_S:g} s"
    floor = Floor(name, (interpreters.best + _GRACE_S) * 1_000, interpreters.spread)
    name = f"{_SERVERS} `herd mcp` at once, to the last `initialize`"
    return timed_figure(name, found["servers"], floor, _TOGETHER_BOUND)


def _first_call(home: Path) -> Iterator[Finding]:
    def started() -> Cost:
        began = time.perf_counter()
        with server(home, "started") as one:
            one.request(*mcp_frames.opening(one.era))
            one.notify("notifications/initialized")
            refused = call(one, "list_peers")["isError"]
            spent = Cost(cpu_until_now(one.pid), time.perf_counter() - began)
            one.end()
        if refused:
            raise RuntimeError("the first tool call of a server was refused")
        return spent

    def passed() -> Cost:
        return cost(PASS, _surroundings(home))

    wall: dict[str, Sample] = {"floor": lambda: passed().wall, "call": lambda: started().wall}
    cpu: dict[str, Sample] = {"floor": lambda: passed().cpu, "call": lambda: started().cpu}
    for name, cases in (("`herd mcp`, exec to first tool answer", wall), ("the same, CPU", cpu)):
        found = in_turn(cases, samples=_SAMPLES)
        floor = Floor("python -c pass", found["floor"].best * 1_000, found["floor"].spread)
        yield timed_figure(name, found["call"], floor, _FIRST_CALL_BOUND)


def _memory(workshop: Workshop) -> Iterator[Finding]:
    """Compare two that have done the same: listed, sent, read and confirmed one message."""
    pairs = [_idle_pair(workshop.home()) for _ in range(ROUNDS)]
    servers, sessions = ([pair[which] for pair in pairs] for which in (0, 1))
    floor = Floor("an idle `herd session`", statistics.median(sessions), max(sessions) / min(sessions))
    spread = max(servers) / min(servers)
    yield Figure("an idle `herd mcp`: PSS", statistics.median(servers), "MiB", floor, spread=spread)
    more = statistics.median(one - other for one, other in pairs)
    yield Figure("what it holds more than the session: PSS", more, "MiB", bound=_MORE_BOUND_MIB)


def _idle_pair(home: Path) -> tuple[float, float]:
    with server(home, "server") as one, session(home, "session") as other:
        _exchange(one.open(), other)
        time.sleep(_SETTLED_S)
        return memory(one.pid).proportional, memory(other.pid).proportional


def _exchange(one: HerdMcp, other: HerdSession) -> None:
    to_session = one.call("list_peers")["peers"][0]["target"]
    to_server = other.request("session.list")["peers"][0]["target"]
    one.call("message_peer", target=to_session, message=TEXT)
    got = other.request("session.read", wait_ms=5_000)["messages"]
    ids = [message["message_id"] for message in got]
    other.request("session.confirm", message_ids=ids, evidence="bench")
    send(other, to_server)
    one.call("peer_messages", wait_ms=5_000)
    one.call("list_peers")  # the evidence of the call before


def _surroundings(home: Path) -> dict[str, str]:
    return {**environment(home), **AS_INSTALLED}
