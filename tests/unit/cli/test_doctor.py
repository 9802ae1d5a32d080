"""What `herd doctor` looks at, with surroundings that a test chooses."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from herd.cli.doctor import Finding, look
from herd.cli.looking.surroundings import disk
from herd.core.limits import DISK_FREE_BYTES
from herd.core.paths import machine_folder, open_layout


def findings(home: Path | str, *files: Path) -> dict[str, Finding]:
    environ = {"HERD_HOME": str(home), "HOME": "/nowhere"}
    return {finding.what: finding for finding in look(environ, [str(file) for file in files])}


@pytest.mark.requirement("A-storage-16")
def test_without_a_machine_id_the_host_name_names_the_folder_and_it_says_so(home: Path, tmp_path: Path):
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.touch()
    layout = open_layout(str(home), machine=os.uname().nodename)

    found = findings(home, missing, empty)

    assert found["data root"].ok
    assert found["data root"].detail.startswith(f"{layout.root} on ")
    assert found["machine"].ok
    assert "no machine id, so its host name names its folder" in found["machine"].detail


def test_with_a_machine_id_that_names_the_folder(home: Path, tmp_path: Path):
    file = tmp_path / "machine-id"
    file.write_text("0123456789abcdef0123456789abcdef\n", encoding="ascii")

    found = findings(home, file)

    root = home / machine_folder("0123456789abcdef0123456789abcdef")
    assert found["data root"].detail == f"{root} is not there yet; the first session makes it"
    assert found["machine"].detail == "named by its machine id"
    assert list(home.iterdir()) == []


def test_what_cannot_be_used_ends_nothing_else(home: Path, tmp_path: Path):
    assert [name for name, one in findings("relative").items() if not one.ok] == ["settings"]
    file = tmp_path / "file"
    file.touch()
    for place in (file / "below", file / "far" / "below"):
        found = findings(place)
        assert [name for name, one in found.items() if not one.ok] == ["data root"]
        assert found["data root"].detail.endswith(f"{file} is no folder in which you may make one")
        assert found["data root"].next_step
    open_layout(str(home), machine=os.uname().nodename)
    sessions = next(home.iterdir()) / "sessions" / ("a" * 64)
    sessions.mkdir()
    (sessions / "session.json").mkdir()

    found = findings(home, tmp_path / "no machine id")

    assert found["file"].ok is False
    assert found["file"].detail == f"{sessions / 'session.json'} is no file"
    assert found["presence"].ok


def on_a_disk(**state: int) -> Finding:
    sound = {"f_bavail": 10**9, "f_frsize": 4_096, "f_flag": 0, "f_files": 10, "f_favail": 5}
    [found] = disk("/state", lambda _: SimpleNamespace(**{**sound, **state}))  # type: ignore[arg-type,return-value]
    return found


def test_a_disk_that_takes_nothing_more_is_named():
    assert on_a_disk().ok
    assert on_a_disk(f_bavail=DISK_FREE_BYTES // 4_096).ok
    full = on_a_disk(f_bavail=DISK_FREE_BYTES // 4_096 - 1)
    assert (full.ok, full.detail) == (
        False,
        "/state lies on a disk with 16,380 KiB free for you, less than 16 MiB",
    )
    assert "takes no more files" in on_a_disk(f_favail=0).detail
    assert on_a_disk(f_files=0, f_favail=0).ok  # btrfs counts none
    read_only = on_a_disk(f_flag=os.ST_RDONLY)
    assert (read_only.ok, "mounted read-only" in read_only.detail) == (False, True)
