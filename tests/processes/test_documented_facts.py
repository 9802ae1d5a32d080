"""What the reference pages say of results and files is what running sessions give and leave."""

import os
import re
import signal
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assignments.lifecycle import Assignments
from docs.adapter_methods import METHODS
from herd.core.paths import open_layout
from herd.mcp.schemas import OUTPUTS
from tests.fakes.assignments import assignment_of, lock_of, path_of
from tests.fakes.herd_session import HerdSession

FILES_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "files.md"
WAIT_MS = 10_000
OF_CLAUDE_CODE = {"hooks/PID", "hooks/ID-PID", "hooks/ID-PID.prompt"}
"""Rows that only a session of Claude Code makes true; its own tests look at them."""

OF_ASSIGNMENTS = {
    "assignments/",
    "assignments/SHA/SHA/SHA.json",
    "assignments/SHA/SHA/SHA.HEX.aside",
    "locks/SHA.assignment.lock",
}
"""Rows that only an assignment makes true."""


KIB_AT_FIRST = 132
"""What the page calls about the size of a new mailbox."""

PLAIN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("session.draft", {"text": "A long text, "}),
    ("session.result", {"agent": "researcher", "text": "It is."}),
    ("session.let_through", {}),
)
"""Methods that need nothing before them."""


# --- results of the adapter API --------------------------------------------------------------------


