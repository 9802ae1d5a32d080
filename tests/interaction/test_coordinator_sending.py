"""From a caller's words to the custody of the recipient: order, refusals, retries, connections."""

import asyncio
import os
import sqlite3
import uuid
from contextlib import AsyncExitStack, suppress

import pytest

from herd.core.authority_lock import AuthorityLock
from herd.core.clock import FakeClock, SystemClock
from herd.core.errors import (
    EligibilityDenied,
    EligibilityUnverified,
    HerdError,
    InvalidParams,
    InvalidReply,
    MessageIdConflict,
    MessageTooLarge,
    QueueFull,
    RecoveryRequired,
    UnsafeEndpoint,
    UnsupportedProtocol,
)
from herd.core.limits import DEFAULT_LIMITS
from herd.mail.steps import COMMIT_BEFORE, OUTBOX_AFTER, OUTBOX_BEFORE, SEND_BEFORE
from herd.presence.record import decode, encode
from herd.presence.session_file import SessionFile, write_session_file
from roles.eligibility_fake import FakeJudge
from roles.model import Allowed, Denied, Unverified
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, Steps, asked, content_of, running, until, until_async
from tests.fakes.raw_peer import Key, RawPeer
from tests.fakes.records import ALICE, BOB, CAROL, DAVE, LEAD, put, session_of


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


def begun(asking):
    return asyncio.ensure_future(asking)


# --- order -----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-order-01")
async def test_twenty_sends_at_once_arrive_in_the_order_of_their_calls(pair):
    alice, bob = pair
    texts = [f"text {number}" for number in range(20)]
    sent = await asyncio.gather(*(alice.send(bob, text) for text in texts))
    rows = await bob.incoming()

    assert [row.content for row in rows] == texts
    assert [row.message_id for row in rows] == [one["message_id"] for one in sent]
    first = rows[0].sequence
    assert [row.sequence for row in rows] == list(range(first, first + 20))


