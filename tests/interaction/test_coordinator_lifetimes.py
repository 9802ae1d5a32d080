"""Lifetimes between real coordinators: each counts by its own clock, and both ends learn what expired."""

import asyncio
import os

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import InvalidParams, UnknownTarget
from herd.core.limits import DEFAULT_LIMITS, SEND_WAIT_MS
from herd.mail.receipts import ACCEPTED, DELIVERED, EXPIRED, PENDING
from tests.fakes.coordinators import IN_TIME_S, running, until, until_async
from tests.fakes.mail import started_once
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL

QUARTER_MS = 15 * 60 * 1000
SOON = DEFAULT_LIMITS._replace(acknowledgement_ms=100)
HOUR_MS = 3_600_000


@pytest.fixture
def clock():
    return FakeClock(1_000)


@pytest.fixture
async def alice(layout, clock):
    async with running(layout, ALICE, clock=clock) as one:
        yield one


@pytest.fixture
async def hasty(layout, clock):
    """Alice, who does not wait long for an answer."""
    async with running(layout, ALICE, clock=clock, limits=SOON) as one:
        yield one


@pytest.fixture
def bobs_clock():
    """Bob's machine started at another time, and its wall clock is a quarter of an hour behind."""
    return FakeClock(5, start_wall_ms=1_800_000_000_000 - QUARTER_MS)


@pytest.fixture
async def bob(layout, bobs_clock):
    async with running(layout, BOB, clock=bobs_clock) as one:
        yield one


async def queued(alice, clock, to, text="hello", **more):
    """Send what no mailbox takes, and let the call's own wait pass."""
    rows = len(await alice.outgoing())
    sending = asyncio.ensure_future(alice.send(to, text, **more))

    async def waits():
        return len(await alice.outgoing()) > rows and clock.sleeping

    await until_async(waits)
    clock.advance(SEND_WAIT_MS / 1000)
    sent = await sending
    # The pause of the route, and where there is one the lifetime.
    await until(lambda: clock.sleeping >= (2 if "expires_in_ms" in more else 1))
    assert sent["status"] == "queued"
    return sent["message_id"]


def absent(layout):
    """Give Bob as he is on record with a socket that nobody listens at."""
    started_once(layout, BOB)  # a session that was never here has no mailbox that could be visited or asked
    bob = RawPeer(BOB)
    return bob.registered(layout, endpoint=os.path.join(layout.run, f"{bob.instance_id}.sock"))


async def receipt(session, message_id):
    (row,) = [row for row in await session.outgoing() if row.message_id == message_id]
    return row.receipt


async def lapsing(*clocks):
    """Wait until each of these clocks has somebody waiting for it."""
    await until(lambda: all(clock.sleeping for clock in clocks))


# --- before any mailbox has it ---------------------------------------------------------------------


@pytest.mark.requirement("A-limits-24")
async def test_what_no_mailbox_took_in_time_expires_in_the_outbox(layout, alice, clock):
    with absent(layout) as bob:
        await alice.sees()
        mortal = await queued(alice, clock, bob.target, "in time", expires_in_ms=10_000)
        clock.advance(9)
        assert await alice.state(mortal) == PENDING
        clock.advance(1)
        await alice.until_state(mortal, EXPIRED)
        read = await alice.read()

    assert [(one["message_id"], one["status"]) for one in read["receipts"]] == [(mortal, "expired")]
    assert (await receipt(alice, mortal)).accepted_at is None


async def test_one_behind_a_blocked_head_expires_by_itself_and_the_next_goes_on(layout, alice, clock):
    with absent(layout) as bob:
        await alice.sees()
        head = await queued(alice, clock, bob.target, "head")
        mortal = await queued(alice, clock, bob.target, "mortal", expires_in_ms=5_000)
        last = await queued(alice, clock, bob.target, "last")
        clock.advance(5)
        await alice.until_state(mortal, EXPIRED)

        assert [await alice.state(one) for one in (head, last)] == [PENDING, PENDING]
    async with running(layout, BOB) as bob:

        async def accepted():
            alice.coordinator.retry()
            clock.advance(0.1)  # it may have been told how long to wait
            return await alice.state(last) == ACCEPTED

        await until_async(accepted)
        assert await bob.texts() == ["head", "last"]


async def test_a_head_that_expires_lets_the_next_one_go(layout, alice, clock):
    with absent(layout) as bob:
        await alice.sees()
        head = await queued(alice, clock, bob.target, "head", expires_in_ms=5_000)
        last = await queued(alice, clock, bob.target, "last")
    clock.advance(5)
    await alice.until_state(head, EXPIRED)
    await alice.until_state(last, ACCEPTED)

    async with running(layout, BOB) as bob:
        assert await bob.texts() == ["last"]


