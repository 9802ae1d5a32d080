"""What a watch on a folder tells, and what it survives."""

import asyncio
import os
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.core.watch import FolderWatch, names_in

BOUND_S = 10
QUEUED_EVENTS = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "watched"
    place.mkdir(mode=0o700)
    return place


class Told:
    """What a watch told, in order."""

    def __init__(self, folder: Path) -> None:
        self.names: list[str | None] = []
        self._arrived = asyncio.Event()
        self.watch = FolderWatch(str(folder), self._note)

    def _note(self, name: str | None) -> None:
        self.names.append(name)
        self._arrived.set()

    async def until(self, name: str | None) -> list[str | None]:
        """Give all that was told up to a name."""
        async with asyncio.timeout(BOUND_S):
            while name not in self.names:
                self._arrived.clear()
                await self._arrived.wait()
        return self.names


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[Told]:
    told = Told(folder)
    try:
        yield told
    finally:
        told.watch.close()


async def test_it_tells_each_way_in_which_an_entry_changes(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.touch()
    (folder / "there").touch()
    steps = {
        "made": (folder / "made").touch,
        "folder": (folder / "folder").mkdir,
        "link": lambda: (folder / "link").symlink_to("nowhere"),
        "in": lambda: outside.rename(folder / "in"),
        "in2": lambda: (folder / "in").rename(folder / "in2"),
        "made2": lambda: (folder / "made").rename(tmp_path / "made2"),
        "there": (folder / "there").unlink,
        "in2 ": lambda: (folder / "in2").write_text("more", encoding="utf-8"),
    }
    expected = {"in2": {"in", "in2"}, "made2": {"made"}, "in2 ": {"in2"}}
    for end, step in steps.items():
        async with watching(folder) as told:
            step()
            (folder / "end").touch()
            assert set(await told.until("end")) == {*expected.get(end, {end}), "end"}
        (folder / "end").unlink()


async def test_a_record_that_is_replaced_is_told_by_its_own_name(folder):
    async with watching(folder) as told:
        for _ in range(3):
            (folder / ".new").write_text("record", encoding="utf-8")
            (folder / ".new").replace(folder / "record.json")
            await told.until("record.json")
            told.names.clear()


async def test_reading_an_entry_or_its_mode_tells_nothing(folder):
    (folder / "entry").write_text("text", encoding="utf-8")
    async with watching(folder) as told:
        (folder / "entry").read_text(encoding="utf-8")
        (folder / "entry").chmod(0o600)
        os.listdir(folder)
        (folder / "end").touch()
        assert set(await told.until("end")) == {"end"}


async def test_what_happens_deeper_is_not_told(folder):
    (folder / "deeper").mkdir()
    async with watching(folder) as told:
        (folder / "deeper" / "entry").touch()
        (folder / "end").touch()
        assert set(await told.until("end")) == {"end"}


@pytest.mark.parametrize("name", ["ünï", "a b\nc", "x" * 255, "\udcff\udcfe", "..."])
async def test_names_come_as_they_are(folder, name):
    async with watching(folder) as told:
        (folder / name).touch()
        assert await told.until(name)


@pytest.mark.parametrize("end", ["removed", "moved", "replaced"])
async def test_the_end_of_the_folder_itself_is_told_as_none(folder, tmp_path, end):
    async with watching(folder) as told:
        (folder / "entry").touch()
        if end == "removed":
            shutil.rmtree(folder)
        else:
            folder.rename(tmp_path / "elsewhere")
        if end == "replaced":
            folder.mkdir()
        assert None in await told.until(None)
    assert "entry" in told.names


async def test_lost_changes_are_told_as_none(folder):
    async with watching(folder) as told:
        # Two events or three each, none read meanwhile; names alternate, so that none are merged.
        for number in range(QUEUED_EVENTS // 2 + 10):
            os.close(os.open(folder / f"{number % 2}", os.O_WRONLY | os.O_CREAT))
            os.unlink(folder / f"{number % 2}")
        await told.until(None)
        told.names.clear()
        (folder / "after").touch()
        await told.until("after")


async def test_a_callback_that_fails_loses_no_other_change(folder):
    loop = asyncio.get_running_loop()
    failures: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    names: list[str | None] = []
    done = asyncio.Event()

    def changed(name: str | None) -> None:
        names.append(name)
        if name == "c":
            done.set()
        raise ZeroDivisionError

    with FolderWatch(str(folder), changed):
        for name in "abc":
            (folder / name).mkdir()
        async with asyncio.timeout(BOUND_S):
            await done.wait()
    assert names == ["a", "b", "c"]
    assert {type(failure["exception"]) for failure in failures} == {ZeroDivisionError}


async def test_nothing_is_told_after_close_not_even_what_was_read_before(folder):
    names: list[str | None] = []

    def changed(name: str | None) -> None:
        names.append(name)
        watch.close()

    watch = FolderWatch(str(folder), changed)
    for name in "abc":
        (folder / name).mkdir()
    async with watching(folder) as told:
        (folder / "end").touch()
        await told.until("end")
    assert names == ["a"]


async def test_closing_twice_closes_nothing_of_others_and_leaves_no_file_open(folder):
    before = set(os.listdir("/proc/self/fd"))
    watch = FolderWatch(str(folder), lambda name: None)
    watch.close()
    assert set(os.listdir("/proc/self/fd")) == before
    async with watching(folder) as told:
        watch.close()
        (folder / "entry").touch()
        await told.until("entry")


async def test_many_watches_of_one_folder_all_hear(folder):
    watches = [Told(folder) for _ in range(20)]
    (folder / "entry").touch()
    for told in watches:
        assert await told.until("entry")
        told.watch.close()


async def test_a_watch_uses_no_thread_and_is_not_inherited(folder):
    threads = threading.active_count()
    async with watching(folder) as told:
        assert threading.active_count() == threads
        number = told.watch._source.number
        assert not os.get_inheritable(number)
        assert not os.get_blocking(number)


@pytest.mark.parametrize("kind", ["absent", "file", "symlink"])
async def test_what_is_no_folder_cannot_be_watched_and_leaves_no_file_open(folder, tmp_path, kind):
    place = tmp_path / "place"
    if kind == "file":
        place.touch()
    elif kind == "symlink":
        place.symlink_to(folder)
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError if kind == "absent" else NotADirectoryError, match="place"):
        FolderWatch(str(place), lambda name: None)
    assert set(os.listdir("/proc/self/fd")) == before


def test_without_a_running_loop_nothing_is_watched(folder):
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError):
        FolderWatch(str(folder), lambda name: None)
    assert set(os.listdir("/proc/self/fd")) == before


