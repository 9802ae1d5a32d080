"""How `herd send` gives a message its time, and what it makes of a refusal that comes late."""

from typing import Any

import pytest

from herd.cli.send import addressed, carried
from herd.core.errors import EligibilityDenied, InvalidRpc, MessageIdConflict

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
