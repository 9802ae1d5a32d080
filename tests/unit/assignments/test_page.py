"""The page of the assignment record says what the code reads: its example is one, its table the fields."""

import json
import re

from assignments.record import Assignment, Place, decode, place_of
from herd.core import limits
from tests.fakes.assignments import bytes_of, shape_of
from tests.unit.our_source import ROOT

PAGE = (ROOT / "docs/reference/assignment-records.md").read_text(encoding="utf-8")


def example() -> dict[str, object]:
    found: dict[str, object] = json.loads(PAGE.partition("```json\n")[2].partition("```")[0])
    return found


def read(shape: dict[str, object]) -> Assignment:
    place: Place = place_of(*(str(shape[name]) for name in ("socket", "repo", "branch")))
    return decode(bytes_of(shape), place)


def test_the_example_is_a_record_with_every_field():
    assert shape_of(read(example())) == example()
    assert set(example()) == {"version", *Assignment._fields}


def test_the_table_has_every_field_and_whether_it_may_be_absent():
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \|", PAGE, re.MULTILINE)

    assert [name for name, _ in rows] == list(example())
    for name, always in rows:
        shape = {field: value for field, value in example().items() if field != name}
        try:
            read({**shape, **({"branch": ""} if name == "branch" else {})})
        except (ValueError, KeyError):
            assert always == "yes", name
        else:
            assert always == "no", name


def test_the_bounds_on_the_page_are_those_in_force():
    for bound in (limits.ASSIGNMENT_PAYLOAD_BYTES, limits.ASSIGNMENT_FILE_BYTES, limits.PLACE_ID_BYTES):
        assert f"{bound:,}" in PAGE
    assert f"at most {limits.GIT_BRANCH_CHARACTERS:,} characters" in PAGE
    assert f"at most {limits.ATTACHMENTS} texts" in PAGE
