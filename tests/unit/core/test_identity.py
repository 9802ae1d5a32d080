"""Identity is computed: the same values on every machine, and nothing two sessions could share."""

import base64
import hashlib
import json
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from herd.core.errors import InvalidParams
from herd.core.identity import (
    SessionName,
    checked_session,
    derived_message_id,
    generated_name,
    is_peer_id,
    is_session_key,
    is_target,
    length_prefixed,
    peer_id_of,
    session_key,
    target_of,
)

KEY = session_key(SessionName("claude", "a-session"))
ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
STANDARD = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
any_text = st.text(st.characters(exclude_categories=[]), max_size=20)
hosts = st.from_regex(r"[a-z][a-z0-9_-]{0,10}", fullmatch=True)
sessions = st.builds(SessionName, hosts, texts, texts)


def prefixed(*fields: str) -> bytes:
    """The length-prefixed fields, made another way than in the source."""
    joined = bytearray()
    for field in fields:
        joined += bytes.fromhex(f"{len(field.encode()):08x}") + field.encode()
    return bytes(joined)


class TestSessionKey:
    @pytest.mark.requirement("A-ident-11")
    @pytest.mark.parametrize(
        ("host", "session_id", "created"),
        [
            ("claude", "7d1c", ""),
            ("codex", "7d1c", ""),
            ("pi", "7d1c", "2026-08-20T10:00:00Z"),
            ("opencode", "ü" * 512, ""),
        ],
    )
    def test_it_is_the_sha_256_of_host_id_and_creation_time_each_behind_its_length(
        self, host, session_id, created
    ):
        expected = hashlib.sha256(prefixed(host, session_id, created)).hexdigest()

        assert SessionName(host, session_id, created).key == expected
        assert is_session_key(expected)

    @pytest.mark.requirement("A-ident-11")
    def test_one_id_under_two_hosts_or_of_two_times_names_several_sessions(self):
        names = [
            ("claude", "x", ""),
            ("codex", "x", ""),
            ("pi", "x", "1"),
            ("pi", "x", "2"),
            ("pi", "x1", ""),
        ]

        assert len({SessionName(*name).key for name in names}) == len(names)

    @given(sessions, sessions)
    @example(SessionName("pi", "ab", "c"), SessionName("pi", "a", "bc"))
    @example(SessionName("pi", "", "\0\0\0\1a"), SessionName("pi", "\0\0\0\1a", ""))
    def test_two_sessions_never_have_one_key(self, one, other):
        assume(one != other)

        assert one.key != other.key

    def test_fields_are_joined_behind_four_bytes_of_length_that_count_bytes(self):
        assert length_prefixed() == b""
        assert length_prefixed("", "ü") == b"\0\0\0\0" + b"\0\0\0\2\xc3\xbc"

    @given(st.lists(texts, max_size=4), st.lists(texts, max_size=4))
    @example(["a", ""], ["", "a"])
    def test_joined_fields_come_apart_in_one_way_only(self, one, other):
        assert (length_prefixed(*one) == length_prefixed(*other)) == (one == other)

    @pytest.mark.parametrize(
        "text", ["", "0" * 63, "0" * 65, "0" * 63 + "g", "0" * 63 + "A", "0" * 64 + "\n", "\u0660" * 64]
    )
    def test_nothing_else_passes_for_a_key(self, text):
        assert not is_session_key(text)


