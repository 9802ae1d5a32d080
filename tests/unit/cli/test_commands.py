"""The parser, the commands' own small parts, and that every command that a hint names exists."""

import argparse
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from herd.cli import context as surroundings
from herd.cli.arguments import as_text, decoded, exact_text
from herd.cli.caller import Caller
from herd.cli.context import Context, host_process
from herd.cli.main import COMMANDS, build_parser, main
from herd.cli.self_view import as_party, self_view
from herd.cli.session import bind_params
from herd.core.config import Settings
from herd.core.errors import BY_CODE, EXIT_STATUSES, InvalidParams
from herd.core.identity import SessionName, target_of
from herd.core.limits import DEFAULT_LIMITS
from herd.core.processes import start_token
from herd.presence.registry import Registry
from roles.model import Party
from tests.fakes.records import BUILD, layout_at, record_of, session_of

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_tells_what_it_does(name: str):
    only, every = build_parser(name), build_parser()

    for parser in (only, every):
        text = parser.format_help()
        assert re.search(rf"^    {name}\s", text, re.MULTILINE)
    options = only.parse_args([name, *REQUIRED.get(name, [])])
    assert options.json is False
    assert callable(options.run)


REQUIRED = {
    "send": ["someone", "a text"],
    "status": ["message"],
    "cancel": ["message"],
    "mcp": ["--host", "claude"],
    "install": ["claude"],
    "uninstall": ["pi"],
}

COMMAND = re.compile(r"`(herd [^`]*)`")
PLACES = {"MESSAGE": "m", "NAME": "n", "TARGET": "t"}


def sources() -> str:
    """Give every hint and refusal of the code that a command can print: all of it, for simplicity."""
    paths = [path for package in ("herd", "roles", "assignments") for path in (ROOT / package).rglob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def test_a_command_that_is_not_there_is_found_by_the_next_test():
    assert not parses("herd recover MESSAGE")
    assert parses("herd status MESSAGE")


def test_every_command_that_a_hint_names_can_be_typed_as_it_stands():
    named = {command for kind in BY_CODE.values() for command in COMMAND.findall(kind.hint)}
    hints = re.findall(r"hint=\(?\s*f?\"(.*)\"", sources()) + re.findall(r"next_step=f?\"(.*)\"", sources())
    named |= {command for hint in hints for command in COMMAND.findall(hint)}

    assert len(named) >= 4
    assert {command for command in named if not parses(command)} == set()


def parses(command: str) -> bool:
    words = [PLACES.get(word, word) for word in shlex.split(command)[1:]]
    words += REQUIRED.get(words[0], []) if words[1:] == [] else []
    try:
        build_parser().parse_args(words)
    except SystemExit as ended:
        return ended.code == 0
    except InvalidParams:
        return False
    return True


def test_every_status_of_the_table_belongs_to_a_code_or_to_success():
    assert {kind.exit_status for kind in BY_CODE.values()} | {0} == set(EXIT_STATUSES)


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["send"], 2), (["send", "--help"], 0)])
def test_what_the_parser_says_ends_with_its_status(words: list[str], status: int, capfd: Any):
    assert main(words) == status


# --- arguments ---------------------------------------------------------------------------------------


def test_an_argument_is_the_text_of_its_bytes():
    assert exact_text("ü") == "ü"
    assert exact_text(os.fsdecode("漢 👩🏽‍🚀".encode())) == "漢 👩🏽‍🚀"
    for wrong in (b"\xff", b"half \xe2\x82", b"\xed\xa0\x80"):
        with pytest.raises(InvalidParams, match="no UTF-8 text at byte"):
            exact_text(os.fsdecode(wrong))
        with pytest.raises(InvalidParams, match=r"^standard input is no UTF-8"):
            decoded(wrong, "standard input")


def test_a_path_that_is_no_text_can_still_be_shown():
    assert as_text(os.fsdecode(b"/a/\xff/b")) == "/a/\ufffd/b"
    assert as_text("/ü") == "/ü"


# --- surroundings --------------------------------------------------------------------------------------


def test_the_host_is_the_parent_with_its_start_and_never_process_one():
    assert host_process() == (os.getppid(), start_token(os.getppid()))
    assert host_process(1) == (0, "")
    assert host_process(0) == (0, "")
    gone = 4_194_304  # no pid is ever this great
    assert host_process(gone) == (gone, "")


def test_a_folder_that_is_gone_is_replaced_by_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert surroundings.working_directory({}) == str(folder)
    folder.rmdir()

    assert surroundings.working_directory({"HOME": "/home/me"}) == "/home/me"
    assert surroundings.working_directory({}) == "/"


def context_at(home: Path, **environ: str) -> Context:
    layout = layout_at(home)
    settings = Settings(str(home), DEFAULT_LIMITS, str(home / "config.toml"))
    return Context(environ, settings, layout, Registry(layout))


def test_what_a_session_is_bound_with_is_exact_text(home: Path):
    parser = build_parser("session")
    options = parser.parse_args(
        ["session", "--host", "pi", "--session", "ü", "--created", "1", "--name", "n"]
    )

    params = bind_params(context_at(home), options)

    assert params == {"host": "pi", "session_id": "ü", "created": "1", "name": "n", "cwd": os.getcwd()}
    options = argparse.Namespace(host="pi", session=os.fsdecode(b"\xff"), created="", name=None)
    with pytest.raises(InvalidParams):
        bind_params(context_at(home), options)


# --- who one is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("session_id", "name"), [("default", "terminal"), ("bot", "bot")])
def test_a_terminal_session_that_sleeps_is_an_ordinary_lead(home: Path, session_id: str, name: str):
    session = SessionName("terminal", session_id)
    caller = Caller(session, None)
    herdr = {"HERDR_ENV": "1", "HERDR_SOCKET_PATH": "/run/herdr.sock"}

    view = self_view(context_at(home, **herdr), caller)

    party = Party(session.key, "lead", "ordinary", socket="/run/herdr.sock", terminal=True)
    assert as_party(context_at(home, **herdr), caller) == party
    assert (view["target"], view["name"], view["role"]) == (target_of("lead", session.key), name, "lead")
    assert (view["kind"], view["socket"]) == ("ordinary", "/run/herdr.sock")
    assert self_view(context_at(home), caller)["socket"] == "none"


def test_a_session_that_runs_is_shown_by_its_record(home: Path):
    session = session_of(1)
    caller = Caller(session, record_of(session))

    view = self_view(context_at(home, HERDR_ENV="1", HERDR_SOCKET_PATH="/run/herdr.sock"), caller)

    assert (view["name"], view["socket"], view["build"]) == ("api-worker", "none", BUILD._asdict())


def test_a_session_that_is_not_listed_has_a_name_that_is_not_its_id(home: Path):
    session = session_of(1)
    caller = Caller(session, record_of(session, None, kind="managed"))

    view = self_view(context_at(home), caller)

    assert view["name"] == f"claude-{session.key[:6]}"
    assert view["kind"] == "managed"
    assert session.session_id not in str(view)