@pytest.mark.requirement("A-limits-13", "A-limits-25")
async def test_a_sender_that_starts_again_counts_what_passed_meanwhile(layout, clock):
    with absent(layout) as bob:
        async with running(layout, ALICE, clock=clock) as alice:
            await alice.sees()
            first = await queued(alice, clock, bob.target, "short", expires_in_ms=10_000)
            second = await queued(alice, clock, bob.target, "long", expires_in_ms=HOUR_MS)
        later = FakeClock(clock.elapsed() + 11, start_wall_ms=clock.wall_ms() - QUARTER_MS)
        async with running(layout, ALICE, clock=later) as alice:
            # A former process may have carried it, and its recipient cannot be asked now.
            await lapsing(later)
            assert await alice.state(first) == PENDING
    async with running(layout, ALICE, clock=later) as alice:
        await alice.until_state(first, EXPIRED)
        await alice.until_state(second, ACCEPTED)


# --- where a mailbox may have it -------------------------------------------------------------------


async def carried_without_answer(alice, clock, server, bob):
    sending = asyncio.ensure_future(alice.send(bob.target, expires_in_ms=10_000))
    wire = await server.proved()
    request = await wire.message()
    await until(lambda: clock.sleeping >= 2)  # the send's wait, and its lifetime
    clock.advance(SEND_WAIT_MS / 1000)
    return wire, request, (await sending)["message_id"]


async def asked_for_status(wire):
    while True:
        request = await wire.asked()
        if request["method"] == "peer.status":
            return request
        wire.refuse(request, "PEER_OFFLINE")


@pytest.mark.requirement("A-limits-24", "A-receipts-10")
@pytest.mark.parametrize("known", [True, False], ids=["accepted there", "unknown there"])
async def test_where_a_mailbox_may_have_it_that_one_is_asked_first(layout, hasty, clock, known):
    bob = RawPeer(BOB)
    async with bob.listening(layout) as server:
        await hasty.sees()
        wire, request, message_id = await carried_without_answer(hasty, clock, server, bob)
        assert 0 < request["params"]["expiresInMs"] <= 10_000
        clock.advance(10)
        status = await asked_for_status(wire)
        assert await hasty.state(message_id) == PENDING
        if known:
            wire.accept({**request, "id": status["id"]})
        else:
            wire.refuse(status, "UNKNOWN_TARGET")
        await hasty.until_state(message_id, ACCEPTED if known else EXPIRED)


@pytest.mark.requirement("A-receipts-10")
async def test_while_it_cannot_be_asked_it_stays_pending(layout, hasty, clock):
    bob = RawPeer(BOB)
    async with bob.listening(layout) as server:
        await hasty.sees()
        wire, request, message_id = await carried_without_answer(hasty, clock, server, bob)
        clock.advance(10)
        wire.refuse(await asked_for_status(wire), "PEER_OFFLINE")
        await until(lambda: clock.sleeping)
        assert await hasty.state(message_id) == PENDING
        clock.advance(1)
        wire.accept({**request, "id": (await asked_for_status(wire))["id"]})
        await hasty.until_state(message_id, ACCEPTED)


# --- after the acceptance --------------------------------------------------------------------------


@pytest.mark.requirement("A-limits-13", "A-limits-24", "A-limits-25")
@pytest.mark.parametrize("shift_ms", [0, -QUARTER_MS, QUARTER_MS, -24 * HOUR_MS])
async def test_the_receiver_counts_from_its_acceptance_on_and_both_learn(
    alice, bob, clock, bobs_clock, shift_ms
):
    await alice.sees(bob)
    sent = await alice.send(bob, expires_in_ms=60_000)
    assert sent["status"] == ACCEPTED
    await until(lambda: bobs_clock.sleeping >= 2)  # its lifetime, and how long the host leaves it lying
    for one in (clock, bobs_clock):
        one.shift_wall(shift_ms)
    clock.advance(HOUR_MS / 1000)  # which decides nothing any more
    bobs_clock.advance(59)
    assert [row.receipt.state for row in await bob.incoming()] == [ACCEPTED]
    bobs_clock.advance(1)
    await alice.until_state(sent["message_id"], EXPIRED)

    told = await receipt(alice, sent["message_id"])
    (row,) = await bob.incoming()
    assert told.accepted_at == row.receipt.accepted_at is not None
    read = await bob.read()
    assert read["messages"] == []
    assert [(one["message_id"], one["from"]) for one in read["expired"]] == [
        (sent["message_id"], alice.target)
    ]
    assert "expired" not in await bob.read()
    assert (await alice.ask("status", message_id=sent["message_id"]))["accepted_at"]


@pytest.mark.requirement("A-limits-11")
async def test_without_a_lifetime_a_message_is_good_for_ever(alice, bob, clock, bobs_clock):
    await alice.sees(bob)
    await alice.send(bob, "for ever")
    bobs_clock.advance(400 * 24 * 3600)
    bobs_clock.shift_wall(400 * 24 * HOUR_MS)

    assert await bob.texts() == ["for ever"]
    assert not bob.coordinator.expiring._running


