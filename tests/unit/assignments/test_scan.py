"""The scan: every canonical record of every namespace, whole or lacking, and read again where it changed."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from assignments import reading, scan, store
from assignments.evidence import NOTHING_ASSIGNED, Held, Scan
from assignments.record import Assignment, Place
from assignments.scan import Scans
from herd.core.limits import (
    ASSIGNMENT_FILE_BYTES,
    ASSIGNMENT_REASON_CHARACTERS,
    ASSIGNMENTS_LOOKED_AT_S,
)
from herd.core.paths import Layout
from herd.presence import stamps
from tests.fakes.assignments import assigned, assignment_of, bytes_of, lock_of, path_of, shape_of
from tests.fakes.records import layout_at, put

LATER_NS = 10**12
SOCKETS = ("none", "/run/one.sock", "/run/two.sock")
SOME = [
    assignment_of(3 * s + r, socket=socket, repo=f"/home/me/{r}/.git")
    for s, socket in enumerate(SOCKETS)
    for r in range(3)
]
MINE = SOME[4]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return layout_at(tmp_path / "herd")


class Watched:
    """Scans of one data root, by a clock that is far ahead: every stamp that is read has settled."""

    def __init__(self, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layout = layout
        self.lock = lock_of(layout)
        self.ahead_ns = LATER_NS
        self.passed_s = 0.0
        self.scans = Scans(layout, self.lock, lambda: 2**62 if self.ahead_ns else 0, lambda: self.passed_s)
        self.read: list[str] = []

        def read_in(folder: reading.Folder, place: Place) -> reading.Found | reading.Fault:
            self.read.append(place.branch)
            return reading.read_in(folder, place)

        monkeypatch.setattr(scan, "read_in", read_in)

    def scan(self) -> Scan:
        with self.lock.shared() as hold:
            return self.scans.scan(hold)

    def current(self) -> Scan | None:
        with self.lock.shared() as hold:
            return self.scans.current(hold)

    def again(self) -> list[str]:
        """Scan, and give the branches whose records were read for it."""
        self.read.clear()
        self.scan()
        return sorted(self.read)


@pytest.fixture
def watched(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(layout, monkeypatch)


def held_by(assignments: list[Assignment]) -> dict[str, tuple[Held, ...]]:
    return {one.session.key: (Held(one.socket, one.repo, one.branch),) for one in assignments}


@pytest.mark.requirement("H-assign-05")
def test_without_a_record_the_scan_is_complete_and_names_nobody(layout: Layout, watched: Watched):
    assert watched.scan() == NOTHING_ASSIGNED
    assert watched.current() == NOTHING_ASSIGNED
    assert not os.path.lexists(layout.assignments)
    assigned(layout, MINE)
    assert watched.scan().held
    with watched.lock.exclusive() as hold:
        store.remove(layout, hold, MINE)
    assert os.path.lexists(layout.assignments)
    assert watched.scan() == NOTHING_ASSIGNED == Scan({}, None)


def test_every_record_of_every_namespace_is_taken_in(layout: Layout, watched: Watched):
    assigned(layout, *SOME)

    assert watched.scan() == Scan(held_by(SOME))
    assert len(watched.read) == len(SOME)


def test_names_that_are_not_canonical_are_ignored(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    path = path_of(layout, MINE)
    for folder in (*path.parents[:3],):
        for name in ("a" * 63, "A" * 64, "a" * 65, f".{path.name}.1.tmp", f"{'a' * 64}.json.aside", "notes"):
            put(folder / name, b"nothing of ours")
    put(path.parent / ("a" * 64), b"nothing of ours")

    assert watched.scan() == Scan(held_by(SOME))


def test_a_session_that_two_records_name_holds_two(layout: Layout, watched: Watched):
    twin = assignment_of(99, session=MINE.session)
    assigned(layout, *SOME, twin)

    assert set(watched.scan().held[MINE.session.key]) == {
        Held(one.socket, one.repo, one.branch) for one in (MINE, twin)
    }


@pytest.mark.parametrize("left", ["corrupt", "another session", "open to others"])
def test_what_is_changed_in_place_is_seen_within_two_seconds(layout: Layout, watched: Watched, left: str):
    """No folder's stamp tells of it, and no generation: a shell's `>` and many editors write like this."""
    assigned(layout, *SOME)
    assert watched.scan() == watched.current() == Scan(held_by(SOME))
    other = MINE._replace(session=assignment_of(99).session)
    path = path_of(layout, MINE)
    if left == "open to others":
        path.chmod(0o644)
    else:
        path.write_bytes(b"{}" if left == "corrupt" else bytes_of(shape_of(other)))

    watched.passed_s += ASSIGNMENTS_LOOKED_AT_S
    assert watched.current() is not None
    watched.passed_s += 0.001
    assert watched.current() is None
    found = watched.scan()
    if left == "another session":
        assert found == Scan(held_by([other if one is MINE else one for one in SOME]))
    else:
        assert found.lacking is not None
        assert found.lacking.path == str(path)


def test_where_nothing_changed_nothing_is_read_again_however_long_it_is(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    watched.scan()
    watched.passed_s += 3600

    assert watched.again() == []
    assert watched.current() == Scan(held_by(SOME))


def replaced(content: bytes) -> Callable[[Path], None]:
    return lambda path: put(path, content)


def no_folder(path: Path) -> None:
    shutil.rmtree(path)
    put(path, b"")


BROKEN: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "too big": (replaced(b" " * (ASSIGNMENT_FILE_BYTES + 1)), 0, "larger than"),
    "no JSON": (replaced(b"]"), 0, "not JSON"),
    "wrong schema": (replaced(bytes_of({**shape_of(MINE), "id": "1"})), 0, "UUID"),
    "an additional key": (replaced(bytes_of({**shape_of(MINE), "x": 1})), 0, "unknown field x"),
    "other hashes": (replaced(bytes_of(shape_of(SOME[0]))), 0, "than its path does"),
    "newer": (replaced(bytes_of({**shape_of(MINE), "version": 2})), 0, "version 2"),
    "open to others": (lambda path: path.chmod(0o644), 0, "cannot be read"),
    "a folder in its place": (lambda path: (path.unlink(), path.mkdir())[1], 0, "cannot be read"),
    "a pipe in its place": (lambda path: (path.unlink(), os.mkfifo(path, 0o600))[1], 0, "cannot be read"),
    "a link": (lambda path: (path.rename(path.parent / "x"), path.symlink_to("x"))[1], 0, "cannot be read"),
    "an open repository": (lambda path: path.parents[0].chmod(0o750), 1, "cannot be read"),
    "an open namespace": (lambda path: path.parents[1].chmod(0o750), 2, "cannot be read"),
    "no namespace": (lambda path: no_folder(path.parents[1]), 2, "cannot be read"),
    "an open root": (lambda path: path.parents[2].chmod(0o750), 3, "cannot be read"),
}


@pytest.mark.parametrize(("spoil", "level", "said"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_one_that_is_corrupt_or_unreadable_makes_the_scan_lack(
    layout: Layout, watched: Watched, spoil: Callable[[Path], None], level: int, said: str, *, warm: bool
):
    assigned(layout, *SOME)
    if warm:
        watched.scan()
    path = path_of(layout, MINE)
    with watched.lock.exclusive():  # whoever changed it raised the generation
        spoil(path)

    assert watched.current() is None
    found = watched.scan()

    assert found.held == {}
    assert found.lacking is not None
    assert found.lacking.path == str([path, *path.parents][level])
    assert said in found.lacking.reason
    assert len(found.lacking.reason) <= ASSIGNMENT_REASON_CHARACTERS
    assert watched.current() is None
    assert watched.scan() == found


@pytest.mark.parametrize("level", [0, 1, 2])
def test_one_that_vanishes_during_the_scan_makes_it_lack(
    layout: Layout, watched: Watched, monkeypatch: pytest.MonkeyPatch, level: int
):
    assigned(layout, *SOME)
    path = [path_of(layout, MINE), *path_of(layout, MINE).parents][level]
    names = reading.Folder.names

    def vanishing(folder: reading.Folder, ending: str = "") -> list[str]:
        found = names(folder, ending)
        if folder.path == str(path.parent):
            shutil.rmtree(path, ignore_errors=True)
            path.unlink(missing_ok=True)
        return found

    with monkeypatch.context() as during:
        during.setattr(reading.Folder, "names", vanishing)
        found = watched.scan()

    assert (found.held, found.lacking) == ({}, ("vanished while the records were read", str(path)))
    assert watched.scan().lacking is None


def test_a_scan_that_lacked_is_whole_once_it_is_mended(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    path = path_of(layout, MINE)
    content = path.read_bytes()
    put(path, b"{")
    assert watched.scan().lacking is not None

    put(path, content)

    assert watched.scan() == Scan(held_by(SOME))


def test_while_nothing_changes_nothing_is_read_again(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    first = watched.scan()

    assert watched.again() == []
    assert watched.current() is first
    assert watched.scan() is first


@pytest.mark.requirement("H-locks-15")
def test_whoever_changes_raises_the_generation_under_the_lock_and_what_was_read_before_is_not_used(
    layout: Layout, watched: Watched
):
    assigned(layout, *SOME)
    before = watched.lock.generation()
    stale = watched.scan()
    raised: list[int] = []
    with watched.lock.exclusive() as hold:
        # It is raised while the lock is held, before the first step of the change.
        store.write(
            layout, hold, MINE._replace(text="Anew."), lambda _: raised.append(watched.lock.generation())
        )
        assert watched.scans.current(hold) is None
    assert set(raised) == {before + 1}
    assert watched.current() is None
    assert watched.scan() is not stale
    with watched.lock.exclusive():
        pass
    # A generation that was raised is enough, whatever the stamps say: each file is looked at again.
    looked: list[str] = []
    at = stamps.stamp_at
    with pytest.MonkeyPatch.context() as during:
        during.setattr(scan, "stamp_at", lambda path, fd=None: (looked.append(path), at(path, fd))[1])
        assert watched.current() is None
        assert watched.scan() == Scan(held_by(SOME))
    assert {f"{one.place.branch}.json" for one in SOME} <= set(looked)


def test_only_what_changed_is_read_again(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    watched.scan()
    added = assignment_of(99)

    assigned(layout, MINE._replace(text="Anew."), added)
    assert watched.again() == sorted([MINE.place.branch, added.place.branch])
    with watched.lock.exclusive() as hold:
        store.remove(layout, hold, added)
    assert watched.again() == []
    assert watched.scan() == Scan(held_by(SOME))


def test_what_others_do_to_a_folder_is_seen_without_a_new_generation(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    watched.scan()
    path = path_of(layout, MINE)
    moved = path.with_name("moved")
    generation = watched.lock.generation()

    path.rename(moved)
    assert watched.current() is None
    assert watched.scan() == Scan(held_by([one for one in SOME if one != MINE]))
    moved.rename(path)
    assert watched.scan() == Scan(held_by(SOME))
    shutil.rmtree(path.parents[1])
    assert len(watched.scan().held) == len(SOME) - 3
    shutil.rmtree(layout.assignments)
    assert watched.scan() == NOTHING_ASSIGNED
    assert watched.lock.generation() == generation


def test_a_stamp_that_has_not_settled_is_not_relied_on(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    watched.ahead_ns = 0
    watched.scan()

    assert watched.current() is None
    assert len(watched.again()) == len(SOME)


def test_a_generation_that_cannot_be_read_makes_the_scan_lack(layout: Layout, watched: Watched):
    assigned(layout, *SOME)
    watched.scan()
    put(layout.authority_generation, b"many\n")

    assert watched.current() is None
    found = watched.scan()
    assert found.lacking is not None
    assert (found.held, found.lacking.path) == ({}, layout.authority_generation)
    assert "no generation" in found.lacking.reason


def test_only_who_holds_the_lock_is_given_a_scan(layout: Layout, watched: Watched):
    with watched.lock.shared() as hold:
        pass
    for ask in (watched.scans.scan, watched.scans.current):
        with pytest.raises(RuntimeError, match="only under the authority lock"):
            ask(hold)


async def test_the_current_scan_may_be_asked_for_on_the_event_loop(layout: Layout, watched: Watched):
    await asyncio.to_thread(assigned, layout, *SOME)
    await asyncio.to_thread(watched.scan)

    assert watched.current() == Scan(held_by(SOME))
