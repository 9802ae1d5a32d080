"""Which runs an instance has, which of them is below which, and what each may do."""

import pytest

from herd.coordinator.runs.tree import Tree, Wanted
from herd.core.errors import InvalidParams, QueueFull, TargetEnded
from herd.core.identity import peer_id_of
from herd.core.limits import DEFAULT_LIMITS, RUNS_IN_A_LIFE
from herd.presence.record import CAPABILITIES

SEND, RECEIVE, WAIT, REQUEST, CONTROL = CAPABILITIES


@pytest.fixture
def tree():
    return Tree("i", CAPABILITIES, 64)


@pytest.mark.requirement("A-ident-03")
@pytest.mark.parametrize("run_id", ["r", "x" * 256, "run 1/é", "\u202e"])
def test_a_run_id_of_1_to_256_characters_names_one_execution(tree, run_id):
    run = tree.bind(Wanted(run_id))

    assert run.peer_id == peer_id_of("i", run_id)
    assert tree.require(run.peer_id) is run


@pytest.mark.requirement("A-ident-03")
@pytest.mark.parametrize("run_id", ["", "x" * 257, "a\nb", "\0", "\x1b[31m", "\x7f", "\x85", "\ud800"])
def test_what_is_no_run_id_is_refused(tree, run_id):
    with pytest.raises(InvalidParams):
        tree.bind(Wanted(run_id))

    assert len(tree) == 0


@pytest.mark.requirement("A-ident-03")
def test_a_run_is_bound_once_also_after_it_is_over(tree):
    run = tree.bind(Wanted("r"))
    with pytest.raises(InvalidParams):
        tree.bind(Wanted("r"))
    tree.close(run.peer_id)
    with pytest.raises(InvalidParams):
        tree.bind(Wanted("r"))
    tree.retire(run.peer_id)

    with pytest.raises(InvalidParams):
        tree.bind(Wanted("r"))


@pytest.mark.requirement("A-runs-02")
def test_without_delegation_a_run_has_its_parents_capabilities_but_control(tree):
    child = tree.bind(Wanted("child"))
    below = tree.bind(Wanted("below", parent=child.peer_id))

    assert child.capabilities == below.capabilities == (SEND, RECEIVE, WAIT, REQUEST)


@pytest.mark.requirement("A-runs-01")
def test_what_is_delegated_is_cut_down_to_what_the_parent_has(tree):
    child = tree.bind(Wanted("child", capabilities=(SEND, RECEIVE)))
    below = tree.bind(Wanted("below", parent=child.peer_id, capabilities=CAPABILITIES))
    bare = Tree("j", (SEND, RECEIVE, WAIT), 64).bind(Wanted("bare", capabilities=CAPABILITIES))

    assert child.capabilities == below.capabilities == (SEND, RECEIVE)
    assert bare.capabilities == (SEND, RECEIVE, WAIT)


@pytest.mark.requirement("A-runs-01")
@pytest.mark.parametrize(
    ("parents", "wanted", "got"),
    [
        (None, None, None),
        (None, "repository", "repository"),
        ("repository", None, "repository"),
        ("workspace", "machine", "workspace"),
        ("machine", "workspace", "workspace"),
    ],
)
def test_a_runs_scope_is_the_narrower_of_what_is_wanted_and_its_parents(tree, parents, wanted, got):
    parent = tree.bind(Wanted("parent", scope=parents))

    assert tree.bind(Wanted("child", parent=parent.peer_id, scope=wanted)).scope == got


@pytest.mark.requirement("A-runs-04")
def test_an_external_run_may_nothing_whatever_is_delegated_to_it(tree):
    assert tree.bind(Wanted("e", capabilities=CAPABILITIES, external=True)).capabilities == ()


@pytest.mark.requirement("A-limits-17")
def test_as_many_runs_live_as_may_and_one_more_is_refused():
    tree = Tree("i", CAPABILITIES, DEFAULT_LIMITS.published_runs)
    runs = [tree.bind(Wanted(f"r-{number}")) for number in range(64)]
    with pytest.raises(QueueFull):
        tree.bind(Wanted("r-64"))
    tree.close(runs[0].peer_id)
    with pytest.raises(QueueFull):
        tree.bind(Wanted("r-64"))  # a closing one has not gone yet
    tree.retire(runs[0].peer_id)

    assert tree.bind(Wanted("r-64")).run_id == "r-64"


@pytest.mark.requirement("A-limits-17")
def test_an_instance_has_4096_runs_in_its_life(tree):
    for number in range(RUNS_IN_A_LIFE):
        run = tree.bind(Wanted(f"r-{number}"))
        tree.close(run.peer_id)
        tree.retire(run.peer_id)

    assert RUNS_IN_A_LIFE == 4_096
    with pytest.raises(QueueFull):
        tree.bind(Wanted("one more"))


@pytest.mark.requirement("A-runs-10")
def test_a_run_closes_with_all_below_it_the_deepest_first(tree):
    top, other = tree.bind(Wanted("top")), tree.bind(Wanted("other"))
    middle = tree.bind(Wanted("middle", parent=top.peer_id))
    deep = tree.bind(Wanted("deep", parent=middle.peer_id))

    assert tree.close(top.peer_id) == [deep, middle, top]
    assert tree.live == [other]
    for one in (top, middle, deep):
        with pytest.raises(TargetEnded):
            tree.require(one.peer_id)
        with pytest.raises(TargetEnded):
            tree.bind(Wanted("late", parent=one.peer_id))


def test_a_run_closes_once(tree):
    run = tree.bind(Wanted("r"))
    tree.close(run.peer_id)

    with pytest.raises(TargetEnded):
        tree.close(run.peer_id)


def test_a_run_is_named_by_its_parent_or_after_its_id(tree):
    named = tree.bind(Wanted("a", name="tester"))
    unnamed = [tree.bind(Wanted(one)).name for one in ("b", "c")]

    assert named.name == "tester"
    assert unnamed[0] != unnamed[1]
    assert all(name.startswith("run-") for name in unnamed)
