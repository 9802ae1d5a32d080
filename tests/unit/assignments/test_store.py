"""One record on disk: where it lies, who may change it, and what is refused before a byte is written."""

import ast
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from assignments import store
from assignments.reading import Fault, every_record
from assignments.record import Assignment
from herd.core.errors import AssignmentConflict, InvalidParams, RecoveryRequired
from herd.core.limits import (
    ASSIGNMENT_FILE_BYTES,
    ASSIGNMENT_PAYLOAD_BYTES,
    ASSIGNMENT_REASON_CHARACTERS,
)
from herd.core.paths import Layout
from tests.fakes.assignments import assigned, assignment_of, bytes_of, lock_of, path_of, shape_of
from tests.fakes.records import layout_at, put, seen
from tests.unit.our_source import modules

MINE = assignment_of(socket="/run/herdr.sock")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return layout_at(tmp_path / "herd")


def below(layout: Layout) -> set[str]:
    return {str(one.relative_to(layout.root)) for one in Path(layout.root).rglob("*")}


@pytest.mark.requirement("H-assign-01")
def test_a_record_lies_under_the_hashes_of_what_it_names_and_gives_one_branch_to_one_session(layout: Layout):
    assigned(layout, MINE)

    hashed = [hashlib.sha256(text.encode()).hexdigest() for text in (MINE.socket, MINE.repo, MINE.branch)]
    path = Path(layout.root, "assignments", *hashed).with_suffix(".json")
    assert path_of(layout, MINE) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.parents[:3]} == {0o700}
    found = store.read(layout, MINE.place)
    assert found == MINE
    assert (found.repo, found.branch, found.session) == (MINE.repo, MINE.branch, MINE.session)
    assert store.read(layout, assignment_of(2).place) is None


@pytest.mark.requirement("H-locks-05")
@pytest.mark.parametrize("socket", ["none", "/run/herdr.sock"])
def test_only_who_holds_the_authority_lock_alone_changes_a_record(
    layout: Layout, tmp_path: Path, socket: str
):
    mine = assignment_of(socket=socket)
    spoilt = assignment_of(2, socket=socket)
    assigned(layout, mine, spoilt)
    put(path_of(layout, spoilt), b"{")
    before = seen(path_of(layout, mine)), seen(path_of(layout, spoilt)), below(layout)
    another = layout_at(tmp_path / "another")
    with lock_of(layout).exclusive() as ended:
        pass
    with lock_of(layout).shared() as shared, lock_of(another).exclusive() as foreign:
        for hold in (shared, foreign, ended):
            for change in (
                lambda hold: store.write(layout, hold, mine._replace(text="Another.")),
                lambda hold: store.remove(layout, hold, mine),
                lambda hold: store.set_aside(layout, hold, spoilt.place),
            ):
                with pytest.raises(RuntimeError, match="only under the authority lock, held alone"):
                    change(hold)

    assert (seen(path_of(layout, mine)), seen(path_of(layout, spoilt)), below(layout)) == before


