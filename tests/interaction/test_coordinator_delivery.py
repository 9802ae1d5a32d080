"""From the inbox to the host: hand-overs, evidence, waiting, verdicts at delivery."""

import asyncio
import json

import pytest

from herd.core.authority_lock import AuthorityLock
from herd.core.clock import FakeClock, SystemClock
from herd.core.errors import (
    EligibilityDenied,
    EligibilityUnverified,
    HerdError,
    InvalidParams,
    RecoveryRequired,
    ResourceBusy,
    UnknownTarget,
)
from herd.core.identity import SessionName
from herd.core.limits import DEFAULT_LIMITS
from herd.mail.receipts import ACCEPTED, DELIVERED
from herd.mail.steps import HANDOVER_AFTER, INBOX_AFTER
from roles.eligibility_fake import FakeJudge
from roles.model import Allowed, Denied, Unverified
from tests.fakes.coordinators import Steps, asked, running, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL

TERMINAL = SessionName("terminal", "default")


@pytest.fixture
async def pair(alice, bob):
    """Two sessions of which the first may write to the second."""
    await alice.sees(bob)
    return alice, bob


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


def begun(asking):
    return asyncio.ensure_future(asking)


# --- handing over proves nothing -------------------------------------------------------------------


@pytest.mark.requirement(
    "D-adapter-02", "A-custody-12", "A-custody-14", "H-inbox-02", "H-inbox-03", "A-receipts-06"
)
async def test_a_hand_over_is_counted_and_only_evidence_makes_it_delivered(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    (before,) = await bob.incoming()
    (message,) = (await bob.read())["messages"]
    (handed,) = await bob.incoming()
    while_held = await alice.ask("status", message_id=sent["message_id"])
    await bob.ask("confirm", message_ids=[message["message_id"]], evidence="tool use 7")
    (confirmed,) = await bob.incoming()
    await alice.until_state(sent["message_id"], DELIVERED)

    assert (before.handovers, handed.handovers, confirmed.handovers) == (0, 1, 1)
    assert (handed.receipt.state, while_held["state"]) == (ACCEPTED, "accepted")
    assert (confirmed.receipt.state, confirmed.evidence) == (DELIVERED, "tool use 7")
    assert "again" not in message
    assert (await bob.read())["messages"] == []


@pytest.mark.requirement("D-adapter-02", "H-inbox-03")
async def test_evidence_of_what_was_never_handed_over_changes_nothing(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await bob.ask("confirm", message_ids=[sent["message_id"], "m-unknown"], evidence="a lie")
    (row,) = await bob.incoming()

    assert (row.receipt.state, row.handovers) == (ACCEPTED, 0)
    assert await bob.texts() == ["hello"]


async def test_evidence_from_one_reader_says_nothing_about_what_another_holds(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    other = bob.other_adapter()
    await bob.read()
    await asked(other, "confirm", message_ids=[sent["message_id"]], evidence="not mine")
    (row,) = await bob.incoming()

    assert row.receipt.state == ACCEPTED


async def test_evidence_given_twice_is_evidence_once(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await bob.read()
    for word in ("first", "second"):
        await bob.ask("confirm", message_ids=[sent["message_id"]] * 2, evidence=word)
    (row,) = await bob.incoming()

    assert (row.receipt.state, row.evidence) == (DELIVERED, "first")


@pytest.mark.requirement("D-evidence-02", "A-custody-15", "H-inbox-10", "H-inbox-13", "A-custody-14")
async def test_what_was_handed_over_without_evidence_is_given_once_more_marked_and_then_waits(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    marks = []
    for _ in range(3):
        reader = bob.other_adapter()
        marks += [one.get("again", False) for one in (await asked(reader, "read"))["messages"]]
        reader.ended()
    (row,) = await bob.incoming()

    assert marks == [False, True]
    assert (row.receipt.state, row.handovers) == (ACCEPTED, 2)
    assert await alice.state(sent["message_id"]) == "accepted"


@pytest.mark.requirement("H-inbox-13")
async def test_a_person_at_the_terminal_session_gets_what_waits_for_one(layout, alice):
    async with running(layout, TERMINAL) as terminal:
        await alice.sees(terminal)
        await alice.send(terminal, "for a person")
        for _ in range(2):
            reader = terminal.other_adapter()
            await asked(reader, "read")
            reader.ended()
        assert (await asked(terminal.other_adapter(), "read"))["messages"] == []
        (message,) = (await asked(terminal.other_adapter(command=True), "read"))["messages"]

        assert (message["text"], message["again"]) == ("for a person", True)


@pytest.mark.requirement("H-inbox-13")
async def test_a_command_inside_a_hosts_session_is_no_person(pair):
    alice, bob = pair
    await alice.send(bob)
    for _ in range(2):
        reader = bob.other_adapter()
        await asked(reader, "read")
        reader.ended()

    given = await asked(bob.other_adapter(command=True), "read")
    assert given["messages"] == []
    # Visibly: whoever wants it asks for it by its id.
    (message_id,) = given["set_aside"]
    by_id = await asked(bob.other_adapter(), "read", message_id=message_id)
    assert [one["message_id"] for one in by_id["messages"]] == [message_id]


@pytest.mark.requirement("A-restart-01", "H-inbox-09", "H-inbox-10")
async def test_the_next_instance_delivers_what_waits_once(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        await alice.send(bob, "handed over")
        await bob.read()
        await alice.send(bob, "never handed over")
    async with running(layout, BOB) as bob, running(layout, CAROL) as carol:
        given = (await bob.read())["messages"]
        assert (await carol.read())["messages"] == []
        await bob.ask("confirm", message_ids=[one["message_id"] for one in given], evidence="test")
    async with running(layout, BOB) as bob:
        assert (await bob.read())["messages"] == []

    assert [(one["text"], one.get("again", False)) for one in given] == [
        ("handed over", True),
        ("never handed over", False),
    ]


@pytest.mark.requirement("A-custody-04")
async def test_mail_is_accepted_while_nobody_reads(pair):
    alice, bob = pair
    sent = [await alice.send(bob, str(number)) for number in range(32)]

    assert {one["status"] for one in sent} == {"accepted"}


# --- who holds what --------------------------------------------------------------------------------


async def test_what_one_reader_holds_no_other_is_given_by_any_way(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    other = bob.other_adapter()
    await bob.read()

    assert (await asked(other, "read"))["messages"] == []
    assert (await asked(bob.other_adapter(command=True), "read"))["messages"] == []
    await refused(asked(other, "read", message_id=sent["message_id"]), ResourceBusy)
    (row,) = await bob.incoming()
    assert row.handovers == 1


async def test_who_holds_a_message_may_look_at_it_again(pair):
    alice, bob = pair
    sent = await alice.send(bob, "some text")
    await bob.read()
    (whole,) = (await bob.read(message_id=sent["message_id"]))["messages"]
    (part,) = (await bob.read(message_id=sent["message_id"], offset=5))["messages"]
    (row,) = await bob.incoming()

    assert (whole["text"], part["text"]) == ("some text", "text")
    assert row.handovers == 1
    await bob.ask("confirm", message_ids=[sent["message_id"]], evidence="test")


async def test_a_message_asked_for_by_its_id_is_handed_over_like_any_other(pair):
    alice, bob = pair
    sent = await alice.send(bob, "some text")
    await bob.read(message_id=sent["message_id"], offset=5)
    (row,) = await bob.incoming()

    assert row.handovers == 1
    assert (await asked(bob.other_adapter(), "read"))["messages"] == []


async def test_a_delivered_message_can_be_read_again_by_its_id(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await bob.read()
    await bob.ask("confirm", message_ids=[sent["message_id"]], evidence="test")
    (message,) = (await asked(bob.other_adapter(), "read", message_id=sent["message_id"]))["messages"]
    (row,) = await bob.incoming()

    assert message["text"] == "hello"
    assert "again" not in message
    assert (row.receipt.state, row.handovers) == (DELIVERED, 1)


async def test_what_a_reader_gives_back_wakes_the_next_one(pair):
    alice, bob = pair
    await alice.send(bob)
    await bob.read()
    waiting = begun(asked(bob.other_adapter(), "read", wait_ms=30_000))
    await until(lambda: bob.coordinator.delivery._reading.locked() is False)
    bob.adapter.ended()

    assert [one["again"] for one in (await waiting)["messages"]] == [True]


async def test_two_readers_at_once_never_get_the_same_message(pair):
    alice, bob = pair
    readers = [bob.other_adapter() for _ in range(4)]
    for number in range(20):
        await alice.send(bob, str(number))
    answers = await asyncio.gather(*(asked(reader, "read") for reader in readers for _ in range(3)))
    texts = [one["text"] for answer in answers for one in answer["messages"]]

    assert texts == [str(number) for number in range(20)]


# --- waiting ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-tools-06")
@pytest.mark.parametrize("wait_ms", [30_001, -1, 1.5, "5", True])
async def test_a_wait_outside_its_range_is_refused(bob, wait_ms):
    refusal = await refused(bob.read(wait_ms=wait_ms), InvalidParams)
    assert "wait_ms" in refusal.message


@pytest.mark.requirement("A-tools-06")
async def test_running_out_of_time_is_an_empty_answer_that_says_so(layout):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob:
        waiting = begun(bob.read(wait_ms=30_000))
        await clock.wait_for_sleepers()
        clock.advance(29.999)
        await bob.ask("whoami")
        assert not waiting.done()
        clock.advance(0.001)

        assert await waiting == {"messages": [], "receipts": [], "cursor": "0", "timed_out": True}
        assert (await bob.read())["timed_out"] is False


@pytest.mark.requirement("A-tools-16")
async def test_a_wait_misses_nothing_that_is_committed_before_or_while_it_begins(pair):
    alice, bob = pair
    got = []
    for number in range(40):
        sending = begun(alice.send(bob, str(number)))
        for _ in range(number):  # the read begins at another instant of the send each time
            await asyncio.sleep(0)
        got += await bob.texts(wait_ms=30_000)
        await sending
        await bob.ask("confirm", message_ids=[(await sending)["message_id"]], evidence="test")

    assert got == [str(number) for number in range(40)]


async def test_a_wait_is_ended_by_what_became_of_a_sent_message(layout):
    """The message was only queued when its sender began to wait; nobody but the custody tells more."""
    raw = RawPeer(CAROL)
    async with raw.listening(layout) as server, running(layout, BOB, clock=SystemClock()) as bob:
        await bob.ask("list")
        sending = begun(bob.send(raw.target))
        connection = await server.proved()
        request = await connection.message()
        assert (await sending)["status"] == "queued"
        waiting = begun(bob.read(wait_ms=30_000))
        await until(bob.coordinator.delivery._reading.locked)
        connection.accept(request)
        answer = await waiting

    assert [(one["message_id"], one["status"]) for one in answer["receipts"]] == [
        (request["params"]["messageId"], "accepted")
    ]


@pytest.mark.requirement("A-tools-07")
async def test_a_wait_that_is_called_off_takes_nothing(layout, alice):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
        waiting = begun(bob.read(wait_ms=30_000))
        await clock.wait_for_sleepers()
        waiting.cancel()
        await asyncio.wait({waiting})
        await alice.send(bob)
        (message,) = (await asked(bob.other_adapter(), "read"))["messages"]

        assert clock.sleeping == 0
        assert "again" not in message


async def test_a_wait_for_one_sender_is_not_ended_by_another(layout, pair):
    alice, bob = pair
    async with running(layout, CAROL) as carol:
        await carol.sees(bob)
        waiting = begun(bob.read(wait_ms=30_000, sender=alice.target))
        await carol.send(bob, "from carol")
        await bob.incoming()
        assert not waiting.done()
        await alice.send(bob, "from alice")

        assert [one["text"] for one in (await waiting)["messages"]] == ["from alice"]
        assert await bob.texts() == ["from carol"]


async def test_a_wait_for_the_answer_to_one_message(layout, pair):
    alice, bob = pair
    await alice.send(bob, "question")
    (question,) = (await bob.read())["messages"]
    waiting = begun(alice.read(wait_ms=30_000, reply_to=question["message_id"]))
    await bob.send(alice.target, "by the way")
    await bob.send(alice.target, "answer", reply_to=question["message_id"])
    answers = []
    while not answers:
        answers = (await waiting)["messages"]
        waiting = begun(alice.read(wait_ms=30_000, reply_to=question["message_id"]))
    waiting.cancel()

    assert [one["text"] for one in answers] == ["answer"]
    assert await alice.texts() == ["by the way"]


# --- how much --------------------------------------------------------------------------------------


@pytest.mark.requirement("A-tools-13")
async def test_one_answer_carries_24_kib_and_announces_the_rest(pair):
    alice, bob = pair
    for number in range(8):
        await alice.send(bob, f"{number}" * 7_000)
    given, mores = [], []
    for _ in range(3):
        answer = await bob.read()
        assert sum(len(one["text"].encode()) for one in answer["messages"]) <= 24_576
        given += [one["text"][0] for one in answer["messages"]]
        mores.append(answer.get("more", False))

    assert given == list("01234567")
    assert mores == [True, True, False]


async def test_texts_that_grow_in_a_frame_still_fit_into_one(layout, bob):
    """A control character takes one byte of a text and six of a frame; 32 such messages do not fit."""
    raw = RawPeer(CAROL)
    text = "\x01" * 1_200
    with raw.registered(layout):
        async with await raw.proved(bob.record()) as connection:
            for _ in range(32):
                await connection.accepted("peer.send", raw.envelope(bob.target, text))
    got = 0
    async with await RawPeer(ALICE).connect(bob.record()) as adapter:
        await adapter.accepted("session.authenticate", {"token": bob.token})
        more = True
        while more:
            answer = await adapter.accepted("session.read", {})
            frame = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
            assert len(frame) < DEFAULT_LIMITS.frame_bytes
            assert {one["text"] for one in answer["messages"]} == {text}
            assert not any("again" in one for one in answer["messages"])
            got += len(answer["messages"])
            more = answer.get("more", False)

    assert got == 32


@pytest.mark.requirement("A-tools-14")
async def test_a_text_comes_in_parts_by_id_and_offset(pair):
    alice, bob = pair
    sent = await alice.send(bob, "aé日\U0001f600z")
    parts = []
    for offset in range(6):
        (message,) = (await bob.read(message_id=sent["message_id"], offset=offset))["messages"]
        parts.append(message["text"])

    assert parts == ["aé日\U0001f600z", "é日\U0001f600z", "日\U0001f600z", "\U0001f600z", "z", ""]


async def test_an_offset_without_a_message_cuts_no_text(pair):
    alice, bob = pair
    await alice.send(bob)
    refusal = await refused(bob.read(offset=3), InvalidParams)

    assert "offset" in refusal.message
    assert await bob.texts() == ["hello"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": 5},
        {"after": "-1"},
        {"after": "1" * 19},
        {"sender": ""},
        {"message_id": ""},
        {"limit": 5},
        {"offset": -1},
    ],
    ids=str,
)
async def test_a_read_takes_its_own_fields_alone(bob, wrong):
    await refused(bob.read(**wrong), InvalidParams)


async def test_a_message_that_never_came_is_unknown(pair):
    alice, bob = pair
    sent = await alice.send(bob)
    await refused(bob.read(message_id="m-1"), UnknownTarget)
    await refused(bob.read(message_id=sent["message_id"], sender="lead:0000000000"), UnknownTarget)
    await refused(alice.read(message_id=sent["message_id"]), UnknownTarget)


async def test_the_header_says_terminal_of_the_terminal_session(layout, bob):
    async with running(layout, TERMINAL) as terminal:
        await terminal.sees(bob)
        await terminal.send(bob)
    (message,) = (await bob.read())["messages"]

    assert message["from"] == {"target": terminal.target, "name": "terminal", "role": "terminal"}


# --- the verdict at delivery -----------------------------------------------------------------------


@pytest.mark.requirement("H-inbox-06")
@pytest.mark.parametrize("by_id", [False, True], ids=["what waits", "by id"])
async def test_what_is_denied_at_its_delivery_is_rejected_and_shown_to_nobody(layout, alice, by_id):
    judge = FakeJudge()
    async with running(layout, BOB, judge=judge) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob, "a secret text")
        judge.now = Denied("the group has changed")
        if by_id:
            await refused(bob.read(message_id=sent["message_id"]), EligibilityDenied)
        else:
            assert (await bob.read())["messages"] == []
        await alice.until_state(sent["message_id"], "rejected")
        judge.now = Allowed()
        (row,) = await bob.incoming()

        assert (row.receipt.state, row.receipt.outcome, row.handovers) == (
            "rejected",
            "ELIGIBILITY_DENIED",
            0,
        )
        assert await bob.texts() == []
        await refused(bob.read(message_id=sent["message_id"]), UnknownTarget)
        status = await alice.ask("status", message_id=sent["message_id"])
        assert (status["state"], status["outcome"]) == ("rejected", "ELIGIBILITY_DENIED")


async def test_what_cannot_be_verified_at_its_delivery_stays_and_is_delivered_later(layout, alice):
    judge = FakeJudge()
    async with running(layout, BOB, judge=judge) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)
        judge.now = Unverified("the assignment cannot be read")
        assert (await bob.read())["messages"] == []
        refusal = await refused(bob.read(message_id=sent["message_id"]), EligibilityUnverified)
        judge.now = Allowed()
        (message,) = (await bob.read())["messages"]

        assert "the assignment cannot be read" in refusal.message
        assert "again" not in message
        assert await alice.state(sent["message_id"]) == "accepted"


async def test_delivery_judges_by_what_acceptance_verified_about_the_sender(layout):
    judge = FakeJudge()
    async with running(layout, BOB, judge=judge) as bob:
        async with running(layout, ALICE) as alice:
            await alice.sees(bob)
            await alice.send(bob)
        judge.asked.clear()
        assert await bob.texts() == ["hello"]

    ((sender, target),) = judge.asked
    assert (sender.key, sender.role, sender.kind, target.key) == (ALICE.key, "lead", "ordinary", BOB.key)


async def test_a_message_is_judged_and_counted_while_nobody_changes_authority(layout, pair):
    alice, bob = pair
    await alice.send(bob)
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    hold = await asyncio.to_thread(lock.exclusive)
    try:
        reading = begun(bob.read())
        await until(bob.coordinator.delivery._reading.locked)
        (row,) = await bob.incoming()
        assert (row.handovers, reading.done()) == (0, False)
    finally:
        hold.release()

    assert [one["text"] for one in (await reading)["messages"]] == ["hello"]


async def test_an_unhealthy_session_is_handed_nothing_and_loses_nothing(pair):
    alice, bob = pair
    await alice.send(bob)
    waiting = begun(bob.read(wait_ms=30_000, sender="lead:0000000000"))
    bob.coordinator.health.observed(RecoveryRequired("the disk is full"))
    refusal = await refused(bob.read(), RecoveryRequired)
    bob.coordinator.delivery.arrived()
    await refused(waiting, RecoveryRequired)
    bob.coordinator.health.fault = None

    assert "the disk is full" in refusal.message
    assert await bob.texts() == ["hello"]


async def test_what_is_accepted_while_a_reader_waits_is_handed_to_it_alone(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps) as bob:
        await alice.sees(bob)
        waiting = [begun(asked(bob.other_adapter(), "read", wait_ms=30_000)) for _ in range(3)]
        await until(lambda: all(not one.done() for one in waiting))
        for number in range(3):
            await alice.send(bob, str(number))
        answers = await asyncio.gather(*waiting)
        texts = sorted(one["text"] for answer in answers for one in answer["messages"])

        assert texts == ["0", "1", "2"]
        assert steps.taken(INBOX_AFTER) == 3
        assert 1 <= steps.taken(HANDOVER_AFTER) <= 3