def paths_in(value: Any, before: str = "") -> Iterator[str]:
    """Give the path of every field that holds something, with `[]` for the entries of a list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths_in(inner, f"{before}.{name}" if before else name)
    elif isinstance(value, list):
        for inner in value:
            yield from paths_in(inner, f"{before}[]")
    else:
        yield before


def check(method: str, result: dict[str, Any]) -> None:
    """Compare a result with the fields that its page has."""
    described = {one.path: one.always for one in METHODS[method].results}
    found = {_described(path, described) for path in paths_in(result)}
    empty = {name for name, value in result.items() if value == []}
    owed = {path for path, always in described.items() if always and path.partition("[]")[0] not in empty}

    assert found <= described.keys()
    assert owed <= found


def _described(path: str, described: Collection[str]) -> str:
    """Give the field of the page that a path lies in: a schema is one field, whatever it holds."""
    return next((one for one in described if path.startswith((f"{one}.", f"{one}["))), path)


def test_every_result_has_the_fields_that_its_page_shows(home: Path, tmp_path: Path):
    seen: set[str] = set()

    def ask(session: HerdSession, method: str, /, **params: Any) -> dict[str, Any]:
        result = session.request(method, **params)
        check(method, result)
        seen.add(method)
        return result

    with HerdSession(home, None, cwd=tmp_path) as web, HerdSession(home, "shop", "a1", name="api") as api:
        bound = ask(web, "session.bind", host="shop", session_id="w1", cwd=str(tmp_path), name="web")
        api.ready()
        ask(web, "session.update", activity="working")
        ask(web, "session.whoami")
        (peer,) = ask(api, "session.list")["peers"]
        assert peer["target"] == bound["target"]
        sent = ask(api, "session.send", target=peer["target"], message="Is it green?", topic="build")
        for method, params in PLAIN:
            ask(api, method, **params)
        (found,) = ask(api, "session.references", text="for :web")["references"]
        selected = {"start": found["start"], "end": found["end"], "to": peer["target"]}
        assert ask(api, "session.compose", text="for :web", references=[selected])["references"]
        ask(web, "session.subscribe")
        ask(web, "session.tools")
        ask(web, "session.waiting")
        drained = ask(web, "session.drain")
        ask(web, "session.end_run", run=ask(web, "session.bind_run", run_id="r-1")["target"])
        ask(web, "session.release", message_ids=drained["message_ids"], counted=False)
        ask(web, "session.tool", name="list_peers")
        (message,) = ask(web, "session.read", wait_ms=WAIT_MS)["messages"]
        ask(web, "session.confirm", message_ids=[message["message_id"]], evidence="a test")
        ask(
            web,
            "session.send",
            target=message["from"]["target"],
            message="Yes.",
            reply_to=message["message_id"],
            no_reply_needed=True,
        )
        answer = ask(api, "session.read", wait_ms=WAIT_MS)
        assert answer["receipts"]
        assert ask(api, "session.status", message_id=sent["message_id"])["state"] == "replied"
        ask(api, "session.read", message_id=answer["messages"][0]["message_id"])
        assert ask(web, "session.history")["messages"]
        assert ask(web, "session.purge")["removed"]
        assert ask(api, "session.history")["messages"]
        web.kill()
        assert ask(api, "session.send", target=peer["target"], message="Still?")["peer_running"] is False
        line = {"text": ":web there?", "references": [{"start": 0, "end": 4, "to": peer["target"]}]}
        assert ask(api, "session.compose", **line)["sent"]["peer_running"] is False
        assert api.end() == 0

    assert seen == set(METHODS) - {"session.cancel"}


def test_a_message_that_was_taken_back_has_the_fields_that_the_page_shows(home: Path):
    with HerdSession(home, "shop", "a1") as api, HerdSession(home, "shop", "w1") as web:
        web.ready()
        (peer,) = api.request("session.list")["peers"]
        os.kill(web.pid, signal.SIGSTOP)
        try:
            sent = api.request("session.send", target=peer["target"], message="Is it green?")
            receipt = api.request("session.cancel", message_id=sent["message_id"])
        finally:
            os.kill(web.pid, signal.SIGCONT)

    assert sent["status"] == "queued"
    assert (receipt["state"], receipt["outcome"]) == ("rejected", "CANCELLED")
    check("session.cancel", receipt)


@pytest.mark.parametrize(
    ("method", "tool"),
    [
        ("session.list", "list_peers"),
        ("session.send", "message_peer"),
        ("session.read", "peer_messages"),
    ],
)
def test_a_result_has_the_fields_of_the_tool_that_shows_it(method: str, tool: str):
    described = {one.path for one in METHODS[method].results} - {"self.run_of"}  # no run calls a tool

    assert described <= set(paths_of_schema(OUTPUTS[tool]))


def paths_of_schema(schema: dict[str, Any], before: str = "") -> Iterator[str]:
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from paths_of_schema(inner, f"{before}.{name}" if before else name)
    elif schema.get("type") == "array":
        yield from paths_of_schema(schema["items"], f"{before}[]")
    else:
        yield before


@pytest.mark.parametrize(
    "result",
    [
        {"message_id": "1", "target": "lead:1", "status": "queued", "colour": "red"},
        {"message_id": "1", "target": "lead:1"},
    ],
)
def test_a_result_with_other_fields_than_the_page_is_found(result: dict[str, Any]):
    with pytest.raises(AssertionError):
        check("session.send", result)


# --- files -----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One row of the page of files."""

    path: str
    pattern: re.Pattern[str]
    mode: int
    size: str

    def fits(self, found: os.stat_result) -> bool:
        """Tell whether a file has the mode and the size that the page tells."""
        if stat.S_IMODE(found.st_mode) != self.mode or self.path.endswith("/") != stat.S_ISDIR(found.st_mode):
            return False
        number = int(re.sub(r"\D", "", self.size) or "0")
        match self.size.split():
            case ["at", "most", *_]:
                return found.st_size <= number
            case [_, "bytes"] | ["empty"]:
                return found.st_size == number
        return True


def rows() -> list[Row]:
    lines = [line for line in FILES_PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[one.strip() for one in line.split("|")[1:-1]] for line in lines]
    return [Row(path, pattern_of(path), int(mode, 8), size) for (path, mode, size, *_) in strip_code(cells)]


def strip_code(cells: list[list[str]]) -> Iterator[list[str]]:
    for path, *others in cells:
        yield [path.strip("`"), *others]


