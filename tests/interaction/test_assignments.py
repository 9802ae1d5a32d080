"""An assignment's life under its locks: made, gone on with, taken over, retired; nothing else ends one."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from assignments import store
from assignments.lifecycle import Assignments, Kept, Retired
from assignments.record import Assignment, Place
from assignments.steps import ASSIGNMENT_STEPS, REMOVE_BEFORE, WRITE_BEFORE
from assignments.worktrees.inventory import Inventoried, Inventory, Partial, Worktree
from assignments.worktrees.inventory_fake import FakeInventories
from herd.core.errors import (
    AssignmentConflict,
    InvalidParams,
    LockTimeout,
    RecoveryRequired,
    UnknownTarget,
)
from herd.core.limits import ASSIGNMENT_PAYLOAD_BYTES
from herd.core.locks import HeldLock, probe
from herd.core.paths import Layout
from herd.presence.session_file import SessionFile, write_session_file
from tests.fakes.assignments import REPO, assigned, assignment_of, lock_of, path_of
from tests.fakes.records import layout_at, put, seen

CHECKOUT = "/home/me/project.work"
MINE = assignment_of(branch="work", checkout=CHECKOUT)
PRIMARY = Worktree("/home/me/project", "main", linked=False)
THERE = Inventoried(REPO, (PRIMARY, Worktree(CHECKOUT, "work")))
GONE = Inventoried(REPO, (PRIMARY,))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return layout_at(tmp_path / "herd")


@pytest.fixture
def assignments(layout: Layout) -> Assignments:
    return Assignments(layout, lock_of(layout))


def everything(layout: Layout) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(layout.root)): path.read_bytes() if path.is_file() else None
        for path in Path(layout.root).rglob("*")
        if "locks" not in path.parts
    }


# --- made, and gone on with ------------------------------------------------------------------------


def test_a_branch_is_given_to_a_session_once(layout: Layout, assignments: Assignments):
    assignments.create(MINE)

    assert store.read(layout, MINE.place) == MINE
    for other in (MINE, assignment_of(2, branch="work")):
        with pytest.raises(AssignmentConflict, match="work has an assignment already"):
            assignments.create(other)
    with pytest.raises(AssignmentConflict, match="the session carries work of"):
        assignments.create(assignment_of(3, socket="/run/herdr.sock", session=MINE.session))
    with pytest.raises(InvalidParams):
        assignments.create(assignment_of(4, text="x" * (ASSIGNMENT_PAYLOAD_BYTES + 1)))
    assert store.read(layout, MINE.place) == MINE
    assert [path.name for path in Path(layout.assignments).rglob("*.json")] == [path_of(layout, MINE).name]
    assignments.create(assignment_of(5, socket="/run/herdr.sock", branch="work"))


def test_nothing_is_assigned_while_a_record_proves_nothing(layout: Layout, assignments: Assignments):
    assigned(layout, assignment_of(2, socket="/run/herdr.sock"))
    corrupt = path_of(layout, assignment_of(2, socket="/run/herdr.sock"))
    put(corrupt, b"{")

    with pytest.raises(RecoveryRequired, match="is not JSON") as refused:
        assignments.create(MINE)

    assert refused.value.details["path"] == str(corrupt)
    assert not path_of(layout, MINE).exists()


@pytest.mark.requirement("H-assign-13")
def test_a_session_that_is_stopped_or_resumed_keeps_its_assignment(layout: Layout, assignments: Assignments):
    assignments.create(MINE)
    before = seen(path_of(layout, MINE)), lock_of(layout).generation()

    for _ in ("stopped", "resumed"):
        with assignments.kept(MINE.place) as kept:
            assert kept == MINE
            with pytest.raises(LockTimeout):
                Assignments(layout, lock_of(layout), lock_wait_ms=0).take_over(MINE.place, lambda _: True)

    assert (seen(path_of(layout, MINE)), lock_of(layout).generation()) == before
    with pytest.raises(UnknownTarget), assignments.kept(assignment_of(2).place):
        pass


# --- locks -----------------------------------------------------------------------------------------


def created(assignments: Assignments) -> object:
    return assignments.create(assignment_of(2))


def taken_over(assignments: Assignments) -> object:
    return assignments.take_over(MINE.place, lambda _: True)


def retired(assignments: Assignments) -> object:
    return asyncio.run(assignments.retire(MINE.place, FakeInventories(GONE)))


def set_aside(assignments: Assignments) -> object:
    return assignments.set_aside(assignment_of(3).place)


CHANGES = [created, taken_over, retired, set_aside]


@pytest.fixture
def three(layout: Layout) -> Layout:
    assigned(layout, MINE, assignment_of(3))
    put(path_of(layout, assignment_of(3)), b"{")
    return layout


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_without_the_authority_lock_in_time_nothing_changes(
    three: Layout, change: Callable[[Assignments], object], kind: str
):
    before = everything(three), lock_of(three).generation()
    impatient = Assignments(three, lock_of(three), authority_wait_s=0)
    if kind == "exclusive":
        before = before[0], before[1] + 1
    with getattr(lock_of(three), kind)():
        with pytest.raises(LockTimeout) as refused:
            change(impatient)
        assert (everything(three), lock_of(three).generation()) == before

    assert refused.value.code == "LOCK_TIMEOUT"


@pytest.mark.requirement("H-locks-05")
@pytest.mark.parametrize("change", CHANGES[1:])
def test_every_change_happens_under_its_own_lock_and_the_authority_lock_held_alone(
    three: Layout, change: Callable[[Assignments], object]
):
    place = assignment_of(3).place if change is set_aside else MINE.place
    steps: list[str] = []

    def look(step: str) -> None:
        steps.append(step)
        if step in ASSIGNMENT_STEPS:
            assert probe(three.assignment_lock(*place)).held
            with pytest.raises(LockTimeout):
                lock_of(three).shared(0)

    change(Assignments(three, lock_of(three), step=look))

    assert len(steps) == 2
    assert not probe(three.assignment_lock(*place)).held
    lock_of(three).exclusive(0).release()


def test_a_creation_happens_under_both_too(layout: Layout):
    held: list[bool] = []

    def look(step: str) -> None:
        if step == WRITE_BEFORE:
            held.append(probe(layout.assignment_lock(*MINE.place)).held)
            held.append(lock_of(layout).try_shared() is None)

    Assignments(layout, lock_of(layout), step=look).create(MINE)

    assert held == [True, True]


@pytest.mark.parametrize("change", CHANGES)
def test_while_the_assignment_s_own_lock_is_held_nobody_waits_with_the_authority_lock(
    three: Layout, change: Callable[[Assignments], object]
):
    places: dict[Callable[[Assignments], object], Place] = {
        created: assignment_of(2).place,
        set_aside: assignment_of(3).place,
    }
    place = places.get(change, MINE.place)
    generation = lock_of(three).generation()
    with HeldLock.acquire(three.assignment_lock(*place)), pytest.raises(LockTimeout):
        change(Assignments(three, lock_of(three), lock_wait_ms=0))
    assert lock_of(three).generation() == generation


# --- taken over ------------------------------------------------------------------------------------


@pytest.mark.requirement("H-assign-14")
def test_a_takeover_ends_the_assignment_a_person_confirms_and_nothing_more(
    layout: Layout, assignments: Assignments
):
    write_session_file(layout, SessionFile(MINE.session, kind="managed"))
    before = everything(layout)
    assignments.create(MINE)
    created = everything(layout)
    asked: list[Assignment] = []

    def answering(answer: bool) -> Callable[[Assignment], bool]:
        return lambda assignment: (asked.append(assignment), answer)[1]

    with pytest.raises(AssignmentConflict, match="nobody confirmed"):
        assignments.take_over(MINE.place, answering(False))
    assert everything(layout) == created
    assert assignments.take_over(MINE.place, answering(True)) == MINE

    assert asked == [MINE, MINE]
    left = everything(layout)
    assert {path: left[path] for path in before} == before
    assert all(content is None for path, content in left.items() if path not in before)
    assert store.read(layout, MINE.place) is None


def test_what_was_not_shown_to_the_person_is_not_taken_over(layout: Layout, assignments: Assignments):
    assignments.create(MINE)
    another = MINE._replace(id=assignment_of(2).id)

    def meanwhile(_: Assignment) -> bool:
        assigned(layout, another)
        return True

    with pytest.raises(AssignmentConflict):
        assignments.take_over(MINE.place, meanwhile)
    assert store.read(layout, MINE.place) == another


# --- retired ---------------------------------------------------------------------------------------


@pytest.mark.requirement("H-assign-12")
async def test_it_is_retired_by_two_inventories_of_which_the_second_is_taken_under_its_lock(layout: Layout):
    await asyncio.to_thread(assigned, layout, MINE)
    held: list[bool] = []

    async def look(_: int) -> None:
        # The authority lock is free both times: nobody waits for git while holding it.
        (await asyncio.to_thread(lock_of(layout).exclusive, 0)).release()
        held.append((await asyncio.to_thread(probe, layout.assignment_lock(*MINE.place))).held)

    inventories = FakeInventories(GONE, meanwhile=look)
    retired = await Assignments(layout, lock_of(layout)).retire(MINE.place, inventories)

    assert retired == Retired(MINE)
    assert inventories.asked == [REPO, REPO]
    assert held == [False, True]
    assert await asyncio.to_thread(store.read, layout, MINE.place) is None


DOUBTS: list[Inventory] = [
    THERE,
    Partial("git took too long"),
    Inventoried(REPO, ()),
    Inventoried("/home/me/other/.git", (PRIMARY,)),
    Inventoried(REPO, (PRIMARY, Worktree(CHECKOUT, "work", prunable=True, locked=True, present=False))),
    Inventoried(REPO, (PRIMARY, Worktree("/a", "work"), Worktree("/b", "work"))),
]


@pytest.mark.requirement("H-assign-12", "H-assign-13")
@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_doubt_in_either_inventory_keeps_it(layout: Layout, doubt: Inventory, nth: int):
    await asyncio.to_thread(assigned, layout, MINE)
    before = seen(path_of(layout, MINE))
    generation = lock_of(layout).generation()

    kept = await Assignments(layout, lock_of(layout)).retire(
        MINE.place, FakeInventories(*[GONE] * (nth - 1), doubt)
    )

    assert isinstance(kept, Kept)
    assert kept.reason
    assert (seen(path_of(layout, MINE)), lock_of(layout).generation()) == (before, generation)
    assert not (await asyncio.to_thread(probe, layout.assignment_lock(*MINE.place))).held


@pytest.mark.requirement("H-assign-12")
async def test_another_assignment_of_the_branch_is_not_retired_for_the_one_before(layout: Layout):
    await asyncio.to_thread(assigned, layout, MINE)
    another = MINE._replace(id=assignment_of(2).id)

    async def replace(_: int) -> None:
        await asyncio.to_thread(assigned, layout, another)

    kept = await Assignments(layout, lock_of(layout)).retire(
        MINE.place, FakeInventories(GONE, meanwhile=replace)
    )

    assert isinstance(kept, Kept)
    assert await asyncio.to_thread(store.read, layout, MINE.place) == another


async def test_a_retirement_that_is_called_off_leaves_no_lock_and_no_half_change(layout: Layout):
    await asyncio.to_thread(assigned, layout, MINE)
    removing, go_on = threading.Event(), threading.Event()

    def step(name: str) -> None:
        if name == REMOVE_BEFORE:
            removing.set()
            assert go_on.wait(20)

    retiring = asyncio.ensure_future(
        Assignments(layout, lock_of(layout), step=step).retire(MINE.place, FakeInventories(GONE))
    )
    assert await asyncio.to_thread(removing.wait, 20)
    retiring.cancel()
    await asyncio.sleep(0)
    assert (await asyncio.to_thread(probe, layout.assignment_lock(*MINE.place))).held
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await retiring

    assert not (await asyncio.to_thread(probe, layout.assignment_lock(*MINE.place))).held
    (await asyncio.to_thread(lock_of(layout).exclusive, 0)).release()
    assert await asyncio.to_thread(store.read, layout, MINE.place) is None
