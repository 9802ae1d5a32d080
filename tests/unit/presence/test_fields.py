import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.presence.fields import Fields, Malformed, read_fields

CHOICES = ("lead", "manager")


def fields_of(**values) -> Fields:
    return Fields(values)


class TestReadFields:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"{",
            b'{"a":1',
            b'{"a":1}x',
            b'{"a":1}{"a":1}',
            b"[]",
            b"null",
            b"1",
            b'"{}"',
            b"\xff",
            b'{"a":"\xff"}',
            b'\xef\xbb\xbf{"a":1}',  # a byte order mark
            '{"a":1}'.encode("utf-16"),
            '{"a":1}'.encode("utf-32-le"),
            b'{"a":NaN}',
            b'{"a":Infinity}',
            b'{"a":-Infinity}',
            b'{"a":' + b"9" * 5_000 + b"}",
            b"[" * 100_000,
            b'{"a":' * 50_000,
            b"{'a':1}",
            b'{"a":1,}',
            b'{"a":01}',
        ],
        ids=range(23),
    )
    def test_what_is_no_json_object_in_utf_8_is_malformed(self, data):
        with pytest.raises(Malformed):
            read_fields(data)

    @pytest.mark.parametrize(
        "data", [b'{"a":1,"a":1}', b'{"a":1,"b":2,"a":3}', b'{"b":{"a":1,"a":2}}', rb'{"a":1,"\u0061":2}']
    )
    def test_a_field_that_is_named_twice_is_malformed_wherever_it_stands(self, data):
        with pytest.raises(Malformed, match="twice"):
            read_fields(data)

    def test_space_around_the_object_and_escapes_inside_it_mean_nothing(self):
        fields = read_fields(b'\n {"\\u0061" : "\\u00fc\\ud83d\\udc69"}\n\n')

        assert fields.text("a") == "ü\U0001f469"
        fields.end()

    @given(st.binary(max_size=60))
    @example(b'{"\\ud800":1}')
    def test_no_bytes_do_anything_but_give_fields_or_be_malformed(self, data):
        try:
            read_fields(data).end()
        except Malformed as fault:
            str(fault).encode("utf-8")


class TestTaking:
    def test_a_field_is_given_once_and_then_gone(self):
        fields = fields_of(a="x")

        assert fields.has("a")
        assert fields.text("a") == "x"
        assert not fields.has("a")
        fields.end()
        with pytest.raises(Malformed, match="lacks the field a"):
            fields.text("a")

    def test_the_objects_given_are_not_changed(self):
        value = {"a": "x", "b": {"c": 1}}
        fields = Fields(value)
        fields.text("a")
        fields.inner("b").integer("c")

        assert value == {"a": "x", "b": {"c": 1}}

    def test_whatever_is_left_is_refused_by_name(self):
        with pytest.raises(Malformed, match="unknown field b"):
            fields_of(b=1).end()

    def test_an_unknown_fields_name_is_shown_so_that_no_terminal_acts_on_it(self):
        with pytest.raises(Malformed) as refused:
            Fields({"\x1b]0;owned\x07\ud800\n" + "x" * 10_000: 1}).end()

        message = str(refused.value)
        assert len(message) < 150
        assert message.isprintable()

    def test_faults_inside_name_the_whole_path(self):
        outer = fields_of(outer={"inner": {"deep": "x", "more": 1}})
        inner = outer.inner("outer").inner("inner")

        with pytest.raises(Malformed, match=r"integer from 0 to \d+ in outer\.inner\.deep"):
            inner.integer("deep")
        with pytest.raises(Malformed, match=r"unknown field outer\.inner\.more"):
            inner.end()
        with pytest.raises(Malformed, match=r"no object at x\.y"):
            fields_of(x={"y": []}).inner("x").inner("y")
        with pytest.raises(Malformed, match="no object at its top"):
            Fields([])


