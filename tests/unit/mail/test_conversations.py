"""Two mailboxes and a reply between them: each side calls a message replied once it knows, and not before."""

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from herd.core.errors import InvalidReply
from herd.core.identity import SessionName
from herd.mail import acceptance, inbox, outbox
from herd.mail.conversations import reply_came, reply_was_accepted
from herd.mail.inbox import Acceptance
from herd.mail.outbox import Outgoing
from herd.mail.receipts import ACCEPTED, DELIVERED, MEANINGS, PENDING, REJECTED, REPLIED, Receipt
from tests.fakes.mail import ALICE, BOB, NOW, admission, outgoing, sender, tables


class Side(NamedTuple):
    session: SessionName
    connection: sqlite3.Connection

    @property
    def custody(self) -> str:
        return f"custody-of-{self.session.host}"

    def send(self, other: "Side", message_id: str, reply_to: str | None = None) -> Outgoing:
        correlation = message_id
        if reply_to is not None:
            correlation = outbox.require_reply(self.connection, reply_to, other.session.key)[0]
        row = outgoing(message_id, to=other.session, reply_to=reply_to, correlation_id=correlation)
        return outbox.enqueue(self.connection, row._replace(sender=sender(self.session)._asdict()))

    def accept(self, row: Outgoing, by: SessionName) -> Acceptance:
        return acceptance.accept(
            self.connection,
            row.envelope(),
            sender(by),
            admission(self.custody, 32, NOW + 1),
        )

    def learn(self, receipt: Receipt, other: "Side") -> Outgoing:
        return outbox.record_receipt(self.connection, receipt, other.session.key, now_ms=NOW)

    def received(self, message_id: str) -> inbox.Incoming:
        (row,) = inbox.by_id(self.connection, message_id)
        return row

    def sent(self, message_id: str) -> Receipt:
        return outbox.required(self.connection, message_id).receipt


@pytest.fixture
def alice() -> Iterator[Side]:
    with tables() as connection:
        yield Side(ALICE, connection)


@pytest.fixture
def bob() -> Iterator[Side]:
    with tables() as connection:
        yield Side(BOB, connection)


def exchanged(one: Side, other: Side, message_id: str, reply_to: str | None = None) -> Receipt:
    """Send a message, accept it there, and let the sender learn the receipt."""
    receipt = other.accept(one.send(other, message_id, reply_to), one.session).receipt
    one.learn(receipt, other)
    return receipt


@pytest.mark.requirement("A-receipts-07", "H-inbox-02")
def test_a_message_is_pending_accepted_delivered_and_replied_each_by_its_own_evidence(alice, bob):
    row = alice.send(bob, "m-1")
    assert alice.sent("m-1").state == PENDING

    accepted = bob.accept(row, ALICE).receipt
    assert alice.sent("m-1").state == PENDING, "not before the sender knows"
    alice.learn(accepted, bob)
    assert alice.sent("m-1").state == ACCEPTED

    inbox.count_handovers(bob.connection, [1], NOW)
    assert bob.received("m-1").receipt.state == ACCEPTED, "handed over is not delivered"
    (delivered,) = inbox.confirm(bob.connection, [1], "hook", NOW + 2)
    alice.learn(delivered.receipt._replace(custody_id=bob.custody), bob)
    assert alice.sent("m-1").state == DELIVERED

    reply = bob.send(alice, "m-2", reply_to="m-1")
    assert alice.sent("m-1").state == DELIVERED, "a reply that is only sent settles nothing"
    assert bob.received("m-1").receipt.state == DELIVERED
    receipt = alice.accept(reply, BOB).receipt
    assert alice.sent("m-1").state == REPLIED
    assert bob.received("m-1").receipt.state == DELIVERED
    bob.learn(receipt, alice)
    assert bob.received("m-1").receipt.state == REPLIED
    assert "nothing is said about work done" in MEANINGS[REPLIED]


def test_a_reply_is_known_with_the_time_of_its_acceptance_and_owed_to_the_sender(alice, bob):
    exchanged(alice, bob, "m-1")
    inbox.settle(bob.connection, 1, bob.received("m-1").receipt.cursor)

    receipt = exchanged(bob, alice, "m-2", reply_to="m-1")

    assert bob.received("m-1").receipt.replied_at == receipt.accepted_at == NOW + 1
    assert [row.message_id for row in inbox.owed(bob.connection, ALICE.key)] == ["m-1"]
    assert alice.sent("m-1").replied_at == NOW + 1


