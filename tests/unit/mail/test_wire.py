"""What crosses the wire about a message: exact shapes, exact bounds, bytes that stay as they are."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from herd.core.errors import HerdError, InvalidParams, MessageTooLarge, UnsupportedProtocol
from herd.core.identity import peer_id_of
from herd.core.limits import ENVELOPE_BYTES
from herd.mail.receipts import Receipt
from herd.mail.wire import (
    Envelope,
    ReceiptShape,
    checked_status,
    content_digest,
    digest_of,
    read_envelope,
    read_receipt,
    receipt_to_wire,
    require_fitting,
)
from tests.fakes.mail import ALICE, BOB, NOW, params, target

EVERY_FIELD: dict[str, Any] = {
    "custodyId": "0d7f6a3e-95a8-4b3a-8a53-4f3f6f9a2f10",
    "topic": "build",
    "replyTo": "m-0",
    "correlationId": "m-0",
    "conversation": {"id": "m-0", "depth": 3},
    "noReplyNeeded": True,
}

RECEIPT: dict[str, Any] = {
    "messageId": "m-1",
    "to": target(BOB),
    "custodyId": "custody-1",
    "state": "replied",
    "cursor": 7,
    "acceptedAt": 1,
    "deliveredAt": 2,
    "repliedAt": 3,
}


def refused(shape: Any) -> HerdError:
    with pytest.raises(HerdError) as caught:
        read_envelope(shape)
    return caught.value


def size_of(shape: dict[str, Any]) -> int:
    return len(json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode())


# --- the envelope ----------------------------------------------------------------------------------


@pytest.mark.requirement("A-methods-02")
def test_an_envelope_with_every_field_is_read_and_written_as_it_came():
    shape = params(**EVERY_FIELD)

    assert read_envelope(shape).to_wire() == shape


def test_an_envelope_with_the_needed_fields_alone_is_read():
    envelope = read_envelope(params())

    assert (envelope.custody_id, envelope.topic, envelope.reply_to) == (None, None, None)
    assert envelope.no_reply_needed is False
    assert envelope.to_wire() == {**params(), "noReplyNeeded": False}


def test_an_exact_peer_id_is_a_recipient_too():
    exact = peer_id_of("instance-1")

    assert read_envelope(params(to=exact)).to == exact


@pytest.mark.requirement("A-methods-02")
@pytest.mark.parametrize("field", list(params()))
def test_a_missing_field_is_named(field: str):
    fault = refused({name: value for name, value in params().items() if name != field})

    assert (fault.code, fault.details["field"]) == ("INVALID_PARAMS", field)
    assert fault.message.startswith(f"{field}: ")


@pytest.mark.requirement("A-methods-02")
@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("priority", {"priority": 1}),
        ("custody_id", {"custody_id": "custody-1"}),
        ("sender", {"sender": {"session": target(ALICE)}}),
        ("role", {"role": "manager"}),
        ("from.name", {"from": {"session": target(ALICE), "name": "root"}}),
        ("from.role", {"from": {"session": target(ALICE), "role": "chief"}}),
        ("conversation.hops", {"conversation": {"id": "m-1", "depth": 0, "hops": 1}}),
    ],
)
def test_an_unknown_field_is_named_wherever_it_stands(field: str, changes: dict[str, Any]):
    fault = refused(params(**changes))

    assert (fault.code, fault.details["field"]) == ("INVALID_PARAMS", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", True),
        ("version", 1.0),
        ("version", "1"),
        ("messageId", 1),
        ("messageId", ""),
        ("messageId", "x" * 129),
        ("messageId", "m_1"),
        ("messageId", "m-1\n"),
        ("messageId", "m\u0660"),
        ("messageId", "../m"),
        ("from", "lead:0123456789"),
        ("from", {}),
        ("to", ""),
        ("to", "pi"),
        ("to", "LEAD:0123456789"),
        ("to", "agent:0123456789"),
        ("to", "lead:0123456789\n"),
        ("to", "peer-0"),
        ("to", ["lead:0123456789"]),
        ("custodyId", ""),
        ("custodyId", "c" * 65),
        ("custodyId", "c\x1b[1m"),
        ("content", ""),
        ("content", b"hello"),
        ("content", ["hello"]),
        ("createdAt", True),
        ("createdAt", 1.0),
        ("createdAt", -1),
        ("createdAt", 2**53),
        ("createdAt", "1800000000000"),
        ("topic", ""),
        ("topic", "t" * 257),
        ("replyTo", "no id"),
        ("correlationId", "x" * 129),
        ("conversation", []),
        ("conversation", {"id": "m-1"}),
        ("conversation", {"id": "m-1", "depth": -1}),
        ("conversation", {"id": "m-1", "depth": 65}),
        ("conversation", {"id": "m-1", "depth": True}),
        ("conversation", {"id": "", "depth": 0}),
        ("noReplyNeeded", 1),
        ("noReplyNeeded", "true"),
    ],
)
def test_a_field_of_another_type_or_out_of_range_is_named(field: str, value: Any):
    fault = refused(params(**{field: value}))

    assert fault.code == "INVALID_PARAMS"
    assert fault.details["field"].partition(".")[0] == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messageId", "x" * 128),
        ("custodyId", "c" * 64),
        ("createdAt", 0),
        ("createdAt", 2**53 - 1),
        ("topic", "\u00fc" * 256),
        ("conversation", {"id": "m-1", "depth": 64}),
    ],
)
def test_a_value_at_its_bound_is_read(field: str, value: Any):
    assert read_envelope(params(**{field: value})).to_wire()[field] == value


@pytest.mark.parametrize("version", [0, 2, -1, 10**30])
def test_another_version_is_told_apart_from_a_fault_even_where_the_rest_is_unknown(version: int):
    with pytest.raises(UnsupportedProtocol):
        read_envelope({"version": version, "whatever": "the future holds"})


@pytest.mark.parametrize("field", ["content", "topic", "messageId", "to", "correlationId", "custodyId"])
def test_a_lone_surrogate_is_refused_in_every_text(field: str):
    fault = refused({**params(), field: "a\ud800"})

    assert (fault.code, fault.details["field"]) == ("INVALID_PARAMS", field)


@pytest.mark.parametrize("name", ["\ud800", "\x1b]0;owned\x07", "x" * 50_000, "a\nb", "\u202eevil"])
def test_a_hostile_field_name_is_refused_in_a_short_line_that_every_terminal_may_show(name: str):
    fault = refused({**params(), name: 1})

    assert fault.code == "INVALID_PARAMS"
    assert fault.message.isprintable()
    assert len(json.dumps(fault.to_wire(), ensure_ascii=False).encode()) < 1_000


@example("a\0b")
@example("\r\n\t\x1b[31m\x7f\x85\u2028\ufeff")
@example("e\u0301 \u00e9 \U0001f469\u200d\U0001f4bb \u6f22")
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200))
def test_a_text_keeps_every_byte_on_the_wire(text: str):
    sent = json.loads(json.dumps(read_envelope(params(content=text)).to_wire(), ensure_ascii=False))

    assert read_envelope(sent).content == text


# --- bounds of size --------------------------------------------------------------------------------


def of_size(size: int) -> dict[str, Any]:
    """Give an envelope whose text takes two bytes a character on the wire, of exactly that size."""
    shape = params(content='"' * 3_000, topic="t", noReplyNeeded=False)
    text = (size - size_of(shape)) // 2 + 3_000
    shape = {**shape, "content": '"' * text}
    return {**shape, "topic": "t" * (1 + size - size_of(shape))}


@pytest.mark.requirement("A-errors-36")
def test_an_envelope_of_exactly_8_192_bytes_fits_and_one_more_does_not():
    assert size_of(of_size(ENVELOPE_BYTES)) == ENVELOPE_BYTES
    assert read_envelope(of_size(ENVELOPE_BYTES)).topic is not None

    fault = refused(of_size(ENVELOPE_BYTES + 1))

    assert isinstance(fault, MessageTooLarge)
    assert str(ENVELOPE_BYTES + 1) in fault.message


def test_control_characters_count_as_what_they_take_on_the_wire():
    shape = params(content="\0" * 1_400)

    assert size_of(shape) > ENVELOPE_BYTES
    assert isinstance(refused(shape), MessageTooLarge)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3_000), st.integers(1, 4))
def test_what_fits_is_within_both_bounds_and_nothing_else_is_refused(text: str, times: int):
    content = text * times
    shape = params(content=content, noReplyNeeded=False)
    fits = size_of(shape) <= ENVELOPE_BYTES

    try:
        read_envelope(shape)
    except MessageTooLarge:
        assert not fits
    else:
        assert fits


def test_our_own_draft_is_measured_by_the_same_bounds():
    with pytest.raises(MessageTooLarge):
        require_fitting(read_envelope(params()).model_copy(update={"content": "x" * ENVELOPE_BYTES}))


# --- the digest ------------------------------------------------------------------------------------


def test_the_digest_of_a_message_never_changes_between_versions():
    # Stored digests are compared with new ones for as long as there are mailboxes.
    plain = b"\0\0\0\x06h\xc3\xa9llo" + b"\0\0\0\x01-" * 2 + b"\0\0\0\x03m-1"
    reply = b"\0\0\0\x05hello" + b"\0\0\0\x02+t" + b"\0\0\0\x04+m-0" + b"\0\0\0\x03m-0"

    assert content_digest("h\u00e9llo", None, None, "m-1") == hashlib.sha256(plain).hexdigest()
    assert content_digest("hello", "t", "m-0", "m-0") == hashlib.sha256(reply).hexdigest()


@pytest.mark.requirement("A-custody-06")
@pytest.mark.parametrize(
    "changes", [{"content": "hello "}, {"topic": "t"}, {"replyTo": "m-0"}, {"correlationId": "m-0"}]
)
def test_the_digest_tells_text_topic_reply_and_correlation(changes: dict[str, Any]):
    assert digest_of(read_envelope(params(**changes))) != digest_of(read_envelope(params()))


@pytest.mark.requirement("A-custody-06", "A-methods-15")
@pytest.mark.parametrize(
    "changes",
    [
        {"createdAt": 1},
        {"custodyId": "custody-1"},
        {"conversation": {"id": "other", "depth": 9}},
        {"noReplyNeeded": True},
        {"from": {"session": "lead:0000000000"}},
        {"to": "lead:0000000000"},
    ],
)
def test_the_digest_ignores_times_labels_and_attempts(changes: dict[str, Any]):
    assert digest_of(read_envelope(params(**changes))) == digest_of(read_envelope(params()))


WORDS = st.sampled_from(["", "-", "+", "a", "+-", "-+", "a+", "\0\0\0\x01a"])


@given(
    st.tuples(WORDS, st.none() | WORDS, st.none() | WORDS, WORDS),
    st.tuples(WORDS, st.none() | WORDS, st.none() | WORDS, WORDS),
)
def test_two_messages_have_one_digest_only_if_all_four_parts_agree(
    one: tuple[str, str | None, str | None, str], other: tuple[str, str | None, str | None, str]
):
    assert (content_digest(*one) == content_digest(*other)) == (one == other)


# --- receipts --------------------------------------------------------------------------------------


@pytest.mark.requirement("A-receipts-01")
def test_a_receipt_travels_with_id_target_custody_cursor_and_the_time_of_each_step():
    receipt = read_receipt(RECEIPT)

    assert receipt == Receipt("m-1", target(BOB), "custody-1", "replied", 7, 1, 2, 3)
    assert receipt_to_wire(receipt) == RECEIPT


@pytest.mark.requirement("A-receipts-01")
def test_steps_that_were_not_reached_do_not_travel():
    receipt = Receipt("m-1", target(BOB), "custody-1", "accepted", 1, accepted_at=0)

    assert receipt_to_wire(receipt) == {
        "messageId": "m-1",
        "to": target(BOB),
        "custodyId": "custody-1",
        "state": "accepted",
        "cursor": 1,
        "acceptedAt": 0,
    }


@pytest.mark.parametrize("state", ["accepted", "delivered", "replied", "expired"])
def test_every_state_that_a_custody_tells_is_read(state: str):
    assert read_receipt({**RECEIPT, "state": state}).state == state


@pytest.mark.parametrize("state", ["pending", "unknown", "read", "", "ACCEPTED", None, 1])
def test_a_state_that_no_custody_tells_is_refused(state: Any):
    # Believed, the first two would end a sender's attempts although nobody has the message.
    with pytest.raises(InvalidParams, match=r"^state: "):
        read_receipt({**RECEIPT, "state": state})


@pytest.mark.requirement("A-receipts-08")
def test_a_rejection_names_the_code_for_which_it_was_refused():
    rejected = {**RECEIPT, "state": "rejected", "outcome": "ELIGIBILITY_DENIED"}

    assert read_receipt(rejected).outcome == "ELIGIBILITY_DENIED"
    with pytest.raises(InvalidParams, match="code in outcome"):
        read_receipt({**rejected, "outcome": None})


@pytest.mark.parametrize("outcome", ["", "denied", "A B", "\x1b[1mX", "X" * 65, "X\n", 5])
def test_an_outcome_is_a_code_and_no_text(outcome: Any):
    with pytest.raises(InvalidParams, match=r"^outcome: "):
        read_receipt({**RECEIPT, "outcome": outcome})


@pytest.mark.parametrize("field", ["messageId", "to", "custodyId", "state", "cursor"])
def test_a_receipt_without_one_of_its_fields_is_refused(field: str):
    with pytest.raises(InvalidParams, match=rf"^{field}: "):
        read_receipt({name: value for name, value in RECEIPT.items() if name != field})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cursor", True),
        ("cursor", -1),
        ("cursor", 2**53),
        ("cursor", "7"),
        ("acceptedAt", 1.5),
        ("deliveredAt", -1),
        ("repliedAt", 2**53),
        ("custodyId", "c" * 65),
        ("messageId", "m 1"),
        ("text", "more"),
    ],
)
def test_a_receipt_of_another_shape_is_refused(field: str, value: Any):
    with pytest.raises(InvalidParams, match=rf"^{field}: "):
        read_receipt({**RECEIPT, field: value})


@pytest.mark.parametrize("value", [None, [], "receipt", 1, {}])
def test_what_is_no_receipt_at_all_is_refused(value: Any):
    with pytest.raises(InvalidParams):
        read_receipt(value)


def test_a_status_question_names_the_message_and_the_exact_recipient_and_nothing_else():
    question = checked_status({"messageId": "m-1", "to": target(BOB)})

    assert (question.message_id, question.to) == ("m-1", target(BOB))
    for wrong in ({"messageId": "m-1"}, {"to": "x"}, {"messageId": "m-1", "to": "x", "session": "y"}):
        with pytest.raises(InvalidParams):
            checked_status(wrong)


def test_what_travels_is_frozen_once_it_was_checked():
    for shape in (read_envelope(params()), ReceiptShape.model_validate(RECEIPT)):
        with pytest.raises(ValueError, match="frozen"):
            shape.to = "lead:0000000000"


def test_an_envelope_made_from_a_stored_row_is_the_one_that_was_read():
    envelope = read_envelope(params(**EVERY_FIELD))

    assert Envelope.model_validate(envelope.to_wire()) == envelope
    assert envelope.created_at == NOW
