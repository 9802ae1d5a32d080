"""The rules that hold for every module of ours: import directions, text, size.

Each rule is also shown to find what it forbids.
"""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.our_source import PACKAGES, ROOT, Module, broken, found, keyword, last_name, modules

MODULE_LINES = 500
TABLES = {"herd/core/limits.py"}
"""Lists of names, each with its meaning: one that grows gets no harder to read."""
FUNCTION_LINES = 60


def test_every_module_of_the_four_packages_is_read():
    read = {module.path.partition("/")[0] for module in modules()}

    assert read == set(PACKAGES)


# --- imports ---------------------------------------------------------------------------------------


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def import_directions(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environment = {"PYTHONPATH": str(tree), "PYTHONUTF8": "1"}
    return subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, encoding="utf-8", check=False
    )


@pytest.mark.requirement("D-code-01")
def test_no_import_of_ours_points_up():
    ended = import_directions(ROOT)

    assert ended.returncode == 0, ended.stdout
    assert "1 kept, 0 broken" in ended.stdout


@pytest.mark.requirement("D-code-01")
@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("herd.core", "herd.rpc"),
        ("herd.core", "herd.coordinator"),
        ("herd.rpc", "herd.mail"),
        ("herd.presence", "herd.rpc"),
        ("herd.mail", "assignments"),
        ("assignments.resources", "roles"),
        ("roles", "federation"),
        ("federation.internet", "herd.coordinator"),
        ("herd.mail", "herd.coordinator"),
        ("herd.mail", "herd.client"),
        ("herd.coordinator", "herd.cli"),
    ],
)
def test_an_import_that_points_up_fails_the_check(copied_tree: Path, lower: str, upper: str):
    for name in (lower, upper):
        place = copied_tree.joinpath(*name.split("."))
        if not place.is_dir() and not place.with_suffix(".py").exists():
            place.with_suffix(".py").write_text('"""Not built yet."""\n', encoding="utf-8")
    importer = copied_tree.joinpath(*lower.split("."))
    path = importer / "added.py" if importer.is_dir() else importer.with_suffix(".py")
    added = f"{lower}.added" if importer.is_dir() else lower
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\nimport {upper}\n")

    ended = import_directions(copied_tree)

    assert ended.returncode != 0
    assert "Imports point down only BROKEN" in ended.stdout
    assert f"- {added} -> {upper} (l." in ended.stdout


@pytest.mark.requirement("D-code-01")
def test_every_room_stands_in_a_layer():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = {
        name.strip(" ()") for layer in contract["contracts"][0]["layers"] for name in re.split("[|:]", layer)
    }
    rooms = {f"herd.{path.stem}" for path in (ROOT / "herd").iterdir() if not path.name.startswith("__")}

    assert rooms | {"roles", "assignments", "federation"} <= layers


@pytest.mark.requirement("D-code-01")
def test_the_check_of_the_project_holds_the_import_directions():
    check = (ROOT / "run").read_text(encoding="utf-8").partition("\ncheck() {")[2].partition("\n}")[0]

    assert "lint-imports" in check


# --- text ------------------------------------------------------------------------------------------


def texts_in_the_encoding_of_the_locale(module: Module) -> Iterator[ast.AST]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and is_text(node) and keyword(node, "encoding") is None:
            yield node


def is_text(call: ast.Call) -> bool:
    if ast.unparse(call.func) in {"open", "io.open", "os.fdopen"}:
        return "b" not in mode_of(call, position=1)
    if last_name(call.func) == "open":  # of a path, where a mode is given; else it may open anything
        return re.fullmatch("[rwaxt+]+", mode_of(call, position=0)) is not None
    asked = keyword(call, "text") or keyword(call, "universal_newlines")
    return asked is not None or last_name(call.func) in {"read_text", "write_text"}


def mode_of(call: ast.Call, position: int) -> str:
    given = [*call.args[position : position + 1], keyword(call, "mode")]
    return "".join(str(mode.value) for mode in given if isinstance(mode, ast.Constant))


def test_text_is_utf_8_whatever_the_locale_says():
    assert broken(texts_in_the_encoding_of_the_locale) == []


@pytest.mark.parametrize(
    "source",
    [
        "open(path)",
        "path.open('w')",
        "os.fdopen(fd, 'w')",
        "path.read_text()",
        "subprocess.run(['git'], text=True)",
    ],
)
def test_text_in_the_encoding_of_the_locale_is_found(source: str):
    assert found(texts_in_the_encoding_of_the_locale, source)


@pytest.mark.parametrize(
    "source",
    [
        "open(path, 'rb')",
        "path.open(mode='wb')",
        "os.open(path, flags)",
        "open(path, encoding='utf-8')",
        "Mailbox.open(path)",
    ],
)
def test_bytes_and_utf_8_are_no_text_of_the_locale(source: str):
    assert not found(texts_in_the_encoding_of_the_locale, source)


# --- size ------------------------------------------------------------------------------------------


def test_no_module_is_too_long():
    lengths = {
        module.path: len(module.source.splitlines()) for module in modules() if module.path not in TABLES
    }

    assert {path: lines for path, lines in lengths.items() if lines > MODULE_LINES} == {}


def test_no_function_is_too_long():
    functions = [
        (f"{module.path}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    assert {place: lines for place, lines in functions if lines > FUNCTION_LINES} == {}