async def test_a_folder_removed_while_somebody_has_it_open_is_told_when_that_ends(folder):
    (folder / "entry").touch()
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    async with watching(folder) as told:
        try:
            shutil.rmtree(folder)
            assert await told.until("entry") == ["entry"]
        finally:
            os.close(held)
        assert await told.until(None)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0x100, 0x40, 0x80, 0x200, 0x8, 0x4000, 0x400]), st.text("ab/é", max_size=9)
        )
    )
)
def test_any_sequence_of_events_is_read_back(events):
    raw = b""
    for mask, name in events:
        padded = name.encode() + b"\0" * (16 - len(name.encode()) % 16)
        raw += struct.pack("iIII", 1, mask, 0, len(padded)) + padded
    assert names_in(raw) == [None if mask in {0x4000, 0x400} else name for mask, name in events]


_RESERVES_AND_WATCHES = """
import asyncio, os, sys
from herd.core.watch import FolderWatch, reserve_descriptors

async def main(folder):
    reserve_descriptors()
    later = os.open(os.devnull, os.O_RDONLY)
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(2):  # what the first gave back serves the second
        with FolderWatch(folder, lambda _: None) as watch:
            assert watch._source.number < later, (watch._source.number, later)
            assert not os.get_inheritable(watch._source.number)
    assert set(os.listdir("/proc/self/fd")) == before, "nothing is left open"

asyncio.run(main(sys.argv[1]))
"""


def test_a_watch_stands_below_every_descriptor_opened_after_the_reserve(tmp_path: Path):
    # In a process of its own: here earlier tests have reserved, and closed lower numbers since.
    subprocess.run([sys.executable, "-c", _RESERVES_AND_WATCHES, str(tmp_path)], check=True, timeout=60)
