"""One table of refusals: what each code carries, and what becomes of it on the wire and back."""

import ast
import copy
import json
import pickle
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.core import errors
from herd.core.errors import (
    BY_CODE,
    EXIT_STATUSES,
    DeliveryUnknown,
    HerdError,
    InvalidRpc,
    PeerOffline,
    QueueFull,
    SessionHeld,
    UnknownTarget,
    from_wire,
)
from herd.core.limits import RETRY_BELIEVED_MS
from tests.unit.our_source import broken, last_name

# Code, JSON-RPC number, and words that its next step has to hold.
THIRTY = [
    ("COMMUNICATION_DISABLED", -32000, "enable herd for every session concerned and restart"),
    ("SCOPE_DENIED", -32000, "scopes of both sessions; a run's delegation; canonical workspace; data root"),
    ("PEER_OFFLINE", -32000, "list; again; current instance on purpose; status of the old message; before"),
    ("TARGET_ENDED", -32000, "list; again; current instance on purpose; status of the old message; before"),
    ("AMBIGUOUS_TARGET", -32000, "exact target, peer id or request id"),
    ("UNKNOWN_TARGET", -32000, "`list_peers`; again"),
    ("INVALID_REPLY", -32000, "received from this very target; original message id"),
    ("QUEUE_FULL", -32000, "present work be read or finished; limits; nothing that was accepted is dropped"),
    ("RATE_LIMITED", -32000, "stays queued; `retry_after_ms`"),
    ("RESOURCE_WAIT_TIMEOUT", -32000, "controller; queue; no process was allowed to start"),
    ("STALE_POLICY", -32000, "resource's status again; current epoch"),
    ("RECOVERY_REQUIRED", -32000, "keep the files; original message or process identity; recover explicitly"),
    ("UNSUPPORTED_PLATFORM", -32000, "keep herd disabled here"),
    ("CAPABILITY_DENIED", -32000, "capability"),
    ("UNSUPPORTED_PROTOCOL", -32000, "update herd"),
    ("AUTHENTICATION_FAILED", -32000, "`list_peers`; again"),
    ("UNSAFE_ENDPOINT", -32000, "0700; 0600"),
    ("PARSE_ERROR", -32700, "utf-8 json"),
    ("INVALID_RPC", -32000, "log"),
    ("FRAME_TOO_LARGE", -32000, "`frame_bytes`"),
    ("METHOD_NOT_FOUND", -32601, "call a method of this version"),
    ("INVALID_PARAMS", -32602, "the named field"),
    ("MESSAGE_TOO_LARGE", -32000, "shorten"),
    ("MESSAGE_ID_CONFLICT", -32000, "first message with this id is untouched"),
    ("DELIVERY_UNKNOWN", -32000, "status; before sending it again"),
    ("AUTOMATIC_REPLY_LIMIT", -32000, "a person starts"),
    ("CONTROLLER_UNAVAILABLE", -32000, "set a controller"),
    ("RESOURCE_BUSY", -32000, "holder"),
    ("REQUEST_ID_CONFLICT", -32000, "new request id"),
    ("RESERVATION_EXPIRED", -32000, "request the resource again"),
]

UNCERTAIN = [
    "UNKNOWN_TARGET",
    "AMBIGUOUS_TARGET",
    "SCOPE_DENIED",
    "CAPABILITY_DENIED",
    "AUTHENTICATION_FAILED",
    "ELIGIBILITY_DENIED",
    "ELIGIBILITY_UNVERIFIED",
]
LIST_AGAIN = "Call `list_peers` (or `herd peers`) again and use a target from that list."

codes = pytest.mark.parametrize("kind", BY_CODE.values(), ids=BY_CODE)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


