"""Every pair that evidence can show today: only two ordinary Leads are allowed, and nothing is guessed."""

from itertools import product

import pytest

from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, SessionName
from herd.presence.record import Presence
from roles.eligibility import Judge, OrdinaryLeads
from roles.model import Allowed, Denied, Party, Unverified
from tests.fakes.records import record_of, session_of

JUDGE: Judge = OrdinaryLeads()
ROLES = ("lead", "manager", "chief", "agent", None)
KINDS = ("ordinary", "managed", None)
SIDES = list(product(ROLES, KINDS))


def party_of(session: SessionName, presence: Presence, kind: str = "ordinary") -> Party:
    record = record_of(session, presence, kind=kind)
    return Party(record.key, presence.role, record.kind)


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
    one, other = party_of(session_of(1), mine), party_of(session_of(2, "codex"), theirs)

    assert JUDGE.verdict(one, other) == JUDGE.verdict(other, one) == Allowed()


@pytest.mark.requirement("H-eligib-23")
@pytest.mark.parametrize("name", [DEFAULT_TERMINAL, "ops"])
def test_the_terminal_session_may_write_to_any_ordinary_lead(name):
    terminal = Party(SessionName(TERMINAL, name).key, "lead", "ordinary")

    for number, host in enumerate(("claude", "codex", "pi", "opencode", TERMINAL)):
        lead = party_of(session_of(number, host), Presence("lead", "/run/any.sock", cwd=f"/{number}"))
        assert JUDGE.verdict(terminal, lead) == Allowed()


@pytest.mark.parametrize("mine", SIDES)
def test_every_other_pair_is_refused_and_missing_evidence_is_never_taken_for_a_no_or_a_yes(mine):
    for theirs in SIDES:
        verdict = JUDGE.verdict(Party("1" * 64, *mine), Party("2" * 64, *theirs))

        if (mine, theirs) == (("lead", "ordinary"), ("lead", "ordinary")):
            assert isinstance(verdict, Allowed)
        elif None not in (*mine, *theirs):
            assert isinstance(verdict, Denied)
        elif {mine, theirs} <= {("lead", "ordinary"), (None, None), ("lead", None), (None, "ordinary")}:
            assert isinstance(verdict, Unverified)  # what is known of it allows it
        else:
            assert not isinstance(verdict, Allowed)


@pytest.mark.parametrize("side", ["sender", "target"])
def test_a_refusal_names_the_side_and_the_reason(side):
    good = Party("1" * 64, "lead", "ordinary")
    managed, unknown = Party("2" * 64, "lead", "managed"), Party("2" * 64, "lead", None)

    for bad, words in ((managed, "managed lead"), (unknown, "not proven")):
        verdict = JUDGE.verdict(bad, good) if side == "sender" else JUDGE.verdict(good, bad)
        assert isinstance(verdict, Denied | Unverified)
        assert side in verdict.reason
        assert words in verdict.reason


@pytest.mark.parametrize(("role", "kind"), SIDES)
def test_a_session_never_writes_to_itself(role, kind):
    me = Party("1" * 64, role, kind)

    assert isinstance(JUDGE.verdict(me, me), Denied)
    assert isinstance(JUDGE.verdict(Party("1" * 64, "lead", "ordinary"), me), Denied)
