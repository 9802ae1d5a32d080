"""`peer.subscribe`: every change of a receipt is pushed to who subscribed, none lost, over restarts."""

import pytest

from herd.mail import inbox, pushes
from herd.mail.conversations import reply_was_accepted
from tests.fakes.coordinators import running, until_async
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL


@pytest.fixture
def bob(layout):
    with RawPeer(BOB).registered(layout) as one:
        yield one


async def asked_by(bob, alice, wire, message_id="m-1", *, subscribes=True):
    await wire.accepted("peer.send", bob.envelope(alice.target, messageId=message_id))
    if subscribes:
        return await wire.accepted("peer.subscribe", {"messageId": message_id, "to": alice.target})
    return None


async def changed(alice, message_id="m-1"):
    """Let a message become delivered and then replied in one transaction, before anything can be told."""

    def work(connection):
        (row,) = inbox.by_id(connection, message_id)
        inbox.count_handovers(connection, [row.sequence], 1_800_000_000_000)
        inbox.confirm(connection, [row.sequence], "test", 1_800_000_000_001)
        reply_was_accepted(connection, message_id, BOB.key, None, 1_800_000_000_002)
        return inbox.by_id(connection, message_id)[0]

    return await alice.coordinator.mailbox.run(work)


async def pushed(wire, count, *, confirms=True):
    states = []
    while len(states) < count:
        request = await wire.asked()
        if request["method"] == "peer.receipt":
            receipt = request["params"]["receipt"]
            states.append((receipt["messageId"], receipt["state"], receipt["cursor"]))
            if confirms:
                wire.answer(request, {"recorded": True})
    return states


@pytest.mark.requirement("A-methods-08", "A-methods-09")
async def test_a_subscriber_gets_the_receipt_as_it_stands_and_every_later_change(alice, bob):
    async with await bob.proved(alice.record()) as wire:
        answer = await asked_by(bob, alice, wire)
        assert answer["subscribed"] is True
        assert (answer["receipt"]["messageId"], answer["receipt"]["state"]) == ("m-1", "accepted")
        alice.coordinator.row_changed(await changed(alice))
        told = await pushed(wire, 2)

    assert [state for _, state, _ in told] == ["delivered", "replied"]
    assert told[0][2] < told[1][2]


async def test_who_did_not_subscribe_gets_the_newest_alone(alice, bob):
    async with await bob.proved(alice.record()) as wire:
        await asked_by(bob, alice, wire, "m-2", subscribes=False)
        await asked_by(bob, alice, wire)
        await changed(alice, "m-2")
        alice.coordinator.row_changed(await changed(alice))
        told = await pushed(wire, 3)

    assert [one[:2] for one in told] == [("m-2", "replied"), ("m-1", "delivered"), ("m-1", "replied")]


@pytest.mark.requirement("A-methods-09")
async def test_a_change_right_behind_the_answer_is_pushed(alice, bob):
    async with await bob.proved(alice.record()) as wire:
        await wire.accepted("peer.send", bob.envelope(alice.target, messageId="m-1"))
        wire.say("peer.subscribe", {"messageId": "m-1", "to": alice.target}, 60)

        async def subscribed():
            rows = "SELECT 1 FROM inbox WHERE subscribed = 1"
            return await alice.coordinator.mailbox.run(lambda c: c.execute(rows).fetchone())

        await until_async(subscribed)
        alice.coordinator.row_changed(await changed(alice))

        assert [state for _, state, _ in await pushed(wire, 2)] == ["delivered", "replied"]


@pytest.mark.requirement("A-methods-09")
async def test_what_was_not_confirmed_is_pushed_again_by_the_next_instance_and_then_no_more(layout, bob):
    async with running(layout, ALICE) as alice, await bob.proved(alice.record()) as wire:
        await asked_by(bob, alice, wire)
        await changed(alice)
    async with running(layout, ALICE) as alice, await bob.proved(alice.record()) as wire:
        assert [state for _, state, _ in await pushed(wire, 2)] == ["delivered", "replied"]

        async def settled():
            return not await alice.coordinator.mailbox.run(lambda c: pushes.owed(c, BOB.key))

        await until_async(settled)
        assert await alice.coordinator.mailbox.run(inbox.owed) == []


@pytest.mark.requirement("A-methods-08")
async def test_nobody_else_can_subscribe_and_is_told_nothing(layout, alice, bob):
    async with await bob.proved(alice.record()) as wire:
        await asked_by(bob, alice, wire, subscribes=False)
        with RawPeer(CAROL).registered(layout) as carol:
            async with await carol.proved(alice.record()) as other:
                question = {"messageId": "m-1", "to": alice.target}
                assert await other.refused("peer.subscribe", question) == "SCOPE_DENIED"
                assert (
                    await other.refused("peer.subscribe", {**question, "messageId": "x"}) == "UNKNOWN_TARGET"
                )

    (row,) = await alice.incoming()
    assert await alice.coordinator.mailbox.run(lambda c: pushes.owed(c, CAROL.key)) == []
    assert not await alice.coordinator.mailbox.run(
        lambda c: c.execute("SELECT subscribed FROM inbox WHERE sequence = ?", (row.sequence,)).fetchone()[0]
    )
