"""What comes to an idle session and is no message: receipts, and who comes and goes. No turn begins by it."""

import pytest

from herd.mail.receipts import ACCEPTED, DELIVERED, REJECTED, REPLIED
from roles.eligibility_fake import FakeJudge
from roles.model import Allowed, Denied
from tests.fakes.coordinators import asked, running, until, until_async
from tests.fakes.listening import Listening, looked
from tests.fakes.records import ALICE, BOB, CAROL


@pytest.fixture
async def alice(layout):
    async with running(layout, ALICE, name="alice") as one:
        yield one


@pytest.fixture
async def bob(layout, alice):
    async with running(layout, BOB, name="bob") as one:
        await alice.sees(one)
        await one.sees(alice)
        await one.ask("update", activity="idle", turn_ended=True)
        yield one


@pytest.fixture(params=["nothing waits", "mail waits that wakes nobody", "mail waits that woke it already"])
async def ear(request, alice, bob):
    """Give what an idle session's host hears, whatever lies in its mailbox already."""
    ear = Listening(bob)
    if request.param != "nothing waits":
        await alice.send(bob, "earlier", no_reply_needed=request.param == "mail waits that wakes nobody")
        await ear.all_heard()
    return ear


async def read_by(session):
    """Have a session's host take everything, and say so."""
    messages = (await session.read())["messages"]
    ids = [message["message_id"] for message in messages]
    await session.ask("confirm", message_ids=ids, evidence="test")
    return messages


@pytest.mark.requirement("A-boundary-21")
async def test_no_receipt_begins_a_turn(alice, bob, ear):
    sent = await bob.send(alice, "is it green?")
    await bob.until_state(sent["message_id"], ACCEPTED)
    await read_by(alice)
    await bob.until_state(sent["message_id"], DELIVERED)
    await looked(bob)

    assert ear.wakes == 0
    reader = bob.other_adapter()
    assert [
        one["status"] for one in (await asked(reader, "read", reply_to=sent["message_id"]))["receipts"]
    ] == [DELIVERED]
    assert ear.wakes == 0


@pytest.mark.requirement("A-boundary-21")
async def test_that_a_message_was_replied_to_begins_none_beyond_what_the_reply_itself_may(alice, bob, ear):
    sent = await bob.send(alice, "is it green?")
    await read_by(alice)
    await alice.send(bob, "yes", reply_to=sent["message_id"], no_reply_needed=True)
    await bob.until_state(sent["message_id"], REPLIED)
    heard = await ear.all_heard()

    assert heard
    assert not any(one.wake for one in heard)


@pytest.mark.requirement("A-boundary-21")
async def test_a_refusal_that_comes_late_begins_none(layout, bob, ear):
    judge = FakeJudge(Allowed())
    async with running(layout, CAROL, name="carol", judge=judge) as carol:
        await bob.sees(carol)
        sent = await bob.send(carol, "accepted at first")
        judge.now = Denied("managed by now")
        await carol.read()
        await bob.until_state(sent["message_id"], REJECTED)
    await looked(bob)

    assert ear.wakes == 0


@pytest.mark.requirement("A-boundary-21")
async def test_receipts_that_come_while_it_is_away_begin_none_when_it_is_idle_again_or_starts(
    layout, alice, bob, ear
):
    await bob.ask("update", activity="working")
    sent = await bob.send(alice, "is it green?")
    await read_by(alice)
    await bob.until_state(sent["message_id"], DELIVERED)
    await bob.ask("update", activity="idle")
    await looked(bob)

    assert ear.wakes == 0


@pytest.mark.requirement("A-boundary-21")
async def test_nobody_who_comes_changes_or_goes_begins_a_turn(layout, alice, bob, ear):
    async def has(**labels):
        peers = (await bob.ask("list"))["peers"]
        return any(labels.items() <= peer.items() for peer in peers)

    async with running(layout, CAROL, name="carol") as carol:
        await until_async(lambda: has(name="carol"))
        for changed in ({"name": "caro"}, {"cwd": "/work/elsewhere"}, {"activity": "waiting"}):
            await carol.ask("update", **changed)
            await until_async(lambda labels=changed: has(**labels))
        carol.coordinator.withdraw()
        assert not await has(target=carol.target)
    await alice.ask("update", activity="away", name="anna")
    await until_async(lambda: has(name="anna"))
    await bob.ask("update", name="robert", cwd="/work/there")
    await until(lambda: bob.presence().name == "robert")
    await looked(bob)

    assert ear.wakes == 0


@pytest.mark.requirement("A-boundary-21")
async def test_mail_that_waits_for_somebody_who_comes_back_goes_out_and_begins_none_here(layout, bob, ear):
    async with running(layout, CAROL) as carol:
        await bob.sees(carol)
    sent = await bob.send(carol.target, "for later")
    async with running(layout, CAROL) as carol:
        assert [message["text"] for message in await read_by(carol)] == ["for later"]
        await bob.until_state(sent["message_id"], DELIVERED)
    await looked(bob)

    assert ear.wakes == 0


@pytest.mark.requirement("A-boundary-21")
async def test_a_message_that_comes_behind_all_that_does(alice, bob, ear):
    sent = await bob.send(alice, "is it green?")
    await read_by(alice)
    await bob.until_state(sent["message_id"], DELIVERED)
    await bob.ask("update", turn_ended=True)
    await ear.all_heard()
    await alice.send(bob, "wakes")
    await looked(bob)

    assert ear.wakes == 1
