"""The table of verdicts on the page about authority: each line is asked of the judge."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from assignments.evidence import Held, Scan
from assignments.worktrees.groups import Grouped, Membership, Ungrouped, Unproven
from roles.eligibility import verdict
from roles.model import Party

PAGE = Path(__file__).parents[3] / "docs/explanation/authority.md"
SENDER, TARGET = "1" * 64, "2" * 64
HERE, SHOP = "/run/herdr.sock", "/src/shop/.git"


class Side(NamedTuple):
    kind: str | None
    branches: tuple[str, ...] = ()
    repo: str = SHOP
    terminal: bool = False
    reply: bool = False


SIDES = {
    "ordinary": Side("ordinary"),
    "assigned": Side("managed", ("fix",)),
    "assigned, answering": Side("managed", ("fix",), reply=True),
    "assigned elsewhere": Side("managed", ("fix",), "/src/blog/.git"),
    "assigned twice": Side("managed", ("fix", "more")),
    "managed, without assignment": Side("managed"),
    "terminal": Side("ordinary", terminal=True),
    "kind not readable": Side(None),
}
PLACES: dict[str, list[tuple[str, Membership]]] = {
    "one group, one socket": [(HERE, Grouped(SHOP))],
    "another group": [(HERE, Grouped("/src/blog/.git"))],
    "another socket": [("/run/other.sock", Grouped(SHOP)), ("none", Grouped(SHOP))],
    "no group": [(HERE, Ungrouped("it is no checkout"))],
    "no answer about the group": [(HERE, Unproven("git gave no answer"))],
}
PLACES["anywhere on this machine"] = [place for places in PLACES.values() for place in places]


def lines() -> list[tuple[str, ...]]:
    table = PAGE.read_text(encoding="utf-8").split("## Who may write to whom")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (allowed|denied|unverified) \|$", table, re.MULTILINE)
    assert len(rows) >= 20
    return rows


def party(key: str, side: Side, socket: str, membership: Membership) -> Party:
    return Party(key, "lead", side.kind, socket=socket, membership=membership, terminal=side.terminal)


@pytest.mark.parametrize(("sender", "target", "place", "said"), lines())
def test_the_page_says_of_each_pair_what_the_judge_does(sender, target, place, said):
    one, other = SIDES[sender], SIDES[target]
    held = {
        key: tuple(Held(HERE, side.repo, branch) for branch in side.branches)
        for key, side in ((SENDER, one), (TARGET, other))
        if side.branches
    }
    for theirs in PLACES[place]:
        sides = party(SENDER, one, HERE, Grouped(SHOP)), party(TARGET, other, *theirs)
        assert type(verdict(*sides, Scan(held), reply=one.reply)).__name__.lower() == said
