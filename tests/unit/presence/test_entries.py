import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.core.identity import target_of
from herd.core.limits import MOMENT_MS, SHOWN_CHARACTERS
from herd.presence.entries import entries_of, matches
from herd.presence.record import Presence, Record, decode, encode
from tests.fakes.records import LEAD, record_of, session_of

KEYS = {"target", "name", "cwd", "repo", "branch", "workspace_label", "activity", "since"}
SECRET = "do-not-show"
FULL = Presence(
    role="lead",
    socket=f"/run/{SECRET}.sock",
    cwd="/home/me/project",
    name="api-worker",
    repo="herd",
    branch="main",
    workspace_label="left",
    activity="waiting",
    since=1_700_000_000_000,
    pane_id=f"pane-{SECRET}",
    tab_id=f"tab-{SECRET}",
    workspace_id=f"workspace-{SECRET}",
)
labels = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100).filter(str.strip)


def peers_named(*names: str | None) -> list[Record]:
    return [record_of(session_of(number), LEAD._replace(name=name)) for number, name in enumerate(names)]


def names_in(peers: list[Record]) -> list[str | None]:
    return [entry.get("name") for entry in entries_of(peers)]


class TestEntry:
    @pytest.mark.requirement("H-list-06")
    def test_it_has_the_target_and_every_label_that_is_known(self):
        record = record_of(session_of(1), FULL)

        assert entries_of([record]) == [
            {
                "target": target_of("lead", record.key),
                "name": "api-worker",
                "cwd": "/home/me/project",
                "repo": "herd",
                "branch": "main",
                "workspace_label": "left",
                "activity": "waiting",
                "since": "2023-11-14T22:13:20.000Z",
            }
        ]

    @pytest.mark.requirement("H-list-06")
    def test_a_label_that_is_not_known_is_left_out(self):
        record = record_of(session_of(1), Presence("manager", "none"))

        assert entries_of([record]) == [{"target": target_of("manager", record.key)}]

    @pytest.mark.requirement("H-list-06")
    @given(
        st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "cwd", "repo", "branch"), labels)),
        st.none() | st.integers(0, MOMENT_MS),
    )
    def test_it_never_has_another_key_or_a_null(self, given_labels, since):
        record = record_of(session_of(1), Presence("lead", "none", since=since, **given_labels))

        (entry,) = entries_of([record])

        assert set(entry) <= KEYS
        assert None not in entry.values()
        assert "" not in entry.values()

    def test_a_moment_and_an_activity_are_shown_even_where_they_look_like_nothing(self):
        record = record_of(session_of(1), LEAD._replace(since=0, activity="idle"))

        assert entries_of([record])[0]["since"] == "1970-01-01T00:00:00.000Z"

    def test_the_last_moment_that_a_record_may_hold_can_be_shown(self):
        record = record_of(session_of(1), LEAD._replace(since=MOMENT_MS))

        assert decode(encode(record), record.key) == record
        assert entries_of([record])[0]["since"] == "9999-12-31T23:59:59.999Z"

    def test_ids_keys_sockets_and_processes_stay_inside(self):
        record = record_of(session_of(1), FULL, instance_id=f"instance-{SECRET}")
        record = record._replace(
            session=record.session._replace(session_id=f"session-{SECRET}"),
            claim=record.claim._replace(start=SECRET, pid=918_273),
            host_start=SECRET,
            host_pid=918_274,
        )

        shown = json.dumps(entries_of([record]))

        for hidden in (SECRET, record.key, record.public_key, record.endpoint, "918273", "918274"):
            assert hidden not in shown

    @pytest.mark.requirement("A-ident-09")
    @pytest.mark.parametrize("label", ["name", "repo", "branch", "workspace_label", "cwd"])
    @pytest.mark.parametrize(
        ("stored", "shown"),
        [
            ("root](user) \x1b[1m", "root](user) "),
            ("\x1b[31mred\x1b[0m", "red"),
            ("a\x1b]0;owned\x07b", "a\ufffdb"),
            ("a\nb\tc\x7f\x85", "a\ufffdb\ufffdc\ufffd\ufffd"),
            ("\u202eevil", "\ufffdevil"),
        ],
    )
    def test_a_label_is_shown_harmless_and_stays_as_it_came_in_the_record(self, label, stored, shown):
        presence = LEAD._replace(**{label: stored})
        record = record_of(session_of(1), presence)

        assert entries_of([record])[0][label] == shown
        assert record.presence == presence

    @pytest.mark.requirement("A-ident-09")
    @pytest.mark.parametrize("label", ["name", "repo", "branch", "workspace_label"])
    def test_a_label_is_cut_at_80_characters(self, label):
        record = record_of(session_of(1), LEAD._replace(**{label: "ü" * 512}))

        assert SHOWN_CHARACTERS == 80
        assert entries_of([record])[0][label] == "ü" * 79 + "\u2026"

    def test_a_working_directory_is_shown_whole_since_a_part_of_it_names_another(self):
        record = record_of(session_of(1), LEAD._replace(cwd="/" + "x" * 4_095))

        assert entries_of([record])[0]["cwd"] == "/" + "x" * 4_095

    def test_a_label_that_shows_nothing_is_left_out(self):
        record = record_of(session_of(1), LEAD._replace(name="\x1b[1m", repo="\x1b[m"))

        assert set(entries_of([record])[0]) == {"target", "cwd"}


