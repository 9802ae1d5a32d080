"""What a sender learns of its messages: receipts that are owed, replies, status, cancellation."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest

from herd.core.clock import FakeClock, SystemClock
from herd.core.errors import (
    DeliveryUnknown,
    HerdError,
    InvalidParams,
    MessageIdConflict,
    PeerOffline,
    UnknownTarget,
)
from herd.core.identity import peer_id_of
from herd.mail import inbox
from herd.mail.steps import OFFER_AFTER, OFFER_BEFORE
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import Steps, asked, running, until, until_async
from tests.fakes.mail import started_once
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL

PATIENT = UNHURRIED._replace(acknowledgement_ms=60_000)


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


def begun(asking):
    return asyncio.ensure_future(asking)


async def owed_by(session):
    return await session.coordinator.mailbox.read(inbox.owed) or []


async def confirm_all(session, evidence="test"):
    """Read and confirm what waits; gives the message ids."""
    ids = [one["message_id"] for one in (await session.read(wait_ms=30_000))["messages"]]
    await session.ask("confirm", message_ids=ids, evidence=evidence)
    return ids


# --- receipts that are owed ------------------------------------------------------------------------


@pytest.mark.requirement("A-receipts-05")
async def test_a_change_is_told_to_the_sender_at_once(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    waiting = begun(alice.read(wait_ms=30_000, after="0"))
    await confirm_all(bob)
    await alice.until_state(sent["message_id"], "delivered")
    told = await waiting
    while told["receipts"][-1]["status"] != "delivered":
        told = await alice.read(wait_ms=30_000, after=told["cursor"])
    await until_async(lambda: nothing_is_owed(bob))

    assert told["receipts"][-1]["message_id"] == sent["message_id"]


async def nothing_is_owed(session):
    return await owed_by(session) == []


@pytest.mark.requirement("A-receipts-05", "A-receipts-12", "A-custody-22")
async def test_a_receipt_stays_owed_and_is_offered_at_every_contact_until_it_is_confirmed(layout, alice):
    raw = RawPeer(BOB)
    steps = Steps()
    with raw.registered(layout):
        async with running(layout, CAROL, step=steps, clock=FakeClock()) as carol:
            async with await raw.proved(carol.record()) as connection:
                await connection.accepted("peer.send", raw.envelope(carol.target, messageId="m-1"))
            for _ in range(2):  # it was accepted, and its sender has confirmed no receipt of that
                async with await raw.proved(carol.record()) as connection:
                    offered = await connection.asked()
                    assert offered["params"]["receipt"]["state"] == "accepted"
            await confirm_all(carol)
            for _ in range(2):
                async with await raw.proved(carol.record()) as connection:
                    offered = await connection.asked()
                    assert offered["method"] == "peer.receipt"
                    assert offered["params"]["receipt"]["messageId"] == "m-1"
                    assert offered["params"]["receipt"]["state"] == "delivered"
            async with await raw.proved(carol.record()) as connection:
                connection.answer(await connection.asked(), {"recorded": True})
                await steps.reached(OFFER_AFTER)
                await until_async(lambda: nothing_is_owed(carol))
            async with await raw.proved(carol.record()) as connection:
                await connection.accepted("peer.status", {"messageId": "m-1", "to": carol.target})
                await connection.accepted("peer.send", raw.envelope(carol.target, messageId="m-2"))

                assert steps.taken(OFFER_AFTER) == 1, "what was confirmed is not offered again"


@pytest.mark.requirement("A-receipts-12")
async def test_a_receipt_that_was_owed_at_the_end_is_offered_by_the_next_instance(layout):
    raw = RawPeer(BOB)
    with raw.registered(layout):
        async with running(layout, CAROL, clock=FakeClock()) as carol:
            connection = await raw.proved(carol.record())
            await connection.accepted("peer.send", raw.envelope(carol.target, messageId="m-1"))
            connection.break_off()
            await confirm_all(carol)
        async with (
            running(layout, CAROL, clock=FakeClock()) as carol,
            await raw.proved(carol.record()) as connection,
        ):
            offered = (await connection.asked())["params"]["receipt"]

    assert (offered["messageId"], offered["state"]) == ("m-1", "delivered")


async def test_a_sender_that_refuses_its_receipt_for_good_is_not_told_for_ever(layout):
    """It knows no such message, so nobody is left who could confirm."""
    raw = RawPeer(BOB)
    with raw.registered(layout):
        async with (
            running(layout, CAROL, clock=FakeClock()) as carol,
            await raw.proved(carol.record()) as connection,
        ):
            await connection.accepted("peer.send", raw.envelope(carol.target))
            confirming = begun(confirm_all(carol))
            connection.refuse(await connection.asked(), "SCOPE_DENIED")
            await confirming
            await until_async(lambda: nothing_is_owed(carol))


@pytest.mark.requirement("D-visit-06", "A-receipts-05")
async def test_a_sender_that_sleeps_is_told_by_a_visit(layout, bob):
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        sent = await alice.send(bob)
        await alice.until_state(sent["message_id"], "accepted")
    await confirm_all(bob)
    await until_async(lambda: nothing_is_owed(bob))
    async with running(layout, ALICE) as alice:
        assert await alice.state(sent["message_id"]) == "delivered"
        told = (await alice.read())["receipts"]

    assert [(one["message_id"], one["status"]) for one in told] == [(sent["message_id"], "delivered")]


@pytest.mark.requirement("A-custody-22", "A-receipts-12")
async def test_an_answer_that_its_sender_could_not_write_down_is_made_good_by_the_receipt(layout, bob):
    """The sender was told `accepted` and ended before its own row said so."""
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        sent = await alice.send(bob)
        await alice.until_state(sent["message_id"], "accepted")
        await alice.coordinator.mailbox.run(
            lambda c: c.execute("UPDATE outbox SET state = 'pending', accepted_at = NULL").rowcount
        )
    async with running(layout, ALICE) as alice:
        await alice.until_state(sent["message_id"], "accepted")

        assert await bob.texts() == ["hello"]


# --- what the host is told -------------------------------------------------------------------------


async def test_a_receipt_is_given_until_there_is_evidence_and_then_no_more(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await alice.until_state(sent["message_id"], "accepted")
    for _ in range(2):
        reader = alice.other_adapter()
        (receipt,) = (await asked(reader, "read"))["receipts"]
        assert receipt["message_id"] == sent["message_id"]
        reader.ended()
    await alice.read()
    assert (await alice.read())["receipts"] == [], "the same reader asks again, so it had them"
    assert len((await alice.read(after="0"))["receipts"]) == 1


async def test_asking_after_one_message_takes_no_other_receipt_away(pair):
    alice, bob = pair
    sent = [(await alice.send(bob, str(number)))["message_id"] for number in range(3)]
    for one in sent:
        await alice.until_state(one, "accepted")
    asked_for = await alice.read(reply_to=sent[1])
    rest = await alice.read()

    assert [one["message_id"] for one in asked_for["receipts"]] == [sent[1]]
    assert [one["message_id"] for one in rest["receipts"]] == sent


async def test_reading_one_message_takes_no_receipt_away(pair):
    alice, bob = pair
    noted = await bob.send(alice, "by the way")
    sent = await alice.send(bob)
    await alice.until_state(sent["message_id"], "accepted")
    reader = alice.other_adapter()
    one = await asked(reader, "read", message_id=noted["message_id"])
    rest = await asked(reader, "read", after=one["cursor"])

    assert one["receipts"] == []
    assert [receipt["message_id"] for receipt in rest["receipts"]] == [sent["message_id"]]


async def test_more_receipts_than_one_answer_carries_are_announced(layout, bob):
    limits = UNHURRIED._replace(inbox_messages=100)
    async with running(layout, ALICE) as alice, running(layout, CAROL, limits=limits) as carol:
        await alice.sees(carol)
        sent = [(await alice.send(carol, str(number)))["message_id"] for number in range(60)]
        for one in sent:
            await alice.until_state(one, "accepted")
        first, second = await alice.read(), await alice.read()

    assert [one["message_id"] for one in first["receipts"] + second["receipts"]] == sent
    assert (first["more"], "more" in second) == (True, False)


# --- replies ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-receipts-07", "H-inbox-02")
async def test_a_reply_makes_the_message_replied_on_both_sides(pair):
    alice, bob = pair
    question = await alice.send(bob, "question")
    await bob.read()
    answer = await bob.send(alice, "answer", reply_to=question["message_id"])
    await alice.until_state(question["message_id"], "replied")
    await until_async(lambda: is_replied(bob))
    (message,) = (await alice.read())["messages"]
    (row,) = await bob.incoming()
    (reply,) = await alice.incoming()

    assert (message["reply_to"], message["message_id"]) == (question["message_id"], answer["message_id"])
    assert row.receipt.delivered_at is not None
    assert row.receipt.replied_at is not None
    assert await bob.state(answer["message_id"]) == "accepted", "nobody has read it yet"
    assert (reply.correlation_id, reply.conversation_id, reply.depth) == (
        question["message_id"],
        question["message_id"],
        1,
    )


async def is_replied(session):
    return [row.receipt.state for row in await session.incoming()] == ["replied"]


@pytest.mark.requirement("A-receipts-07", "D-visit-06")
async def test_a_reply_to_a_sender_that_sleeps_makes_it_replied_on_both_sides(layout, bob):
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        question = await alice.send(bob)
    await bob.read()
    answer = await bob.send(alice.target, "answer", reply_to=question["message_id"])
    assert answer["peer_running"] is False
    await until_async(lambda: is_replied(bob))
    async with running(layout, ALICE) as alice:
        assert await alice.state(question["message_id"]) == "replied"
        assert await alice.texts() == ["answer"]


async def test_naming_a_message_in_a_reply_is_evidence_that_is_told_before_the_reply_arrives(layout):
    raw = RawPeer(BOB)
    async with (
        raw.listening(layout),
        running(layout, ALICE, clock=SystemClock()) as alice,
        await raw.proved(alice.record()) as connection,
    ):
        await connection.accepted("peer.send", raw.envelope(alice.target, messageId="m-1"))
        await alice.read()
        replying = begun(alice.send(raw.target, "answer", reply_to="m-1"))
        heard: dict[str, Any] = {}
        while set(heard) != {"peer.receipt", "peer.send"}:
            request = await connection.asked()
            heard.setdefault(request["method"], request)
            connection.refuse(request, "QUEUE_FULL", retry_after_ms=60_000)
        (row,) = await alice.incoming()
        assert (await replying)["status"] == "queued"

    assert heard["peer.receipt"]["params"]["receipt"]["state"] == "delivered"
    assert (row.receipt.state, row.evidence) == ("delivered", "reply")


async def test_a_reply_to_one_of_two_messages_with_one_id_is_evidence_for_that_one_alone(layout, alice):
    with RawPeer(BOB).registered(layout) as bob, RawPeer(CAROL).registered(layout) as carol:
        async with await bob.proved(alice.record()) as one, await carol.proved(alice.record()) as other:
            await one.accepted("peer.send", bob.envelope(alice.target, "bob's", messageId="m-1"))
            await other.accepted("peer.send", carol.envelope(alice.target, "carol's", messageId="m-1"))
            await alice.read()
            replying = begun(alice.send(bob.target, "answer", reply_to="m-1"))
            await one.message()
            states = {row.content: row.receipt.state for row in await alice.incoming()}
            replying.cancel()

    assert states == {"bob's": "delivered", "carol's": "accepted"}


async def test_a_reply_to_what_was_never_handed_over_is_no_evidence(pair):
    alice, bob = pair
    question = await alice.send(bob, "question")
    await bob.send(alice, "answer", reply_to=question["message_id"])
    await alice.until_state(question["message_id"], "replied")
    (row,) = await bob.incoming()

    assert row.receipt.delivered_at is None
    assert row.evidence is None


# --- status ----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-receipts-11")
async def test_the_status_of_what_was_sent_to_one_who_is_gone_is_what_is_stored(layout, alice):
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server:
        await alice.ask("list")
        sending = begun(alice.send(raw.target))
        connection = await server.proved()
        connection.accept(await connection.message())
        sent = await sending
        await alice.until_state(sent["message_id"], "accepted")
    status = await alice.ask("status", message_id=sent["message_id"])

    assert status == {
        "message_id": sent["message_id"],
        "to": raw.target,
        "custody_id": "raw-custody",
        "state": "accepted",
        "cursor": status["cursor"],
        "accepted_at": "2023-11-14T22:13:20.000Z",
    }


@pytest.mark.requirement("A-receipts-11")
async def test_the_status_of_what_a_sleeping_session_has_is_asked_by_a_visit(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps, clock=FakeClock()) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)
        await alice.until_state(sent["message_id"], "accepted")
        await bob.read()
        steps.faults[OFFER_BEFORE] = lambda: PeerOffline("what it owes is never told")
        await bob.ask("confirm", message_ids=[sent["message_id"]], evidence="test")
        assert await alice.state(sent["message_id"]) == "accepted"
    status = await alice.ask("status", message_id=sent["message_id"])

    assert status["state"] == "delivered"
    assert await alice.state(sent["message_id"]) == "delivered"


async def test_a_status_asks_the_recipient_whose_last_word_was_lost(layout, hand):
    async with running(layout, ALICE) as alice:
        await alice.ask("list")
        sending = begun(alice.send(hand.me.target))
        connection = await hand.proved()
        request = await connection.message()
        connection.accept(request)
        sent = await sending
        await alice.until_state(sent["message_id"], "accepted")
        asking = begun(alice.ask("status", message_id=sent["message_id"]))
        question = await connection.asked()
        (row,) = await alice.outgoing()
        named = {"messageId": sent["message_id"], "to": hand.me.target}
        assert question["params"] == {**named, "digest": row.digest}
        receipt = {
            "messageId": sent["message_id"],
            "to": hand.me.target,
            "custodyId": "raw-custody",
            "state": "delivered",
            "cursor": 9,
            "acceptedAt": 1_700_000_000_000,
            "deliveredAt": 1_700_000_000_001,
        }
        connection.answer(question, receipt)

        assert (await asking)["state"] == "delivered"


async def test_the_status_of_an_unknown_message_makes_no_mailbox(layout, alice):
    for method in ("status", "cancel"):
        await refused(alice.ask(method, message_id="m-1"), UnknownTarget)
        await refused(alice.ask(method, message_id="m 1"), InvalidParams)
        await refused(alice.ask(method), InvalidParams)

    assert alice.coordinator.mailbox.custody_id is None


async def test_the_status_of_what_another_session_sent_is_nobody_elses(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await refused(bob.ask("status", message_id=sent["message_id"]), UnknownTarget)


# --- cancel ----------------------------------------------------------------------------------------


@asynccontextmanager
async def hung(layout):
    """Give a session and a peer that never answers its first message; a second one waits behind it."""
    clock = FakeClock()
    raw = RawPeer(BOB)
    async with (
        raw.listening(layout) as server,
        running(layout, ALICE, limits=PATIENT, clock=clock) as alice,
    ):
        await alice.ask("list")
        sending = [begun(alice.send(raw.target, "first"))]
        connection = await server.proved()
        request = await connection.message()
        sending.append(begun(alice.send(raw.target, "second")))
        await clock.wait_for_sleepers(2)
        clock.advance(0.25)
        ids = [(await one)["message_id"] for one in sending]
        yield alice, connection, request, ids
        connection.break_off()


@pytest.mark.requirement("A-order-08")
async def test_what_no_mailbox_has_is_taken_back_and_the_next_one_goes(layout, hand):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        await alice.ask("list")
        sending = [begun(alice.send(hand.me.target, "first"))]
        connection = await hand.proved()
        connection.refuse(await connection.message(), "RECOVERY_REQUIRED")
        await clock.wait_for_sleepers(2)
        sending.append(begun(alice.send(hand.me.target, "second")))
        await clock.wait_for_sleepers(3)
        first, second = [row.message_id for row in await alice.outgoing()]
        cancelling = begun(alice.ask("cancel", message_id=first))
        question = await connection.asked()
        assert question["method"] == "peer.status", "it may have been accepted, so its recipient is asked"
        connection.refuse(question, "UNKNOWN_TARGET")
        cancelled = await cancelling
        request = await connection.message()
        connection.accept(request)
        answers = [await one for one in sending]
        await alice.until_state(second, "accepted")
        again = await alice.ask("cancel", message_id=first)

    assert (cancelled["state"], cancelled["outcome"]) == ("rejected", "CANCELLED")
    assert again == cancelled
    assert request["params"]["content"] == "second"
    assert [one["status"] for one in answers] == ["rejected", "accepted"]


@pytest.mark.requirement("A-order-08")
async def test_what_was_never_transmitted_is_taken_back_without_asking_anybody(layout):
    async with hung(layout) as (alice, connection, request, ids):
        route = alice.coordinator.routes._routes[request["params"]["to"]]
        cancelling = begun(alice.ask("cancel", message_id=ids[1]))
        await until(lambda: bool(route.quiet._waiters))
        connection.accept(request)  # the head's try ends, and no other begins in between
        cancelled = await cancelling
        await alice.until_state(ids[0], "accepted")

        assert (cancelled["state"], cancelled["outcome"]) == ("rejected", "CANCELLED")
        assert await alice.state(ids[1]) == "rejected"
        await until(lambda: not alice.coordinator.routes._routes)


async def test_what_may_have_been_accepted_stays_while_its_recipient_cannot_be_asked(layout):
    raw = RawPeer(BOB)
    async with running(layout, ALICE, clock=FakeClock()) as alice:
        async with raw.listening(layout) as server:
            await alice.ask("list")
            sending = begun(alice.send(raw.target))
            connection = await server.proved()
            request = await connection.message()
            connection.break_off()
        sending.cancel()
        message_id = request["params"]["messageId"]
        refusal = await refused(alice.ask("cancel", message_id=message_id), DeliveryUnknown)

        assert "may have been accepted" in refusal.message
        assert await alice.state(message_id) == "pending"


async def test_what_was_pending_before_a_restart_is_asked_after(layout):
    """Nobody knows whether the process before had carried it."""
    async with hung(layout) as (_alice, _connection, _request, ids):
        pass
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server, running(layout, ALICE, clock=FakeClock()) as alice:
        connection = await server.proved()
        connection.refuse(await connection.message(), "RECOVERY_REQUIRED")
        cancelling = begun(alice.ask("cancel", message_id=ids[1]))
        question = await connection.asked()
        connection.refuse(question, "UNKNOWN_TARGET")

        assert (await cancelling)["outcome"] == "CANCELLED"
        assert question["params"]["messageId"] == ids[1]


async def test_what_was_accepted_is_not_taken_back_and_what_is_learnt_is_kept(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await refused(alice.ask("cancel", message_id=sent["message_id"]), MessageIdConflict)
    await alice.coordinator.mailbox.run(lambda c: c.execute("UPDATE outbox SET state = 'pending'").rowcount)
    refusal = await refused(alice.ask("cancel", message_id=sent["message_id"]), MessageIdConflict)

    assert "accepted already" in refusal.message
    assert await alice.state(sent["message_id"]) == "accepted"
    assert await bob.texts() == ["hello"]


async def test_what_was_meant_for_an_instance_that_is_over_can_be_taken_back(layout):
    raw = RawPeer(BOB)
    instance = peer_id_of(raw.instance_id)
    async with running(layout, ALICE, clock=SystemClock()) as alice:
        command = alice.other_adapter(command=True)
        async with raw.listening(layout) as server:
            sending = begun(asked(command, "send", target=instance, message="x"))
            connection = await server.proved()
            connection.refuse(await connection.message(), "QUEUE_FULL")
            sent = await sending
        # It sleeps: the next instance would say that the one before is over, and that would settle it.
        await asyncio.to_thread(started_once, layout, BOB)
        cancelled = await asked(command, "cancel", message_id=sent["message_id"])

    assert (sent["status"], cancelled["outcome"]) == ("queued", "CANCELLED")


async def test_a_cancelled_message_is_not_carried_after_a_restart(layout):
    async with hung(layout) as (alice, connection, request, ids):
        route = alice.coordinator.routes._routes[request["params"]["to"]]
        cancelling = begun(alice.ask("cancel", message_id=ids[1]))
        await until(lambda: bool(route.quiet._waiters))
        connection.accept(request)
        await cancelling
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server, running(layout, ALICE) as alice:
        await alice.ask("list")
        sending = begun(alice.send(raw.target, "third"))
        connection = await server.proved()
        request = await connection.message()
        connection.accept(request)
        await sending

    assert request["params"]["content"] == "third"