async def test_what_the_host_holds_is_left_to_it_and_may_be_confirmed(alice, bob, bobs_clock):
    await alice.sees(bob)
    sent = await alice.send(bob, expires_in_ms=10_000)
    assert await bob.texts() == ["hello"]
    bobs_clock.advance(60)
    await bob.ask("confirm", message_ids=[sent["message_id"]], evidence="test")

    await alice.until_state(sent["message_id"], DELIVERED)


async def test_what_the_host_gives_back_too_late_is_not_given_again(alice, bob, bobs_clock):
    await alice.sees(bob)
    sent = await alice.send(bob, expires_in_ms=10_000)
    assert await bob.texts() == ["hello"]
    bobs_clock.advance(60)
    await until(lambda: bob.coordinator.delivery._lapsed)
    await bob.ask("release", message_ids=[sent["message_id"]])

    assert await bob.texts() == []
    await alice.until_state(sent["message_id"], EXPIRED)


async def test_what_is_over_is_handed_to_nobody_before_it_is_ended(alice, bob, bobs_clock):
    await alice.sees(bob)
    sent = await alice.send(bob, expires_in_ms=10_000)
    bobs_clock.advance(10)  # and nothing has run since
    read, waiting = await asyncio.gather(bob.read(), bob.ask("waiting"))

    assert (read["messages"], waiting["messages"]) == ([], [])
    await alice.until_state(sent["message_id"], EXPIRED)
    with pytest.raises(UnknownTarget, match="expired before it was delivered"):
        await bob.read(message_id=sent["message_id"])


async def test_a_recipient_that_slept_ends_what_is_over_when_it_starts(layout, alice, clock):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
    sent = await alice.send(bob.target, expires_in_ms=60_000)
    assert sent["peer_running"] is False
    async with running(layout, BOB, clock=FakeClock(clock.elapsed() + 60)) as bob:
        assert await bob.texts() == []
        await alice.until_state(sent["message_id"], EXPIRED)


async def test_what_is_over_keeps_nobody_s_place_in_a_sleeping_session(layout, clock):
    full = DEFAULT_LIMITS._replace(inbox_messages=1)
    async with running(layout, ALICE, clock=clock, limits=full) as alice:
        async with running(layout, BOB) as bob:
            await alice.sees(bob)
        first = await alice.send(bob.target, "first", expires_in_ms=1_000)
        clock.advance(1)
        second = await alice.send(bob.target, "second")

        assert second["status"] == ACCEPTED
        assert (await alice.ask("status", message_id=first["message_id"]))["state"] == EXPIRED


@pytest.mark.requirement("A-limits-12")
@pytest.mark.parametrize("wrong", [0, -1, 0.5, "60000", True, 60_001, [], 2**63])
async def test_a_lifetime_out_of_bounds_is_refused_and_nothing_is_queued(layout, bob, wrong):
    limits = DEFAULT_LIMITS._replace(expiry_ms=60_000, max_expiry_ms=60_000)
    async with running(layout, CAROL, limits=limits) as carol:
        await carol.sees(bob)
        with pytest.raises(InvalidParams):
            await carol.send(bob, expires_in_ms=wrong)

        assert await carol.outgoing() == []
        assert (await carol.send(bob, expires_in_ms=60_000))["status"] == ACCEPTED


@pytest.mark.requirement("A-custody-20")
async def test_what_waited_in_front_of_the_commit_counts(layout, bobs_clock, bob):
    carol = RawPeer(CAROL)
    with carol.registered(layout):
        async with await carol.proved(bob.record()) as wire:
            hold = await bob.coordinator.authority.hold()
            message = carol.envelope(bob.target, messageId="m-1", expiresInMs=1_000)
            await bob.coordinator.taking.enter(f"{CAROL.key} m-1")
            hold.release()
            wire.say("peer.send", message, 50)
            await until(lambda: len(bob.coordinator.taking._lines[f"{CAROL.key} m-1"]) == 2)
            bobs_clock.advance(1)
            bob.coordinator.taking.leave(f"{CAROL.key} m-1")
            answer = await wire.said()

    assert answer["error"]["data"]["code"] == "MESSAGE_EXPIRED"
    assert await bob.incoming() == []


@pytest.mark.parametrize("wrong", [0, -5, 1.0, "5", True, None, 2**53])
async def test_a_lifetime_on_the_wire_is_a_whole_number_above_zero(layout, bob, wrong):
    carol = RawPeer(CAROL)
    with carol.registered(layout):
        async with asyncio.timeout(IN_TIME_S), await carol.proved(bob.record()) as wire:
            message = {**carol.envelope(bob.target), "expiresInMs": wrong}
            if wrong is None:
                await wire.accepted("peer.send", message)
            else:
                assert await wire.refused("peer.send", message) == "INVALID_PARAMS"
