"""Every pair that evidence can show, beside a table written by hand: allowed, denied, or not known."""

import re
from itertools import product

import pytest

from assignments.evidence import NOTHING_ASSIGNED, Held, Lacking, Scan
from assignments.worktrees.groups import Grouped, Ungrouped, Unproven
from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, SessionName
from herd.presence.record import Presence
from herd.presence.scopes import Extent
from roles.eligibility import Judge, Leads, verdict
from roles.evidence import party_on_record
from roles.model import Allowed, Denied, Folder, Party, Unverified
from tests.fakes.records import record_of, session_of

JUDGE: Judge = Leads()
SENDER, TARGET = "1" * 64, "2" * 64
HERE, ELSEWHERE = "/run/herdr.sock", "/run/other.sock"
SHOP, BLOG = "/src/shop/.git", "/src/blog/.git"
BROKEN = Lacking("is no JSON", "/state/assignments/a/b/c.json")

HELDS = {
    "nothing": (),
    "shop here": (Held(HERE, SHOP, "fix"),),
    "shop elsewhere": (Held(ELSEWHERE, SHOP, "fix"),),
    "blog here": (Held(HERE, BLOG, "fix"),),
    "two": (Held(HERE, SHOP, "fix"), Held(HERE, SHOP, "more")),
}
MEMBERSHIPS = {
    "shop": Grouped(SHOP),
    "blog": Grouped(BLOG),
    "none": Ungrouped("it is no checkout"),
    "hanging": Unproven("git gave no answer"),
    "unasked": None,
}
STATES = [
    *((kind, held, False) for kind in ("ordinary", "managed", None) for held in HELDS),
    *((kind, held, True) for kind, held in (("ordinary", "nothing"), ("ordinary", "two"), (None, "nothing"))),
]
"""Kind, assignments, and whether it is a terminal session, which is ordinary or unknown."""

# What each of two sessions is, in one word, and what follows for the pair. `?` is `Unverified`, whatever else
# is known; `by place` is told by the next table.
WORDS = ("terminal", "free", "bound", "loose", "?")
PAIRS = {
    "terminal": {"terminal": "yes", "free": "yes", "bound": "yes", "loose": "yes"},
    "free": {"terminal": "yes", "free": "yes", "bound": "by place", "loose": "no"},
    "bound": {"terminal": "reply", "free": "by place", "bound": "by place", "loose": "no"},
    "loose": {"terminal": "reply", "free": "no", "bound": "no", "loose": "no"},
}
# By the worktree groups of sender and target, both on one socket and with assignments of just that group.
PLACES = {
    ("shop", "shop"): "yes",
    ("shop", "blog"): "no",
    ("shop", "none"): "no",
    ("none", "shop"): "no",
    ("none", "blog"): "no",
    ("none", "none"): "no",
}


def word_of(kind: str | None, held: str, terminal: bool) -> str:
    if kind is None or held == "two":
        return "?"
    if terminal:
        return "terminal"
    return {("ordinary", True): "free", ("managed", True): "loose"}.get((kind, held == "nothing"), "bound")


def by_table(mine, my_socket, my_group, theirs, their_socket, their_group, *, reply: bool) -> str:
    words = word_of(*mine), word_of(*theirs)
    if "?" in words:
        return "unknown"
    found = PAIRS[words[0]][words[1]]
    if found == "reply":
        return "yes" if reply else "no"
    if found != "by place":
        return found
    return by_place({mine[1], theirs[1]}, my_socket, my_group, their_socket, their_group)


def by_place(holding: set[str], my_socket, my_group, their_socket, their_group) -> str:
    if None in {my_socket, their_socket}:
        return "unknown"
    if my_socket != their_socket or (my_socket == HERE and "shop elsewhere" in holding):
        return "no"
    if {my_group, their_group} & {"hanging", "unasked"}:
        return "unknown"
    return "no" if "blog here" in holding else PLACES[my_group, their_group]


NAMES = {Allowed: "yes", Denied: "no", Unverified: "unknown"}


def party(key: str, state, socket: str | None, group: str) -> Party:
    kind, _, terminal = state
    return Party(key, "lead", kind, socket=socket, membership=MEMBERSHIPS[group], terminal=terminal)