@pytest.mark.requirement("A-order-01")
async def test_a_send_that_takes_longer_to_prepare_is_not_overtaken(layout):
    steps = Steps()
    async with running(layout, ALICE, step=steps) as alice, running(layout, BOB) as bob:
        await bob.sees(alice)
        question = await bob.send(alice, "?")
        await alice.read()
        sending, texts = [], []
        for number in range(30):
            texts.append(f"text {number}")
            more = {"reply_to": question["message_id"]} if number % 3 == 1 else {}
            sending.append(begun(alice.send(bob, texts[-1], **more)))
            if number % 2:
                await steps.reached(OUTBOX_AFTER, number // 3)
        await asyncio.gather(*sending)

        assert [row.content for row in await bob.incoming()] == texts


async def test_both_sides_writing_at_once_lose_nothing(pair):
    alice, bob = pair
    await asyncio.gather(
        *(alice.send(bob, f"a{n}") for n in range(10)), *(bob.send(alice, f"b{n}") for n in range(10))
    )

    assert await bob.texts() == [f"a{n}" for n in range(10)]
    assert await alice.texts() == [f"b{n}" for n in range(10)]


@pytest.mark.requirement("A-order-02", "A-order-07")
async def test_what_waits_behind_a_head_goes_after_it_and_is_told_nothing_of_its_error(layout, hand):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        await alice.ask("list")
        first = begun(alice.send(hand.me.target, "first"))
        connection = await hand.proved()
        connection.refuse(await connection.message(), "RECOVERY_REQUIRED")
        second = begun(alice.send(hand.me.target, "second"))
        await clock.wait_for_sleepers(3)  # both calls, and the head before its next try
        behind = (await alice.outgoing())[1]
        asking = begun(alice.ask("status", message_id=behind.message_id))
        connection.refuse(await connection.asked(), "UNKNOWN_TARGET")
        status = await asking
        clock.advance(0.25)
        for text in ("first", "second"):
            request = await connection.message()
            assert request["params"]["content"] == text
            connection.accept(request)
        await alice.until_state(behind.message_id, "accepted")

        assert (status["state"], status.get("outcome")) == ("pending", None)
        assert [(await one)["status"] for one in (first, second)] == ["queued", "queued"]


@pytest.mark.requirement("A-order-03")
async def test_a_route_that_is_blocked_delays_no_other(layout, alice, hand):
    async with running(layout, CAROL) as carol:
        await alice.ask("list")
        blocked = begun(alice.send(hand.me.target, "never answered"))
        await (await hand.proved()).message()
        for number in range(5):
            assert (await alice.send(carol, f"text {number}"))["status"] == "accepted"

        assert not blocked.done()
        blocked.cancel()


# --- ids -------------------------------------------------------------------------------------------


@pytest.mark.requirement("A-custody-10")
async def test_a_call_made_twice_is_one_message_at_once_and_after_a_restart(layout, bob):
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        first = await alice.send(bob, "once", call_id="call-1")
        again = await alice.send(bob, "once", call_id="call-1")
        both = await asyncio.gather(*(alice.send(bob, "twice", call_id="call-2") for _ in range(5)))
    async with running(layout, ALICE) as alice:
        restarted = await alice.send(bob, "once", call_id="call-1")

        assert first == again == restarted
        assert len({one["message_id"] for one in both}) == 1
        assert await bob.texts() == ["once", "twice"]
        assert len(await alice.outgoing()) == 2


@pytest.mark.requirement("A-custody-10")
async def test_the_same_call_with_other_words_is_a_conflict_and_another_session_s_is_another(layout, pair):
    alice, bob = pair
    first = await alice.send(bob, "once", call_id="call-1")
    await refused(alice.send(bob, "other", call_id="call-1"), MessageIdConflict)
    async with running(layout, CAROL) as carol:
        await carol.sees(bob)
        other = await carol.send(bob, "once", call_id="call-1")

    assert other["message_id"] != first["message_id"]
    assert len(await bob.texts()) == 2


@pytest.mark.requirement("A-custody-11")
async def test_a_new_send_of_the_same_words_is_a_new_message_under_a_uuid_of_version_7(pair):
    alice, bob = pair
    ids = [(await alice.send(bob, "same"))["message_id"] for _ in range(5)]

    assert [uuid.UUID(one).version for one in ids] == [7] * 5
    assert sorted(set(ids)) == ids
    assert await bob.texts() == ["same"] * 5


@pytest.mark.requirement("A-custody-08", "A-errors-28")
async def test_after_a_lost_answer_the_same_message_goes_again_to_the_same_custody(layout, alice, hand):
    await alice.ask("list")
    sending = begun(alice.send(hand.me.target, "once"))
    connection = await hand.proved()
    first = await connection.message()
    connection.break_off()  # it had it, and its answer is lost
    connection = await hand.proved()
    second = await connection.message()
    connection.accept(second)
    sent = await sending
    await alice.until_state(sent["message_id"], "accepted")

    assert second["params"] == first["params"]
    assert len(await alice.outgoing()) == 1


@pytest.mark.requirement("A-custody-09")
async def test_each_try_on_one_connection_has_an_rpc_id_of_its_own(alice, hand):
    await alice.ask("list")
    sending = begun(alice.send(hand.me.target))
    connection = await hand.proved()
    tries = []
    for _ in range(3):
        tries.append(await connection.message())
        connection.refuse(tries[-1], "PEER_OFFLINE")
        await alice.ask("list")
    connection.accept(await connection.message())
    await sending

    assert len({one["id"] for one in tries}) == 3
    assert len({one["params"]["messageId"] for one in tries}) == 1


# --- what is told within the wait ------------------------------------------------------------------


@pytest.mark.requirement("H-send-09", "A-custody-01")
async def test_a_send_tells_after_a_quarter_of_a_second_that_it_is_queued(layout, hand):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        await alice.ask("list")
        sending = begun(alice.send(hand.me.target))
        connection = await hand.proved()
        request = await connection.message()
        (row,) = await alice.outgoing()
        assert row.message_id == request["params"]["messageId"], "it was stored before its first byte left"
        clock.advance(0.249)
        await alice.ask("whoami")
        assert not sending.done()
        clock.advance(0.001)
        sent = await sending

        assert sent == {"message_id": row.message_id, "target": hand.me.target, "status": "queued"}


@pytest.mark.requirement("H-send-08")
async def test_a_message_for_a_session_that_sleeps_is_in_its_mailbox_at_once(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
    sent = await alice.send(bob.target)

    assert sent.keys() == {"message_id", "target", "status", "peer_running"}
    assert (sent["status"], sent["peer_running"]) == ("accepted", False)
    async with running(layout, BOB) as bob:
        assert await bob.texts() == ["hello"]


async def test_a_call_repeated_after_its_recipient_fell_asleep_says_that_nobody_runs_there(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        assert "peer_running" not in await alice.send(bob, call_id="call-1")
    assert (await alice.send(bob.target, call_id="call-1"))["peer_running"] is False


@pytest.mark.requirement("H-send-10", "H-inbox-09")
async def test_a_message_keeps_its_verified_sender_after_that_has_ended(layout):
    async with running(layout, BOB) as bob, running(layout, ALICE, name="api-worker") as alice:
        await alice.sees(bob)
    async with running(layout, ALICE, name="api-worker") as alice:
        await alice.send(bob.target)
    async with running(layout, BOB) as bob:
        (message,) = (await bob.read())["messages"]
        (row,) = await bob.incoming()

    assert message["from"] == {"target": alice.target, "name": "api-worker", "role": "lead"}
    assert (row.sender.key, row.sender.host, row.sender.kind, row.sender.socket) == (
        ALICE.key,
        "claude",
        "ordinary",
        "none",
    )


async def test_a_caller_that_goes_away_leaves_a_message_that_is_carried_all_the_same(layout):
    steps = Steps()
    async with running(layout, ALICE, step=steps) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sending = begun(alice.send(bob))
        await steps.reached(OUTBOX_BEFORE)
        sending.cancel()

        assert await bob.texts(wait_ms=30_000) == ["hello"]


async def test_nothing_is_remembered_of_sends_that_are_over(pair):
    alice, bob = pair
    await asyncio.gather(*(alice.send(bob, str(number)) for number in range(5)))
    await refused(alice.send("lead:0000000000"))

    assert alice.coordinator.sending._waiting == {}
    assert alice.coordinator.sending._lanes._lines == {}
    assert alice.coordinator.connections._dialling._lines == {}
    await until(lambda: not alice.coordinator.carrier._untouched)


# --- what is refused before anything is queued ------------------------------------------------------


@pytest.mark.requirement("H-send-01", "A-methods-03")
@pytest.mark.parametrize(
    "wrong",
    [
        {"from": "lead:0000000000"},
        {"sender": "lead:0000000000"},
        {"role": "manager"},
        {"kind": "ordinary"},
        {"files": "x"},
        {"expires_in_ms": 0},
        {"expires_in_ms": -1},
        {"expires_in_ms": 0.5},
        {"expires_in_ms": "600000"},
        {"expires_in_ms": True},
        {"expires_in_ms": 3_600_001},
        {"message_id": "m-1"},
        {"message": ""},
        {"message": 7},
        {"message": None},
        {"topic": ""},
        {"topic": "x" * 257},
        {"reply_to": "a b"},
        {"no_reply_needed": "yes"},
        {"call_id": ""},
        {"call_id": "x" * 513},
        {"target": "x" * 513},
    ],
    ids=lambda wrong: str(wrong)[:40],
)
async def test_a_field_that_a_send_does_not_define_is_refused_before_anything_is_done(pair, wrong):
    alice, bob = pair
    params = {"target": bob.target, "message": "x", **wrong}
    refusal = await refused(alice.adapter.request(None, "session.send", params), InvalidParams)

    assert next(iter(wrong)) in refusal.message
    assert await alice.outgoing() == []


@pytest.mark.parametrize("text", ["\ud800", "x\udfffy"])
async def test_a_text_that_is_none_is_refused(pair, text):
    alice, bob = pair
    await refused(alice.send(bob, text), InvalidParams)


@pytest.mark.requirement("A-errors-36")
@pytest.mark.parametrize("text", ["x" * 131_073, "é" * 65_537, "\0" * 131_073, "x" * 1_000_000], ids=len)
async def test_a_text_over_its_bound_is_refused_and_nothing_is_stored(pair, text):
    alice, bob = pair
    await refused(alice.send(bob, text), MessageTooLarge)
    assert await alice.outgoing() == []


@pytest.mark.requirement("A-errors-36")
async def test_a_text_of_exactly_the_bound_arrives_byte_for_byte(pair):
    alice, bob = pair
    text = "日本語 \U0001f469\u200d\U0001f467 e\u0301 \u202e" + "x" * 131_000
    text += "y" * (DEFAULT_LIMITS.mailbox_payload_bytes - len(text.encode()))
    sent = await alice.send(bob, text)

    assert await bob.whole(sent["message_id"]) == text


@pytest.mark.requirement("H-send-07", "H-target-11")
@pytest.mark.parametrize(
    ("verdict", "kind"),
    [(Denied("another group"), EligibilityDenied), (Unverified("no record of b"), EligibilityUnverified)],
)
async def test_a_verdict_that_does_not_allow_at_the_call_queues_nothing(layout, bob, verdict, kind):
    judge = FakeJudge()
    async with running(layout, ALICE, judge=judge) as alice:
        await alice.sees(bob)
        judge.now = verdict
        refusal = await refused(alice.send(bob), kind)
        judge.now = Allowed()

        assert verdict.reason in refusal.message
        assert await alice.outgoing() == []
        assert await bob.texts() == []


@pytest.mark.requirement("H-send-12")
async def test_an_unhealthy_session_sends_nothing_and_says_why(pair):
    alice, bob = pair
    alice.coordinator.health.observed(RecoveryRequired("the disk is full"))
    refusal = await refused(alice.send(bob), RecoveryRequired)

    assert "the disk is full" in refusal.message
    assert await alice.outgoing() == []


async def test_mail_to_a_session_that_is_not_listed_just_now_is_refused_as_unverified(pair):
    alice, bob = pair
    bob.coordinator.withdraw()
    await refused(alice.send(bob), EligibilityUnverified)
    assert await alice.outgoing() == []


@pytest.mark.parametrize("wrong", ["unknown", "of another"])
async def test_a_reply_to_what_that_target_did_not_send_is_refused(layout, pair, wrong):
    alice, bob = pair
    async with running(layout, CAROL) as carol:
        await carol.sees(alice)
        question = await carol.send(alice, "?")
        await alice.read()
        reply_to = question["message_id"] if wrong == "of another" else "m-1"
        await refused(alice.send(bob, reply_to=reply_to), InvalidReply)

    assert await alice.outgoing() == []


async def test_a_reply_of_a_session_that_never_had_mail_makes_no_mailbox(layout, alice, bob):
    command = alice.other_adapter(command=True)
    await refused(asked(command, "send", target=bob.target, message="x", reply_to="m-1"), InvalidReply)
    assert not os.path.exists(layout.mailbox(ALICE.key))  # noqa: ASYNC240


# --- the evidence is read again just before the commit ---------------------------------------------


async def held_before_the_verdict(layout, alice, send, change):
    """Let a send wait for the authority lock, change something, and let it go on."""
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    hold = await asyncio.to_thread(lock.exclusive)
    try:
        sending = begun(send)
        await until(lambda: bool(alice.coordinator.sending._lanes._lines))
        for _ in range(3):  # behind what the send reads first
            await alice.outgoing()
        await change()
    finally:
        hold.release()
    return sending


@pytest.mark.requirement("H-send-03")
async def test_a_target_that_began_a_new_generation_meanwhile_is_written_to(layout, pair):
    alice, bob = pair
    before = bob.record().claim

    async def change():
        bob.coordinator.withdraw()
        await bob.coordinator._moved(bob.record().endpoint)

    sent = await (await held_before_the_verdict(layout, alice, alice.send(bob), change))

    assert bob.record().claim.id != before.id
    assert sent["status"] == "accepted"


@pytest.mark.requirement("H-send-03", "H-send-05")
async def test_a_target_that_restarted_meanwhile_gets_it_in_its_next_instance(layout, alice):
    ending = running(layout, BOB)
    bob = await ending.__aenter__()
    await alice.sees(bob)
    restarted = running(layout, BOB)
    new = []

    async def change():
        await ending.__aexit__(None, None, None)
        new.append(await restarted.__aenter__())

    try:
        await (await held_before_the_verdict(layout, alice, alice.send(bob), change))

        assert await new[0].texts(wait_ms=30_000) == ["hello"]
    finally:
        await restarted.__aexit__(None, None, None)


@pytest.mark.requirement("H-send-03")
async def test_a_target_that_became_of_another_kind_meanwhile_is_refused(layout, alice):
    ending = running(layout, BOB)
    bob = await ending.__aenter__()
    await alice.sees(bob)

    async def change():
        await ending.__aexit__(None, None, None)
        write_session_file(layout, SessionFile(BOB, kind="managed"))

    sending = await held_before_the_verdict(layout, alice, alice.send(bob), change)
    await refused(sending, EligibilityDenied)

    assert await alice.outgoing() == []


@pytest.mark.requirement("H-send-04")
async def test_labels_that_changed_meanwhile_refuse_nothing(layout, pair):
    alice, bob = pair

    async def change():
        await bob.ask("update", cwd="/elsewhere", name="renamed", activity="away")

    sent = await (await held_before_the_verdict(layout, alice, alice.send(bob), change))
    assert sent["status"] == "accepted"


# --- what the other side refuses -------------------------------------------------------------------


@pytest.mark.requirement("A-order-05")
@pytest.mark.parametrize(
    "code",
    [
        "QUEUE_FULL",
        "RATE_LIMITED",
        "PEER_OFFLINE",
        "DELIVERY_UNKNOWN",
        "RECOVERY_REQUIRED",
        "AUTHENTICATION_FAILED",
        "INVALID_RPC",
        "ELIGIBILITY_UNVERIFIED",
        "A_CODE_OF_TOMORROW",
    ],
)
async def test_what_may_pass_keeps_the_message_and_is_tried_without_a_new_send(layout, hand, code):
    async with running(layout, ALICE, clock=SystemClock()) as alice:
        await alice.ask("list")
        sending = begun(alice.send(hand.me.target))
        connection = await hand.proved()
        connection.refuse(await connection.message(), code)
        sent = await sending if code == "NEVER" else None
        request = await connection.message()
        status = begun(alice.ask("status", message_id=request["params"]["messageId"]))
        question = await connection.asked()
        assert question["method"] == "peer.status"
        connection.refuse(question, "UNKNOWN_TARGET")
        told = await status
        connection.accept(request)
        sent = await sending
        await alice.until_state(sent["message_id"], "accepted")

    expected = code if not code.startswith("A_CODE") else "INVALID_RPC"
    assert (told["state"], told["outcome"]) == ("pending", expected)


@pytest.mark.requirement("A-order-06", "A-receipts-08")
@pytest.mark.parametrize(
    "code",
    [
        "ELIGIBILITY_DENIED",
        "UNKNOWN_TARGET",
        "TARGET_ENDED",
        "SCOPE_DENIED",
        "CAPABILITY_DENIED",
        "INVALID_PARAMS",
        "MESSAGE_TOO_LARGE",
        "MESSAGE_ID_CONFLICT",
        "METHOD_NOT_FOUND",
    ],
)
async def test_a_definitive_refusal_is_told_stored_and_lets_the_next_one_go(alice, hand, code):
    await alice.ask("list")
    first = begun(alice.send(hand.me.target, "first"))
    connection = await hand.proved()
    request = await connection.message()
    second = begun(alice.send(hand.me.target, "second"))
    connection.refuse(request, code)
    refusal = await refused(first)
    request = await connection.message()
    connection.accept(request)

    assert refusal.code == code
    assert request["params"]["content"] == "second"
    assert (await second)["status"] == "accepted"
    await until_rejected(alice, code)


async def until_rejected(alice, code):
    async with asyncio.timeout(IN_TIME_S):
        while (row := (await alice.outgoing())[0]).receipt.state == "pending":
            pass
    assert (row.receipt.state, row.receipt.outcome) == ("rejected", code)


@pytest.mark.requirement("A-limits-21")
async def test_a_full_recipient_is_tried_again_no_sooner_than_it_asked_for(layout, hand):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        await alice.ask("list")
        sending = begun(alice.send(hand.me.target))
        connection = await hand.proved()
        connection.refuse(await connection.message(), "QUEUE_FULL", retry_after_ms=700)
        await clock.wait_for_sleepers(2)
        coming = begun(connection.message())
        clock.advance(0.699)
        await alice.ask("list")  # which hastens everything else
        await sending
        assert not coming.done()
        clock.advance(0.001)
        connection.accept(await coming)


@pytest.mark.requirement("A-limits-06", "A-limits-20", "A-limits-21")
async def test_a_send_that_would_take_up_too_much_is_refused_and_what_was_sent_goes_on(layout):
    limits = UNHURRIED._replace(inbox_messages=1_000, storage_bytes=250_000)
    async with running(layout, ALICE, limits=limits) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent: list[str] = []
        with suppress(QueueFull):
            while True:
                sent.append((await alice.send(bob, "x" * 5_000))["message_id"])

        assert len(sent) > 3
        refusal = await refused(alice.send(bob, "x" * 5_000), QueueFull)
        assert refusal.details["retry_after_ms"] > 0
        assert [row.message_id for row in await alice.outgoing()] == sent
        given = (await bob.read())["messages"]
        await bob.ask("confirm", message_ids=[one["message_id"] for one in given], evidence="a test")
        await alice.until_state(sent[0], "delivered")


@pytest.mark.requirement("H-inbox-06", "A-receipts-08")
async def test_a_recipient_that_denies_at_acceptance_rejects_with_its_reason(layout, alice):
    judge = FakeJudge(Denied("you are in another group"))
    async with running(layout, BOB, judge=judge) as bob:
        await alice.sees(bob)
        refusal = await refused(alice.send(bob), EligibilityDenied)
        await until_rejected(alice, "ELIGIBILITY_DENIED")
        judge.now = Allowed()

        assert "you are in another group" in refusal.message
        assert await bob.texts() == []


@pytest.mark.requirement("A-order-05")
async def test_a_recipient_that_cannot_verify_keeps_the_message_with_its_sender(layout):
    judge = FakeJudge(Unverified("no record"))
    async with running(layout, ALICE, clock=SystemClock()) as alice, running(layout, BOB, judge=judge) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)
        assert sent["status"] == "queued"
        judge.now = Allowed()

        assert await bob.texts(wait_ms=30_000) == ["hello"]
        await alice.until_state(sent["message_id"], "accepted")


@pytest.mark.requirement("H-inbox-06")
async def test_a_visit_is_judged_too(layout):
    judge = FakeJudge()
    async with running(layout, ALICE, judge=judge) as alice:
        async with running(layout, BOB) as bob:
            await alice.sees(bob)
        verdicts = iter([Allowed(), Denied("not this one")])  # at the call, and by the visitor
        judge._meanwhile = lambda *_: setattr(judge, "now", next(verdicts))
        refusal = await refused(alice.send(bob.target), EligibilityDenied)
        judge._meanwhile = None

        assert "not this one" in refusal.message
    async with running(layout, BOB) as bob:
        assert await bob.texts() == []


# --- durable before sent ---------------------------------------------------------------------------


@pytest.mark.requirement("A-custody-01")
async def test_a_message_that_cannot_be_stored_is_never_transmitted(layout, hand):
    steps = Steps()
    async with running(layout, ALICE, step=steps, clock=FakeClock()) as alice:
        await alice.ask("list")
        steps.faults[COMMIT_BEFORE] = lambda: sqlite3.OperationalError("disk I/O error")
        await refused(alice.send(hand.me.target), RecoveryRequired)
        del steps.faults[COMMIT_BEFORE]

        assert steps.taken(SEND_BEFORE) == 0
        assert await alice.outgoing() == []


@pytest.mark.requirement("A-restart-04", "A-order-02")
async def test_what_was_pending_at_a_restart_goes_before_what_is_sent_then(layout, hand):
    async with running(layout, ALICE, clock=SystemClock()) as alice:
        await alice.ask("list")
        old = begun(alice.send(hand.me.target, "old 1"))
        connection = await hand.proved()
        connection.refuse(await connection.message(), "RECOVERY_REQUIRED")
        await alice.send(hand.me.target, "old 2")
        ids = [row.message_id for row in await alice.outgoing()]
        connection.break_off()
        await old
    async with running(layout, ALICE) as alice:
        new = begun(alice.send(hand.me.target, "new"))
        connection = await hand.proved()
        requests = []
        for _ in range(3):
            requests.append(await connection.message())
            connection.accept(requests[-1])
        await new

    assert [one["params"]["content"] for one in requests] == ["old 1", "old 2", "new"]
    assert [one["params"]["messageId"] for one in requests[:2]] == ids


# --- whom a connection is made to ------------------------------------------------------------------


@pytest.mark.requirement("A-discover-01", "A-auth-10")
@pytest.mark.parametrize("wrong", ["key", "proof", "instance", "nonce", "version", "capabilities"])
async def test_a_socket_that_does_not_prove_the_record_gets_no_message(layout, alice, wrong):
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server:
        await alice.ask("list")
        sending = begun(alice.send(raw.target))
        connection = await server.call()
        hello = await connection.asked()
        right = connection.hello_result(hello["params"])
        answers = {
            "key": {**right, "publicKey": Key().public},
            "proof": connection.hello_result(hello["params"], Key()),
            "instance": {**right, "instanceId": "another"},
            "nonce": {**right, "nonce": hello["params"]["nonce"]},
            "version": {**right, "version": 2},
            "capabilities": {**right, "capabilities": "all"},
        }
        connection.answer(hello, answers[wrong])

        assert await connection.heard() is None, "nothing more was said"
        if wrong == "version":
            await refused(sending, UnsupportedProtocol)
        else:
            sending.cancel()
            (row,) = await alice.outgoing()

            # The connection ends before what that means is written down.
            await alice.until_outcome(row.message_id, "AUTHENTICATION_FAILED")


@pytest.mark.requirement("A-limits-09", "A-endpoint-10")
@pytest.mark.parametrize("how", ["hangs", "refuses", "absent", "half a handshake"])
async def test_a_socket_that_does_not_answer_keeps_the_message_and_its_file(layout, how):
    raw = RawPeer(BOB)
    limits = UNHURRIED._replace(handshake_ms=50)
    async with running(layout, ALICE, limits=limits, clock=SystemClock()) as alice:
        if how in {"hangs", "half a handshake"}:
            async with raw.listening(layout) as server:
                await alice.ask("list")
                sent = await alice.send(raw.target)
                connection = await server.call()
                hello = await connection.asked()
                if how == "half a handshake":
                    connection.answer(hello, connection.hello_result(hello["params"]))
                assert await connection.ended()
                status = await alice.until_outcome(sent["message_id"], "PEER_OFFLINE")
                assert os.path.exists(raw_path(layout, raw))  # noqa: ASYNC240
        else:
            path = raw_path(layout, raw)
            with raw.registered(layout, endpoint=path):
                if how == "refuses":
                    put_socket(path)
                await alice.ask("list")
                sent = await alice.send(raw.target)
                status = await alice.until_outcome(sent["message_id"], "PEER_OFFLINE")
                assert os.path.exists(path) == (how == "refuses")  # noqa: ASYNC240

    assert sent["status"] == "queued"
    assert (status["state"], status["outcome"]) == ("pending", "PEER_OFFLINE")


def raw_path(layout, raw):
    return os.path.join(layout.run, f"{raw.instance_id}.sock")


def put_socket(path):
    """Leave a socket file at which nobody listens."""
    import socket

    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    os.chmod(path, 0o600)


@pytest.mark.requirement("A-endpoint-11")
@pytest.mark.parametrize("wrong", ["open folder", "open socket", "link", "file"])
async def test_a_socket_that_is_not_private_is_not_dialled_and_the_caller_is_told(
    layout, alice, tmp_path, wrong
):
    """The refusal comes without anything being waited for; the caller must hear it all the same."""
    tmp_path.chmod(0o700)
    raw = RawPeer(BOB, "raw-instance")
    path = str(tmp_path / "raw-instance.sock")
    if wrong == "link":
        put_socket(raw_path(layout, raw))
        os.symlink(raw_path(layout, raw), path)
    elif wrong == "file":
        put(path, b"")
    else:
        put_socket(path)
    if wrong == "open folder":
        tmp_path.chmod(0o755)
    if wrong == "open socket":
        os.chmod(path, 0o666)
    with raw.registered(layout, endpoint=path):
        await alice.ask("list")
        await refused(alice.send(raw.target), UnsafeEndpoint)
        await until_rejected(alice, "UNSAFE_ENDPOINT")


@pytest.mark.requirement("A-errors-18")
async def test_a_record_of_another_protocol_is_not_dialled_and_the_caller_is_told(layout, alice):
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server:
        record = decode(content_of(layout.record(BOB.key)), BOB.key)
        put(layout.record(BOB.key), encode(record._replace(protocol=2)))
        await alice.ask("list")
        await refused(alice.send(raw.target), UnsupportedProtocol)

        assert server.calls == 0


@pytest.mark.requirement("A-endpoint-11")
async def test_a_socket_that_is_not_named_after_its_instance_keeps_the_message(layout):
    raw = RawPeer(BOB)
    async with running(layout, ALICE, clock=SystemClock()) as alice:
        with raw.registered(layout, endpoint=os.path.join(layout.run, "another.sock")):
            await alice.ask("list")
            sent = await alice.send(raw.target)
            await alice.until_outcome(sent["message_id"], "AUTHENTICATION_FAILED")

    assert sent["status"] == "queued"


@pytest.mark.requirement("A-discover-02")
async def test_a_restarted_recipient_is_found_by_its_new_record(layout, alice):
    for number in range(3):
        async with running(layout, BOB) as bob:
            await alice.sees(bob)
            await alice.send(bob, f"text {number}")
            assert await bob.texts(wait_ms=30_000) == [f"text {number}"]
            (message,) = [row for row in await bob.incoming() if row.content == f"text {number}"]
            await bob.ask("confirm", message_ids=[message.message_id], evidence="test")


@pytest.mark.requirement("A-discover-02")
async def test_a_record_that_changed_while_a_call_waited_for_another_is_read_again(layout, alice):
    """Two sends dial one instance; it leaves the record while the second waits for the first one's try."""
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server:
        await alice.ask("list")
        record = alice.coordinator.registry.record(BOB.key)
        first = begun(alice.coordinator.connections.to(record))
        connection = await server.call()
        second = begun(alice.coordinator.connections.to(record))
        await until(lambda: len(alice.coordinator.connections._dialling._lines[raw.instance_id]) == 2)
        raw.publisher.remove()
        connection.break_off()
        for dialled in (first, second):
            assert (await refused(dialled)).code == "PEER_OFFLINE"

        assert server.calls == 1


@pytest.mark.requirement("A-limits-05")
async def test_a_connection_more_takes_the_place_of_the_idle_one_unused_for_longest(layout):
    limits = UNHURRIED._replace(connections=2)
    peers = [running(layout, session) for session in (BOB, CAROL, DAVE)]
    async with (
        running(layout, ALICE, limits=limits) as alice,
        peers[0] as bob,
        peers[1] as carol,
        peers[2] as dave,
    ):
        await alice.sees(bob, carol, dave)
        for one in (bob, carol, bob, dave):
            assert (await alice.send(one))["status"] == "accepted"
        open_ones = alice.coordinator.connections._open
        assert set(open_ones) == {one.coordinator.own.instance_id for one in (bob, dave)}


@pytest.mark.requirement("A-limits-05")
async def test_more_calls_at_once_than_connections_never_open_more(layout):
    limits = UNHURRIED._replace(connections=2, handshake_ms=60_000, acknowledgement_ms=60_000)
    raws = [RawPeer(session_of(number, "pi")) for number in range(10, 15)]
    async with running(layout, ALICE, limits=limits) as alice, AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(raw.listening(layout)) for raw in raws]
        await alice.ask("list")
        sending = [begun(alice.send(raw.target)) for raw in raws]
        await until(lambda: sum(server.calls for server in servers) == 2)
        routes = alice.coordinator.routes

        async def refusals():
            return [routes.refusal(row) for row in await alice.outgoing()]

        await until_async(lambda: told_full(refusals))
        assert sum(server.calls for server in servers) == 2, "nobody answers, so both are in use"
        for one in sending:
            one.cancel()


async def told_full(refusals):
    return sorted(one.code if one else "" for one in await refusals()) == ["", "", *["QUEUE_FULL"] * 3]


async def test_two_sessions_that_call_each_other_at_the_same_instant_both_get_through(pair):
    alice, bob = pair
    to_bob, to_alice = alice.record(), bob.record()
    both = await asyncio.gather(
        alice.coordinator.connections.to(to_alice), bob.coordinator.connections.to(to_bob)
    )
    await asyncio.gather(alice.send(bob), bob.send(alice))

    assert not any(connection.closed for connection in both)
    assert await alice.texts() == await bob.texts() == ["hello"]


async def test_what_a_peer_is_called_changes_nothing_about_where_mail_goes(layout, alice):
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server:
        await alice.ask("list")
        raw.publisher.publish(LEAD._replace(name="somebody else", cwd="/else"))
        sending = begun(alice.send(raw.target))
        connection = await server.proved()
        request = await connection.message()
        connection.accept(request)

        assert (await sending)["status"] == "accepted"
        assert request["params"]["from"] == {"session": alice.target}