class TestTable:
    @pytest.mark.requirement("A-errors-01")
    @pytest.mark.parametrize(("code", "number", "words"), THIRTY, ids=[row[0] for row in THIRTY])
    def test_each_of_the_thirty_has_a_class_with_number_status_and_next_step(self, code, number, words):
        kind = BY_CODE[code]

        assert (kind.code, kind.rpc_number) == (code, number)
        assert kind.exit_status in EXIT_STATUSES
        assert kind.exit_status != errors.DONE
        for phrase in words.split("; "):
            assert phrase in kind.hint.lower(), phrase

    @pytest.mark.requirement("A-errors-01")
    def test_there_are_thirty_and_each_class_has_one_code(self):
        assert len({code for code, _, _ in THIRTY}) == 30
        assert len(BY_CODE) == len(HerdError.__subclasses__()) == len({*BY_CODE.values()})

    @pytest.mark.requirement("A-errors-34")
    @codes
    def test_a_code_of_ours_has_the_same_form_as_the_thirty(self, kind):
        assert re.fullmatch(r"[A-Z]+(?:_[A-Z]+)+", kind.code)
        assert kind.code == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).upper()
        assert kind.__bases__ == (HerdError,)
        assert kind.exit_status in EXIT_STATUSES
        assert kind.hint.endswith(".")
        assert kind.__doc__

    def test_no_other_module_makes_a_refusal_of_its_own(self):
        def makes_one(module):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef) and {last_name(base) for base in node.bases} & refusals:
                    yield node

        refusals = {"HerdError", *(kind.__name__ for kind in BY_CODE.values())}
        assert broken(makes_one, lambda path: path == "herd/core/errors.py") == []

    @pytest.mark.requirement("H-target-07")
    @pytest.mark.parametrize("code", UNCERTAIN)
    def test_doubt_about_identity_or_eligibility_advises_in_the_same_words_to_list_again(self, code):
        assert BY_CODE[code].hint.endswith(LIST_AGAIN)

    @pytest.mark.parametrize(
        ("code", "may_pass"),
        [
            ("PEER_OFFLINE", True),
            ("QUEUE_FULL", True),
            ("RATE_LIMITED", True),
            ("DELIVERY_UNKNOWN", True),
            ("RECOVERY_REQUIRED", True),
            ("AUTHENTICATION_FAILED", True),
            ("INVALID_RPC", True),
            ("ELIGIBILITY_UNVERIFIED", True),
            ("ELIGIBILITY_DENIED", False),
            ("SCOPE_DENIED", False),
            ("UNKNOWN_TARGET", False),
            ("INVALID_PARAMS", False),
            ("MESSAGE_TOO_LARGE", False),
            ("MESSAGE_ID_CONFLICT", False),
            ("UNSUPPORTED_PROTOCOL", False),
        ],
    )
    def test_what_may_pass_keeps_a_message_and_what_is_definite_rejects_it(self, code, may_pass):
        assert BY_CODE[code].may_pass is may_pass


class TestRefusal:
    def test_its_text_is_the_message_and_its_next_step_that_of_the_class(self):
        refusal = UnknownTarget("lead:0123456789 was not shown")

        assert str(refusal) == refusal.message == "lead:0123456789 was not shown"
        assert refusal.next_step == UnknownTarget.hint

    def test_a_more_exact_next_step_takes_the_place_of_the_classs(self):
        refusal = UnknownTarget("no", hint="Run `herd inbox`.")

        assert refusal.next_step == "Run `herd inbox`."
        assert UnknownTarget("no").next_step == UnknownTarget.hint

    @pytest.mark.parametrize(
        "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
    )
    @codes
    def test_a_copy_is_the_same_refusal(self, kind, copied):
        refusal = kind("why", hint="what", holder={"pid": 1}, retry_after_ms=5)

        again = copied(refusal)

        assert type(again) is kind
        assert again.to_wire() == refusal.to_wire()
        assert again.to_tool() == refusal.to_tool()
        assert str(again) == "why"

    def test_a_tool_is_shown_code_message_next_step_and_details(self):
        refusal = SessionHeld("process 7 has it", holder={"pid": 7})

        assert refusal.to_tool() == {
            "code": "SESSION_HELD",
            "message": "process 7 has it",
            "hint": SessionHeld.hint,
            "holder": {"pid": 7},
        }

    @pytest.mark.parametrize("name", ["code", "hint"])
    def test_no_detail_takes_the_place_of_the_code_or_the_next_step(self, name):
        refusal = UnknownTarget("no")
        refusal.details = {name: "DONE"}

        assert refusal.to_tool()[name] == getattr(UnknownTarget, name)
        assert refusal.to_wire()["data"][name] == getattr(UnknownTarget, name)


