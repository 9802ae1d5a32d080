"""Whom a session can write to, out of those that are listed, and which one of them a name means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignments.evidence import NOTHING_ASSIGNED
from herd.core.errors import AmbiguousTarget, UnknownTarget
from herd.core.identity import is_target, target_of
from herd.presence.entries import entries_of
from herd.presence.record import Presence, Record
from herd.presence.registry import names_of
from roles.discovery import eligible, named
from roles.eligibility import verdict
from roles.model import Allowed, Denied, Party, Unverified, Verdict
from tests.fakes.records import LEAD, record_of, session_of

ME = record_of(session_of(0))
MY_PARTY = Party(ME.key, "lead", "ordinary")


class Nothing:
    """Judges as the real one does where nothing is assigned."""

    def verdict(self, sender: Party, target: Party) -> Verdict:
        return verdict(sender, target, NOTHING_ASSIGNED)


JUDGE = Nothing()


class Says:
    """A judge that gives one verdict, and notes whom it was asked about."""

    def __init__(self, verdict: Verdict) -> None:
        self.asked: list[tuple[Party, Party]] = []
        self._verdict = verdict

    def verdict(self, sender: Party, target: Party) -> Verdict:
        self.asked.append((sender, target))
        return self._verdict


def lead(number: int, name: str | None = None) -> Record:
    return record_of(session_of(number), LEAD._replace(name=name))


class TestEligible:
    def test_others_are_given_in_the_order_of_their_targets_and_the_caller_is_not(self):
        listed = [lead(number) for number in range(9)]

        found = eligible(listed, MY_PARTY, JUDGE)

        assert {record.key for record in found} == {record.key for record in listed} - {ME.key}
        targets = [names_of(record)[0] for record in found]
        assert targets == sorted(targets)
        assert found == eligible(reversed(listed), MY_PARTY, JUDGE)

    def test_a_caller_that_is_not_listed_itself_finds_the_others(self):
        assert eligible([lead(1)], MY_PARTY, JUDGE) == [lead(1)]

    def test_no_judge_makes_the_caller_a_peer_of_itself(self):
        judge = Says(Allowed())

        assert eligible([ME, lead(1)], MY_PARTY, judge) == [lead(1)]
        assert len(judge.asked) == 1

    def test_only_the_callers_role_is_found(self):
        manager = record_of(session_of(1), Presence("manager", "none"))
        me = Party(ME.key, "manager", "ordinary")
        allowing = Says(Allowed())

        assert eligible([manager, lead(2)], MY_PARTY, allowing) == [lead(2)]
        assert eligible([manager, lead(2)], me, allowing) == [manager]

    def test_an_instance_without_a_presence_is_not_found(self):
        assert eligible([record_of(session_of(1), None)], MY_PARTY, Says(Allowed())) == []

    @pytest.mark.parametrize("verdict", [Denied("no"), Unverified("unknown")])
    def test_whoever_is_not_allowed_is_not_found(self, verdict):
        assert eligible([lead(1)], MY_PARTY, Says(verdict)) == []

    def test_the_verdict_is_about_what_the_records_show(self):
        judge = Says(Allowed())
        managed = record_of(session_of(1), kind="managed")

        eligible([managed], MY_PARTY, judge)

        assert judge.asked == [(MY_PARTY, Party(managed.key, "lead", "managed", socket="none"))]
        assert eligible([managed], MY_PARTY, JUDGE) == []


class TestOneTarget:
    """Derived targets do not collide in a test, so these are given."""

    @pytest.fixture
    def listed(self) -> list[Record]:
        return [lead(number) for number in range(1, 5)]

    def target_in(self, listed: list[Record], *shared: int):
        keys = [listed[number].key for number in shared]
        return lambda record: "lead:shared0000" if record.key in keys else names_of(record)[0]

    def test_two_sessions_with_one_target_are_both_left_out(self, listed):
        found = eligible(listed, MY_PARTY, JUDGE, self.target_in(listed, 0, 2))

        assert {record.key for record in found} == {listed[1].key, listed[3].key}

    def test_all_of_more_are_left_out_too(self, listed):
        assert eligible(listed, MY_PARTY, JUDGE, self.target_in(listed, 0, 1, 2, 3)) == []

    def test_a_session_that_may_not_be_written_to_takes_its_twin_along(self, listed):
        listed[0] = listed[0]._replace(kind="managed")

        found = eligible(listed, MY_PARTY, JUDGE, self.target_in(listed, 0, 2))

        assert listed[2].key not in {record.key for record in found}

    def test_so_does_the_caller(self, listed):
        found = eligible([ME, *listed], MY_PARTY, JUDGE, self.target_in([ME, *listed], 0, 1))

        assert {record.key for record in found} == {record.key for record in listed[1:]}

    def test_one_alone_with_a_target_is_found(self, listed):
        assert len(eligible(listed, MY_PARTY, JUDGE, self.target_in(listed, 0))) == 4


class TestNamed:
    def test_a_name_that_one_peer_bears_finds_it(self):
        peers = [lead(1, "api"), lead(2, "web"), lead(3)]

        assert named(peers, "web") == peers[1]

    @pytest.mark.parametrize("name", ["", "we", "WEB", "web ", "none", "lead", "None", "*"])
    def test_nothing_like_a_name_finds_anybody(self, name):
        with pytest.raises(UnknownTarget):
            named([lead(1, "web"), lead(2)], name)

    @pytest.mark.parametrize("value", ["/home/me/project", "herd", "main", "left", "none", "session-1"])
    def test_no_other_label_is_a_name_even_where_it_is_unique(self, value):
        peer = record_of(session_of(1), LEAD._replace(repo="herd", branch="main", workspace_label="left"))

        with pytest.raises(UnknownTarget):
            named([peer], value)

    def test_a_name_that_two_bear_finds_neither_and_tells_both_targets(self):
        peers = [lead(1, "api-worker"), lead(2, "other"), lead(3, "api-worker")]

        with pytest.raises(AmbiguousTarget) as refused:
            named(peers, "api-worker")

        targets = [target_of("lead", peers[number].key) for number in (0, 2)]
        assert refused.value.details == {"candidates": targets}
        assert all(target in refused.value.message for target in targets)
        assert all(is_target(target) for target in targets)

    def test_a_twin_is_found_by_the_name_a_list_shows(self):
        peers = [lead(1, "api"), lead(2, "api")]
        shown = entries_of(peers)[1]["name"]

        assert shown != "api"
        assert named(peers, shown) == peers[1]

    def test_a_peer_that_calls_itself_what_a_twin_was_shown_as_does_not_get_its_mail(self):
        peers = [lead(1, "api"), lead(2, "api")]
        shown = entries_of(peers)[1]["name"]
        peers.append(lead(3, shown))

        with pytest.raises(AmbiguousTarget) as refused:
            named(peers, shown)
        assert refused.value.details["candidates"] == [target_of("lead", peer.key) for peer in peers[1:]]
        for peer, entry in zip(peers, entries_of(peers), strict=True):
            assert named(peers, entry["name"]) == peer

    def test_names_that_look_alike_are_candidates_together(self):
        peers = [lead(1, "api\x07"), lead(2, "api\x08")]

        with pytest.raises(AmbiguousTarget) as refused:
            named(peers, "api\ufffd")
        assert len(refused.value.details["candidates"]) == 2
        assert named(peers, "api\x07") == peers[0]

    def test_a_hostile_name_is_quoted_harmless_in_the_refusal(self):
        with pytest.raises(UnknownTarget) as refused:
            named([], "\x1b]0;owned\x07" + "x" * 500)

        assert refused.value.message.isprintable()
        assert len(refused.value.message) < 200

    @given(st.lists(st.none() | st.sampled_from(["a", "b", "a\x07", " "]), max_size=6), st.data())
    def test_whatever_a_name_finds_bears_it_and_nobody_else_does(self, names, data):
        peers = [lead(number, name) for number, name in enumerate(names)]
        shown = [entry["name"] for entry in entries_of(peers) if "name" in entry]
        asked = data.draw(st.sampled_from([*filter(None, names), *shown, "c"]))

        try:
            found = named(peers, asked)
        except (UnknownTarget, AmbiguousTarget):
            return
        bearers = [peer for peer in peers if peer.presence and peer.presence.name == asked]
        assert bearers in ([found], [])