class TestIntegers:
    @pytest.mark.parametrize(("value", "least"), [(0, 0), (1, 1), (2**63 - 1, 0), (-5, -5)])
    def test_one_within_its_bounds_is_taken(self, value, least):
        assert fields_of(a=value).integer("a", least=least) == value

    @pytest.mark.parametrize("value", [True, False, 1.0, "1", None, [1], {}, 2**63, 10**400, -1])
    def test_everything_else_is_malformed(self, value):
        with pytest.raises(Malformed, match=r"no integer from 0 to .* in a"):
            fields_of(a=value).integer("a")

    @pytest.mark.parametrize("value", [0, 6])
    def test_one_outside_bounds_of_its_own_is_malformed(self, value):
        with pytest.raises(Malformed, match="from 1 to 5 in a"):
            fields_of(a=value).integer("a", least=1, most=5)


class TestTexts:
    @pytest.mark.parametrize("value", ["x", "x" * 512, " ", "\x01\u202e", "ü" * 512, "\U0001f469" * 512])
    def test_one_of_1_to_512_characters_is_taken_as_it_is(self, value):
        assert fields_of(a=value).text("a") == value

    @pytest.mark.parametrize("value", ["", "x" * 513, "a\0b", "\ud800", "\udc00\ud800", 1, None, ["x"], True])
    def test_everything_else_is_malformed(self, value):
        with pytest.raises(Malformed, match="in a"):
            fields_of(a=value).text("a")

    def test_bounds_of_its_own_count(self):
        assert fields_of(a="").text("a", least=0) == ""
        assert fields_of(a="x" * 600).text("a", most=600) == "x" * 600
        with pytest.raises(Malformed, match="5 to 6 characters"):
            fields_of(a="xxxx").text("a", least=5, most=6)

    def test_null_is_taken_only_where_it_may_stand(self):
        assert fields_of(a=None).text_or_null("a") is None
        assert fields_of(a="x").text_or_null("a") == "x"
        for value in ("", 0, False, "\0"):
            with pytest.raises(Malformed):
                fields_of(a=value).text_or_null("a")
        with pytest.raises(Malformed, match="lacks"):
            fields_of().text_or_null("a")

    @pytest.mark.parametrize("value", ["", " ", "\t\n", "\u3000", None, 5])
    def test_an_optional_text_is_absent_or_says_something(self, value):
        assert fields_of().optional_text("a") is None
        assert fields_of(a=" x ").optional_text("a") == " x "
        with pytest.raises(Malformed):
            fields_of(a=value).optional_text("a")


class TestChoices:
    def test_one_of_them_is_taken(self):
        assert fields_of(a="lead").one_of("a", CHOICES) == "lead"

    @pytest.mark.parametrize("value", ["", "Lead", "lea", "lead ", None, 0, ["lead"], {"lead": 1}])
    def test_none_of_them_is_malformed(self, value):
        with pytest.raises(Malformed, match="none of lead, manager in a"):
            fields_of(a=value).one_of("a", CHOICES)

    def test_several_are_taken_in_their_order(self):
        assert fields_of(a=["manager", "lead"]).texts("a", CHOICES, most=2) == ["manager", "lead"]
        assert fields_of(a=[]).texts("a", CHOICES, most=2) == []

    @pytest.mark.parametrize(
        "value", [["lead", "lead"], ["other"], ["lead", 1], [["lead"]], "lead", {"lead": 1}, None, [None]]
    )
    def test_a_list_with_anything_else_is_malformed(self, value):
        with pytest.raises(Malformed, match="in a"):
            fields_of(a=value).texts("a", CHOICES, most=2)

    def test_a_list_over_its_bound_is_malformed(self):
        with pytest.raises(Malformed):
            fields_of(a=["lead", "manager"]).texts("a", CHOICES, most=1)


def test_every_kind_of_field_survives_its_way_through_a_file():
    values = {"number": 5, "text": "ü", "nothing": None, "role": "lead", "list": ["lead"], "inner": {}}

    fields = read_fields(json.dumps(values).encode())

    assert fields.integer("number") == 5
    assert fields.text("text") == "ü"
    assert fields.text_or_null("nothing") is None
    assert fields.one_of("role", CHOICES) == "lead"
    assert fields.texts("list", CHOICES, most=1) == ["lead"]
    fields.inner("inner").end()
    fields.end()
