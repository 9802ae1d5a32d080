"""The manifest of behaviours owed: the lines of the text files in this folder, and the tests that name them.

A line is `id | part | due or not yet | sentence`; `due` says that a test names the id today. Tests name ids
with `@pytest.mark.requirement("A-frames-01", ...)` or a `pytestmark` of that kind. They are found by reading
the source of every `test_*.py`, so that a test which another platform would not even import counts too.

By hand: `manifest.py --flip` makes the third column true; `manifest.py --open 1` lists what part 1 owes.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
FILES = ("A.txt", "H.txt", "P.txt", "D.txt", "C.txt")

DUE = "due"
NOT_YET = "not yet"

_ID = re.compile(r"[AHPD]-[a-z]+-\d\d|C\d+")
_PART = re.compile(r"\d+(?: and \d+)*")
_COLUMNS = 4


class Requirement(NamedTuple):
    """One behaviour owed.

    Args:
        id: What tests name it by; never used again for another behaviour.
        parts: The parts of the work that deliver it.
        state: `due` or `not yet`.
        sentence: The behaviour.
    """

    id: str
    parts: tuple[str, ...]
    state: str
    sentence: str


class Naming(NamedTuple):
    """One place where a test names an id."""

    id: str
    place: str


class MalformedLine(ValueError):
    """A line of the manifest that is none; the message says where and why."""


class MalformedMark(ValueError):
    """A use of the requirement mark that no test would be found by; the message says where."""


def parsed(line: str, place: str) -> Requirement:
    """Read one line of the manifest.

    Raises:
        MalformedLine: a column is missing or has no valid value.
    """
    columns = [column.strip() for column in line.split("|", maxsplit=_COLUMNS - 1)]
    if len(columns) != _COLUMNS:
        raise MalformedLine(f"{place}: {len(columns)} columns, not {_COLUMNS}")
    name, part, state, sentence = columns
    if not _ID.fullmatch(name):
        raise MalformedLine(f"{place}: {name!r} is no id")
    if not _PART.fullmatch(part):
        raise MalformedLine(f"{place}: {part!r} names no part")
    if state not in {DUE, NOT_YET}:
        raise MalformedLine(f"{place}: the state {state!r} is neither {DUE!r} nor {NOT_YET!r}")
    if not sentence:
        raise MalformedLine(f"{place}: the sentence is empty")
    return Requirement(name, tuple(part.split(" and ")), state, sentence)


def read(folder: Path = FOLDER) -> list[Requirement]:
    """Read every line of the manifest, in order.

    Raises:
        MalformedLine: a line is malformed, has an id of another file or repeats an id.
        OSError: one of the files is missing.
    """
    found: dict[str, Requirement] = {}
    for path in (folder / name for name in FILES):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not _is_entry(line):
                continue
            requirement = parsed(line, f"{path.name}:{number}")
            if not requirement.id.startswith(path.stem):
                raise MalformedLine(f"{path.name}:{number}: {requirement.id} belongs to another file")
            if requirement.id in found:
                raise MalformedLine(f"{path.name}:{number}: {requirement.id} stands here twice")
            found[requirement.id] = requirement
    return list(found.values())


def _is_entry(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def named_by_tests(tests: Path = TESTS) -> list[Naming]:
    """Find every place where a test names an id.

    Raises:
        MalformedMark: the mark stands where pytest finds no test, or its arguments are no plain texts.
    """
    return [
        naming
        for path in sorted(tests.rglob("test_*.py"))
        for naming in named_in(path.read_text(encoding="utf-8"), path.relative_to(tests).as_posix())
    ]


def named_in(source: str, place: str) -> list[Naming]:
    """Find the ids that one test module names; see `named_by_tests`."""
    tree = ast.parse(source, place)
    counted: set[ast.AST] = set()
    namings: list[Naming] = []
    for mark in _marks_of(tree):
        counted.add(mark)
        namings.extend(Naming(name, f"{place}:{mark.lineno}") for name in _ids(mark, place))
    for node in ast.walk(tree):
        if _is_mark(node) and node not in counted:
            raise MalformedMark(f"{place}:{node.lineno}: the mark stands on no test and is no pytestmark")
    return namings


def _marks_of(body: ast.Module | ast.ClassDef) -> Iterator[ast.Call]:
    """Give the marks on the tests of a module or class, and those of its `pytestmark`."""
    for node in body.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield from filter(_is_mark, node.decorator_list)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from filter(_is_mark, node.decorator_list)
            yield from _marks_of(node)
        elif isinstance(node, ast.Assign) and _is_pytestmark(node):
            marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            yield from filter(_is_mark, marks)


def _is_pytestmark(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)


def _is_mark(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.requirement")


def _ids(mark: ast.Call, place: str) -> list[str]:
    texts = [argument.value for argument in mark.args if isinstance(argument, ast.Constant)]
    ids = [text for text in texts if isinstance(text, str)]
    if not ids or len(ids) != len(mark.args) or mark.keywords:
        raise MalformedMark(f"{place}:{mark.lineno}: the mark takes ids, written out, and nothing else")
    return ids


def disagreements(requirements: Iterable[Requirement], namings: Iterable[Naming]) -> list[str]:
    """Compare the manifest with the tests, in both directions; each sentence given names one fault."""
    states = {requirement.id: requirement.state for requirement in requirements}
    places = {naming.id: naming.place for naming in namings}
    unproven = [
        f"{name} is due, and no test names it"
        for name, state in states.items()
        if state == DUE and name not in places
    ]
    unknown = [
        f"{place} names {name}, which the manifest has not"
        for name, place in places.items()
        if name not in states
    ]
    early = [
        f"{place} names {name}, which is not yet due"
        for name, place in places.items()
        if states.get(name) == NOT_YET
    ]
    return unproven + unknown + early


def flip(folder: Path, named: set[str]) -> int:
    """Make the third column true: `due` for exactly the ids given. Returns how many lines were changed."""
    changed = 0
    for path in (folder / name for name in FILES):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        flipped = [_flipped(line, named) if _is_entry(line) else line for line in lines]
        differing = sum(old != new for old, new in zip(lines, flipped, strict=True))
        if differing:
            path.write_text("".join(flipped), encoding="utf-8")
        changed += differing
    return changed


def _flipped(line: str, named: set[str]) -> str:
    name, part, _, sentence = line.split("|", maxsplit=_COLUMNS - 1)
    state = DUE if name.strip() in named else NOT_YET
    return f"{name}|{part}| {state} |{sentence}"


def main() -> int:
    """Flip the states, or list what a part still owes."""
    parser = argparse.ArgumentParser(description="The manifest of behaviours owed.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--flip", action="store_true", help="set `due` for exactly the ids that tests name")
    action.add_argument("--open", metavar="PART", help="list the ids of a part that are not yet due")
    arguments = parser.parse_args()
    if arguments.flip:
        read(FOLDER)  # refuses a malformed line before anything is written
        changed = flip(FOLDER, {naming.id for naming in named_by_tests()})
        sys.stdout.write(f"{changed} lines changed\n")
        return 0
    for requirement in read(FOLDER):
        if arguments.open in requirement.parts and requirement.state == NOT_YET:
            sys.stdout.write(f"{requirement.id}  {requirement.sentence}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
