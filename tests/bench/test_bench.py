"""What the benchmarks rest on: the order of samples, what ratios mean, checks that find what they look for.

Nothing is measured here; no test may depend on how fast a machine is.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import grid, stored, verdicts
from tests.bench.bench import SECTIONS, _parser
from tests.bench.burst import differences
from tests.bench.growth import Held, files_below, grown
from tests.bench.measuring import Timing, in_turn, percentile
from tests.bench.processes import Memory
from tests.bench.report import Check, Figure, Floor, failed, put
from tests.bench.servers import tool_list_bytes
from tests.bench.takeover import is_held
from tests.bench.workshop import Workshop, session, target


def sample_of(name: str, order: list[str], seconds: Iterator[float]):
    def sample() -> float:
        order.append(name)
        return next(seconds)

    return sample


def test_cases_take_turns_sample_by_sample():
    order: list[str] = []
    cases = {name: sample_of(name, order, itertools.repeat(1.0)) for name in ("floor", "figure")}

    in_turn(cases, samples=2, rounds=2)

    assert order == ["floor", "figure"] * 4


def test_the_least_disturbed_round_counts_and_one_slow_sample_in_it_does_not():
    quiet, busy = [1.0, 1.0, 9.0], [5.0, 5.0, 1.0]

    found = in_turn({"case": sample_of("case", [], iter(busy + quiet))}, samples=3, rounds=2)

    assert found["case"].medians == (5.0, 1.0)
    assert found["case"].best == 1.0
    assert found["case"].spread == 5.0


def test_a_ratio_is_the_figure_over_its_floor():
    assert Figure("send", 6.0, "ms", Floor("bare", 2.0)).ratio == 3.0
    assert Figure("memory", 30.0, "MiB", bound=45.0).ratio is None


@pytest.mark.parametrize(
    ("figure", "noisy"),
    [
        (Figure("send", 6.0, "ms", Floor("bare", 2.0, spread=1.1), spread=1.1), False),
        (Figure("send", 6.0, "ms", Floor("bare", 2.0, spread=1.9), spread=1.1), True),
        (Figure("send", 6.0, "ms", Floor("bare", 2.0, spread=1.1), spread=1.9), True),
        (Figure("memory", 30.0, "MiB"), False),
    ],
)
def test_a_figure_is_noisy_where_its_own_rounds_or_those_of_its_floor_differ(figure: Figure, noisy: bool):
    assert figure.noisy is noisy


def test_a_slow_figure_fails_no_run_and_a_failed_check_does():
    slow = Figure("send", 600.0, "ms", Floor("bare", 2.0), bound=2.5)

    assert not failed([slow, Check("nothing was lost")])
    assert failed([slow, Check("nothing was lost", "3 were")])


def test_json_says_what_the_table_says():
    shape = Figure("send", 6.0, "ms", Floor("bare", 2.0), bound=2.5).as_json()

    assert (shape["name"], shape["value"], shape["unit"], shape["bound"]) == ("send", 6.0, "ms", 2.5)
    assert shape["floor"]["value"] == 2.0
    assert (shape["ratio"], shape["noisy"]) == (3.0, False)


def test_a_timing_of_equal_rounds_has_no_spread():
    assert Timing((2.0, 2.0, 2.0)).spread == 1.0


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        (["a", "b", "c"], []),
        (["a", "c"], ["1 messages of lead:x were lost"]),
        (["a", "b", "b", "c"], ["1 messages of lead:x came that were not sent, or again"]),
        (["a", "c", "b"], ["messages of lead:x came out of order"]),
        (
            ["a", "b", "z"],
            ["1 messages of lead:x were lost", "1 messages of lead:x came that were not sent, or again"],
        ),
    ],
)
def test_lost_doubled_and_disordered_messages_are_found(got: list[str], fault: list[str]):
    assert list(differences("lead:x", got, ["a", "b", "c"])) == fault


def test_every_section_measures_something():
    assert list(SECTIONS) == [
        "send",
        "list",
        "start",
        "mcp",
        "hook",
        "grid",
        "stored",
        "bodies",
        "authority",
        "steady",
    ]
    assert all(SECTIONS.values())


def test_the_help_tells_of_every_section():
    told = _parser().format_help().partition("sections:")[2]

    assert [line.split()[0] for line in told.strip().splitlines()] == list(SECTIONS)


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [([3.0], 0.95, 3.0), (range(1, 101), 0.95, 95), (range(1, 101), 0.5, 50), ([2.0, 1.0], 1.0, 2.0)],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], share: float, found: float):
    assert percentile(values, share) == found


def test_a_bound_of_the_figure_itself_is_shown_with_its_unit(capsys: pytest.CaptureFixture[str]):
    ratio = Figure("takeover", 27.0, "ms", Floor("bare", 3.0), bound=100.0)
    put(ratio)
    put(ratio._replace(absolute=True))

    of_ratio, of_itself = capsys.readouterr().out.splitlines()
    assert "<= 100 " in of_ratio
    assert "<= 100 ms " in of_itself
    assert ratio._replace(absolute=True).as_json()["absolute"]


def test_the_bytes_of_a_tool_list_leave_the_output_schemas_out():
    tool = {"name": "a", "inputSchema": {"type": "object"}}

    assert tool_list_bytes([{**tool, "outputSchema": {"type": "string"}}]) == tool_list_bytes([tool])
    assert tool_list_bytes([tool]) == len('{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}')


def test_a_session_is_held_as_long_as_a_tool_says_so_and_for_no_other_refusal():
    def refused(code: str) -> dict[str, object]:
        return {"isError": True, "structuredContent": {"code": code}}

    assert is_held(refused("SESSION_HELD"))
    assert not is_held(refused("NO_SESSION"))
    assert not is_held({"isError": False, "structuredContent": {"peers": []}})


def test_growth_is_told_for_each_thousand_messages_and_each_row():
    early = Held(proportional=30.0, private=20.0, anonymous=10.0, descriptors=12, mailbox=1_000)
    late = Held(proportional=33.0, private=20.5, anonymous=10.0, descriptors=13, mailbox=21_000)
    neighbours = Memory(proportional=2.0, private=0.0, anonymous=0.0)

    values = [figure.value for figure in grown("sender", early, late, 10_000, neighbours)]

    assert values == [0.1, 0.05, 0.0, 1, 2.0]


@pytest.mark.requirement("A-bench-03")
def test_the_grid_is_every_number_of_peers_by_every_size():
    assert set(grid.GRID) == {(peers, size) for peers in (2, 10, 50) for size in (128, 1_024, 8_000)}
    assert len(grid.GRID) == 9


@pytest.mark.requirement("A-bench-01")
def test_a_ring_of_processes_tells_cold_warm_and_inbox_latency_apart_each_by_three_percentiles():
    with Workshop("/var/tmp") as workshop:
        ring = grid.run(workshop, peers=2, size=128, warm_each=2)

    assert (len(ring.cold), len(ring.warm), len(ring.inbox)) == (2, 4, 6)
    assert len(set(ring.read)) == 6
    assert len(ring.cpu) == 2, "one for each process"
    assert grid.faults(ring) == []
    figures = [finding for finding in grid.told(2, 128, ring) if isinstance(finding, Figure)]
    named = {figure.name.removeprefix("2 x 128 B, ") for figure in figures}
    assert named >= {f"{what}, p{share}" for what in ("cold", "warm", "inbox") for share in (50, 95, 99)}


def test_failures_losses_and_duplicates_are_found_in_a_ring():
    ring = grid.Ring([], [], [], [], [], sent=["a", "b"], failed=["rejected"], read=["b", "b"])

    assert grid.faults(ring) == ["1 failed", "1 lost", "1 doubled"]


def test_a_full_mailbox_has_its_rows_and_is_a_mailbox_still():
    with Workshop("/var/tmp") as workshop:
        home = workshop.home()
        with session(home, "one") as one, session(home, "two") as two:
            one.request("session.list")
            one.request("session.send", target=target(two), message="hello")
        for table in ("inbox", "outbox"):
            stored.fill(home, "one", table, 10)
        with session(home, "one") as one:
            assert len(one.request("session.history", most=500)["messages"]) == 21


def test_files_are_counted_in_every_folder_below(tmp_path: Path):
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    for place in ("one", "deep/two", "deep/deeper/three"):
        (tmp_path / place).touch()

    assert files_below(tmp_path) == 3


def test_lock_waits_are_told_by_the_round_that_was_disturbed_least():
    quiet, busy = (
        {"alone": [seconds], "judges": [seconds], "judges beside it": [seconds], "writer": [seconds]}
        for seconds in (0.001, 0.004)
    )

    figures = list(verdicts.told([busy, quiet]))

    assert [(one.value, one.bound, one.absolute) for one in figures] == [(1.0, 5.0, True)] * 3
