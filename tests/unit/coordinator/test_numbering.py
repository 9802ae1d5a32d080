"""Numbers of agents' results: each once in a data root, whoever asks."""

import json
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from herd.coordinator.numbering import next_number
from herd.core.errors import RecoveryRequired
from herd.core.paths import Layout
from tests.fakes.records import layout_at


def several(root: str) -> list[int]:
    return [next_number(Layout(root), "builder") for _ in range(10)]


@pytest.mark.requirement("H-files-06")
def test_each_number_of_an_agent_is_given_once_whoever_asks(home: Path):
    root = layout_at(home).root
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        given = [number for numbers in pool.map(several, [root] * 4) for number in numbers]

    assert sorted(given) == list(range(1, 41))


@pytest.mark.requirement("H-files-06")
def test_agents_are_counted_by_themselves_whatever_they_are_called(home: Path):
    layout = layout_at(home)
    asked = ["builder", "Builder", "b", "builder", "b", "builder"]

    assert [next_number(layout, agent) for agent in asked] == [1, 1, 1, 2, 2, 3]


@pytest.mark.requirement("H-files-06")
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 1, "agent": "builder", "last": 0}',
        b'{"version": 1, "agent": "x", "last": 4}',
    ],
)
def test_a_damaged_count_gives_no_number_again_and_stays_as_it_is(home: Path, content: bytes):
    layout = layout_at(home)
    next_number(layout, "builder")
    (name,) = os.listdir(layout.results)
    path = Path(layout.results) / name
    assert json.loads(path.read_bytes()) == {"version": 1, "agent": "builder", "last": 1}
    path.write_bytes(content)

    with pytest.raises(RecoveryRequired):
        next_number(layout, "builder")
    assert path.read_bytes() == content
