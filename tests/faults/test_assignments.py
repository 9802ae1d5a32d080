"""Whoever changes a record is killed at each step, or read at any moment: old or new, and never half."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from assignments import store
from assignments.lifecycle import Assignments
from assignments.reading import Fault
from assignments.scan import Scans
from assignments.steps import (
    ASIDE_AFTER,
    ASIDE_BEFORE,
    REMOVE_AFTER,
    REMOVE_BEFORE,
    WRITE_AFTER,
    WRITE_BEFORE,
)
from herd.core.paths import Layout
from tests.fakes.assignments import assigned, lock_of, path_of
from tests.fakes.records import put
from tests.faults.assigning import MINE, OTHER

PROGRAM = "tests.faults.assigning"
READS = 60
WRITING = (WRITE_BEFORE, "written", "synced", "renamed", "folder_synced", WRITE_AFTER)
CHANGED = ("renamed", "folder_synced", WRITE_AFTER, REMOVE_AFTER, ASIDE_AFTER)


@contextmanager
def assigning(folder: Path, deed: str, at: str = "") -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", PROGRAM, str(folder), deed, at]
    root = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(words, cwd=root, env=environ, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def killed(folder: Path, layout: Layout, deed: str, at: str) -> None:
    """Have a change killed at a step, and find that its locks are free and its generation was raised."""
    generation = lock_of(layout).generation()
    with assigning(folder, deed, at) as process:
        assert process.wait(20) == -signal.SIGKILL
    assert lock_of(layout).generation() == generation + 1


def scanned(layout: Layout) -> set[str]:
    with lock_of(layout).shared() as hold:
        found = Scans(layout, lock_of(layout)).scan(hold)
    assert found.lacking is None
    return set(found.held)


@pytest.mark.parametrize("at", WRITING)
def test_a_creation_killed_at_a_step_leaves_the_whole_record_or_none(folder: Path, layout: Layout, at: str):
    killed(folder, layout, "create", at)

    assert store.read(layout, MINE.place) == (MINE if at in CHANGED else None)
    assert scanned(layout) == ({MINE.session.key} if at in CHANGED else set())
    if at not in CHANGED:
        Assignments(layout, lock_of(layout)).create(MINE)
        assert store.read(layout, MINE.place) == MINE


@pytest.mark.parametrize("at", WRITING)
def test_a_rewrite_killed_at_a_step_leaves_the_old_record_or_the_new_one(
    folder: Path, layout: Layout, at: str
):
    assigned(layout, MINE)

    killed(folder, layout, "rewrite", at)

    assert store.read(layout, MINE.place) == (OTHER if at in CHANGED else MINE)


@pytest.mark.parametrize("at", [REMOVE_BEFORE, REMOVE_AFTER])
def test_a_retirement_killed_at_a_step_leaves_the_whole_record_or_none(folder: Path, layout: Layout, at: str):
    assigned(layout, MINE)

    killed(folder, layout, "retire", at)

    assert store.read(layout, MINE.place) == (None if at in CHANGED else MINE)
    assert scanned(layout) == (set() if at in CHANGED else {MINE.session.key})


@pytest.mark.parametrize("at", [ASIDE_BEFORE, ASIDE_AFTER])
def test_a_corrupt_record_is_there_under_one_of_its_names_whenever_its_setting_aside_is_killed(
    folder: Path, layout: Layout, at: str
):
    assigned(layout, MINE)
    path = path_of(layout, MINE)
    put(path, b'{"version": 1, half')

    killed(folder, layout, "set_aside", at)

    [left] = list(path.parent.iterdir())
    assert left.read_bytes() == b'{"version": 1, half'
    assert (left == path) == (at not in CHANGED)
    assert isinstance(store.look(layout, MINE.place), Fault) == (at not in CHANGED)


def test_a_reader_during_rewrites_finds_one_of_the_two_records_whole(folder: Path, layout: Layout):
    assigned(layout, MINE)
    found = set()
    with assigning(folder, "rewrite") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"changed\n"
        for _ in range(READS):
            read = store.read(layout, MINE.place)
            assert read in (MINE, OTHER)
            found.add(read)
            if len(found) < 2:
                process.stdout.readline()  # the next change
            assert scanned(layout) == {MINE.session.key}
        process.kill()
    assert found == {MINE, OTHER}
