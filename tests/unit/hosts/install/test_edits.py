"""Edits of JSON text: any layout comes back to the character, and what others wrote stays."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.hosts.install.edits import Misfit, insert, remove, replace
from herd.hosts.install.spans import BOM, Malformed, read

blanks = st.sampled_from(["", "", " ", "  ", "\t", "\n", "\r\n", "\n  ", "\r\n\t", " \n\n "])
remarks = st.sampled_from(["/* a, } ] */", "/*\n b */", "// c, ] }\n", "// d\r\n", "/**/"])
gaps = st.lists(st.one_of(blanks, blanks, remarks), max_size=3).map("".join)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-9, 10**6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)


@st.composite
def laid_out(draw: st.DrawFn, value: Any, trailing: bool = True) -> str:
    """Write a value with any blanks, comments and trailing commas."""
    gap = lambda: draw(gaps)  # noqa: E731
    if isinstance(value, dict):
        entries = [
            f"{gap()}{json.dumps(name)}{gap()}:{gap()}{draw(laid_out(one))}{gap()}"
            for name, one in value.items()
        ]
        opening, closing = "{", "}"
    elif isinstance(value, list):
        entries = [f"{gap()}{draw(laid_out(one))}{gap()}" for one in value]
        opening, closing = "[", "]"
    else:
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    comma = "," + gap() if entries and trailing and draw(st.booleans()) else ""
    return opening + (",".join(entries) + comma if entries else gap()) + closing


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=4), values, max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    value = draw(objects)
    form = draw(st.integers(0, 2))
    if form == 0:
        text = json.dumps(value, indent=draw(st.sampled_from([None, 0, 1, 2, 4, "\t"])), ensure_ascii=False)
    elif form == 1:
        text = json.dumps(value, separators=(",", ":"))
    else:
        text = draw(gaps) + draw(laid_out(value)) + draw(gaps)
    if draw(st.booleans()):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return draw(st.sampled_from(["", BOM])) + text, value


def containers(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    if isinstance(value, dict):
        return [path, *(found for name, one in value.items() for found in containers(one, (*path, name)))]
    if isinstance(value, list):
        return [
            path,
            *(found for number, one in enumerate(value) for found in containers(one, (*path, number))),
        ]
    return []


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.requirement("D-host-10")
@given(documents(), st.data())
def test_what_was_inserted_comes_out_again_to_the_character(
    document: tuple[str, dict[str, Any]], data: st.DataObject
):
    text, value = document
    assert read(text).value(read(text).root) == value
    undo = []
    changed = text
    for number in range(data.draw(st.integers(1, 4))):
        present = read(changed)
        path = data.draw(st.sampled_from(containers(present.value(present.root))))
        is_object = isinstance(at(present.value(present.root), path), dict)
        name = f"new name {number}" if is_object else None
        before = changed
        changed, seam = insert(changed, path, name, data.draw(values))
        position = len(at(present.value(present.root), path))
        undo.append((path, position if name is None else name, seam, before))

    for path, entry, seam, before in reversed(undo):
        changed = remove(changed, path, entry, seam)
        assert changed == before
    assert changed == text


@given(documents(), st.data())
def test_an_entry_comes_out_without_a_word_about_how_it_came_in(
    document: tuple[str, dict[str, Any]], data: st.DataObject
):
    text, value = document
    path = data.draw(st.sampled_from(containers(value)))
    held = at(value, path)
    for entry in list(held) if isinstance(held, dict) else range(len(held)):
        left = read(remove(text, path, entry))  # which itself refuses to change anything else
        assert len(at(left.value(left.root), path)) == len(held) - 1


@given(documents(), st.data(), values)
def test_a_value_is_replaced_where_it_stands(
    document: tuple[str, dict[str, Any]], data: st.DataObject, new: Any
):
    text, value = document
    path = data.draw(st.sampled_from(containers(value)))
    changed = replace(text, path, new)
    part = read(text).at(path)
    assert part is not None
    assert changed.startswith(text[: part.start])
    assert changed.endswith(text[part.end :])


def is_no_strict_json(text: str) -> bool:
    try:
        return read(text).departure is not None
    except Malformed:
        return True


@given(st.lists(st.sampled_from([*'{}[]",:/*\\ \n1e.-tu', "true", '"a"', "null"]), max_size=12).map("".join))
def test_strict_json_is_what_the_standard_library_takes_for_it(text: str):
    try:
        expected = json.loads(text)
    except ValueError:
        assert is_no_strict_json(text)
        return
    document = read(text)
    assert document.departure is None
    assert document.value(document.root) == expected


@pytest.mark.requirement("D-host-09")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{\n  "b": [\n    1\n  ]\n}'),
        ("{}\n", '{\n  "b": [\n    1\n  ]\n}\n'),
        ('{"a":1}', '{"a":1,"b":[1]}'),
        ('{"a": 1}\n', '{"a": 1, "b": [1]}\n'),
        ('{\n    "a": 1\n}', '{\n    "a": 1,\n    "b": [\n        1\n    ]\n}'),
        ('{\r\n\t"a": 1\r\n}', '{\r\n\t"a": 1,\r\n\t"b": [\r\n\t\t1\r\n\t]\r\n}'),
        ('{\n  "a": 1 // why\n}', '{\n  "a": 1, // why\n  "b": [\n    1\n  ]\n}'),
        ('{\n  "a": 1, // why\n  // end\n}', '{\n  "a": 1, // why\n  "b": [\n    1\n  ],\n  // end\n}'),
        ("{\n  // nothing yet\n}", '{\n  "b": [\n    1\n  ]\n  // nothing yet\n}'),
    ],
)
def test_an_entry_is_laid_out_as_its_surroundings_are(before: str, after: str):
    changed, seam = insert(before, (), "b", [1])

    assert changed == after
    assert remove(changed, (), "b", seam) == before


@pytest.mark.requirement("D-host-10")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{\n  "b": 1\n}', "{}"),
        ('{\n  // mine\n  "b": 1\n}', "{\n  // mine\n}"),
        ('{\n  "a": 0, // mine\n  "b": 1\n}', '{\n  "a": 0 // mine\n}'),
        ('{\n  "b": 1, // mine\n  "c": 2\n}', '{\n  // mine\n  "c": 2\n}'),
        ('{\n  "b": 1,\n  "c": 2\n}', '{\n  "c": 2\n}'),
        ('{"a":0,"b":1,"c":2}', '{"a":0,"c":2}'),
        ('{"a": 0, "b": 1}', '{"a": 0}'),
        ('{\n  "a": 0,\n  "b": 1 }', '{\n  "a": 0\n   }'),
        ('{"a": 0, "b": 1 /* x */, "c": 2}', '{"a": 0,  /* x */ "c": 2}'),
    ],
)
def test_an_entry_leaves_with_its_comma_and_its_line_and_nothing_else(before: str, after: str):
    assert remove(before, (), "b") == after


def test_the_last_member_of_one_name_is_the_one_that_counts():
    assert replace('{"a": 1, "a": 2}', ("a",), 3) == '{"a": 1, "a": 3}'


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3),
        ('{\n  "a": 1,,\n}', 2, 10),
        ("{'a': 1}", 1, 2),
        ('{"a": 01}', 1, 7),
        ('{"a": 1} x', 1, 10),
        ('{"a": tru}', 1, 7),
        ('{"a": "\n"}', 1, 7),
        ("{/* ", 1, 2),
        ("{" * 3, 1, 2),
        ("[" * 1_000, 1, 202),
        (BOM + "{]", 1, 2),
    ],
)
def test_what_is_no_json_is_told_with_its_place(text: str, line: int, column: int):
    with pytest.raises(Malformed) as told:
        read(text)

    assert (told.value.line, told.value.column) == (line, column)


@pytest.mark.parametrize("text", ['{\n"a": null}', '{\n"a": []}', '{\n"a": "x"}'])
def test_what_is_of_another_type_is_told_with_its_line(text: str):
    with pytest.raises(Misfit) as told:
        insert(text, ("a",), "b", 1)

    assert told.value.line == 2
