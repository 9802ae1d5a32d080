"""The rule of scopes: what each takes in, both sides at once, and what one call may ask for."""

import itertools
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herd.cli import options
from herd.coordinator.adapter_params import Capability, Scope
from herd.core.choices import WORDS
from herd.core.errors import ScopeDenied
from herd.presence.record import OF_SESSIONS
from herd.presence.scopes import (
    SCOPES,
    Extent,
    includes,
    mutual,
    narrowed,
    narrower,
    require_mutual,
)

SHOP = "/repos/shop/.git"
MAIN = Extent("machine", "/repos/shop", SHOP)
LINKED = Extent("machine", "/repos/linked", SHOP)
CLONE = Extent("machine", "/repos/clone", "/repos/clone/.git")
PLAIN = Extent("machine", "/notes", None)
LOST = Extent("machine", None, None)

places = st.sampled_from([None, "/a", "/b"])
extents = st.builds(Extent, st.sampled_from(SCOPES), places, places)


def of(scope: str, place: Extent) -> Extent:
    return place._replace(scope=scope)


@pytest.mark.requirement("A-discover-06")
@pytest.mark.parametrize("other", [MAIN, LINKED, CLONE, PLAIN, LOST])
def test_a_machine_takes_in_whoever_there_is(other):
    assert includes(MAIN, other)
    assert includes(LOST, other)


@pytest.mark.requirement("A-discover-07")
@pytest.mark.parametrize(
    ("mine", "theirs", "taken_in"),
    [
        (MAIN, MAIN, True),
        (MAIN, LINKED, False),
        (PLAIN, PLAIN, True),
        (MAIN, LOST, False),
        (LOST, LOST, False),
    ],
)
def test_a_workspace_takes_in_equal_ids_alone(mine, theirs, taken_in):
    assert includes(of("workspace", mine), theirs) is taken_in


@pytest.mark.requirement("A-discover-08")
@pytest.mark.parametrize(
    ("mine", "theirs", "taken_in"),
    [
        (MAIN, LINKED, True),
        (MAIN, CLONE, False),
        (PLAIN, PLAIN, True),
        (PLAIN, MAIN, False),
        (MAIN, LOST, False),
        (LOST, LOST, False),
        (Extent("machine", None, SHOP), MAIN, True),
    ],
)
def test_a_repository_takes_in_equal_workspaces_and_equal_common_directories(mine, theirs, taken_in):
    assert includes(of("repository", mine), theirs) is taken_in


@pytest.mark.requirement("A-discover-09")
@pytest.mark.parametrize("scopes", list(itertools.product(SCOPES, SCOPES)))
def test_what_passes_is_what_both_take_in_and_the_refusal_names_both_scopes(scopes):
    mine, theirs = of(scopes[0], MAIN), of(scopes[1], LINKED)

    if "workspace" not in scopes:
        require_mutual(mine, theirs)
        return
    with pytest.raises(ScopeDenied) as refused:
        require_mutual(mine, theirs)
    sender, recipient = scopes
    assert f"the sender's scope is {sender} and the recipient's is {recipient}" in refused.value.message
    assert ("the sender's leaves" in refused.value.message) is (recipient != "workspace")
    assert ("the recipient's leaves" in refused.value.message) is (sender != "workspace")
    assert not refused.value.may_pass


@given(extents, extents)
def test_both_sides_agree_whichever_is_asked_and_a_narrower_scope_takes_in_no_more(one, other):
    assert mutual(one, other) is mutual(other, one)
    for scope in SCOPES:
        if includes(of(narrower(scope, one.scope), one), other):
            assert includes(one, other)


@pytest.mark.requirement("A-discover-11")
@pytest.mark.parametrize(("own", "wanted"), list(itertools.product(SCOPES, SCOPES)))
def test_a_call_may_ask_for_less_and_never_for_more(own, wanted):
    mine = of(own, MAIN)

    if SCOPES.index(wanted) <= SCOPES.index(own):
        assert narrowed(mine, wanted) == of(wanted, MAIN)
        return
    with pytest.raises(ScopeDenied, match=f"scope {wanted} .* scope is {own}"):
        narrowed(mine, wanted)


def test_a_call_that_asks_for_none_has_the_sessions():
    assert narrowed(of("repository", MAIN), None) == of("repository", MAIN)


def test_the_words_are_the_same_wherever_they_are_written():
    assert set(SCOPES) == set(typing.get_args(Scope)) == set(options.SCOPES) == set(WORDS["scope"])
    assert OF_SESSIONS == typing.get_args(Capability) == options.CAPABILITIES