class TestWire:
    @pytest.mark.requirement("A-errors-02")
    @codes
    def test_number_and_code_stand_where_they_belong(self, kind):
        numbers = {"PARSE_ERROR": -32700, "METHOD_NOT_FOUND": -32601, "INVALID_PARAMS": -32602}

        wire = json.loads(json.dumps(kind("why").to_wire()))

        assert wire == {
            "code": numbers.get(kind.code, -32000),
            "message": f"{kind.code}: why",
            "data": {"code": kind.code, "hint": kind.hint},
        }

    @codes
    def test_a_refusal_is_the_same_on_the_other_side(self, kind):
        refusal = kind("why: because", hint="Do this.", retry_after_ms=250)

        read = from_wire(json.loads(json.dumps(refusal.to_wire())), own=True)

        assert type(read) is kind
        assert (read.message, read.next_step, read.details) == (
            "why: because",
            "Do this.",
            {"retry_after_ms": 250},
        )

    @pytest.mark.requirement("A-errors-03")
    @pytest.mark.parametrize("number", [-32000, -32601, -32602, -32700, 7])
    @pytest.mark.parametrize("code", ["LATER_CODE", "", "unknown_target", "HerdError", "UNKNOWN_TARGET "])
    def test_a_code_that_nobody_here_knows_is_read_as_an_internal_fault(self, number, code):
        read = from_wire({"code": number, "message": f"{code}: why", "data": {"code": code}})

        assert type(read) is InvalidRpc
        assert read.code == "INVALID_RPC"
        assert read.message == f"{code}: why".removeprefix("INVALID_RPC: ")

    @pytest.mark.requirement("A-errors-03")
    @pytest.mark.parametrize(
        "error",
        [
            {},
            {"code": -32602},
            {"code": -32601, "message": "Method not found"},
            {"code": -32000, "message": "x", "data": None},
            {"code": -32000, "message": "x", "data": "UNKNOWN_TARGET"},
            {"code": -32000, "message": "x", "data": ["UNKNOWN_TARGET"]},
            {"code": -32000, "message": "x", "data": {"code": ["UNKNOWN_TARGET"]}},
            {"code": -32000, "message": "x", "data": {"code": None}},
            {"code": -32000, "message": None, "data": {"code": {}}},
        ],
    )
    def test_an_error_without_a_code_of_ours_is_an_internal_fault_whatever_its_number(self, error):
        assert type(from_wire(error)) is InvalidRpc

    @given(st.dictionaries(st.sampled_from(["code", "message", "data", "other"]), json_values))
    @example({"message": "\ud800", "data": {"code": "QUEUE_FULL", "hint": 5, "self": 1}})
    @example({"data": {"message": "x", "hint": {}, "details": []}})
    def test_no_error_object_is_too_odd_to_read(self, error):
        read = from_wire(error)

        assert isinstance(read, HerdError)
        assert isinstance(read.message, str)
        assert isinstance(read.next_step, str)

    @given(st.dictionaries(st.text(max_size=20), json_values, max_size=5))
    @example({"holder": {"pid": 1}, "candidates": ["lead:0123456789"], "may_pass": True})
    def test_nothing_of_the_other_side_travels_on_but_text_and_a_pause(self, data):
        read = from_wire({"code": -32000, "message": "m", "data": {**data, "code": "QUEUE_FULL"}})

        assert type(read) is QueueFull
        assert set(read.details) <= {"retry_after_ms"}

    @pytest.mark.parametrize("told", [-1, True, 1.5, "250", None, [250], {}])
    def test_a_pause_that_is_none_is_not_believed(self, told):
        read = from_wire({"data": {"code": "QUEUE_FULL", "retry_after_ms": told}})

        assert read.details == {}

    @pytest.mark.parametrize(
        ("told", "believed"),
        [
            (0, 0),
            (250, 250),
            (RETRY_BELIEVED_MS, RETRY_BELIEVED_MS),
            (RETRY_BELIEVED_MS + 1, RETRY_BELIEVED_MS),
            (10**400, RETRY_BELIEVED_MS),
        ],
    )
    def test_a_pause_is_believed_up_to_a_bound(self, told, believed):
        read = from_wire({"data": {"code": "QUEUE_FULL", "retry_after_ms": told}})

        assert read.details == {"retry_after_ms": believed}

    def test_an_empty_next_step_is_replaced_by_that_of_the_class(self):
        assert from_wire({"data": {"code": "QUEUE_FULL", "hint": ""}}).next_step == QueueFull.hint

    def test_the_advice_of_a_peer_is_not_taken_and_that_of_our_own_coordinator_is(self):
        error = QueueFull("why", hint="Run this for me.").to_wire()

        assert from_wire(error).next_step == QueueFull.hint
        assert from_wire(error, own=True).next_step == "Run this for me."


class TestHints:
    @pytest.mark.requirement("A-errors-06")
    def test_the_hint_of_an_offline_peer_says_what_to_do_and_in_which_order(self):
        hint = PeerOffline.hint

        steps = [
            hint.index(step) for step in ("List the peers again", "current instance on purpose", "status")
        ]
        assert steps == sorted(steps)

    @pytest.mark.requirement("A-errors-28")
    def test_the_hint_of_an_unknown_delivery_asks_for_the_status_before_anything_is_sent_again(self):
        assert "herd status" in DeliveryUnknown.hint
        assert "before sending it again" in DeliveryUnknown.hint

    @pytest.mark.requirement("A-errors-08", "A-errors-11", "A-errors-15", "A-errors-20")
    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("AMBIGUOUS_TARGET", ["exact target", "peer id", "request id"]),
            ("QUEUE_FULL", ["read or finished", "limits", "nothing that was accepted is dropped"]),
            (
                "RECOVERY_REQUIRED",
                ["Keep the files", "verify the original message or process", "recover explicitly"],
            ),
            ("UNSAFE_ENDPOINT", ["yours alone", "no link", "0700", "0600"]),
        ],
    )
    def test_a_hint_says_what_to_do_next(self, code, words):
        assert [word for word in words if word not in BY_CODE[code].hint] == []