class TestTwins:
    def test_peers_of_one_name_get_the_end_of_their_targets(self):
        peers = peers_named("api-worker", "other", "api-worker")
        ends = [target_of("lead", peer.key)[-4:] for peer in peers]

        assert names_in(peers) == [f"api-worker-{ends[0]}", "other", f"api-worker-{ends[2]}"]

    def test_a_name_that_one_peer_alone_bears_stays_as_it_is(self):
        assert names_in(peers_named("a", "b", "A")) == ["a", "b", "A"]

    def test_those_without_a_name_are_no_twins(self):
        assert names_in(peers_named(None, None)) == [None, None]

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("api\x07", "api\x08"),
            ("api\x1b[1m", "api"),
            ("x" * 100 + "1", "x" * 100 + "2"),
            ("x" * 80, "x" * 80 + "y" * 400),
        ],
    )
    def test_names_that_would_look_alike_are_told_apart_too(self, one, other):
        names = names_in(peers_named(one, other))

        assert len({*names}) == 2
        assert all(name and len(name) <= SHOWN_CHARACTERS for name in names)

    def test_a_peer_that_calls_itself_what_a_twin_is_shown_as_is_told_apart(self):
        end = target_of("lead", session_of(0).key)[-4:]

        names = names_in(peers_named("api", "api", f"api-{end}"))

        assert len({*names}) == 3

    @given(st.lists(st.sampled_from(["a", "b", "a\x07", "a\x08", "x" * 80, "x" * 81]) | labels, max_size=8))
    @example(["x" * 76 + "\u200d", "x" * 76 + "\u200d"])
    def test_no_two_entries_look_alike(self, names):
        shown = [name for name in names_in(peers_named(*names)) if name is not None]

        assert len({*shown}) == len(shown)
        assert all(len(name) <= SHOWN_CHARACTERS for name in shown)


class TestMatches:
    ENTRY = entries_of([record_of(session_of(1), FULL)])[0]

    @pytest.mark.parametrize(
        "query", ["api", "API-worker", "HERD", "project", "left", "main", "waiting", "LEAD:", "k"]
    )
    def test_a_text_in_any_label_or_the_target_is_found_whatever_its_case(self, query):
        assert matches(self.ENTRY, query)

    @pytest.mark.parametrize("query", ["apiworker", "2023", ":00", "none", SECRET, "p1", "api-worker\n"])
    def test_what_stands_in_no_label_is_not_found(self, query):
        assert not matches(self.ENTRY, query)

    @pytest.mark.parametrize(("name", "query"), [("STRASSE Ä", "straße ä"), ("Straße ä", "STRASSE Ä")])
    def test_case_is_folded_beyond_ascii(self, name, query):
        (entry,) = entries_of([record_of(session_of(1), LEAD._replace(name=name))])

        assert matches(entry, query)
