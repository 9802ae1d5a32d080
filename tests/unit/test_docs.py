"""The reference pages say what the code says, every code and setting stands on them, and they stay whole."""

import argparse
import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs import adapter_api, generate
from docs.adapter_methods import METHODS, Method
from docs.command_line import command_line_page
from docs.markdown import Undocumented, cell, table
from docs.message_states import MADE_BY, PICTURE, message_states_page
from herd.core.config import IDLE_AUTO, RESTART_DELIVER, SCOPE_MACHINE
from herd.core.errors import BY_CODE, EXIT_STATUSES
from herd.core.limits import DEFAULT_LIMITS, Limits
from herd.mail.receipts import MEANINGS, NEXT

ROOT = Path(__file__).parents[2]


def test_the_pages_in_the_tree_are_those_the_code_gives():
    ended = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        encoding="utf-8",
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_page_that_differs_or_is_missing_fails_the_check_and_is_named(tmp_path: Path, capsys):
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    (tmp_path / "errors.md").unlink()
    changed = (tmp_path / "limits.md").read_text(encoding="utf-8") + "\n"
    (tmp_path / "limits.md").write_text(changed, encoding="utf-8")
    capsys.readouterr()

    status = generate.main(["--check"], tmp_path)

    told = capsys.readouterr().err
    assert status == 1
    assert f"{tmp_path / 'errors.md'} differs" in told
    assert f"{tmp_path / 'limits.md'} differs" in told
    assert "config.md" not in told
    assert (tmp_path / "limits.md").read_text(encoding="utf-8") == changed