def test_a_reply_that_comes_before_its_senders_receipt_settles_the_message_all_the_same(alice, bob):
    late = bob.accept(alice.send(bob, "m-1"), ALICE).receipt

    alice.accept(bob.send(alice, "m-2", reply_to="m-1"), BOB)
    assert alice.sent("m-1").state == REPLIED

    alice.learn(late, bob)
    assert alice.sent("m-1").state == REPLIED


def test_a_reply_that_comes_again_is_no_second_event(alice, bob):
    exchanged(alice, bob, "m-1")
    reply = bob.send(alice, "m-2", reply_to="m-1")
    alice.accept(reply, BOB)
    cursor = alice.sent("m-1").cursor

    alice.accept(reply, BOB)

    assert alice.sent("m-1").cursor == cursor


def test_the_first_of_two_replies_settles_the_message(alice, bob):
    exchanged(alice, bob, "m-1")
    exchanged(bob, alice, "m-2", reply_to="m-1")
    settled = alice.sent("m-1")

    exchanged(bob, alice, "m-3", reply_to="m-1")

    assert alice.sent("m-1") == settled


@pytest.mark.parametrize(
    "changes", [{"reply_to": "m-9"}, {"correlation_id": "m-9"}], ids=["other message", "other correlation"]
)
def test_a_reply_to_something_else_is_refused_and_settles_nothing(alice, bob, changes):
    exchanged(alice, bob, "m-1")
    reply = bob.send(alice, "m-2", reply_to="m-1")

    with pytest.raises(InvalidReply):
        alice.accept(reply._replace(**changes), BOB)

    assert alice.sent("m-1").state == ACCEPTED


def test_a_reply_of_a_third_session_is_refused_and_settles_nothing(alice, bob):
    exchanged(alice, bob, "m-1")
    stranger = bob.send(alice, "m-2", reply_to="m-1")

    with pytest.raises(InvalidReply):
        alice.accept(stranger, SessionName("codex", "a stranger"))

    assert alice.sent("m-1").state == ACCEPTED


def test_an_answer_to_a_reply_proves_that_the_reply_was_accepted(alice, bob):
    # Bob's coordinator died before it wrote down that Alice had accepted his reply.
    exchanged(alice, bob, "m-1")
    alice.accept(bob.send(alice, "m-2", reply_to="m-1"), BOB)
    assert (bob.sent("m-2").state, bob.received("m-1").receipt.state) == (PENDING, ACCEPTED)

    bob.accept(alice.send(bob, "m-3", reply_to="m-2"), ALICE)

    assert bob.sent("m-2").state == REPLIED
    assert bob.received("m-1").receipt.state == REPLIED
    assert "m-1" in [row.message_id for row in inbox.owed(bob.connection, ALICE.key)]


@pytest.mark.requirement("A-reply-01")
def test_a_chain_of_answers_has_one_correlation_id_which_is_the_first_messages_own(alice, bob):
    exchanged(alice, bob, "m-1")
    exchanged(bob, alice, "m-2", reply_to="m-1")
    exchanged(alice, bob, "m-3", reply_to="m-2")
    exchanged(alice, bob, "m-4")

    assert [bob.received(name).correlation_id for name in ("m-1", "m-3", "m-4")] == ["m-1", "m-1", "m-4"]
    assert [bob.received(name).reply_to for name in ("m-1", "m-3", "m-4")] == [None, "m-2", None]
    assert alice.received("m-2").correlation_id == "m-1"
    assert [alice.sent(name).state for name in ("m-1", "m-3", "m-4")] == [REPLIED, ACCEPTED, ACCEPTED]


def test_a_rejected_message_is_replied_to_by_nothing(alice, bob):
    exchanged(alice, bob, "m-1")
    for table in ("outbox", "inbox"):
        side = alice if table == "outbox" else bob
        side.connection.execute(f"UPDATE {table} SET state = 'rejected', outcome = 'A_CODE'")

    reply_came(alice.connection, "m-1", BOB.key, "m-1", None, NOW)
    reply_was_accepted(bob.connection, "m-1", ALICE.key, None, NOW)

    assert alice.sent("m-1").state == REJECTED
    assert bob.received("m-1").receipt.state == REJECTED


def test_a_reply_that_was_refused_settles_nothing(alice, bob):
    exchanged(alice, bob, "m-1")
    bob.send(alice, "m-2", reply_to="m-1")

    outbox.reject(bob.connection, "m-2", "SCOPE_DENIED", NOW)

    assert bob.received("m-1").receipt.state == ACCEPTED
