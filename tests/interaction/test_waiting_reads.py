"""Reads that wait for one answer or one peer, and reads whose session ends."""

import asyncio

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import NoSession
from tests.fakes.coordinators import running
from tests.fakes.records import ALICE, BOB, CAROL


async def test_a_wait_for_an_answer_is_ended_by_it_and_by_no_receipt_on_the_way(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)
        waiting = asyncio.ensure_future(alice.read(reply_to=sent["message_id"], wait_ms=30_000))
        [message] = (await bob.read())["messages"]
        await bob.ask("confirm", message_ids=[message["message_id"]], evidence="test")
        await alice.until_state(sent["message_id"], "delivered")
        await bob.ask("send", target=message["from"]["target"], message="yes", reply_to=message["message_id"])

        answer = await waiting

    assert [one["text"] for one in answer["messages"]] == ["yes"]
    # What became of the question meanwhile stands in the answer, once.
    assert [one["message_id"] for one in answer["receipts"]] == [sent["message_id"]]


async def test_a_wait_is_not_ended_by_what_the_answer_to_the_send_has_told(layout):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)
        assert sent["status"] == "accepted"
        await alice.until_state(sent["message_id"], "accepted")
        waiting = asyncio.ensure_future(alice.read(wait_ms=30_000))
        await clock.wait_for_sleepers()
        clock.advance(30)

        answer = await waiting

    assert answer["messages"] == []
    assert [one["status"] for one in answer["receipts"]] == ["accepted"]


async def test_a_wait_for_one_peer_is_not_ended_by_what_became_of_mail_to_another(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob, running(layout, CAROL) as carol:
        await alice.sees(bob, carol)
        await bob.sees(alice)
        await alice.send(carol)
        await alice.until_state((await alice.outgoing())[0].message_id, "accepted")
        waiting = asyncio.ensure_future(alice.ask("read", **{"from": bob.target, "wait_ms": 30_000}))
        await bob.send(alice, "from bob")

        answer = await waiting

    assert answer["receipts"] == []
    assert [one["text"] for one in answer["messages"]] == ["from bob"]


async def test_a_read_that_waits_is_answered_when_its_session_ends(layout):
    async with running(layout, BOB) as bob:
        waiting = asyncio.ensure_future(bob.read(wait_ms=30_000))
        await bob.ask("whoami")

    with pytest.raises(NoSession):
        await waiting
