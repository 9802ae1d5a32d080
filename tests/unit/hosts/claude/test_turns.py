"""How a turn came to its end, from states, hooks and the transcript."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from herd.hosts.claude.events import STOP, TOOLS, read_event
from herd.hosts.claude.session_file import State
from herd.hosts.claude.turns import Turns
from herd.hosts.claude.wire import Told

BEFORE = State("s-1", "/w", "idle", interactive=True, changed=1_000)
BUSY = BEFORE._replace(status="busy", changed=2_000)
DIALOG = BEFORE._replace(status="waiting", changed=3_000)
IDLE = BEFORE._replace(changed=4_000)
NOTE = [{"type": "text", "text": "[Request interrupted by user]"}]
DONE = [{"type": "text", "text": "done"}]


class Folder:
    """Claude Code's settings, with the transcript of `s-1`."""

    def __init__(self, settings: Path) -> None:
        self.settings = str(settings)
        self.path = settings / "projects" / "-w" / "s-1.jsonl"
        self.path.parent.mkdir(parents=True)

    def says(self, role: str, content: Any, at: float = 2.5) -> None:
        stamp = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
        entry = {"type": role, "timestamp": stamp, "message": {"role": role, "content": content}}
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def turns(self, *states: State) -> Turns:
        turns = Turns(self.settings)
        before = BEFORE
        for state in (*states, IDLE):
            turns.changed(before, state)
            before = state
        return turns


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / ".claude")


def event(name: str, **more: Any) -> Any:
    return read_event(
        Told(name, json.dumps({"hook_event_name": name, "session_id": "s-1", **more}).encode(), True)
    )


async def was_cut(turns: Turns, path: str | None = None, *, gone: bool = False) -> bool:
    return await turns.was_cut(IDLE, path, lambda: gone)


@pytest.mark.requirement("A-boundary-11")
@pytest.mark.parametrize("states", [(BUSY,), (BUSY, DIALOG), (DIALOG,), ()])
async def test_the_transcript_tells_of_a_turn_that_no_hook_was_heard_of(folder: Folder, states: Any):
    folder.says("user", "do it")
    folder.says("user", NOTE)
    assert await was_cut(folder.turns(*states))

    folder.says("assistant", DONE, 3.5)
    assert not await was_cut(folder.turns(*states))


@pytest.mark.requirement("A-boundary-11")
async def test_the_answer_of_an_earlier_turn_is_not_this_one_s(folder: Folder):
    folder.says("assistant", DONE, 1.5)

    assert await was_cut(folder.turns(BUSY))


async def test_a_transcript_that_comes_a_moment_late_is_waited_for(folder: Folder):
    folder.says("user", "do it")
    asking = asyncio.create_task(was_cut(folder.turns(BUSY)))
    await asyncio.sleep(0.3)
    folder.says("assistant", DONE)

    assert not await asking


async def test_a_turn_with_its_last_hook_was_not_cut(folder: Folder):
    turns = folder.turns(BUSY)
    turns.heard(event(STOP), prolongs=False)

    assert not await was_cut(turns)


@pytest.mark.parametrize(
    "states", [(BUSY._replace(session_id="s-0"),), (BUSY._replace(session_id="s-0"), BUSY)]
)
async def test_a_command_that_moves_to_another_session_is_no_turn_that_was_cut(folder: Folder, states: Any):
    folder.says("user", NOTE, 1.5)

    assert not await was_cut(folder.turns(*states))


async def test_what_began_before_the_server_was_there_counts_as_cut_only_where_that_is_written(
    folder: Folder,
):
    turns = Turns(folder.settings)
    turns.changed(None, BUSY)
    turns.changed(BUSY, IDLE)
    assert not await was_cut(turns)

    folder.says("user", NOTE)
    assert await was_cut(turns)


@pytest.mark.parametrize("later", ["goes_on", "subagent", "prolonged", "next_turn"])
async def test_a_last_hook_counts_for_its_own_turn_and_only_as_the_last(folder: Folder, later: str):
    turns = folder.turns(BUSY)
    turns.heard(event(STOP, **({"agent_id": "a"} if later == "subagent" else {})), prolongs=False)
    if later == "goes_on":
        turns.heard(event(TOOLS), prolongs=False)
    if later == "prolonged":
        turns.heard(event(STOP), prolongs=True)
    if later == "next_turn":
        turns.changed(IDLE, BUSY)

    assert await was_cut(turns)


@pytest.fixture
def waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail whoever waits, instead of measuring how long it took on a busy machine."""

    async def refused(seconds: float) -> None:
        raise AssertionError(f"it waited for {seconds} s")

    monkeypatch.setattr(asyncio, "sleep", refused)


@pytest.mark.usefixtures("waits_for_nothing")
async def test_where_nothing_tells_the_turn_counts_as_cut_and_nobody_waits(tmp_path: Path):
    assert await was_cut(Turns(str(tmp_path)))
    assert await was_cut(Turns(None))


async def test_the_path_that_a_hook_told_goes_first(folder: Folder, tmp_path: Path):
    folder.says("user", NOTE)
    other = Folder(tmp_path / "other")
    other.says("assistant", DONE)

    assert not await was_cut(folder.turns(BUSY), str(other.path))


@pytest.mark.usefixtures("waits_for_nothing")
async def test_nobody_waits_for_an_answer_that_is_wanted_no_longer(folder: Folder):
    folder.says("user", "do it")

    assert await was_cut(folder.turns(BUSY), gone=True)
