"""The manifest and the tests agree, in both directions; and the reading of both refuses what is malformed."""

import shutil
from pathlib import Path

import pytest

from tests.requirements import manifest
from tests.requirements.manifest import MalformedLine, MalformedMark, Naming, Requirement

OWED = Requirement("A-frames-01", ("1",), "not yet", "A frame ends.")
DUE = OWED._replace(state="due")
NAMED = Naming("A-frames-01", "unit/test_frames.py:7")


def test_the_manifest_and_the_tests_agree():
    assert manifest.disagreements(manifest.read(), manifest.named_by_tests()) == []


def test_every_file_of_the_manifest_holds_requirements():
    first_letters = {requirement.id[0] for requirement in manifest.read()}

    assert first_letters == {"A", "H", "P", "D", "C"}


def test_a_line_becomes_a_requirement():
    line = "A-boundary-01 | 3 and 10 | not yet | One header `a | b`, and one text."

    assert manifest.parsed(line, "A.txt:1") == Requirement(
        "A-boundary-01", ("3", "10"), "not yet", "One header `a | b`, and one text."
    )


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("A-frames-01 | 1 | due", "3 columns"),
        ("A-frames-1 | 1 | due | x", "is no id"),
        ("X-frames-01 | 1 | due | x", "is no id"),
        ("A-frames-01 | later | due | x", "names no part"),
        ("A-frames-01 | 1 and | due | x", "names no part"),
        ("A-frames-01 | 1 | done | x", "neither 'due' nor 'not yet'"),
        ("A-frames-01 | 1 | due |  ", "sentence is empty"),
    ],
)
def test_a_malformed_line_is_refused_with_its_place(line: str, fault: str):
    with pytest.raises(MalformedLine, match=f"^A.txt:3: .*{fault}"):
        manifest.parsed(line, "A.txt:3")


def a_manifest(folder: Path, **files: str) -> Path:
    for name in manifest.FILES:
        (folder / name).write_text("# a comment\n\n" + files.get(name[0], ""), encoding="utf-8")
    return folder


def test_an_id_that_stands_twice_is_refused(tmp_path: Path):
    a_manifest(tmp_path, A="A-frames-01 | 1 | due | x\nA-frames-01 | 2 | due | y\n")

    with pytest.raises(MalformedLine, match=r"A.txt:4: A-frames-01 stands here twice"):
        manifest.read(tmp_path)


def test_an_id_of_another_file_is_refused(tmp_path: Path):
    a_manifest(tmp_path, P="A-frames-01 | 1 | due | x\n")

    with pytest.raises(MalformedLine, match=r"P.txt:3: A-frames-01 belongs to another file"):
        manifest.read(tmp_path)


@pytest.mark.parametrize("missing", manifest.FILES)
def test_a_missing_file_is_never_read_as_nothing_owed(tmp_path: Path, missing: str):
    (a_manifest(tmp_path) / missing).unlink()

    with pytest.raises(FileNotFoundError):
        manifest.read(tmp_path)


def test_marks_are_found_on_functions_classes_and_modules():
    source = """
pytestmark = [pytest.mark.machine, pytest.mark.requirement("A-a-01")]

@pytest.mark.requirement("A-b-01", "A-b-02")
def test_one(): ...

@pytest.mark.requirement("A-c-01")
async def test_two(): ...

@mark.requirement("A-d-01")
class TestThree:
    pytestmark = pytest.mark.requirement("A-e-01")

    @pytest.mark.requirement("A-f-01")
    def test_four(self): ...
"""

    found = {naming.id: naming.place for naming in manifest.named_in(source, "test_x.py")}

    assert list(found) == ["A-a-01", "A-b-01", "A-b-02", "A-c-01", "A-d-01", "A-e-01", "A-f-01"]
    assert found["A-b-02"] == "test_x.py:4"


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.requirement('A-a-01')\ndef build(): ...",
        "@pytest.mark.requirement('A-a-01')\nclass Builder: ...",
        "def test_one():\n    pytest.mark.requirement('A-a-01')",
        "ids = pytest.mark.requirement('A-a-01')",
        "@pytest.mark.requirement()\ndef test_one(): ...",
        "@pytest.mark.requirement(NAME)\ndef test_one(): ...",
        "@pytest.mark.requirement('A-a-01', *MORE)\ndef test_one(): ...",
        "@pytest.mark.requirement(1)\ndef test_one(): ...",
        "@pytest.mark.requirement('A-a-01', reason='x')\ndef test_one(): ...",
    ],
)
def test_a_mark_that_proves_nothing_is_refused(source: str):
    with pytest.raises(MalformedMark, match=r"^test_x.py:\d+: "):
        manifest.named_in(source, "test_x.py")


@pytest.mark.parametrize(
    ("requirements", "namings", "faults"),
    [
        ([OWED], [], []),
        ([DUE], [NAMED], []),
        ([DUE], [], ["A-frames-01 is due, and no test names it"]),
        ([OWED], [NAMED], ["unit/test_frames.py:7 names A-frames-01, which is not yet due"]),
        ([], [NAMED], ["unit/test_frames.py:7 names A-frames-01, which the manifest has not"]),
    ],
)
def test_each_disagreement_is_told(requirements: list[Requirement], namings: list[Naming], faults: list[str]):
    assert manifest.disagreements(requirements, namings) == faults


def test_flipping_changes_the_third_column_and_nothing_else(tmp_path: Path):
    before = "# due | due | due | due\nA-a-01 | 1 | not yet | It is due | here.\nA-a-02 | 1 | due | y\n"
    a_manifest(tmp_path, A=before)

    changed = manifest.flip(tmp_path, {"A-a-01"})

    after = "# due | due | due | due\nA-a-01 | 1 | due | It is due | here.\nA-a-02 | 1 | not yet | y\n"
    assert changed == 2
    assert (tmp_path / "A.txt").read_text(encoding="utf-8") == "# a comment\n\n" + after
    assert manifest.flip(tmp_path, {"A-a-01"}) == 0


def test_flipping_by_what_tests_name_settles_every_disagreement(tmp_path: Path):
    for name in manifest.FILES:
        shutil.copy(manifest.FOLDER / name, tmp_path / name)
    known = {requirement.id for requirement in manifest.read(tmp_path)}
    namings = [naming for naming in manifest.named_by_tests() if naming.id in known]

    manifest.flip(tmp_path, {naming.id for naming in namings})

    assert manifest.disagreements(manifest.read(tmp_path), namings) == []
