"""A record's exact schema, which every build of one record version reads alike."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from herd.core.errors import InvalidParams
from herd.core.identity import SessionName
from herd.core.limits import MOMENT_MS, RECORD_BYTES, RECORD_VERSION
from herd.core.locks import Owner
from herd.presence.fields import Malformed
from herd.presence.record import CAPABILITIES, Presence, Record, clipped, decode, encode
from herd.presence.scopes import Extent
from tests.fakes.records import LEAD, PUBLIC_KEY, bytes_of, record_of, session_of, shape_of

SESSION = SessionName("pi", "a session", "2026-08-20T10:00:00Z")
FULL = record_of(
    SESSION,
    Presence(
        role="lead",
        socket="/run/herdr.sock",
        cwd="/home/me/proj ect",
        name="api-worker",
        repo="herd",
        branch="main",
        workspace_label="left",
        activity="waiting",
        since=1_700_000_000_000,
        pane_id="p1",
        tab_id="t1",
        workspace_id="w1",
        scope="repository",
        workspace="/home/me/proj ect",
        repository="/home/me/proj ect/.git",
        group="/home/me/proj ect/.git",
    ),
)
LABELS = ("name", "repo", "branch", "workspace_label")
NATIVE = ("pane_id", "tab_id", "workspace_id")
ABSENT = object()

Change = Callable[[dict[str, Any]], object]


def put(path: str, value: Any) -> Change:
    """Give a change of one field of a shape, named by its dotted path; `ABSENT` takes it out."""

    def change(shape: dict[str, Any]) -> None:
        *outer, last = path.split(".")
        for place in outer:
            shape = shape[place]
        if value is ABSENT:
            del shape[last]
        else:
            shape[last] = value

    return change


def changed(*changes: Change, record: Record = FULL) -> bytes:
    shape = copy.deepcopy(shape_of(record))
    for change in changes:
        change(shape)
    return bytes_of(shape)


def is_malformed(*changes: Change) -> bool:
    try:
        decode(changed(*changes), FULL.key)
    except Malformed:
        return True
    return False


class TestSchema:
    @pytest.mark.requirement("A-presence-01")
    def test_a_record_holds_version_instance_and_presence_under_these_names(self):
        written = json.loads(encode(FULL))

        assert written == {
            "version": 3,
            "session": {"host": "pi", "session_id": "a session", "created": "2026-08-20T10:00:00Z"},
            "kind": "ordinary",
            "claim": {"pid": 4_711, "start": "boot:4026531836:99", "id": f"claim-{SESSION.key[:12]}"},
            "host": {"pid": 4_710, "start": "boot:4026531836:98"},
            "instance": {
                "id": f"instance-{SESSION.key[:12]}",
                "protocol": 1,
                "socket": f"/run/instance-{SESSION.key[:12]}.sock",
                "public_key": PUBLIC_KEY,
                "capabilities": ["message.send", "message.receive", "message.wait"],
            },
            "build": {"version": "0.1.0", "sha256": "5" * 64},
            "presence": {
                "role": "lead",
                "socket": "/run/herdr.sock",
                "cwd": "/home/me/proj ect",
                "name": "api-worker",
                "repo": "herd",
                "branch": "main",
                "workspace_label": "left",
                "activity": "waiting",
                "since": 1_700_000_000_000,
                "pane_id": "p1",
                "tab_id": "t1",
                "workspace_id": "w1",
                "scope": "repository",
                "workspace": "/home/me/proj ect",
                "repository": "/home/me/proj ect/.git",
                "group": "/home/me/proj ect/.git",
            },
        }
        assert RECORD_VERSION == 3

    @pytest.mark.requirement("A-presence-01")
    def test_without_a_presence_the_instance_stays_and_its_claim_has_no_id(self):
        written = json.loads(encode(record_of(SESSION, None)))

        assert "presence" not in written
        assert written["claim"] == {"pid": 4_711, "start": "boot:4026531836:99", "id": None}
        assert written["instance"] == shape_of(FULL)["instance"]

    @pytest.mark.parametrize("presence", [FULL.presence, LEAD, Presence("manager", "none"), None])
    def test_what_was_written_is_read_as_it_was(self, presence):
        record = record_of(SESSION, presence, kind="managed")

        assert decode(encode(record), record.key) == record
        assert decode(bytes_of(shape_of(record)), record.key) == record

    @pytest.mark.requirement("H-presence-12")
    @pytest.mark.parametrize(
        "path",
        [
            "version",
            "session",
            "kind",
            "claim",
            "host",
            "instance",
            "build",
            *(f"session.{name}" for name in ("host", "session_id", "created")),
            *(f"claim.{name}" for name in ("pid", "start", "id")),
            *(f"host.{name}" for name in ("pid", "start")),
            *(f"instance.{name}" for name in ("id", "protocol", "socket", "public_key", "capabilities")),
            *(f"build.{name}" for name in ("version", "sha256")),
            *(f"presence.{name}" for name in ("role", "socket", "scope")),
        ],
    )
    def test_every_field_but_the_labels_is_required(self, path):
        with pytest.raises(Malformed, match=path):
            decode(changed(put(path, ABSENT)), FULL.key)

    @pytest.mark.requirement("H-presence-12")
    @pytest.mark.parametrize("place", ["", "session", "claim", "host", "instance", "build", "presence"])
    def test_an_unknown_field_anywhere_makes_it_malformed(self, place):
        path = f"{place}.extra" if place else "extra"

        with pytest.raises(Malformed, match=f"unknown field {path}"):
            decode(changed(put(path, 1)), FULL.key)

    @pytest.mark.requirement("H-presence-12")
    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("version", 0),
            ("version", 2),
            ("version", 4),
            ("version", "1"),
            ("version", True),
            ("kind", "chief"),
            ("session.host", "Pi"),
            ("session.session_id", ""),
            ("session.created", None),
            ("claim.pid", 0),
            ("claim.pid", "4711"),
            ("claim.start", ""),
            ("claim.id", ""),
            ("claim.id", 5),
            ("host.pid", -1),
            ("host.start", None),
            ("instance.id", ""),
            ("instance.id", "x" * 129),
            ("build.sha256", "5" * 63),
            ("build.version", ""),
            ("presence", None),
            ("presence", []),
            ("presence.role", "chief"),
            ("presence.role", "agent"),
            ("presence.socket", ""),
            ("presence.activity", "busy"),
            ("presence.activity", ""),
            ("presence.since", -1),
            ("presence.since", MOMENT_MS + 1),
            ("presence.since", 1.5),
            ("presence.pane_id", ""),
            ("presence.scope", "world"),
            ("presence.scope", None),
            ("presence.workspace", ""),
            ("presence.workspace", "/" * 2_049),
            ("presence.repository", 5),
        ],
    )
    def test_a_value_of_another_type_or_range_makes_it_malformed(self, path, value):
        assert is_malformed(put(path, value))

    @pytest.mark.requirement("H-presence-12")
    def test_a_record_under_another_sessions_name_is_malformed(self):
        with pytest.raises(Malformed, match="another session"):
            decode(encode(FULL), session_of(1).key)

    def test_a_presence_and_a_claim_stand_together_or_not_at_all(self):
        assert is_malformed(put("claim.id", None))
        assert is_malformed(put("presence", ABSENT))
        assert not is_malformed(put("claim.id", None), put("presence", ABSENT))

    @pytest.mark.requirement("H-presence-12")
    def test_a_record_over_8192_bytes_is_malformed_although_all_its_fields_are_right(self):
        fits = changed().ljust(8_192)

        assert decode(fits, FULL.key) == FULL
        with pytest.raises(Malformed, match="8192"):
            decode(fits + b" ", FULL.key)


class TestInstance:
    @pytest.mark.requirement("A-presence-02")
    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("instance.protocol", 0),
            ("instance.protocol", -1),
            ("instance.protocol", "1"),
            ("instance.socket", "/" * 513),
            ("instance.socket", "/run/a\0b.sock"),
            ("instance.socket", ""),
            ("instance.public_key", ""),
            ("instance.public_key", PUBLIC_KEY[:-1]),
            ("instance.public_key", PUBLIC_KEY + "\n"),
            ("instance.public_key", "A" * 59 + "="),
            ("instance.capabilities", [*CAPABILITIES, "message.listen"]),
            ("instance.capabilities", [f"message.{number}" for number in range(17)]),
            ("instance.capabilities", ["message.send"] * 17),
            ("instance.capabilities", "message.send"),
        ],
    )
    def test_one_fault_in_it_makes_the_whole_record_malformed(self, path, value):
        assert is_malformed(put(path, value))

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("instance.protocol", 2),
            ("instance.socket", "/" * 512),
            ("instance.capabilities", []),
            ("instance.capabilities", list(CAPABILITIES)),
            ("host.pid", 0),
            ("host.start", ""),
            ("session.created", SESSION.created),
        ],
    )
    def test_its_fields_may_go_to_their_bounds(self, path, value):
        assert not is_malformed(put(path, value))


class TestLabels:
    @pytest.mark.requirement("H-presence-08")
    def test_a_record_without_any_is_valid(self):
        bare = record_of(SESSION, Presence("lead", "none"))

        assert decode(bytes_of(shape_of(bare)), bare.key) == bare

    @pytest.mark.requirement("H-presence-08")
    @pytest.mark.parametrize("label", LABELS)
    def test_each_has_1_to_512_characters_and_is_not_blank(self, label):
        path = f"presence.{label}"

        for value in ("x", "ü" * 512, " x "):
            assert not is_malformed(put(path, value))
        for wrong in ("", " ", "\t\u3000\n", "x" * 513, None, 5, ["x"], "a\0b", "\ud800"):
            assert is_malformed(put(path, wrong))
        assert not is_malformed(put(path, ABSENT))

    @pytest.mark.requirement("H-presence-28")
    def test_labels_are_left_out_in_turn_until_the_record_fits_and_cwd_is_the_last(self):
        order = ("workspace_label", "branch", "repo", "name", "cwd")
        wide = dict.fromkeys(LABELS, "\x01" * 300)  # six bytes a character
        seen = []
        for width in range(0, 4_000, 50):
            presence = Presence("lead", "none", cwd="/" + "ü" * width, **wide)
            written = decode(encode(FULL._replace(presence=presence)), FULL.key).presence
            assert written is not None
            kept = [label for label in order if getattr(written, label) is not None]
            assert kept == list(order[len(order) - len(kept) :])  # none that comes before one left out
            assert [getattr(written, label) for label in kept] == [getattr(presence, label) for label in kept]
            seen.append(len(kept))
        assert seen == sorted(seen, reverse=True)
        assert set(seen) == {0, 1, 2, 3, 4, 5}

    @pytest.mark.requirement("H-presence-28")
    def test_a_cwd_that_would_burst_the_record_alone_is_left_out_too(self):
        assert FULL.presence is not None
        presence = FULL.presence._replace(cwd="/" + "\U0001f469" * 2_000)

        written = decode(encode(FULL._replace(presence=presence)), FULL.key).presence

        assert written is not None
        assert {getattr(written, label) for label in ("cwd", *LABELS)} == {None}
        assert (written.role, written.socket) == ("lead", "/run/herdr.sock")
        assert [getattr(written, name) for name in NATIVE] == ["p1", "t1", "w1"]

    def test_ids_that_would_burst_the_record_are_left_out_last_and_then_the_session_is_in_fewer_scopes(self):
        place = "/" + "\\" * 2_047
        presence = Presence("lead", "none", cwd="/w", scope="repository", workspace=place, repository=place)

        written = decode(encode(FULL._replace(presence=presence)), FULL.key).presence

        assert written is not None
        assert written.extent == Extent("repository", place, None)
        assert written.cwd is None

    @pytest.mark.requirement("H-presence-28")
    @settings(suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.builds(
            SessionName,
            st.just("pi"),
            st.text("x\x01ü\U0001f469", min_size=1, max_size=512),
            st.text("x\x01ü\U0001f469", max_size=512),
        ),
        st.fixed_dictionaries(
            {}, optional={label: st.text("x\x01ü\U0001f469", max_size=900) for label in ("cwd", *LABELS)}
        ),
    )
    @example(SessionName("pi", "\x01" * 512, "\x01" * 512), {"name": "\U0001f469" * 512, "cwd": "/" * 4_096})
    def test_whatever_the_labels_the_record_fits_and_is_valid(self, session, labels):
        limits = {"cwd": 4_096}
        carried = {name: clipped(value, limits.get(name, 512)) for name, value in labels.items()}
        record = record_of(session, Presence("lead", "none", **carried))

        data = encode(record)

        assert len(data) <= RECORD_BYTES
        assert decode(data, record.key).instance_id == record.instance_id


class TestClipped:
    @pytest.mark.parametrize(
        ("label", "kept"),
        [
            (None, None),
            ("", None),
            (" \t\u3000", None),
            ("api-worker", "api-worker"),
            (" api ", " api "),
            ("x" * 600, "x" * 512),
            (" " * 512 + "x", None),
            ("\x1b[31m", "\x1b[31m"),
            ("a\0b", "a?b"),
            ("\ud800x", "?x"),
        ],
    )
    def test_a_label_is_cut_to_what_a_record_may_carry(self, label, kept):
        assert clipped(label) == kept

    @given(st.none() | st.text(st.characters(exclude_categories=[]), max_size=40), st.integers(1, 600))
    @example("\0", 512)
    def test_whatever_is_kept_makes_a_record_that_readers_accept(self, label, limit):
        record = record_of(SESSION, Presence("lead", "none", name=clipped(label, min(limit, 512))))

        assert decode(encode(record), record.key) == record


class TestEncode:
    @pytest.mark.parametrize(
        ("presence", "named"),
        [
            (Presence("lead", "none", name=""), r"presence\.name"),
            (Presence("lead", "none", repo="x" * 513), r"presence\.repo"),
            (Presence("lead", "none", pane_id="\udcff"), r"surrogate in presence\.pane_id"),
            (Presence("lead", "none", cwd="/a\0b"), r"presence\.cwd"),
            (Presence("chief", "none"), r"presence\.role"),
            (Presence("lead", "none", activity="busy"), r"presence\.activity"),
            (Presence("lead", "/" + "\U0001f469" * 2_100), "bytes"),
        ],
    )
    def test_a_record_that_no_reader_would_accept_is_not_written_and_the_field_is_named(
        self, presence, named
    ):
        with pytest.raises(InvalidParams, match=named):
            encode(record_of(SESSION, presence))

    def test_a_claim_that_does_not_fit_the_presence_is_not_written(self):
        with pytest.raises(InvalidParams, match="claim"):
            encode(FULL._replace(claim=Owner(1, "start", None)))

    def test_it_is_one_line_of_utf_8(self):
        data = encode(record_of(SESSION, Presence("lead", "none", name="ünïcode\n\u2028")))

        assert "ünïcode" in data.decode("utf-8")
        assert data.count(b"\n") == 1
        assert data.endswith(b"}\n")


class TestAnyBytes:
    @given(st.binary(max_size=200))
    def test_no_bytes_do_anything_but_give_a_record_or_be_malformed(self, data):
        with pytest.raises(Malformed):
            decode(data, FULL.key)

    @pytest.mark.requirement("H-presence-14")
    @pytest.mark.parametrize("size", range(0, len(encode(FULL)) - 1, 7))
    def test_a_record_that_is_cut_short_is_malformed(self, size):
        with pytest.raises(Malformed):
            decode(encode(FULL)[:size], FULL.key)

    @given(st.data())
    def test_a_record_with_one_byte_changed_is_read_as_another_one_or_is_malformed(self, data):
        whole = bytearray(encode(FULL))
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))

        try:
            record = decode(bytes(whole), FULL.key)
        except Malformed:
            return
        assert record.session == FULL.session
        assert decode(encode(record), FULL.key) == record
