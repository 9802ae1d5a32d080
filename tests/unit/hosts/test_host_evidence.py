"""The page that says what proves a delivery in which host, against the hosts that the tests really drive."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "host-evidence.md").read_text(encoding="utf-8")
PINNED = dict(
    re.findall(
        r"^(pi|claude)=\S+@([\d.]+)$", (ROOT / ".ci" / "hosts").read_text(encoding="utf-8"), re.MULTILINE
    )
)
TITLES = {"claude": "Claude Code", "pi": "Pi"}


@pytest.mark.requirement("D-evidence-09")
@pytest.mark.parametrize("host", TITLES)
def test_each_host_has_a_table_of_its_evidence_and_the_version_it_was_proved_with(host: str):
    section = PAGE.partition(f"\n## {TITLES[host]}\n")[2].partition("\n## ")[0]

    assert f"{TITLES[host]} {PINNED[host]}" in section
    assert section.count("**delivered**") >= 1
    assert section.count("\n| ") >= 5
