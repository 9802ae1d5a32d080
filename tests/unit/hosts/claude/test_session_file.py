"""The file in which Claude Code says what one of its processes does."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from herd.core.limits import HOST_STATE_BYTES
from herd.core.processes import start_token
from herd.hosts.claude.session_file import Process, State, StateWatch, read_state, settings_folder

PID = os.getpid()
START = start_token(PID) or ""
OURS = Process(PID, START)


def fields(**changes: Any) -> dict[str, Any]:
    plain = {
        "pid": PID,
        "sessionId": "s-1",
        "cwd": "/w",
        "procStart": START.rpartition(":")[2],
        "kind": "interactive",
        "status": "idle",
        "statusUpdatedAt": 5,
    }
    return {name: value for name, value in {**plain, **changes}.items() if value is not ...}


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir(mode=0o700)
    return folder


def write(sessions: Path, content: bytes | None = None, **changes: Any) -> Path:
    path = sessions / f"{PID}.json"
    path.write_bytes(json.dumps(fields(**changes)).encode() if content is None else content)
    return path


@pytest.mark.requirement("D-host-01")
def test_the_file_of_the_process_tells_its_session_and_what_it_does(sessions: Path):
    write(sessions)

    assert read_state(str(sessions), OURS) == State("s-1", "/w", "idle", interactive=True, changed=5)


@pytest.mark.requirement("D-host-01")
@pytest.mark.parametrize(
    "changes",
    [
        {"pid": PID + 1},
        {"pid": str(PID)},
        {"pid": True},
        {"procStart": "1"},
        {"procStart": ""},
        {"procStart": ...},
        {"procStart": 7},
        {"sessionId": ...},
        {"sessionId": ""},
        {"sessionId": "x" * 513},
    ],
)
def test_a_file_of_another_process_or_without_a_session_tells_nothing(
    sessions: Path, changes: dict[str, Any]
):
    write(sessions, **changes)

    assert read_state(str(sessions), OURS) is None


def test_of_a_process_that_ended_nothing_is_told_to_one_with_its_pid(sessions: Path):
    write(sessions)

    assert read_state(str(sessions), Process(PID, "")) is None
    assert read_state(str(sessions), Process(PID, "boot:1:99")) is None


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"status": "dreaming"}, State("s-1", "/w", None, True, 5)),
        ({"status": 7}, State("s-1", "/w", None, True, 5)),
        ({"status": ["idle"]}, State("s-1", "/w", None, True, 5)),
        ({"cwd": "w"}, State("s-1", None, "idle", True, 5)),
        ({"cwd": 7}, State("s-1", None, "idle", True, 5)),
        ({"kind": "print"}, State("s-1", "/w", "idle", False, 5)),
        ({"kind": ...}, State("s-1", "/w", "idle", False, 5)),
        ({"entrypoint": "sdk-cli"}, State("s-1", "/w", "idle", False, 5)),
        ({"entrypoint": "cli"}, State("s-1", "/w", "idle", True, 5)),
        ({"statusUpdatedAt": "5"}, State("s-1", "/w", "idle", True, None)),
    ],
)
def test_a_field_of_another_form_counts_as_absent(sessions: Path, changes: dict[str, Any], state: State):
    write(sessions, **changes)

    assert read_state(str(sessions), OURS) == state


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 30_000],
    ids=["empty", "cut", "list", "number", "bytes", "deep"],
)
def test_a_malformed_file_tells_nothing(sessions: Path, content: bytes):
    write(sessions, content)

    assert read_state(str(sessions), OURS) is None


def test_a_huge_file_is_not_read(sessions: Path):
    write(sessions, filler="x" * HOST_STATE_BYTES)

    assert read_state(str(sessions), OURS) is None


def test_a_link_a_pipe_and_a_file_open_to_others_tell_nothing(sessions: Path):
    path = write(sessions)
    path.chmod(0o666)
    assert read_state(str(sessions), OURS) is None

    path.chmod(0o600)
    elsewhere = path.rename(sessions / "elsewhere")
    path.symlink_to(elsewhere)
    assert read_state(str(sessions), OURS) is None

    path.unlink()
    os.mkfifo(path)
    assert read_state(str(sessions), OURS) is None


@pytest.mark.machine
def test_another_users_file_tells_nothing(sessions: Path):
    os.chown(write(sessions), 12_345, -1)

    assert read_state(str(sessions), OURS) is None


class Heard:
    """The states that a watch told, for which a test can wait."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self._news = asyncio.Event()

    def __call__(self, state: State) -> None:
        self.states.append(state)
        self._news.set()

    async def more(self) -> State:
        async with asyncio.timeout(10):
            await self._news.wait()
        self._news.clear()
        return self.states[-1]


async def test_every_change_is_told_and_nothing_twice(sessions: Path):
    write(sessions)
    heard = Heard()
    with StateWatch(str(sessions.parent), OURS, heard) as watch:
        assert (await heard.more()).status == "idle"
        write(sessions, status="busy")
        assert (await heard.more()).status == "busy"
        write(sessions, status="busy", updatedAt=9)
        (sessions / "1.json").write_text("{}")
        write(sessions, sessionId="s-2", status="busy")
        assert (await heard.more()).session_id == "s-2"

        assert watch.state == heard.states[-1]
    assert [(state.session_id, state.status) for state in heard.states] == [
        ("s-1", "idle"),
        ("s-1", "busy"),
        ("s-2", "busy"),
    ]


async def test_a_file_that_breaks_keeps_what_was_known(sessions: Path):
    write(sessions)
    heard = Heard()
    with StateWatch(str(sessions.parent), OURS, heard) as watch:
        write(sessions, b"{")
        write(sessions, status="waiting")
        await heard.more()
        while heard.states[-1].status != "waiting":
            await heard.more()

        assert watch.state == heard.states[-1]


async def test_a_folder_that_comes_later_is_watched_from_then_on(tmp_path: Path):
    heard = Heard()
    with StateWatch(str(tmp_path), OURS, heard):
        sessions = tmp_path / "sessions"
        sessions.mkdir()
        write(sessions)

        assert (await heard.more()).session_id == "s-1"


async def test_settings_that_are_a_link_or_nowhere_are_no_error(sessions: Path, tmp_path: Path):
    write(sessions)
    (tmp_path / "link").symlink_to(sessions.parent)
    heard = Heard()
    with StateWatch(str(tmp_path / "link"), OURS, heard), StateWatch("/nowhere/at/all", OURS, heard):
        assert [state.session_id for state in heard.states] == ["s-1"]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/h"}, "/h/.claude"),
        ({"HOME": "/h", "CLAUDE_CONFIG_DIR": "/c"}, "/c"),
        ({"HOME": "/h", "CLAUDE_CONFIG_DIR": ""}, "/h/.claude"),
        ({"HOME": "/h", "CLAUDE_CONFIG_DIR": "c"}, "/h/.claude"),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_where_claude_code_keeps_its_state(environ: dict[str, str], folder: str | None):
    assert settings_folder(environ) == folder