class TestCheckedSession:
    @pytest.mark.parametrize(
        ("host", "session_id", "created"),
        [
            ("claude", "x", ""),
            ("a", "x" * 512, "x" * 512),
            ("a" * 64, " ", ""),
            ("my-host_2", "ünïcode \U0001f469 \t\n", "2026"),
            ("terminal", "default", ""),
        ],
    )
    def test_a_name_within_its_bounds_stays_as_it_came(self, host, session_id, created):
        assert checked_session(host, session_id, created) == SessionName(host, session_id, created)

    @pytest.mark.parametrize(
        ("host", "session_id", "created", "named"),
        [
            ("", "x", "", "host"),
            ("Claude", "x", "", "host"),
            ("1a", "x", "", "host"),
            ("-a", "x", "", "host"),
            ("a b", "x", "", "host"),
            ("a\n", "x", "", "host"),
            ("a/b", "x", "", "host"),
            ("à", "x", "", "host"),
            ("a" * 65, "x", "", "host"),
            ("claude", "", "", "session_id"),
            ("claude", "x" * 513, "", "session_id"),
            ("claude", "x", "x" * 513, "created"),
            ("claude", "\ud800", "", "session_id"),
            ("claude", "x", "\udfff", "created"),
            ("claude", "a\0b", "", "session_id"),
            ("claude", "x", "\0", "created"),
        ],
    )
    def test_a_name_outside_them_is_refused_by_the_field(self, host, session_id, created, named):
        with pytest.raises(InvalidParams, match=named) as refused:
            checked_session(host, session_id, created)
        assert len(refused.value.message) < 200

    @given(any_text, any_text, any_text)
    @example("pi", "\ud83d\udc69", "")
    def test_what_passes_has_a_key_and_is_text_that_a_file_can_hold(self, host, session_id, created):
        try:
            session = checked_session(host, session_id, created)
        except InvalidParams:
            return

        assert is_session_key(session.key)
        assert json.loads(json.dumps(session).encode()) == [host, session_id, created]


class TestTarget:
    @pytest.mark.requirement("H-target-02")
    @given(st.sampled_from(["lead", "manager"]), sessions)
    def test_it_is_the_role_and_the_first_50_bits_of_the_digest_in_crockford_base32(self, role, session):
        digest = hashlib.sha256(prefixed("herd.target.v1", role, session.key)).digest()
        # The standard alphabet orders its 32 digits by the same five bits.
        standard = base64.b32encode(digest).decode()[:10]

        assert target_of(role, session.key) == f"{role}:" + standard.translate(
            str.maketrans(STANDARD, CROCKFORD)
        )

    @pytest.mark.requirement("H-target-01")
    @given(st.sampled_from(["lead", "manager"]), sessions)
    def test_a_computed_target_has_the_form_of_one(self, role, session):
        target = target_of(role, session.key)

        assert is_target(target)
        name, _, handle = target.partition(":")
        assert name == role
        assert len(handle) == 10
        assert set(handle) <= set(CROCKFORD)

    @pytest.mark.requirement("H-target-01")
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "lead",
            "lead:",
            "0123456789",
            ":0123456789",
            "chief:0123456789",
            "agent:0123456789",
            "Lead:0123456789",
            "lead :0123456789",
            "lead:012345678",
            "lead:01234567890",
            "lead:0123456789\n",
            " lead:0123456789",
            "lead:0123456789 ",
            "lead:012345678A",
            *(f"lead:012345678{letter}" for letter in "ilou"),
            "lead:012345678-",
            "lead:01234-6789",
            "lead:" + "\u0660" * 10,
            "lead:012345678\0",
            "manager:lead:0123456789",
            KEY,
            "peer-" + "0" * 32,
        ],
    )
    def test_every_other_form_is_none(self, text):
        assert not is_target(text)

    @given(any_text | st.from_regex(r"(lead|manager|chief):?[0-9a-z]{8,12}", fullmatch=True))
    def test_whatever_passes_is_a_role_and_ten_digits_of_that_alphabet(self, text):
        role, _, handle = text.partition(":")

        assert is_target(text) == (
            role in {"lead", "manager"} and len(handle) == 10 and set(handle) <= set(CROCKFORD)
        )

    def test_role_and_session_each_change_it(self):
        other = session_key(SessionName("claude", "another"))

        assert len({target_of(role, key) for role in ("lead", "manager") for key in (KEY, other)}) == 4


