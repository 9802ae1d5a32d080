"""Entries of ours in any file of others: in twice is in once, and out again leaves what others mean."""

import json
from functools import partial
from operator import eq
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.hosts.install.wanted import Wanted, put_in, take_out


def is_ours(value: Any) -> bool:
    return isinstance(value, dict) and value.get("by") == "herd"


WANTED = [
    Wanted(("servers",), "herd", {"by": "herd"}, is_ours),
    Wanted(("hooks", "Start"), None, {"by": "herd", "at": "start"}, is_ours),
    Wanted(("hooks", "Stop"), None, {"by": "herd", "at": "stop"}, is_ours),
    Wanted(("permissions", "allow"), None, "herd: read", partial(eq, "herd: read"), is_common=True),
    Wanted(("permissions", "allow"), None, "herd: write", partial(eq, "herd: write"), is_common=True),
]

anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
lists = st.lists(st.one_of(anything, st.just("herd: read")), max_size=3)
files = st.fixed_dictionaries(
    {},
    optional={
        "servers": st.dictionaries(st.sampled_from(["a", "b"]), anything),
        "hooks": st.fixed_dictionaries({}, optional={"Start": lists, "Stop": lists, "Other": anything}),
        "permissions": st.fixed_dictionaries({}, optional={"allow": lists, "deny": lists}),
        "other": anything,
    },
)
layouts = st.sampled_from([{"indent": 2}, {"indent": "\t"}, {"separators": (",", ":")}, {}])


@pytest.mark.requirement("D-host-09", "D-host-10")
@given(files, layouts, layouts, st.randoms(use_true_random=False))
def test_what_others_mean_is_left_whatever_layout_and_order_they_gave_the_file_meanwhile(
    value: dict[str, Any], before: dict[str, Any], meanwhile: dict[str, Any], random: Any
):
    text = json.dumps(value, **before)

    there, puts = put_in("a file", text, WANTED)
    again, more = put_in("a file", there, WANTED)

    assert (again, more) == (there, [])
    assert take_out("a file", there, WANTED, puts) == text
    members = list(json.loads(there).items())
    random.shuffle(members)
    rewritten = json.dumps({**dict(members), "theirs": 1}, **meanwhile)
    assert json.loads(take_out("a file", rewritten, WANTED, puts)) == {**value, "theirs": 1}


@given(files, layouts)
def test_a_file_without_anything_of_ours_is_left_to_the_character(
    value: dict[str, Any], layout: dict[str, Any]
):
    text = json.dumps(value, **layout)

    assert take_out("a file", text, WANTED, []) == text
