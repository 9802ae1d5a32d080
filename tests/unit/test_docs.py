"""The reference pages say what the code says, every code and setting stands on them, and they stay whole."""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs import generate
from docs.command_line import command_line_page
from docs.markdown import Undocumented, cell, table
from herd.core.errors import BY_CODE, EXIT_STATUSES
from herd.core.limits import DEFAULT_LIMITS, Limits

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

    assert set(rows) == {"key", "---"} | {f"`{name}`" for name in Limits._fields}
    for name, default in DEFAULT_LIMITS._asdict().items():
        assert int(rows[f"`{name}`"][0]) == default
    assert rows["`frame_bytes`"][1] == "bytes"
    assert rows["`handshake_ms`"][1] == "milliseconds"
    assert rows["`connections`"][1] == "count"


def test_the_example_file_is_toml_that_sets_every_default():
    example = generate.config_page().partition("```toml\n")[2].partition("```")[0]

    assert tomllib.loads(example) == {"limits": DEFAULT_LIMITS._asdict()}


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
