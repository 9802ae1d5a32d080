"""How `herd send` gives a message its time, and what it makes of a refusal that comes late."""

from typing import Any

import pytest

from herd.cli.main import build_parser
from herd.cli.send import addressed, carried, lifetime_ms
from herd.core.errors import EligibilityDenied, InvalidParams, InvalidRpc, MessageIdConflict
from herd.core.limits import DEFAULT_LIMITS

QUEUED = {"message_id": "m", "target": "lead:0000000000", "status": "queued"}


class Coordinator:
    """Gives one receipt after the other."""

    def __init__(self, *receipts: dict[str, Any]) -> None:
        self.receipts = list(receipts)

    def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert (method, params) == ("session.status", {"message_id": "m"})
        return self.receipts.pop(0)


@pytest.mark.parametrize("status", ["accepted", "delivered", "replied"])
def test_what_was_taken_at_once_is_not_asked_about(status: str):
    sent = {**QUEUED, "status": status, "peer_running": False}

    assert carried(Coordinator(), sent) == sent


@pytest.mark.parametrize("state", ["accepted", "delivered", "replied"])
def test_it_is_asked_about_until_a_mailbox_has_it(state: str):
    pending = {"state": "pending", "outcome": "QUEUE_FULL"}
    coordinator = Coordinator(pending, {"state": "pending"}, {"state": state})

    assert carried(coordinator, QUEUED) == {**QUEUED, "status": state}
    assert coordinator.receipts == []


@pytest.mark.parametrize(
    ("outcome", "refusal"),
    [
        ("ELIGIBILITY_DENIED", EligibilityDenied),
        ("MESSAGE_ID_CONFLICT", MessageIdConflict),
        ("SOMETHING_NEWER", InvalidRpc),
        (None, InvalidRpc),
    ],
)
def test_a_late_refusal_is_the_refusal(outcome: str | None, refusal: type[Exception]):
    receipt = {"state": "rejected"} if outcome is None else {"state": "rejected", "outcome": outcome}

    with pytest.raises(refusal):
        carried(Coordinator(receipt), QUEUED)


@pytest.mark.requirement("A-limits-11")
def test_a_lifetime_without_a_number_is_the_usual_one():
    typed = build_parser("send").parse_args(["send", "bob", "x", "--expires-in"]).expires_in
    assert lifetime_ms(typed, DEFAULT_LIMITS) == 600_000
    assert lifetime_ms(typed, DEFAULT_LIMITS._replace(expiry_ms=7)) == 7


def test_an_empty_lifetime_is_none():
    typed = build_parser("send").parse_args(["send", "bob", "x", "--expires-in="]).expires_in
    with pytest.raises(InvalidParams, match="--expires-in"):
        lifetime_ms(typed, DEFAULT_LIMITS)


@pytest.mark.requirement("A-limits-12")
@pytest.mark.parametrize(
    ("typed", "wanted"), [("1", 1), ("5ms", 5), ("90s", 90_000), ("10m", 600_000), ("1h", 3_600_000)]
)
def test_a_lifetime_is_milliseconds_or_names_its_unit(typed: str, wanted: int):
    assert lifetime_ms(typed, DEFAULT_LIMITS) == wanted


@pytest.mark.requirement("A-limits-12")
@pytest.mark.parametrize(
    "typed",
    ["0", "0s", "-5", "x", "s", "5x", "1.5s", "5sm", " 5", "\u0665", "2h", "61m", "3600001", "9" * 40, "5 s"],
)
def test_what_is_no_lifetime_or_too_long_is_refused(typed: str):
    with pytest.raises(InvalidParams, match="--expires-in"):
        lifetime_ms(typed, DEFAULT_LIMITS)


@pytest.mark.requirement("A-boundary-15")
@pytest.mark.parametrize(
    ("typed", "target"),
    [
        (":builder", "builder"),
        ("builder", "builder"),
        (":lead:0123456789", "lead:0123456789"),
        ("lead:0123456789", "lead:0123456789"),
        (f":peer-{'0' * 32}", f"peer-{'0' * 32}"),
        (":smile:", ":smile:"),
        (":8080", ":8080"),
        (":a b", ":a b"),
        (" :a", " :a"),
        (":", ":"),
    ],
)
def test_a_reference_as_a_whole_is_the_name_behind_its_colon(typed: str, target: str):
    assert addressed(typed) == target