@pytest.mark.requirement("H-eligib-03", "H-eligib-04", "H-eligib-05", "H-eligib-11", "H-eligib-17")
@pytest.mark.requirement("H-assign-08", "H-kinds-05", "H-presence-26")
@pytest.mark.parametrize("mine", STATES)
def test_every_pair_of_leads_is_judged_as_the_table_says(mine):
    places = product((HERE, None), ("shop", "none", "hanging", "unasked"))
    sides = [(place, party(SENDER, mine, *place)) for place in places]
    others = list(product(STATES, (HERE, ELSEWHERE, None), MEMBERSHIPS))
    for theirs, their_socket, their_group in others:
        target = party(TARGET, theirs, their_socket, their_group)
        held = {SENDER: HELDS[mine[1]], TARGET: HELDS[theirs[1]]}
        scan = Scan({key: some for key, some in held.items() if some})
        for (place, sender), reply in product(sides, (False, True)):
            found = verdict(sender, target, scan, reply=reply)
            wanted = by_table(mine, *place, theirs, their_socket, their_group, reply=reply)
            assert NAMES[type(found)] == wanted, (mine, place, theirs, their_socket, their_group, reply)


@pytest.mark.requirement("H-presence-26")
@pytest.mark.parametrize("mine", STATES)
def test_no_scan_that_lacks_something_allows_or_denies_anything_between_leads(mine):
    for theirs, socket, group in product(STATES, (HERE, ELSEWHERE, None), MEMBERSHIPS):
        sender, target = party(SENDER, mine, HERE, "shop"), party(TARGET, theirs, socket, group)
        held = {SENDER: HELDS[mine[1]], TARGET: HELDS[theirs[1]]}
        for some in ({}, held):
            found = verdict(sender, target, Scan(some, BROKEN), reply=True)
            assert isinstance(found, Unverified), (mine, theirs)


@pytest.mark.parametrize("role", ["manager", "chief", "agent"])
def test_whoever_is_no_lead_is_denied_whatever_else_is_known(role):
    for kind, held, socket, scan in product(
        ("ordinary", "managed", None), HELDS.values(), (HERE, None), (NOTHING_ASSIGNED, Scan({}, BROKEN))
    ):
        other = Party(TARGET, role, kind, socket=socket)
        for lead in (Party(SENDER, "lead", "ordinary"), Party(SENDER, None, None)):
            assert isinstance(verdict(lead, other, scan._replace(held={TARGET: held})), Denied)
            assert isinstance(verdict(other, lead, scan), Denied)


def test_a_role_that_is_not_proven_is_taken_for_none():
    for role, kind in ((None, "ordinary"), (None, None), ("lead", None)):
        one, other = Party(SENDER, role, kind), Party(TARGET, "lead", "ordinary")
        for pair in ((one, other), (other, one)):
            assert isinstance(verdict(*pair, NOTHING_ASSIGNED, reply=True), Unverified)


@pytest.mark.requirement("H-eligib-01")
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (Presence("lead", "none"), Presence("lead", "none")),
        (Presence("lead", "/run/one.sock"), Presence("lead", "/run/two.sock")),
        (Presence("lead", "none"), Presence("lead", "/run/herdr.sock", workspace_id="w1")),
        (Presence("lead", "none", cwd="/a", repo="a"), Presence("lead", "none", cwd="/b", repo="b")),
        (Presence("lead", "none", cwd="/a", repo="a"), Presence("lead", "none", cwd="/a", repo="a")),
    ],
)
def test_two_ordinary_leads_are_allowed_whatever_their_sockets_repositories_and_folders(mine, theirs):
    one, other = record_of(session_of(1), mine), record_of(session_of(2, "codex"), theirs)

    for me, peer in ((one, other), (other, one)):
        socket = me.presence.socket if me.presence else None
        parties = party_on_record(me, socket), party_on_record(peer, socket)
        assert JUDGE.verdict(*parties, NOTHING_ASSIGNED) == Allowed()


