"""What the documents name exists: files, headings, codes, commands, options, modules, methods, bounds.

Each search is also shown to find what it is meant to.
"""

import argparse
import importlib
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from docs import adapter_api
from herd.cli.main import COMMANDS, build_parser
from herd.core import limits
from herd.core.errors import BY_CODE
from herd.core.limits import Limits

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])

SESSION_METHODS = {"session.authenticate", *adapter_api.served()}
PEER_METHODS = {
    *("peer.hello", "peer.authenticate", "peer.send", "peer.sendMany", "peer.body", "peer.directory"),
    *("peer.status", "peer.subscribe", "peer.receipt", "peer.read"),
}
"""`peer.read` is served by nobody and refused by name."""

VARIABLES = {
    "HERD_HOME",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "LC_ALL",
    "CLAUDE_CONFIG_DIR",
    "PI_CODING_AGENT_DIR",
}
NO_CODES = {"CANCELLED", "F_OFD_GETLK", "HERD", "INSTANCE", "LOOK", "PURGED"}
"""Words in capitals that pages put into code spans and that are no code, bound or variable."""

_FENCE = re.compile(r"^```[^\n]*\n.*?^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class Link(NamedTuple):
    """A link of one page, as it is written."""

    page: Path
    target: str


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(text: str) -> str:
    return _FENCE.sub("", text)


def spans_of(text: str) -> list[str]:
    return _SPAN.findall(prose_of(text))


def code_of(text: str) -> list[str]:
    """Give everything a text shows as code: its spans, and the lines of its blocks."""
    lines = [line for block in _FENCE.findall(text) for line in block.splitlines()[1:-1]]
    return spans_of(text) + lines


def slug(heading: str) -> str:
    """Give the anchor that a heading gets: lower case, spaces to dashes, punctuation gone."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    return {slug(heading) for heading in _HEADING.findall(prose_of(text_of(page)))}


def links() -> list[Link]:
    return [Link(page, target) for page in PAGES for target in _LINK.findall(prose_of(text_of(page)))]


def fault_of(link: Link) -> str | None:
    """Say what is wrong with a link; None where it leads somewhere."""
    if re.match(r"[a-z]+:", link.target):
        return None
    name, _, anchor = link.target.partition("#")
    place = (link.page.parent / name).resolve() if name else link.page
    if not place.exists():
        return f"{link.page.name}: {link.target} leads nowhere"
    if anchor and anchor not in anchors_of(place):
        return f"{link.page.name}: {link.target} names no heading"
    return None


# --- links -----------------------------------------------------------------------------------------


def test_every_relative_link_leads_to_a_file_and_a_heading():
    assert [fault for link in links() if (fault := fault_of(link))] == []
    assert len(links()) > len(PAGES)


def test_every_page_can_be_reached_from_the_map():
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = [target.partition("#")[0] for target in _LINK.findall(prose_of(text_of(page)))]
        found = {(page.parent / target).resolve() for target in targets if target.endswith(".md")}
        waiting.extend(one for one in found - reached if (ROOT / "docs") in one.parents)

    assert set((ROOT / "docs").rglob("*.md")) <= reached


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("docs/nowhere.md", "leads nowhere"),
        ("docs/index.md#no-such-heading", "names no heading"),
        ("#no-such-heading", "names no heading"),
        ("docs/index.md", None),
        ("docs/index.md#what-is-not-there-yet", None),
        ("https://example.org/nowhere", None),
    ],
)
def test_a_link_that_leads_nowhere_is_found(target: str, fault: str | None):
    found = fault_of(Link(ROOT / "README.md", target))

    assert found is None if fault is None else fault in str(found)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("What it guards against, and what not", "what-it-guards-against-and-what-not"),
        ("`session.read`", "sessionread"),
        ("`NEWER_STATE`, `RESTART_REQUIRED`", "newer_state-restart_required"),
        ("1: no daemon", "1-no-daemon"),
        ("The [envelope](x.md)", "the-envelope"),
    ],
)
def test_a_heading_gets_the_anchor_that_links_to_it_use(heading: str, anchor: str):
    assert slug(heading) == anchor


# --- codes, bounds and variables -------------------------------------------------------------------


def capitals_in(spans: list[str]) -> set[str]:
    """Find the words in capitals that stand for themselves in a code span."""
    words = {word for span in spans for word in re.findall(r"(?<![\w.$/<])[A-Z][A-Z_]{3,}(?![\w./>])", span)}
    return {word for word in words if "_" in word or word in spans}


def unknown_capitals(page: Path) -> set[str]:
    named = {name for name in vars(limits) if name.isupper()}
    placeholders = set(
        re.findall(r"[A-Z]{2,}", " ".join(one for one in code_of(text_of(page)) if "herd " in one))
    )
    return capitals_in(spans_of(text_of(page))) - set(BY_CODE) - named - VARIABLES - NO_CODES - placeholders


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_and_bound_that_a_page_names_exists(page: Path):
    assert unknown_capitals(page) == set()


def test_a_code_that_does_not_exist_is_found():
    assert capitals_in(["QUEUE_FULL", "`x`", "LOST_AND_FOUND with words", "lower_case", "HERD"]) == {
        "QUEUE_FULL",
        "LOST_AND_FOUND",
        "HERD",
    }


def test_every_setting_that_a_page_names_in_a_config_example_exists():
    pattern = re.compile(r"^([a-z_]+) = \d+$", re.MULTILINE)
    named = {name for page in PAGES for name in pattern.findall(text_of(page))}

    assert named <= set(Limits._fields)


# --- commands and options --------------------------------------------------------------------------


class Called(NamedTuple):
    """A call of `herd` as a page shows it: the command and its options."""

    command: str
    options: tuple[str, ...]


def calls_in(code: list[str]) -> Iterator[Called]:
    for line in code:
        for found in re.finditer(r"(?:^|[\s$(|])herd ([a-z]+)((?: [^|#\n]*)?)", line):
            yield Called(found[1], tuple(re.findall(r"(?<=\s)--[a-z-]+", found[2])))


@cache
def options_of(command: str) -> frozenset[str]:
    parser = build_parser(command)
    below = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return frozenset(text for action in below.choices[command]._actions for text in action.option_strings)


def unknown_calls(code: list[str]) -> list[Called]:
    return [
        called
        for called in calls_in(code)
        if called.command not in COMMANDS or not set(called.options) <= options_of(called.command)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_option_that_a_page_names_exists(page: Path):
    assert unknown_calls(code_of(text_of(page))) == []


def test_a_command_or_option_that_does_not_exist_is_found():
    code = [
        "herd dance",
        "$ herd send --softly lead:1 x",
        "herd inbox --wait 60  # --softly",
        "herd/core/x.py",
    ]

    assert unknown_calls(code) == [Called("dance", ()), Called("send", ("--softly",))]


def test_the_commands_of_the_door_that_pages_name_exist():
    door = set(re.findall(r"^([a-z-]+)(?: \| -h \| --help)?\)", text_of(ROOT / "run"), re.MULTILINE))
    pattern = re.compile(r"\./run ([a-z-]+)")
    named = {name for page in PAGES for code in code_of(text_of(page)) for name in pattern.findall(code)}

    assert named
    assert named <= door


# --- modules, files and methods --------------------------------------------------------------------


def exists(name: str) -> bool:
    """Tell whether a dotted name leads to a module of ours, or to something in one."""
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    module, _, member = name.rpartition(".")
    return bool(module) and find_spec(module) is not None and hasattr(importlib.import_module(module), member)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page: Path):
    pattern = re.compile(r"(?:herd|roles|assignments|federation)(?:\.[a-z_]+)+")
    named = {span for span in spans_of(text_of(page)) if pattern.fullmatch(span)}
    signed = {
        name for name in named if re.fullmatch(r"herd\.[a-z]+\.[a-z]+\.?v\d|herd\.(?:target|call)", name)
    }

    assert [name for name in sorted(named - signed) if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_source_file_that_a_page_names_exists(page: Path):
    pattern = re.compile(r"(?:herd|roles|assignments|federation|docs|tests)/[\w./-]+\.(?:py|md)")
    named = {span for span in spans_of(text_of(page)) if pattern.fullmatch(span)}

    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_method_that_a_page_names_exists(page: Path):
    named = {span for span in spans_of(text_of(page)) if re.fullmatch(r"(?:session|peer)\.[a-z_]+", span)}
    files = {name for name in named if name.endswith((".json", ".lock"))}

    assert named - files <= SESSION_METHODS | PEER_METHODS


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("herd.mail.inbox", True),
        ("herd.mail.acceptance.accept", True),
        ("herd.mail.letters", False),
        ("herd.x.y", False),
    ],
)
def test_a_module_that_does_not_exist_is_found(name: str, *, there: bool):
    assert exists(name) is there