@pytest.mark.requirement("H-assign-10")
@pytest.mark.parametrize(
    "beyond",
    [
        assignment_of(text="x" * (ASSIGNMENT_PAYLOAD_BYTES + 1)),
        assignment_of(text="x\x01" * (ASSIGNMENT_PAYLOAD_BYTES // 2)),
    ],
    ids=["payload", "file"],
)
def test_what_is_beyond_a_bound_is_refused_before_a_byte_is_written(layout: Layout, beyond: Assignment):
    assert (ASSIGNMENT_PAYLOAD_BYTES, ASSIGNMENT_FILE_BYTES) == (1 << 20, 2 << 20)
    before: set[str] = set()
    steps: list[str] = []
    with lock_of(layout).exclusive() as hold:
        before = below(layout)
        with pytest.raises(InvalidParams, match=r"more than 1048576|larger than 2097152"):
            store.write(layout, hold, beyond, steps.append)
        assert below(layout) == before
        store.write(layout, hold, MINE)
        with pytest.raises(InvalidParams):
            store.write(layout, hold, beyond._replace(socket=MINE.socket, branch=MINE.branch), steps.append)
    assert steps == []
    assert store.read(layout, MINE.place) == MINE


CORRUPT: dict[str, Any] = {
    "too big": b" " * (ASSIGNMENT_FILE_BYTES + 1),
    "no JSON": b'{"version": 1,',
    "wrong schema": bytes_of({**shape_of(MINE), "text": 7}),
    "an additional key": bytes_of({**shape_of(MINE), "status": "active"}),
    "other hashes": bytes_of(shape_of(assignment_of(7))),
    "a long name": bytes_of({**shape_of(MINE), "\x1b[31m" + "x" * 5_000: 1}),
    "empty": b"",
}


@pytest.mark.requirement("H-assign-09")
@pytest.mark.parametrize("content", CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_record_is_named_with_a_bounded_reason_and_left_as_it_is(layout: Layout, content: bytes):
    assigned(layout, MINE, assignment_of(2))
    path = path_of(layout, MINE)
    put(path, content)
    before = seen(path)

    with pytest.raises(RecoveryRequired) as refused:
        store.read(layout, MINE.place)
    faults = [one for one in every_record(layout) if isinstance(one, Fault)]

    assert (refused.value.code, refused.value.details) == ("RECOVERY_REQUIRED", {"path": str(path)})
    assert refused.value.message.startswith(f"{path} ")
    assert len(refused.value.message) <= len(f"{path} ") + ASSIGNMENT_REASON_CHARACTERS
    assert refused.value.message.isprintable()
    assert "`herd doctor --repair`" in refused.value.next_step
    assert [(one.path, one.corrupt) for one in faults] == [(str(path), True)]
    assert seen(path) == before
    assert path.read_bytes() == content


def test_a_record_is_removed_only_as_the_one_it_was(layout: Layout):
    assigned(layout, MINE)
    with lock_of(layout).exclusive() as hold:
        with pytest.raises(AssignmentConflict):
            store.remove(layout, hold, MINE._replace(text="Another."))
        with pytest.raises(AssignmentConflict):
            store.remove(layout, hold, assignment_of(2))
        assert store.read(layout, MINE.place) == MINE
        store.remove(layout, hold, MINE)
    assert store.read(layout, MINE.place) is None


@pytest.mark.requirement("H-assign-13")
def test_nothing_but_a_takeover_and_a_proven_retirement_comes_to_removing_one():
    calls = [
        (module.path, function.name, ast.unparse(node))
        for module in modules()
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
    ]
    removing = {(path, name) for path, name, used in calls if used == "store.remove"}
    ending = {name for path, name, used in calls if used == "self._remove" and "lifecycle" in path}

    assert removing == {("assignments/lifecycle.py", "_remove")}
    assert ending == {"take_over", "retire"}


def test_what_is_sound_newer_or_not_there_is_not_set_aside(layout: Layout):
    newer = assignment_of(2)
    assigned(layout, MINE, newer)
    put(path_of(layout, newer), bytes_of({**shape_of(newer), "version": 2}))
    with lock_of(layout).exclusive() as hold:
        for one in (MINE, newer, assignment_of(3)):
            with pytest.raises(AssignmentConflict, match="so it was not set aside"):
                store.set_aside(layout, hold, one.place)
    [fault] = [one for one in every_record(layout) if isinstance(one, Fault)]
    assert (fault.corrupt, fault.mend.startswith("Update Herd")) == (False, True)


def test_what_cannot_be_read_is_no_corrupt_record(layout: Layout):
    assigned(layout, MINE, assignment_of(2, socket="/run/two.sock"))
    os.chmod(path_of(layout, MINE), 0o644)
    os.chmod(path_of(layout, assignment_of(2, socket="/run/two.sock")).parents[1], 0o755)

    faults = [one for one in every_record(layout) if isinstance(one, Fault)]

    assert len(faults) == 2
    assert not any(one.corrupt for one in faults)
    assert all("cannot be read" in one.reason for one in faults)
    with pytest.raises(RecoveryRequired, match="cannot be read"):
        store.read(layout, MINE.place)
