"""What the benchmarks rest on: the order of samples, what ratios mean, checks that find what they look for.

Nothing is measured here; no test may depend on how fast a machine is.
"""

import itertools
from collections.abc import Iterator

import pytest

from tests.bench.burst import differences
from tests.bench.measuring import Timing, in_turn
from tests.bench.report import Check, Figure, Floor, failed


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
