"""The flag files that hooks look for, and what dead servers leave of them."""

import os
import stat
from pathlib import Path

import pytest

from herd.core.errors import LockTimeout, UnsafeEndpoint
from herd.hosts.claude.flags import Flags, is_flag_session, sweep

PID = 4_711


@pytest.fixture
def flags(tmp_path: Path):
    made = Flags(str(tmp_path), PID)
    made.open("/run/s", "token")
    yield made
    made.close()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_file_of_the_process_says_where_and_with_what(flags: Flags, tmp_path: Path):
    path = tmp_path / str(PID)

    assert path.read_text() == "/run/s\ntoken\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.requirement("D-host-12")
def test_a_flag_is_there_exactly_while_a_hook_has_something_to_do(flags: Flags, tmp_path: Path):
    flags.show("s-1", wanted=True, prompt=False)
    assert names(tmp_path) == {str(PID), f"s-1-{PID}"}
    assert (tmp_path / f"s-1-{PID}").read_text() == "/run/s\ntoken\n"

    flags.show("s-1", wanted=True, prompt=True)
    assert names(tmp_path) == {str(PID), f"s-1-{PID}"}

    flags.show("s-1", wanted=False, prompt=True)
    assert names(tmp_path) == {str(PID), f"s-1-{PID}.prompt"}

    flags.show("s-1", wanted=False, prompt=False)
    assert names(tmp_path) == {str(PID)}


def test_another_session_takes_the_flag_of_the_one_before_away(flags: Flags, tmp_path: Path):
    flags.show("s-1", wanted=True, prompt=True)

    flags.show("s-2", wanted=True, prompt=False)

    assert names(tmp_path) == {str(PID), f"s-2-{PID}"}


@pytest.mark.parametrize("session_id", ["", "a/b", "..", ".", "a b", "ü", "x" * 129, "a\n", "a.b", "$x"])
def test_a_session_id_that_is_no_safe_name_gets_no_flag(flags: Flags, tmp_path: Path, session_id: str):
    flags.show(session_id, wanted=True, prompt=True)

    assert not is_flag_session(session_id)
    assert names(tmp_path) == {str(PID)}


def test_the_end_takes_everything_down_and_coming_twice_changes_nothing(flags: Flags, tmp_path: Path):
    flags.show("s-1", wanted=True, prompt=False)

    flags.close()
    flags.close()
    flags.show("s-1", wanted=True, prompt=True)

    assert names(tmp_path) == set()


def test_a_second_server_of_one_process_has_to_wait(flags: Flags, tmp_path: Path):
    second = Flags(str(tmp_path), PID)

    with pytest.raises(LockTimeout):
        second.open("/run/other", "other")

    assert (tmp_path / str(PID)).read_text() == "/run/s\ntoken\n"


def leave(folder: Path, pid: int) -> None:
    """Leave what a killed server leaves: files that nobody locks any more."""
    for name in (str(pid), f"s-9-{pid}", f"s-9-{pid}.prompt"):
        (folder / name).write_text("/run/dead\ndead\n")
        (folder / name).chmod(0o600)


def test_what_a_dead_server_left_is_cleared_away_and_what_lives_stays(flags: Flags, tmp_path: Path):
    flags.show("s-1", wanted=True, prompt=False)
    leave(tmp_path, 99)

    sweep(str(tmp_path))

    assert names(tmp_path) == {str(PID), f"s-1-{PID}"}


def test_a_server_takes_over_the_names_of_a_dead_one_of_the_same_process(tmp_path: Path):
    leave(tmp_path, PID)
    flags = Flags(str(tmp_path), PID)

    flags.open("/run/s", "token")
    flags.show("s-9", wanted=True, prompt=False)

    assert (tmp_path / f"s-9-{PID}").read_text() == "/run/s\ntoken\n"
    assert names(tmp_path) == {str(PID), f"s-9-{PID}"}
    flags.close()


def test_a_link_that_stands_under_a_flags_name_is_replaced_and_not_followed(flags: Flags, tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / f"s-1-{PID}").symlink_to(target)

    flags.show("s-1", wanted=True, prompt=False)

    assert target.read_text() == "kept"
    assert (tmp_path / f"s-1-{PID}").read_text() == "/run/s\ntoken\n"


def test_a_folder_that_is_gone_makes_flags_late_and_nothing_worse(flags: Flags, tmp_path: Path):
    flags.show("s-1", wanted=True, prompt=False)
    for path in tmp_path.iterdir():
        path.unlink()
    tmp_path.rmdir()

    flags.show("s-2", wanted=True, prompt=False)
    flags.close()

    tmp_path.mkdir()


def test_foreign_things_in_the_folder_are_left_alone(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "open").write_text("x")
    (tmp_path / "open").chmod(0o644)

    sweep(str(tmp_path))

    assert names(tmp_path) == {"folder", "link", "pipe", "open"}


def test_an_unsafe_file_under_the_processs_name_is_refused(tmp_path: Path):
    (tmp_path / str(PID)).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafeEndpoint):
        Flags(str(tmp_path), PID).open("/run/s", "token")
