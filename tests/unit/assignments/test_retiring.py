"""What proves that a checkout is gone, case by case; whatever is in doubt keeps the assignment."""

import pytest

from assignments.retiring import kept_by
from assignments.worktrees.inventory import Inventoried, Partial, Worktree
from tests.fakes.assignments import REPO, assignment_of

PRIMARY = Worktree("/home/me/project", "main", linked=False)
CHECKOUT = "/home/me/project.work"
PLACED = assignment_of(branch="work", checkout=CHECKOUT)
UNPLACED = assignment_of(branch="work")
OURS = Worktree(CHECKOUT, "work")
GONE = OURS._replace(prunable=True, present=False)
ELSEWHERE = Worktree("/home/me/project.else", "else")


def of(*worktrees: Worktree, key: str = REPO) -> Inventoried:
    return Inventoried(key, worktrees)


@pytest.mark.requirement("H-assign-12")
@pytest.mark.parametrize("assignment", [PLACED, UNPLACED])
@pytest.mark.parametrize("rest", [(), (GONE,), (GONE._replace(path="/moved"),)], ids=str)
def test_a_checkout_that_is_neither_listed_nor_there_is_gone(assignment, rest):
    assert kept_by(assignment, of(PRIMARY, *rest)) is None


@pytest.mark.requirement("H-assign-12", "H-assign-13")
@pytest.mark.parametrize("assignment", [PLACED, UNPLACED])
@pytest.mark.parametrize(
    ("inventory", "said"),
    [
        (Partial("git took too long"), "not complete: git took too long"),
        (of(PRIMARY, key="/home/me/other/.git"), "another repository, /home/me/other/.git"),
        (of(), "primary"),
        (of(GONE), "primary"),
        (of(PRIMARY._replace(present=False)), "primary"),
        (of(PRIMARY, PRIMARY._replace(path="/second")), "primary"),
        (of(PRIMARY, GONE, GONE), "twice"),
        (of(PRIMARY, OURS), CHECKOUT),
        (of(PRIMARY, OURS._replace(prunable=True)), CHECKOUT),
        (of(PRIMARY, OURS._replace(present=False)), CHECKOUT),
        (of(PRIMARY, GONE._replace(locked=True)), CHECKOUT),
        (of(PRIMARY, OURS._replace(branch=None)), CHECKOUT),
        (of(PRIMARY, OURS._replace(branch="main2")), CHECKOUT),
        (of(PRIMARY, OURS._replace(path="/moved")), "/moved"),
        (of(PRIMARY, GONE, GONE._replace(path="/moved")), "2 worktrees have work"),
        (of(PRIMARY._replace(branch="work")), PRIMARY.path),
    ],
)
def test_whatever_leaves_a_doubt_keeps_it(assignment, inventory, said):
    assert said in (kept_by(assignment, inventory) or "")


def test_another_checkout_keeps_only_an_assignment_that_does_not_say_which_is_its_own():
    assert kept_by(PLACED, of(PRIMARY, ELSEWHERE)) is None
    assert "may be its checkout" in (kept_by(UNPLACED, of(PRIMARY, ELSEWHERE)) or "")
    away = ELSEWHERE._replace(present=False, locked=True)
    assert "may be its checkout" in (kept_by(UNPLACED, of(PRIMARY, away)) or "")
    assert kept_by(UNPLACED, of(PRIMARY, ELSEWHERE._replace(present=False, prunable=True))) is None
