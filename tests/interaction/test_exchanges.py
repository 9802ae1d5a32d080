"""Replies: only within the exact exchange, over restarts of both sides, and no more of them than allowed."""

import asyncio

import pytest

from herd.core.errors import AutomaticReplyLimit, InvalidReply
from herd.core.limits import DEFAULT_LIMITS
from herd.mail.receipts import ACCEPTED, REPLIED
from tests.fakes.coordinators import running
from tests.fakes.listening import Listening
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL

MOST = DEFAULT_LIMITS.automatic_replies
FEW = 3


async def sent_by(session):
    return [row.message_id for row in await session.outgoing()]


@pytest.mark.requirement("A-reply-02", "A-errors-10")
async def test_a_reply_names_a_message_of_the_very_target_or_nothing_is_queued(layout, alice, bob):
    async with running(layout, CAROL) as carol:
        await alice.sees(bob, carol)
        await bob.sees(alice, carol)
        mine = await bob.send(alice, "from bob")
        sent = await alice.send(bob, "from alice")
        before = await sent_by(alice)
        for target, reply_to in (
            (carol, mine["message_id"]),  # it came from another
            (bob, sent["message_id"]),  # it is her own
            (bob, "m-unknown"),
        ):
            with pytest.raises(InvalidReply) as refusal:
                await alice.send(target, "an answer", reply_to=reply_to)
            assert "received from this very target" in refusal.value.next_step
        assert await sent_by(alice) == before

        await alice.send(bob, "an answer", reply_to=mine["message_id"])
        assert await bob.state(mine["message_id"]) == REPLIED


@pytest.mark.requirement("A-reply-03")
async def test_a_reply_to_what_was_never_sent_to_its_sender_is_not_let_in(layout, alice, bob):
    await alice.sees(bob)
    sent = (await alice.send(bob, "to bob"))["message_id"]
    with RawPeer(CAROL).registered(layout) as carol:
        async with await carol.proved(alice.record()) as wire:
            for changed in ({"replyTo": sent, "correlationId": sent}, {"replyTo": "made-up"}):
                envelope = carol.envelope(alice.target, **changed)
                assert await wire.refused("peer.send", envelope) == "INVALID_REPLY"

    assert await alice.incoming() == []
    assert await alice.state(sent) == ACCEPTED


@pytest.mark.requirement("A-reply-05")
@pytest.mark.parametrize("first", [True, False], ids=["the asker first", "the one asked first"])
async def test_a_reply_finds_the_session_that_asked_after_restarts_of_both(layout, first):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent = (await alice.send(bob, "a question"))["message_id"]
    order = [ALICE, BOB] if first else [BOB, ALICE]
    async with running(layout, order[0]) as one, running(layout, order[1]) as two:
        alice, bob = (one, two) if first else (two, one)
        (question,) = (await bob.read())["messages"]
        await bob.send(alice, "an answer", reply_to=question["message_id"])
        await alice.until_state(sent, REPLIED)
        (answer,) = (await alice.read())["messages"]

    assert (answer["reply_to"], answer["from"]["target"]) == (sent, bob.target)


async def handed(session):
    return (await session.read())["messages"][-1]["message_id"]


@pytest.mark.requirement("A-reply-07")
async def test_what_follows_a_hand_over_is_one_deeper_and_a_persons_prompt_begins_afresh(alice, bob):
    Listening(bob)
    await alice.sees(bob)
    await bob.sees(alice)
    for depth in (0, 1):  # undriven, Alice answers one deeper than what she answers
        more = {"reply_to": await handed(alice)} if depth else {}
        await alice.send(bob, "go on", **more)
        reply = await bob.send(alice, "an answer", reply_to=await handed(bob))
        row = next(one for one in await bob.outgoing() if one.message_id == reply["message_id"])
        asked = (await bob.incoming())[-1]
        assert (row.depth, row.conversation_id) == (asked.depth + 1, asked.conversation_id)
    await bob.ask("update", person_prompted=True)
    await bob.send(alice, "a person's", reply_to=(await bob.incoming())[-1].message_id)
    assert (await bob.outgoing())[-1].depth == 0


async def branching(one, other, asked, count):
    """Answer one message again and again, as a conversation does that branches."""
    for number in range(count):
        await one.send(other, f"branch {number}", reply_to=asked)


