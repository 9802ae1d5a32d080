"""Every bound has a name, a unit and a line in the reference."""

import ast
import re
from pathlib import Path

import pytest

from herd.core import limits
from tests.unit.our_source import ROOT

UNITS = re.compile(
    r"\b(names|branches|files|pieces|results|bytes|milliseconds|seconds|characters|version|messages|requests|connections|capabilities"
    r"|nonces|frames|depth|peers|transactions|hand-overs|receipts|processes|levels|integer|ancestors|times|number|application_id"
    r"|retry_after_ms|pause|value|wait_ms|objects|moment)\b",
    re.IGNORECASE,
)


def bounds() -> dict[str, str]:
    """Give each name in the module with the docstring under it."""
    tree = ast.parse(Path(limits.__file__).read_text(encoding="utf-8"))
    found = {}
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    for body in bodies:
        for node, below in zip(body, [*body[1:], None], strict=True):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id != "DEFAULT_LIMITS":
                found[target.id] = ast.unparse(below) if isinstance(below, ast.Expr) else ""
    return found


@pytest.mark.requirement("A-limits-23")
@pytest.mark.parametrize(("name", "said"), bounds().items())
def test_a_bound_is_described_with_its_unit_and_listed_in_the_reference(name, said):
    page = (ROOT / "docs/reference/limits.md").read_text(encoding="utf-8")

    assert UNITS.search(said), said
    assert f"`{name}`" in page


def test_the_bounds_are_found():
    assert {"frame_bytes", "RECORD_BYTES", "VISIT_S"} <= bounds().keys()
