"""Reads that wait for one answer or one peer, and reads whose session ends."""

import asyncio

import pytest

from herd.core.errors import NoSession
from tests.fakes.coordinators import running
from tests.fakes.records import layout_at, session_of

ALICE, BOB, CAROL = session_of(1), session_of(2, "pi"), session_of(3, "codex")


@pytest.fixture
def layout(home):
    return layout_at(home)


async def test_a_wait_for_an_answer_is_not_ended_twice_by_one_receipt(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob)
        first = await alice.read(reply_to=sent["message_id"], wait_ms=30_000)
        waiting = asyncio.ensure_future(alice.read(reply_to=sent["message_id"], wait_ms=30_000))
        [message] = (await bob.read())["messages"]
        await bob.ask("send", target=message["from"]["target"], message="yes", reply_to=message["message_id"])

        answers = [await waiting]
        while not answers[-1]["messages"]:
            answers.append(await alice.read(reply_to=sent["message_id"], wait_ms=30_000))

    assert [one["status"] for one in first["receipts"]] == ["accepted"]
    told = [one["status"] for answer in answers for one in answer["receipts"]]
    assert "accepted" not in told
    assert len(told) == len(set(told))
    assert [one["text"] for one in answers[-1]["messages"]] == ["yes"]


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