def rows_of(page: str) -> list[list[str]]:
    """Give the cells of a page's tables, heads and rules included."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[text.strip() for text in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.mark.requirement("A-errors-34")
def test_every_code_has_a_class_of_one_form_and_a_row_in_the_reference():
    rows = {row[0]: row[1:] for row in rows_of(generate.errors_page())}

    for code, kind in BY_CODE.items():
        number, status, may_pass, meaning, hint = rows[f"`{code}`"]
        assert (number, status) == (str(kind.rpc_number), str(kind.exit_status))
        assert may_pass == ("yes" if kind.may_pass else "no")
        assert meaning
        assert hint


def test_every_exit_status_stands_in_the_reference():
    rows = rows_of(generate.errors_page())

    for status, meaning in EXIT_STATUSES.items():
        assert [str(status), meaning] in rows


def test_every_setting_stands_with_its_default_and_unit():
    rows = {row[0]: row[1:] for row in rows_of(generate.config_page())}

    settings = ("enabled", "idle", "on_restart", "scope", "alias")
    assert set(rows) == {"key", "---", *(f"`{name}`" for name in settings)} | {
        f"`{name}`" for name in Limits._fields
    }
    for name, default in DEFAULT_LIMITS._asdict().items():
        assert int(rows[f"`{name}`"][0]) == default
    assert rows["`frame_bytes`"][1] == "bytes"
    assert rows["`handshake_ms`"][1] == "milliseconds"
    assert rows["`connections`"][1] == "count"


def test_the_example_file_is_toml_that_sets_every_default():
    example = generate.config_page().partition("```toml\n")[2].partition("```")[0]

    words = {"idle": IDLE_AUTO, "on_restart": RESTART_DELIVER, "scope": SCOPE_MACHINE}
    assert tomllib.loads(example) == {"enabled": True, **words, "limits": DEFAULT_LIMITS._asdict()}


def test_bounds_are_read_with_their_values_as_written():
    source = (
        'class Limits:\n    a_ms: int = 2_000\n    """One."""\n\nB = 0x10\n"""Two."""\nDEFAULT = Limits()\n'
    )

    assert generate.bounds_in(source) == ([("a_ms", "2_000", "One.")], [("B", "0x10", "Two.")])


@pytest.mark.parametrize("source", ["A = 1", 'A = 1\nB = 2\n"""Two."""', "class Limits:\n    a: int = 1"])
def test_a_bound_without_a_meaning_is_refused(source: str):
    with pytest.raises(Undocumented, match="has no docstring under it"):
        generate.bounds_in(source)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a | b", r"a \| b"),
        ("`a | b` | c", r"`a \| b` \| c"),
        ("two\n    lines", "two lines"),
        ("<b> & `<T>`", "&lt;b&gt; &amp; `<T>`"),
        ("a ` alone <b>", "a ` alone &lt;b&gt;"),
    ],
)
def test_no_text_breaks_out_of_its_cell(text: str, shown: str):
    assert cell(text) == shown
    assert len(rows_of(table(("head",), [(text,)]))[2]) == 1


def a_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="herd", description="Sessions find each other.")
    parser.add_argument("--as", dest="as_name", metavar="NAME", help="speak as this terminal session")
    commands = parser.add_subparsers(dest="command")
    send = commands.add_parser("send", aliases=["write"], description="Send a message.", epilog="It is kept.")
    send.add_argument("target", help="whom to send it to")
    send.add_argument("text", nargs="?", help="the message; standard input where it is missing")
    send.add_argument("-w", "--wait", type=int, default=5, help="seconds to wait (%(default)s)")
    send.add_argument("--json", action="store_true", help="print JSON | nothing else")
    send.add_argument("--hidden", help=argparse.SUPPRESS)
    return parser


def test_every_command_of_the_parser_is_described_once():
    page = command_line_page(a_parser())

    assert page.count("\n## ") == 2
    assert "```\nherd [--as NAME] COMMAND ...\n```" in page
    assert "```\nherd send TARGET [TEXT] [--wait WAIT] [--json]\n```" in page
    assert "It is kept." in page
    assert ["`-w, --wait`", "`5`", "seconds to wait (5)"] in rows_of(page)
    assert ["`--json`", "", r"print JSON \| nothing else"] in rows_of(page)
    assert "hidden" not in page


def test_a_command_or_an_argument_that_says_nothing_of_itself_is_refused():
    parser = a_parser()
    parser.add_argument("--silent")
    with pytest.raises(Undocumented, match="herd: silent has no help"):
        command_line_page(parser)

    with pytest.raises(Undocumented, match="herd has no description"):
        command_line_page(argparse.ArgumentParser(prog="herd"))


# --- message states --------------------------------------------------------------------------------


def test_the_table_of_states_allows_exactly_what_the_code_allows():
    rows = rows_of(message_states_page())
    head = next(row for row in rows if row[0] == "from")
    allowed = {
        (row[0].strip("`"), after)
        for row in rows[rows.index(head) + 2 : rows.index(head) + 2 + len(NEXT)]
        for after, cell in zip(head[1:], row[1:], strict=True)
        if cell == "yes"
    }

    assert allowed == {(state, after) for state, following in NEXT.items() for after in following}


def test_every_state_stands_with_its_claim_and_whether_it_is_final():
    rows = rows_of(message_states_page())

    for state, following in NEXT.items():
        assert [f"`{state}`", MEANINGS[state], "" if following else "yes"] in rows
        assert [f"`{state}`", MADE_BY[state]] in rows


def arrows_of(picture: str) -> set[tuple[str, str]]:
    """Read the picture: one line goes straight, and each branch leaves the word above or below its `+`."""
    lines = picture.splitlines()
    trunk = next(line for line in lines if line.count("->") > 1)
    words = [(found.start(), found[0]) for found in re.finditer(r"[a-z]+", trunk)]
    straight = {(before, after) for (_, before), (_, after) in itertools.pairwise(words)}
    branches = set()
    for found in (found for line in lines for found in re.finditer(r"\+-+> ([a-z]+)", line)):
        origin = max((start, word) for start, word in words if start <= found.start())[1]
        branches.add((origin, found[1]))
    return straight | branches


def test_every_arrow_of_the_picture_is_allowed_and_every_state_is_in_it():
    arrows = arrows_of(PICTURE)

    assert {state for arrow in arrows for state in arrow} == set(NEXT)
    assert [arrow for arrow in arrows if arrow[1] not in NEXT[arrow[0]]] == []
    assert ("pending", "accepted") in arrows
    assert ("accepted", "expired") in arrows


@pytest.mark.parametrize(
    ("meanings", "made_by"),
    [
        ({**MEANINGS, "lost": "nobody knows"}, MADE_BY),
        ({state: text for state, text in MEANINGS.items() if state != "expired"}, MADE_BY),
        (MEANINGS, {**MADE_BY, "lost": "nobody"}),
        (MEANINGS, {state: text for state, text in MADE_BY.items() if state != "unknown"}),
    ],
)
def test_a_state_that_only_one_side_knows_is_refused(meanings: dict[str, str], made_by: dict[str, str]):
    with pytest.raises(Undocumented, match=r"lost|expired|unknown"):
        message_states_page(NEXT, meanings, made_by)


# --- adapter API -----------------------------------------------------------------------------------


def sections_of(page: str) -> dict[str, str]:
    """Give the text below each heading of the second level, by the heading."""
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def test_every_method_that_is_served_has_a_section_with_every_param():
    sections = sections_of(adapter_api.adapter_api_page())

    for name, shape in adapter_api.served().items():
        fields = shape.model_json_schema(by_alias=True)["properties"]
        tables = sections[f"`{name}`"].partition("| result |")[0]
        assert {row[0] for row in rows_of(tables)} - {"param", "---"} == {f"`{field}`" for field in fields}


def test_a_param_stands_with_its_type_and_whether_it_may_be_left_out():
    sections = sections_of(adapter_api.adapter_api_page())

    assert rows_of(sections["`session.send`"])[2][:3] == ["`target`", "text of 1 to 512 characters", "no"]
    read = {row[0]: row[1:3] for row in rows_of(sections["`session.read`"])}
    assert read["`wait_ms`"] == ["whole number from 0 to 30000", "yes, `0`"]
    assert read["`from`"] == ["text of 1 to 512 characters", "yes"]
    assert rows_of(sections["`session.confirm`"])[2][1].startswith(
        "list of 0 to 1024, each text of at most 128"
    )


def test_every_code_of_a_method_exists():
    for name, method in METHODS.items():
        assert set(method.errors) <= set(BY_CODE), name


@pytest.mark.parametrize(
    "methods",
    [
        {name: method for name, method in METHODS.items() if name != "session.send"},
        {**METHODS, "session.dance": Method("Dances.", {}, (), ())},
        {**METHODS, "session.status": METHODS["session.status"]._replace(params={})},
        {**METHODS, "session.whoami": METHODS["session.whoami"]._replace(params={"mask": "none"})},
    ],
)
def test_a_method_or_param_that_only_one_side_knows_is_refused(methods: dict[str, Method]):
    with pytest.raises(Undocumented, match=r"session.send|session.dance|message_id|mask"):
        adapter_api.adapter_api_page(methods)


def test_a_type_that_the_page_has_no_words_for_is_refused():
    with pytest.raises(Undocumented, match="number"):
        adapter_api.type_of({"type": "number"})