def pattern_of(path: str) -> re.Pattern[str]:
    escaped = re.escape(path.rstrip("/"))
    return re.compile(
        escaped.replace("KEY", "[0-9a-f]{64}")
        .replace("SHA", "[0-9a-f]{64}")
        .replace("HEX", "[0-9a-f]{32}")
        .replace("INSTANCE", "[0-9a-f-]{36}")
    )


def found_below(home: Path) -> dict[str, os.stat_result]:
    (machine,) = home.iterdir()
    assert re.fullmatch("[0-9a-f]{12}", machine.name)
    return {path.relative_to(machine).as_posix(): path.lstat() for path in machine.rglob("*")}


def compare(files: dict[str, os.stat_result]) -> set[str]:
    """Find each file on the page; gives the paths of the rows that were met."""
    met = set()
    for name, found in files.items():
        (row,) = [row for row in rows() if row.pattern.fullmatch(name)]
        assert row.fits(found), name
        met.add(row.path)
    return met


@pytest.fixture
def exchanged(home: Path) -> Iterator[tuple[HerdSession, HerdSession]]:
    with HerdSession(home, "shop", "a1") as api, HerdSession(home, "shop", "w1") as web:
        web.ready()
        (peer,) = api.request("session.list")["peers"]
        api.request("session.send", target=peer["target"], message="Is it green?")
        api.request("session.result", agent="researcher", text="It is.")
        web.request("session.read", wait_ms=WAIT_MS)
        yield api, web


def test_every_file_of_running_sessions_stands_on_the_page_with_its_mode_and_size(
    home: Path, exchanged: tuple[HerdSession, HerdSession]
):
    met = compare(found_below(home))

    assert {row.path for row in rows()} - met == {
        *OF_CLAUDE_CODE,
        *OF_ASSIGNMENTS,
    }


def test_what_sessions_leave_when_they_end_is_what_the_page_says(
    home: Path, exchanged: tuple[HerdSession, HerdSession]
):
    for session in exchanged:
        assert session.end() == 0

    files = found_below(home)
    gone = {row.path for row in rows()} - compare(files)
    assert gone - OF_CLAUDE_CODE - OF_ASSIGNMENTS == {
        "peers/KEY.json",
        "run/INSTANCE.sock",
        "sessions/KEY/mailbox.sqlite3-wal",
    }
    sizes = [found.st_size for name, found in files.items() if name.endswith("mailbox.sqlite3")]
    assert len(sizes) == 2
    assert all(KIB_AT_FIRST * 1_024 <= size < (KIB_AT_FIRST + 16) * 1_024 for size in sizes), sizes


def test_what_assignments_leave_is_what_the_page_says(home: Path):
    layout = open_layout(str(home))
    kept, spoilt = assignment_of(1), assignment_of(2)
    assignments = Assignments(layout, lock_of(layout))
    for one in (kept, spoilt):
        assignments.create(one)
    path_of(layout, spoilt).write_bytes(b"{")
    assignments.set_aside(spoilt.place)

    files = {
        name: found
        for name, found in found_below(home).items()
        if not re.fullmatch("assignments/[0-9a-f]{64}(/[0-9a-f]{64})?", name)  # told beside `assignments/`
    }
    assert compare(files) >= {*OF_ASSIGNMENTS, "locks/authority.generation"}


def test_a_killed_session_leaves_its_record_and_its_socket_as_the_page_says(
    home: Path, exchanged: tuple[HerdSession, HerdSession]
):
    for session in exchanged:
        session.kill()

    assert {"peers/KEY.json", "run/INSTANCE.sock"} <= compare(found_below(home))


def test_a_file_that_is_open_to_others_does_not_fit(tmp_path: Path):
    (row,) = [row for row in rows() if row.path == "sessions/KEY/token"]
    token = tmp_path / "token"
    token.write_text("x" * 64, encoding="ascii")

    token.chmod(0o600)
    assert row.fits(token.lstat())
    token.chmod(0o640)
    assert not row.fits(token.lstat())