class TestPeerId:
    @pytest.mark.requirement("A-ident-04")
    @pytest.mark.parametrize(
        ("instance_id", "run_id", "expected"),
        [
            ("client-instance", None, "peer-f7a4a6ce40469feb5c507ac1a865415e"),
            ("client-instance", "run-1", "peer-d2a3b49cfe7672c2533590e84c55e005"),
        ],
    )
    def test_the_known_ones_come_out(self, instance_id, run_id, expected):
        assert peer_id_of(instance_id, run_id) == expected

    @pytest.mark.requirement("A-ident-04")
    @given(texts, st.none() | texts)
    @example("ü", "\U0001f469")
    @example('"\\', "\x7f\u2028")
    def test_it_is_computed_over_compact_json_in_utf_8_without_escapes_of_letters(self, instance_id, run_id):
        items = [json.dumps(item, ensure_ascii=False) for item in (instance_id, run_id)]
        digest = hashlib.sha256(f"[{items[0]},{items[1]}]".encode()).hexdigest()

        assert peer_id_of(instance_id, run_id) == "peer-" + digest[:32]
        assert is_peer_id(peer_id_of(instance_id, run_id))

    def test_no_run_and_a_run_with_a_telling_name_differ(self):
        names = [None, "", "null", "None"]

        assert len({peer_id_of("instance", name) for name in names}) == len(names)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "peer-",
            "0" * 32,
            "peer-" + "0" * 31,
            "peer-" + "0" * 33,
            "peer-" + "A" * 32,
            "Peer-" + "0" * 32,
            "peer-" + "0" * 32 + "\n",
            "peer-" + "\u0660" * 32,
            "lead:0123456789",
        ],
    )
    def test_every_other_form_is_none(self, text):
        assert not is_peer_id(text)


class TestGeneratedName:
    @pytest.mark.requirement("A-ident-08")
    @pytest.mark.parametrize(
        ("project", "begins"),
        [
            ("herd", "herd-"),
            ("My Project", "my-project-"),
            ("a/b\\c", "a-b-c-"),
            ("--x--", "x-"),
            ("2048", "agent-2048-"),
            ("p" * 100, "p" * 40 + "-"),
            ("1" * 100, "agent-" + "1" * 40 + "-"),
            ("x" * 39 + "-yz", "x" * 39 + "-"),
            ("naïve", "na-ve-"),
            ("", "agent-local-"),
            ("世界", "agent-local-"),
            ("\x1b]0;owned\x07", "agent-0-owned-"),
        ],
    )
    def test_it_begins_with_the_project(self, project, begins):
        name = generated_name(project, KEY)

        assert name == begins + KEY[:6]

    @pytest.mark.requirement("A-ident-08")
    @given(any_text | st.text("aZ09-_. /", max_size=80), sessions)
    @example("İ" * 60, SessionName("pi", "x"))
    @example("-" * 50, SessionName("pi", "x"))
    def test_it_fits_the_pattern_of_an_alias_whatever_the_project(self, project, session):
        name = generated_name(project, session.key)

        assert ALIAS.fullmatch(name)
        assert len(name) <= len("agent-") + 40 + len("-") + 6

    @pytest.mark.requirement("A-ident-08")
    def test_sessions_of_one_project_get_names_of_their_own_that_stay(self):
        keys = [SessionName("claude", str(number)).key for number in range(50)]
        names = [generated_name("herd", key) for key in keys]

        assert len(set(names)) == len(names)
        assert names == [generated_name("herd", key) for key in keys]


class TestDerivedMessageId:
    def test_one_call_has_one_id_and_every_other_call_another(self):
        other = session_key(SessionName("claude", "another"))
        calls = [(KEY, "1"), (KEY, "2"), (other, "1"), (KEY, ""), (KEY, "1 ")]

        ids = [derived_message_id(*call) for call in calls]

        assert ids == [derived_message_id(*call) for call in calls]
        assert len(set(ids)) == len(calls)
        assert all(re.fullmatch(r"call-[0-9a-f]{64}", ident) for ident in ids)

    def test_it_is_bound_to_its_purpose(self):
        expected = hashlib.sha256(prefixed("herd.call.v1", KEY, "tool-use-7")).hexdigest()

        assert derived_message_id(KEY, "tool-use-7") == f"call-{expected}"
