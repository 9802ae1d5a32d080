"""Messages that wait together on one route, from the calls that sent them to the frames that carry them.

The recipient is made by hand, so that a test says what it answers to which request, and when.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from herd.core.errors import MessageIdConflict
from herd.core.limits import DEFAULT_LIMITS, SENT_TOGETHER
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, running, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB

ROOMY = UNHURRIED._replace(inbox_messages=1_000)


class Bob:
    """A recipient made by hand, and the sends of Alice that wait for it."""

    def __init__(self, alice, raw, connection):
        self.alice = alice
        self.target = raw.target
        self.connection = connection
        self.sends = []

    async def sent(self, *texts):
        """Let Alice send these at once, and wait until all are queued."""
        before = len(await self.alice.outgoing())
        self.sends += [asyncio.ensure_future(self.alice.send(self.target, text)) for text in texts]
        async with asyncio.timeout(IN_TIME_S):
            while len(rows := await self.alice.outgoing()) < before + len(texts):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
        return [row.message_id for row in rows[before:]]

    async def cancelled(self, message_id):
        """Let Alice take a message back while its route is at work, for the end of which that waits."""
        route = self.alice.coordinator.routes._routes[self.target]
        cancelling = asyncio.ensure_future(self.alice.ask("cancel", message_id=message_id))
        await until(lambda: bool(route.quiet._waiters))
        return cancelling

    async def asked(self, method):
        """Give the next request that hands something in; what is asked of receipts meanwhile is refused."""
        while True:
            request = await self.connection.asked()
            if request["method"] in {"peer.send", "peer.sendMany"}:
                assert request["method"] == method, request
                return request
            self.connection.refuse(request, "UNKNOWN_TARGET")

    def take(self, request, count=None, code=None, **details):
        """Answer a request for several: the first ones are accepted, the next one is refused."""
        messages = request["params"]["messages"]
        result = {"receipts": [receipt_of(one) for one in messages[:count]]}
        if code is not None:
            error = {"code": -32000, "message": f"{code}: no", "data": {"code": code, **details}}
            result["refusal"] = error
        self.connection.answer(request, result)


def receipt_of(envelope):
    named = {"messageId": envelope["messageId"], "to": envelope["to"], "custodyId": "raw-custody"}
    return {**named, "state": "accepted", "cursor": 1, "acceptedAt": 1_700_000_000_000}


def texts_in(request):
    return [one["content"] for one in request["params"]["messages"]]


@asynccontextmanager
async def bob_of(layout, **chosen) -> AsyncIterator[Bob]:
    """Give a Bob who has the first message of Alice and has not answered it."""
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server, running(layout, ALICE, **chosen) as alice:
        await alice.ask("list")
        sending = asyncio.ensure_future(alice.send(raw.target, "first"))
        bob = Bob(alice, raw, await server.proved())
        bob.sends.append(sending)
        try:
            yield bob
        finally:
            await asyncio.gather(*bob.sends, return_exceptions=True)


@pytest.mark.requirement("A-order-01", "A-order-02")
async def test_what_waits_behind_the_first_goes_in_one_request_and_each_call_learns_its_own_receipt(layout):
    async with bob_of(layout) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c")
        bob.connection.accept(first)
        request = await bob.asked("peer.sendMany")
        assert [one["messageId"] for one in request["params"]["messages"]] == ids
        bob.take(request)
        answers = await asyncio.gather(*bob.sends)

        assert [answer["status"] for answer in answers] == ["accepted"] * 4
        assert [answer["message_id"] for answer in answers[1:]] == ids
        await bob.alice.coordinator.routes.written()
        assert [row.receipt.state for row in await bob.alice.outgoing()] == ["accepted"] * 4


@pytest.mark.requirement("A-order-06")
async def test_a_refusal_in_the_middle_rejects_one_and_the_others_go_on(layout):
    async with bob_of(layout) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c", "d")
        bob.connection.accept(first)
        bob.take(await bob.asked("peer.sendMany"), 1, "MESSAGE_ID_CONFLICT")
        rest = await bob.asked("peer.sendMany")
        assert texts_in(rest) == ["c", "d"]
        bob.take(rest)
        outcomes = await asyncio.gather(*bob.sends, return_exceptions=True)

        assert outcomes[2].code == "MESSAGE_ID_CONFLICT"
        assert [outcomes[number]["status"] for number in (1, 3, 4)] == ["accepted"] * 3
        await bob.alice.coordinator.routes.written()
        states = [await bob.alice.state(one) for one in ids]
        assert states == ["accepted", "rejected", "accepted", "accepted"]


@pytest.mark.requirement("A-order-05", "A-order-07", "A-limits-03")
async def test_a_full_inbox_in_the_middle_keeps_that_one_and_those_behind_it_pending(layout):
    async with bob_of(layout) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c")
        bob.connection.accept(first)
        bob.take(await bob.asked("peer.sendMany"), 1, "QUEUE_FULL", retry_after_ms=1)
        again = await bob.asked("peer.send")
        assert again["params"]["messageId"] == ids[1], "what is tried again goes alone"
        bob.connection.accept(again)
        last = await bob.asked("peer.send")
        assert last["params"]["messageId"] == ids[2]
        bob.connection.accept(last)

        assert [answer["status"] for answer in await asyncio.gather(*bob.sends)] == ["accepted"] * 4


@pytest.mark.requirement("A-custody-08", "A-custody-09")
async def test_when_the_answer_is_lost_all_of_them_come_again_one_by_one_under_their_ids(layout):
    async with bob_of(layout, limits=UNHURRIED._replace(acknowledgement_ms=200)) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c")
        bob.connection.accept(first)
        request = await bob.asked("peer.sendMany")
        envelopes = request["params"]["messages"]
        for envelope in envelopes:
            again = await bob.asked("peer.send")
            assert again["params"] == envelope
            assert again["id"] != request["id"]
            bob.connection.accept(again)

        await asyncio.gather(*bob.sends)
        await until(lambda: not bob.alice.coordinator.carrier._untouched)
        await bob.alice.coordinator.routes.written()
        assert [await bob.alice.state(one) for one in ids] == ["accepted"] * 3


@pytest.mark.parametrize("code", ["METHOD_NOT_FOUND", "INVALID_PARAMS", "FRAME_TOO_LARGE"])
async def test_one_who_does_not_take_the_request_gets_single_ones_and_judges_each(layout, code):
    async with bob_of(layout) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c")
        bob.connection.accept(first)
        bob.connection.refuse(await bob.asked("peer.sendMany"), code)
        bob.connection.accept(await bob.asked("peer.send"))
        bob.connection.refuse(await bob.asked("peer.send"), "INVALID_PARAMS")
        last = await bob.asked("peer.send")
        assert last["params"]["messageId"] == ids[2]
        bob.connection.accept(last)
        outcomes = await asyncio.gather(*bob.sends, return_exceptions=True)

        assert outcomes[2].code == "INVALID_PARAMS"
        assert [outcomes[number]["status"] for number in (1, 3)] == ["accepted"] * 2


async def test_no_request_is_larger_than_a_frame_or_holds_more_than_may_go_together(layout):
    large, many = ["x" * 6_000] * 30, [f"{number}" for number in range(SENT_TOGETHER + 5)]
    async with bob_of(layout, limits=ROOMY._replace(pending_requests=512)) as bob:
        first = await bob.asked("peer.send")
        await bob.sent(*large, *many)
        bob.connection.accept(first)
        came, sizes = [], []
        while len(came) < len(large) + len(many):
            request = await bob.asked("peer.sendMany")
            sizes.append(len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode()))
            came += texts_in(request)
            assert len(texts_in(request)) <= SENT_TOGETHER
            bob.take(request)

        assert came == [*large, *many]
        assert max(sizes) <= DEFAULT_LIMITS.frame_bytes
        assert sizes[0] > DEFAULT_LIMITS.frame_bytes - 8_192, "as many as fit"


@pytest.mark.requirement("A-order-08")
async def test_what_is_cancelled_before_its_request_is_in_none_and_nobody_is_asked_about_it(layout):
    async with bob_of(layout) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c")
        cancelling = await bob.cancelled(ids[1])
        bob.connection.accept(first)
        request = await bob.asked("peer.sendMany")
        assert texts_in(request) == ["a", "c"]
        bob.take(request)

        assert (await cancelling)["state"] == "rejected"
        await asyncio.gather(*bob.sends, return_exceptions=True)


@pytest.mark.requirement("A-order-08")
@pytest.mark.parametrize("accepted", [True, False])
async def test_what_is_cancelled_while_its_request_is_under_way_is_what_the_recipient_makes_of_it(
    layout, accepted
):
    async with bob_of(layout) as bob:
        first = await bob.asked("peer.send")
        ids = await bob.sent("a", "b", "c")
        bob.connection.accept(first)
        request = await bob.asked("peer.sendMany")
        cancelling = await bob.cancelled(ids[1])
        if accepted:
            bob.take(request)
        else:
            bob.take(request, 1, "QUEUE_FULL", retry_after_ms=60_000)
        question = await bob.connection.asked()
        assert (question["method"], question["params"]["messageId"]) == ("peer.status", ids[1])
        if accepted:
            bob.connection.answer(question, receipt_of(request["params"]["messages"][1]))
            with pytest.raises(MessageIdConflict, match="accepted already"):
                await cancelling
            return
        bob.connection.refuse(question, "UNKNOWN_TARGET")

        assert (await cancelling)["state"] == "rejected"
        last = await bob.asked("peer.send")
        assert last["params"]["messageId"] == ids[2]
        bob.connection.accept(last)


@pytest.mark.requirement("A-order-01")
async def test_twenty_sends_at_once_reach_a_real_recipient_in_their_order(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        texts = [f"{number}" for number in range(20)]
        answers = await asyncio.gather(*(alice.send(bob, text) for text in texts))

        assert {answer["status"] for answer in answers} == {"accepted"}
        rows = await bob.incoming()
        assert [row.content for row in rows] == texts
        assert [row.sequence for row in rows] == list(range(1, 21))


@pytest.mark.requirement("A-limits-03")
async def test_of_sends_at_once_to_a_sleeping_session_32_are_accepted_in_their_order(layout):
    async with running(layout, BOB) as bob:
        target = bob.target
    async with running(layout, ALICE) as alice:
        await alice.ask("list")
        async with running(layout, BOB) as bob:
            await alice.sees(bob)
        texts = [f"{number}" for number in range(33)]
        sends = [asyncio.ensure_future(alice.send(target, text)) for text in texts]
        await asyncio.wait(sends[:32])
        for send in sends[32:]:
            send.cancel()
    async with running(layout, BOB) as bob:
        assert [row.content for row in await bob.incoming()] == texts[:32]