@pytest.mark.requirement("A-reply-09", "A-limits-15", "A-errors-29")
@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "over restarts"])
async def test_a_conversation_that_branches_does_not_get_past_the_bound(layout, restarts):
    async with running(layout, ALICE) as alice:
        async with running(layout, BOB) as bob:
            Listening(bob)
            await alice.sees(bob)
            await alice.send(bob, "a question")
            asked = await handed(bob)
            await branching(bob, alice, asked, MOST if not restarts else MOST - 2)
            bobs = bob
            if not restarts:
                await is_over(bob, alice, asked)
        if not restarts:
            return
    async with running(layout, BOB) as bobs, running(layout, ALICE) as alice:
        Listening(bobs)
        # Another instance is handed nothing anew, and yet it was no person who went on here.
        bobs.coordinator.thread.handed([row for row in await bobs.incoming() if row.message_id == asked])
        await branching(bobs, alice, asked, 2)
        await is_over(bobs, alice, asked)
        await bobs.ask("update", person_prompted=True)
        assert (await bobs.send(alice, "a person's", reply_to=asked))["status"] == ACCEPTED
        bobs.coordinator.thread.handed([row for row in await bobs.incoming() if row.message_id == asked])
        await branching(bobs, alice, asked, MOST)
        await is_over(bobs, alice, asked)


async def is_over(session, other, asked):
    rows = await sent_by(session)
    with pytest.raises(AutomaticReplyLimit) as refusal:
        await session.send(other, "number nine", reply_to=asked)
    assert "person" in refusal.value.next_step
    assert await sent_by(session) == rows


@pytest.mark.requirement("A-reply-09")
async def test_what_was_received_counts_as_what_was_sent(alice, bob):
    for one in (alice, bob):
        Listening(one)
    await alice.sees(bob)
    await alice.send(bob, "a question")
    question = await handed(bob)
    await branching(bob, alice, question, MOST - 1)  # in Alice's mailbox these are received
    answers = (await alice.read())["messages"]
    await alice.send(bob, "an eighth", reply_to=answers[0]["message_id"])

    await is_over(alice, bob, answers[1]["message_id"])
    await is_over(bob, alice, question)


@pytest.mark.requirement("A-reply-09", "A-limits-15", "A-errors-29")
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_receiver_counts_by_itself_whatever_the_sender_says(layout, restarted):
    peer, limits = RawPeer(BOB), DEFAULT_LIMITS._replace(automatic_replies=FEW)

    async def sent(count, alice, number=0, depth=1):
        async with await peer.proved(alice.record()) as wire:
            for one in range(number, number + count):
                envelope = peer.envelope(
                    alice.target,
                    messageId=f"r-{one}",
                    correlationId="c-1",
                    conversation={"id": f"other-{one}", "depth": depth},
                )
                answer = await wire.request("peer.send", envelope)
                if "error" in answer:
                    return answer["error"]["data"]["code"]
        return None

    with peer.registered(layout):
        async with running(layout, ALICE, limits=limits) as alice:
            Listening(alice)
            assert await sent(FEW - 1 if restarted else FEW, alice) is None
            if not restarted:
                assert await sent(1, alice, FEW) == "AUTOMATIC_REPLY_LIMIT"
                assert await sent(1, alice, FEW - 1) is None, "what comes again gets its first receipt"
                return
        async with running(layout, ALICE, limits=limits) as alice:
            Listening(alice)
            assert await sent(1, alice, FEW - 1) is None
            assert await sent(1, alice, FEW) == "AUTOMATIC_REPLY_LIMIT"
            assert len(await alice.incoming()) == FEW


@pytest.mark.requirement("A-reply-08", "A-limits-15")
async def test_three_that_answer_in_a_circle_are_stopped(layout, alice, bob):
    async with running(layout, CAROL) as carol:
        circle = [alice, bob, carol]
        for one in circle:
            Listening(one)
            await one.sees(*(other for other in circle if other is not one))
        await alice.send(bob, "go")
        sent = 0
        async with asyncio.timeout(20):
            while True:
                one, following = circle[(sent + 1) % 3], circle[(sent + 2) % 3]
                await handed(one)
                try:
                    await one.send(following, f"after {sent}")
                except AutomaticReplyLimit:
                    break
                sent += 1
        rows = [row for session in circle for row in await session.outgoing()]

    assert sent == MOST
    assert sorted(row.depth for row in rows) == list(range(MOST + 1))