@pytest.mark.requirement("H-eligib-23", "H-eligib-24")
@pytest.mark.parametrize("name", [DEFAULT_TERMINAL, "ops"])
def test_the_terminal_session_may_write_to_any_lead_and_is_answered_by_it(name):
    key = SessionName(TERMINAL, name).key
    terminal = Party(key, "lead", "ordinary", socket="none", terminal=True)

    for number, host in enumerate(("claude", "codex", "pi", "opencode", TERMINAL)):
        for kind, held in product(("ordinary", "managed"), HELDS):
            record = record_of(session_of(number, host), Presence("lead", HERE, cwd=f"/{number}"), kind=kind)
            lead, scan = party_on_record(record, "none"), Scan({record.key: HELDS[held]})
            if held == "two":
                continue  # of that one nothing is certain
            assert JUDGE.verdict(terminal, lead, scan) == Allowed()
            assert JUDGE.verdict(lead, terminal, scan, reply=True) == Allowed()


@pytest.mark.requirement("H-eligib-12", "H-eligib-13")
@pytest.mark.parametrize(
    ("kind", "held", "group"), list(product(("ordinary", "managed"), HELDS, MEMBERSHIPS))
)
def test_no_label_no_place_and_no_knowledge_of_ids_changes_a_verdict(kind, held, group):
    # A party has no field for names, branches or texts: what is left is where it works and how far it sees.
    plain = party(TARGET, (kind, held, False), HERE, group)
    scan = Scan({TARGET: HELDS[held]} if HELDS[held] else {})
    me = party(SENDER, ("ordinary", "nothing", False), HERE, "shop")
    known = verdict(me, plain, scan)

    assert set(Party._fields) == {
        *("key", "role", "kind", "extent", "socket", "membership", "terminal", "fault", "folder")
    }
    for folder, extent in product(
        (Folder("/src/shop", "w1"), Folder("/x")), (Extent("workspace", "/src/shop", SHOP), Extent())
    ):
        assert verdict(me, plain._replace(folder=folder, extent=extent), scan) == known
        assert verdict(me._replace(folder=folder, extent=extent), plain, scan) == known


@pytest.mark.parametrize("side", ["sender", "recipient"])
def test_a_refusal_names_the_side_and_the_proof_that_is_lacking(side):
    good = Party(SENDER, "lead", "ordinary", socket=HERE, membership=Grouped(SHOP))
    managed = Party(TARGET, "lead", "managed", socket=HERE, membership=Grouped(SHOP))
    unread = Party(TARGET, None, None, fault="/state/sessions/x/session.json is cut off")
    one, two = Scan({TARGET: HELDS["shop here"]}), Scan({TARGET: HELDS["two"]})
    for bad, scan, words in (
        (managed, NOTHING_ASSIGNED, "a managed Lead, and no assignment names it"),
        (unread, NOTHING_ASSIGNED, "kind and role are not proven: /state/sessions/x/session.json is cut off"),
        (managed, two, f"several assignments name .*: fix of {SHOP}, more of {SHOP}"),
        (managed._replace(socket=None), one, "Herdr socket is not proven"),
        (managed._replace(membership=Unproven("git gave no answer")), one, "group .*: git gave no answer"),
        (managed._replace(membership=None), one, "worktree group is not proven"),
        (managed._replace(membership=Ungrouped("no checkout")), one, "in no worktree group: no checkout"),
    ):
        found = verdict(bad, good, scan) if side == "sender" else verdict(good, bad, scan)
        assert isinstance(found, Denied | Unverified)
        assert re.search(words, found.reason), found.reason
        assert side in found.reason


def test_a_scan_that_lacks_something_names_the_file():
    one, other = Party(SENDER, "lead", "ordinary"), Party(TARGET, "lead", "ordinary")

    found = verdict(one, other, Scan({}, BROKEN))

    assert isinstance(found, Unverified)
    assert BROKEN.path in found.reason
    assert BROKEN.reason in found.reason
    assert not found.of_group


@pytest.mark.parametrize(
    ("role", "kind"), list(product(("lead", "manager", "chief", "agent", None), (None, "managed")))
)
def test_a_session_never_writes_to_itself(role, kind):
    me = Party(SENDER, role, kind)

    assert isinstance(verdict(me, me, NOTHING_ASSIGNED), Denied)
    assert isinstance(verdict(Party(SENDER, "lead", "ordinary"), me, NOTHING_ASSIGNED, reply=True), Denied)
