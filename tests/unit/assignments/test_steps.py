"""The named instants of an assignment's life: each one passed at one place, before and after a change."""

import ast

import pytest

from assignments import steps
from assignments.steps import ASSIGNMENT_STEPS
from tests.unit.our_source import modules

NAMES = {name: value for name, value in vars(steps).items() if name.isupper() and name != "ASSIGNMENT_STEPS"}


def test_every_step_stands_once_in_the_list_and_has_both_sides():
    assert sorted(ASSIGNMENT_STEPS) == sorted(NAMES.values())
    before, after = ASSIGNMENT_STEPS[::2], ASSIGNMENT_STEPS[1::2]
    assert [one.removesuffix(".before") for one in before] == [one.removesuffix(".after") for one in after]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_step_is_passed_at_one_place(name: str):
    passed = [
        given.id
        for module in modules()
        if module.path.startswith("assignments/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("step")
        for given in node.args
        if isinstance(given, ast.Name)
    ]
    assert passed.count(name) == 1
