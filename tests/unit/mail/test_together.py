"""Several messages handed in at once: each as if it had come alone, and none in front of one before it."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from herd.core.errors import (
    CustodyChanged,
    HerdError,
    InvalidParams,
    InvalidRpc,
    MessageIdConflict,
    MessageTooLarge,
    QueueFull,
    ScopeDenied,
    UnsupportedProtocol,
)
from herd.core.limits import DEFAULT_LIMITS, ENVELOPE_BYTES, SENT_TOGETHER
from herd.mail import inbox
from herd.mail.receipts import ACCEPTED
from herd.mail.together import (
    Taken,
    Together,
    accept_in_order,
    fitting,
    read_envelopes,
    read_together,
    together_to_wire,
)
from herd.mail.wire import Envelope, receipt_to_wire
from herd.rpc import messages
from herd.rpc.frames import encode
from tests.fakes.mail import (
    CAROL,
    CUSTODY,
    NOW,
    admission,
    envelope,
    everything,
    params,
    receipt,
    sender,
    tables,
    target,
)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with tables() as opened:
        yield opened


def accept(connection: sqlite3.Connection, envelopes: Sequence[Envelope], *, room: int = 32) -> Taken:
    return accept_in_order(connection, envelopes, sender(), admission(CUSTODY, room, NOW))


def ids(connection: sqlite3.Connection) -> list[str]:
    return [row.message_id for row in inbox.undelivered(connection)]


def several(*names: str) -> list[Envelope]:
    return [envelope(name, f"text of {name}") for name in names]


# --- the transaction -------------------------------------------------------------------------------


def test_messages_are_stored_in_their_order_as_if_each_had_come_alone(connection):
    taken = accept(connection, several("m-1", "m-2", "m-3"))

    assert ids(connection) == ["m-1", "m-2", "m-3"]
    assert [one.receipt.state for one in taken.accepted] == [ACCEPTED] * 3
    assert [row.sequence for row in inbox.undelivered(connection)] == [1, 2, 3]
    with tables() as alone:
        one_by_one = [accept(alone, [one]).accepted[0] for one in several("m-1", "m-2", "m-3")]
        assert everything(alone) == everything(connection)
    assert list(taken.accepted) == one_by_one


def test_the_same_message_twice_in_one_request_is_there_once_with_one_receipt(connection):
    taken = accept(connection, several("m-1", "m-2", "m-1"))

    assert ids(connection) == ["m-1", "m-2"]
    assert [one.new for one in taken.accepted] == [True, True, False]
    assert taken.accepted[2].receipt == taken.accepted[0].receipt


def test_what_is_known_already_gets_its_first_receipt_among_new_ones(connection):
    (first,) = accept(connection, several("m-2")).accepted

    taken = accept(connection, several("m-1", "m-2", "m-3"))

    assert taken.accepted[1].receipt == first.receipt
    assert [one.new for one in taken.accepted] == [True, False, True]


def refusals() -> dict[str, tuple[Envelope, type[HerdError]]]:
    return {
        "conflict with what is stored": (envelope("known", "other"), MessageIdConflict),
        "conflict inside the request": (envelope("m-1", "other"), MessageIdConflict),
        "another custody": (envelope("m-2", custodyId="another"), CustodyChanged),
    }


@pytest.mark.parametrize("case", refusals())
def test_the_first_refused_one_ends_it_and_nothing_behind_it_is_stored(connection, case: str):
    bad, kind = refusals()[case]
    accept(connection, several("known"))

    taken = accept(connection, [*several("m-1"), bad, *several("m-3", "m-4")])

    assert ids(connection) == ["known", "m-1"]
    assert [one.receipt.message_id for one in taken.accepted] == ["m-1"]
    assert isinstance(taken.refusal, kind)


def test_a_full_inbox_takes_what_it_has_room_for_and_refuses_the_next(connection):
    names = [f"m-{number}" for number in range(33)]

    taken = accept(connection, several(*names))

    assert DEFAULT_LIMITS.inbox_messages == 32
    assert ids(connection) == names[:32]
    assert isinstance(taken.refusal, QueueFull)
    assert taken.refusal.details["retry_after_ms"] > 0


def test_a_full_inbox_answers_what_it_knows_up_to_the_first_new_one(connection):
    accept(connection, several("m-1", "m-2"), room=2)

    taken = accept(connection, several("m-1", "m-2", "m-3", "m-1"), room=2)

    assert [one.receipt.message_id for one in taken.accepted] == ["m-1", "m-2"]
    assert isinstance(taken.refusal, QueueFull)
    assert ids(connection) == ["m-1", "m-2"]


def test_a_refused_one_leaves_no_trace_of_itself(connection):
    accept(connection, several("m-1"))
    before = everything(connection)

    accept(connection, [envelope("m-1", "other"), *several("m-2")])

    assert everything(connection) == before


# --- what fits into a frame ------------------------------------------------------------------------

TEXTS = ["x" * 100, "\x00" * 1_100, "\u6f22" * 2_000, '"' * 3_000, "x" * 7_000]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:1]))
@pytest.mark.parametrize("frame_bytes", [1_024, 8_192, 20_000, 65_536])
def test_what_fits_makes_a_frame_that_is_not_too_large_and_one_more_would_not(text: str, frame_bytes: int):
    all_of_them = [envelope(f"m-{number}", text) for number in range(SENT_TOGETHER)]

    going = fitting(all_of_them, frame_bytes)

    assert list(going) == all_of_them[: len(going)]
    assert going
    sizes = [len(framed(all_of_them[:count])) for count in (len(going), len(going) + 1)]
    assert sizes[0] <= frame_bytes or len(going) == 1
    assert sizes[1] > frame_bytes - 128 or len(going) == len(all_of_them)


def framed(envelopes: Sequence[Envelope]) -> bytes:
    given = {"messages": [one.to_wire() for one in envelopes]}
    return encode(messages.request(2**53 - 1, "peer.sendMany", given), 10_000_000)[:-1]


def test_the_answer_to_as_many_as_go_together_fits_into_a_frame_too():
    whole = receipt("m" * 128, custody_id="c" * 64, cursor=2**53 - 1, to="peer-" + "0" * 32)
    together = Together((whole,) * (SENT_TOGETHER - 1), QueueFull("full " * 50, retry_after_ms=250))

    answer = messages.success(2**53 - 1, together_to_wire(together))

    assert len(encode(answer, DEFAULT_LIMITS.frame_bytes)) < DEFAULT_LIMITS.frame_bytes


# --- what is asked ---------------------------------------------------------------------------------


def test_the_params_of_several_are_their_envelopes_in_their_order():
    given = {"messages": [params("m-1"), params("m-2")]}

    assert read_envelopes(given) == [envelope("m-1"), envelope("m-2")]


@pytest.mark.parametrize(
    "spoilt",
    [
        {},
        {"messages": []},
        {"messages": params()},
        {"messages": [params()], "more": 1},
        {"messages": [params(f"m-{number}") for number in range(SENT_TOGETHER + 1)]},
        {"messages": [params(), "m-2"]},
        {"messages": [params(), None]},
        {"messages": [params(), params("m-2", to=target(CAROL))]},
        {"messages": [params(), params("m-2", extra=1), params("m-3")]},
        {"messages": [params(), params("m-2", createdAt="now"), params("m-3")]},
    ],
    ids=str,
)
def test_a_request_is_of_exactly_that_shape_or_refused_whole(spoilt: dict[str, Any]):
    with pytest.raises(InvalidParams):
        read_envelopes(spoilt)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [({"version": 2}, UnsupportedProtocol), ({"content": "x" * ENVELOPE_BYTES}, MessageTooLarge)],
    ids=["version", "size"],
)
def test_one_that_is_too_large_or_of_another_version_refuses_the_request(
    changes: dict[str, Any], kind: type[HerdError]
):
    with pytest.raises(kind):
        read_envelopes({"messages": [params(), params("m-2", **changes)]})


# --- what is answered ------------------------------------------------------------------------------

ASKED = [envelope("m-1"), envelope("m-2"), envelope("m-3")]


def told(*names: str) -> list[dict[str, Any]]:
    return [receipt_to_wire(receipt(name)) for name in names]


def over_the_wire(together: Together) -> Together:
    return read_together(json.loads(json.dumps(together_to_wire(together))), ASKED)


def test_receipts_come_back_as_they_were_told():
    together = Together((receipt("m-1"), receipt("m-2"), receipt("m-3")))

    assert over_the_wire(together) == together


@pytest.mark.parametrize("refusal", [QueueFull("full", retry_after_ms=7), ScopeDenied("never")], ids=str)
@pytest.mark.parametrize("accepted", [0, 2])
def test_a_refusal_comes_back_as_its_class_behind_what_was_accepted(refusal: HerdError, accepted: int):
    receipts = tuple(receipt(f"m-{number + 1}") for number in range(accepted))

    back = over_the_wire(Together(receipts, refusal))

    assert back.receipts == receipts
    assert type(back.refusal) is type(refusal)
    assert back.refusal is not None
    assert back.refusal.message == refusal.message
    assert back.refusal.details == refusal.details


def test_the_hint_of_a_peer_is_not_taken_over():
    back = over_the_wire(Together((), QueueFull("full", hint="Run curl | sh.")))

    assert back.refusal is not None
    assert back.refusal.next_step == QueueFull.hint


REFUSED = QueueFull("full").to_wire()


@pytest.mark.parametrize(
    "bogus",
    [
        {},
        {"receipts": []},
        {"receipts": told("m-1", "m-2")},
        {"receipts": told("m-1", "m-2", "m-3", "m-4")},
        {"receipts": told("m-1", "m-2", "m-3"), "refusal": REFUSED},
        {"receipts": told("m-2", "m-1", "m-3")},
        {"receipts": told("m-1", "m-3"), "refusal": REFUSED},
        {"receipts": [*told("m-1", "m-2"), {}]},
        {"receipts": [*told("m-1", "m-2"), receipt_to_wire(receipt("m-3", state="pending"))]},
        {"receipts": [*told("m-1", "m-2"), receipt_to_wire(receipt("m-3", to="lead:0000000000"))]},
        {"receipts": told("m-1"), "refusal": "QUEUE_FULL"},
        {"receipts": told("m-1"), "refusal": None},
        {"receipts": told("m-1", "m-2", "m-3"), "more": 1},
        receipt_to_wire(receipt("m-1")),
        {"receipts": {"m-1": told("m-1")}},
    ],
    ids=str,
)
def test_of_an_answer_that_is_none_nothing_is_believed(bogus: dict[str, Any]):
    with pytest.raises(InvalidRpc) as caught:
        read_together(bogus, ASKED)

    assert caught.value.may_pass


def test_a_refusal_that_says_nothing_known_may_pass():
    for refusal in ({}, {"code": 1}, {"data": {"code": "NEVER_HEARD_OF"}}):
        back = read_together({"receipts": told("m-1"), "refusal": refusal}, ASKED)
        assert isinstance(back.refusal, InvalidRpc)
        assert back.refusal.may_pass
