"""The named instants at which a process may die: each one named once, and each one really passed."""

import ast

import pytest

from herd.mail import steps
from herd.mail.steps import STEPS, no_step
from tests.unit.our_source import modules

NAMES = {name: value for name, value in vars(steps).items() if name.isupper() and name != "STEPS"}


def called() -> dict[str, int]:
    """Count where our code passes each step, by the name of its constant."""
    found: dict[str, int] = {}
    for module in modules():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("step"):
                continue
            for given in node.args:
                if isinstance(given, ast.Name) and given.id in NAMES:
                    found[given.id] = found.get(given.id, 0) + 1
    return found


def test_every_step_stands_once_in_the_list_of_all():
    assert sorted(STEPS) == sorted(NAMES.values())
    assert len(set(STEPS)) == len(STEPS)


def test_every_step_has_both_sides():
    sides = {step.rpartition(".")[0]: set() for step in STEPS}
    for step in STEPS:
        sides[step.rpartition(".")[0]].add(step.rpartition(".")[2])

    assert all(both == {"before", "after"} for both in sides.values())
    assert [STEPS.index(step) + 1 for step in STEPS[::2]] == [STEPS.index(step) for step in STEPS[1::2]]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_step_is_passed_at_one_place(name: str):
    # A step that no code passes would let a fault test prove nothing; passed twice, it would name no instant.
    assert called().get(name) == 1


def test_a_step_does_nothing_unless_a_test_says_so():
    assert [no_step(step) for step in STEPS] == [None] * len(STEPS)
