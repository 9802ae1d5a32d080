"""Whether the person lets other sessions' messages start turns in Claude Code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from herd.hosts.claude.policy import Sources, may_wake, sources


class Place:
    """The files that may say something, none of them there yet."""

    def __init__(self, root: Path) -> None:
        self.files = {
            "user": root / "settings.json",
            "project": root / "project" / ".claude" / "settings.json",
            "local": root / "project" / ".claude" / "settings.local.json",
            "managed": root / "managed.json",
        }
        (root / "project" / ".claude").mkdir(parents=True)
        self.sources = Sources(str(root), str(root / "project"), os.getpid(), [str(root / "managed.json")])

    def say(self, place: str, word: Any) -> None:
        self.files[place].write_text(json.dumps({"crossSessionInbound": word, "other": 1}))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


EVERYWHERE = ["user", "project", "local", "managed"]


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("word", ["hold", "refuse", "ACCEPT", "", 7, True, {}])
def test_a_word_that_is_not_accept_allows_nothing_wherever_it_stands(place: Place, where: str, word: object):
    place.say(where, word)

    assert not may_wake(place.sources, "default")


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions", None])
def test_accept_allows_it_in_every_mode(place: Place, where: str, mode: str | None):
    place.say(where, "accept")

    assert may_wake(place.sources, mode)


@pytest.mark.parametrize("where", ["project", "local", "managed"])
def test_the_strictest_word_counts(place: Place, where: str):
    place.say("user", "accept")
    place.say(where, "hold")

    assert not may_wake(place.sources, "default")


@pytest.mark.parametrize(
    ("mode", "allowed"), [("default", True), ("plan", True), (None, True), ("bypassPermissions", False)]
)
def test_without_a_word_only_a_session_that_asks_before_nothing_is_left_alone(
    place: Place, mode: str | None, allowed: bool
):
    place.files["user"].write_text("{}")

    assert may_wake(place.sources, mode) is allowed


@pytest.mark.parametrize("content", ["{", "[]", '"x"', "[" * 100_000])
def test_settings_that_cannot_be_understood_allow_nothing(place: Place, content: str):
    place.files["user"].write_text(content)

    assert not may_wake(place.sources, "default")


def test_an_empty_file_says_nothing(place: Place):
    place.files["user"].write_text("\n")

    assert may_wake(place.sources, "default")


def test_a_pipe_in_the_place_of_settings_does_not_block(place: Place):
    os.mkfifo(place.files["user"])

    may_wake(place.sources, "default")


@pytest.mark.parametrize(
    ("words", "mode", "allowed"),
    [
        (["--settings", '{"crossSessionInbound": "hold"}'], "default", False),
        (['--settings={"crossSessionInbound": "refuse"}'], "default", False),
        (["--settings", '{"crossSessionInbound": "accept"}'], "bypassPermissions", True),
        (["--settings", "/nowhere.json"], "default", False),
        (["--dangerously-skip-permissions"], None, False),
        (["--dangerously-skip-permissions"], "default", True),
        (["--permission-mode", "bypassPermissions"], None, False),
        (["--permission-mode=bypassPermissions"], None, False),
        (["--permission-mode", "plan"], None, True),
        (["--settings"], None, True),
    ],
)
def test_what_the_host_was_started_with_counts_too(
    place: Place, words: list[str], mode: str | None, allowed: bool
):
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        assert may_wake(place.sources._replace(pid=process.pid), mode) is allowed
        process.communicate()


def test_the_projects_folder_is_the_one_that_claude_code_names():
    assert sources("/s", {"CLAUDE_PROJECT_DIR": "/p"}, 7)[:3] == ("/s", "/p", 7)
    assert sources("/s", {}, 7).project is None
