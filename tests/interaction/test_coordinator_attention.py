"""Whoever carries mail to the host is told when it waits, and when an idle session may be woken for it."""

import asyncio
import sqlite3

import pytest

from herd.coordinator.attention import Arrival
from herd.core.clock import FakeClock
from herd.core.config import IDLE_NOTIFY
from herd.core.errors import RecoveryRequired
from herd.core.limits import DEFAULT_LIMITS, WAKE_OPEN_S, WAKES_COUNTED_S
from herd.mail.header import NOTICE
from herd.mail.steps import COMMIT_BEFORE, HANDOVER_AFTER
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, Steps, asked, running, until
from tests.fakes.listening import Listening, drained, looked
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import BOB, CAROL


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def bob(layout, alice, clock):
    async with running(layout, BOB, clock=clock) as one:
        await alice.sees(one)
        yield one


@pytest.fixture
def ear(bob):
    return Listening(bob)


async def turn(session):
    """Have one turn begin, take everything, and end."""
    await session.ask("update", activity="working")
    texts = []
    while True:
        given = await drained(session)
        if not given["message_ids"]:
            break
        texts.append(given["text"])
        await session.ask("confirm", message_ids=given["message_ids"], evidence="test")
    await session.ask("update", activity="idle", turn_ended=True)
    return texts


# --- one wake for what comes together --------------------------------------------------------------


@pytest.mark.requirement("A-boundary-10", "H-inbox-12")
async def test_a_message_for_an_idle_session_may_wake_it(alice, bob, ear):
    await bob.ask("update", activity="idle")
    await alice.send(bob)

    assert await ear.all_heard() == [Arrival(unread=1, wake=True)]


@pytest.mark.requirement("A-boundary-10", "H-inbox-12")
async def test_several_that_come_while_it_is_idle_are_one_wake(alice, bob, ear):
    await bob.ask("update", activity="idle")
    await asyncio.gather(*(alice.send(bob, str(number)) for number in range(20)))
    heard = await ear.all_heard()

    assert sum(one.wake for one in heard) == 1
    assert heard[0].wake
    assert heard[-1].unread == 20


@pytest.mark.requirement("A-boundary-10")
async def test_what_comes_while_a_wake_is_open_wakes_only_after_its_turn(alice, bob, ear):
    await bob.ask("update", activity="idle")
    await alice.send(bob, "wakes")
    await ear.all_heard()
    await alice.send(bob, "comes before the turn has begun")
    assert await ear.all_heard() == [Arrival(2, wake=False)]
    await bob.ask("update", activity="working")
    await drained(bob)
    await alice.send(bob, "comes behind the last drain of the turn")
    assert await ear.all_heard() == [Arrival(1, wake=False)]
    await bob.ask("update", activity="idle", turn_ended=True)

    assert [one for one in await ear.all_heard() if one.wake] == [Arrival(1, wake=True)]


@pytest.mark.requirement("A-boundary-10")
async def test_what_was_woken_for_once_wakes_nobody_again_however_often_it_turns_idle(alice, bob, ear):
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    await looked(bob)
    for _ in range(3):
        await bob.ask("update", activity="working")
        await bob.ask("update", activity="idle", turn_ended=True)
        await looked(bob)

    assert ear.wakes == 1


async def test_a_turn_that_ends_lets_a_host_that_reports_nothing_else_be_woken(alice, bob, ear):
    await alice.send(bob, "first")
    await looked(bob)
    await alice.send(bob, "second")
    await looked(bob)
    assert ear.wakes == 1
    await bob.ask("update", turn_ended=True)
    await looked(bob)

    assert ear.wakes == 2


@pytest.mark.requirement("A-boundary-10")
async def test_a_wake_whose_turn_has_not_begun_within_its_time_has_failed(alice, bob, ear, clock):
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    await looked(bob)
    clock.advance(WAKE_OPEN_S - 0.001)
    await bob.ask("update", activity="idle")
    await looked(bob)
    assert ear.wakes == 1
    clock.advance(0.001)
    await bob.ask("update", activity="idle")
    await looked(bob)

    assert ear.wakes == 2


# --- none while the host is busy -------------------------------------------------------------------


@pytest.mark.requirement("A-boundary-10", "H-inbox-12")
@pytest.mark.parametrize("activity", ["working", "waiting", "away"])
async def test_a_session_that_is_not_idle_is_told_and_not_woken_until_it_is(alice, bob, ear, activity):
    await bob.ask("update", activity=activity)
    await alice.send(bob)
    assert await ear.all_heard() == [Arrival(1, wake=False)]
    await bob.ask("update", activity="idle")

    assert await ear.all_heard() == [Arrival(1, wake=True)]


async def test_what_comes_between_the_last_drain_and_idle_wakes(alice, bob, ear):
    await bob.ask("update", activity="working")
    for number in range(10):
        sending = asyncio.ensure_future(alice.send(bob, str(number)))
        for _ in range(number):  # the turn ends at another instant of the send each time
            await asyncio.sleep(0)
        given = await drained(bob)
        await bob.ask("update", activity="idle", turn_ended=True)
        await sending
        await looked(bob)

        waits = not given["message_ids"]
        assert ear.wakes == waits, "woken exactly where the drain has left it"
        await turn(bob)
        await ear.all_heard()
        await bob.ask("update", activity="working")


async def test_a_session_with_nothing_unread_is_told_nothing(bob, ear):
    for activity in ("idle", "working", "idle"):
        await bob.ask("update", activity=activity, turn_ended=True)

    assert await ear.all_heard() == []


# --- what wakes nobody -----------------------------------------------------------------------------


@pytest.mark.requirement("H-inbox-12", "A-config-04")
async def test_with_notify_it_is_told_and_no_turn_begins(layout, alice):
    async with running(layout, BOB, idle=IDLE_NOTIFY) as bob:
        ear = Listening(bob)
        await alice.sees(bob)
        for activity in ("idle", "working", "idle"):
            await bob.ask("update", activity=activity, turn_ended=True)
            await alice.send(bob)
        heard = await ear.all_heard()

    assert heard[-1] == Arrival(3, wake=False)
    assert not any(one.wake for one in heard)


@pytest.mark.requirement("A-config-04")
@pytest.mark.parametrize("activity", ["idle", "waiting"])
async def test_a_count_that_was_told_is_told_anew_when_a_terminal_takes_what_waits(layout, alice, activity):
    async with running(layout, BOB, idle=IDLE_NOTIFY) as bob:
        await alice.sees(bob)
        await bob.ask("update", activity=activity)
        ear = Listening(bob)
        await alice.send(bob)
        await alice.send(bob)
        await ear.all_heard()
        await bob.other_adapter(command=True).request(None, "session.read", {})

        assert await ear.all_heard() == [Arrival(0, wake=False)]


async def test_a_count_that_was_told_is_told_anew_when_what_waits_expires(layout, alice, clock):
    async with running(layout, BOB, idle=IDLE_NOTIFY, clock=clock) as bob:
        await alice.sees(bob)
        await bob.ask("update", activity="idle")
        ear = Listening(bob)
        await alice.send(bob, expires_in_ms=60_000)
        await ear.hears(1)
        await until(lambda: clock.sleeping > 0)
        clock.advance(61)
        await ear.hears(2)

    assert ear.heard == [Arrival(1, wake=False), Arrival(0, wake=False)]


async def test_what_a_turn_takes_costs_no_look_of_its_own(alice, bob, ear):
    await bob.ask("update", activity="working")
    await alice.send(bob)
    await ear.all_heard()
    await drained(bob)

    assert await ear.all_heard() == []


async def test_what_needs_no_reply_is_told_and_wakes_nobody(alice, bob, ear):
    await bob.ask("update", activity="idle")
    await alice.send(bob, no_reply_needed=True)
    assert await ear.all_heard() == [Arrival(1, wake=False)]
    await alice.send(bob)

    assert await ear.all_heard() == [Arrival(2, wake=True)]


async def test_what_needs_no_reply_does_not_hide_what_came_before_it(alice, bob, ear):
    await bob.ask("update", activity="working")
    await alice.send(bob)
    await alice.send(bob, no_reply_needed=True)
    await ear.all_heard()
    await bob.ask("update", activity="idle")

    assert await ear.all_heard() == [Arrival(2, wake=True)]


@pytest.mark.parametrize(("depth", "wakes"), [(7, True), (8, True), (9, False), (64, False)])
async def test_what_could_not_be_answered_any_more_wakes_nobody(layout, bob, ear, depth, wakes):
    raw = RawPeer(CAROL)
    with raw.registered(layout):
        async with await raw.proved(bob.record()) as connection:
            deep = {"id": "c-1", "depth": depth}
            await connection.accepted("peer.send", raw.envelope(bob.target, conversation=deep))

    assert await ear.all_heard() == [Arrival(1, wake=wakes)]


@pytest.mark.requirement("A-config-13")
async def test_what_needs_no_reply_wakes_nobody_at_any_time_and_stays_until_it_is_read(layout, alice):
    async with running(layout, BOB) as bob:
        ear = Listening(bob)
        sender_s = Listening(alice)
        await alice.sees(bob)
        await bob.ask("update", activity="working")
        sent = [(await alice.send(bob, no_reply_needed=True))["message_id"] for _ in range(2)]
        for activity in ("idle", "away", "idle"):
            await bob.ask("update", activity=activity, turn_ended=True)
        assert await ear.all_heard() != []
        assert ear.wakes == 0
    async with running(layout, BOB) as bob:
        ear = Listening(bob)
        await bob.ask("update", activity="idle", turn_ended=True)
        assert {one.wake for one in await ear.all_heard()} == {False}
        given = (await bob.read())["messages"]
        assert [one["message_id"] for one in given] == sent
        await bob.ask("confirm", message_ids=sent, evidence="test")
        await alice.until_state(sent[1], "delivered")

        assert await bob.texts() == []
        assert await sender_s.all_heard() == [], "a receipt wakes nobody either"


@pytest.mark.requirement("A-config-05")
async def test_what_has_gathered_is_one_wake_by_fixed_words_and_twenty_of_them_make_an_hour(layout, alice):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob, running(layout, CAROL) as carol:
        ear = Listening(bob)
        for one in (alice, carol):
            await one.sees(bob)
        await bob.ask("update", activity="working")
        for number in range(3):
            await alice.send(bob, f"from alice {number}")
            await carol.send(bob, f"from carol {number}")
        assert {one.wake for one in await ear.all_heard()} == {False}
        await bob.ask("update", activity="idle", turn_ended=True)
        assert [one for one in await ear.all_heard() if one.wake] == [Arrival(6, wake=True)]
        assert (await turn(bob))[0].count('\n"from ') == 6

        wakes = 1
        for _ in range(25):
            await alice.send(bob)
            wakes += sum(one.wake for one in await ear.all_heard())
            await turn(bob)
            clock.advance(60)
        assert wakes == DEFAULT_LIMITS.wakes_per_hour == 20
        clock.advance(WAKES_COUNTED_S - 25 * 60)
        await alice.send(bob)
        assert [one.wake for one in await ear.all_heard()] == [True]
    words = {alice.target, alice.coordinator.own.name, carol.target, carol.coordinator.own.name}
    assert not any(word in NOTICE for word in words)
    assert "{" not in NOTICE, "nothing is put into it"


@pytest.mark.requirement("H-inbox-12")
async def test_the_wakes_of_an_hour_are_bounded(layout, alice):
    clock, limits = FakeClock(), UNHURRIED._replace(wakes_per_hour=3)
    async with running(layout, BOB, clock=clock, limits=limits) as bob:
        ear = Listening(bob)
        await alice.sees(bob)
        await bob.ask("update", activity="idle")
        for _ in range(6):
            await alice.send(bob)
            await looked(bob)
            await turn(bob)
            clock.advance(60)
        assert ear.wakes == 3
        clock.advance(WAKES_COUNTED_S - 6 * 60)
        await alice.send(bob)
        await looked(bob)

        assert ear.wakes == 4


# --- what was handed over --------------------------------------------------------------------------


async def test_what_a_reader_holds_is_no_news_and_what_it_gives_back_is(alice, bob, ear):
    await bob.ask("update", activity="working")
    await alice.send(bob, "first")
    given = await drained(bob)
    await ear.all_heard()
    await bob.ask("update", activity="idle", turn_ended=True)
    assert await ear.all_heard() == []
    await bob.ask("release", message_ids=given["message_ids"])

    assert await ear.all_heard() == [Arrival(1, wake=True)]


async def test_a_cancelled_turn_is_not_begun_again_by_what_it_gives_back(alice, bob, ear):
    """The person has just stopped the turn that this message woke; only something new wakes again."""
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    await looked(bob)
    await bob.ask("update", activity="working")
    given = await drained(bob)
    await bob.ask("release", message_ids=given["message_ids"])
    await bob.ask("update", activity="idle", turn_ended=True)
    await looked(bob)
    assert ear.wakes == 1
    await alice.send(bob, "new")
    await looked(bob)

    assert ear.wakes == 2
    assert ear.heard[-1].unread == 2


async def test_what_was_handed_over_twice_waits_for_a_person_and_tells_nobody(alice, bob, ear):
    await alice.send(bob)
    for _ in range(2):
        reader = bob.other_adapter()
        await asked(reader, "drain")
        reader.ended()
    await ear.all_heard()
    await bob.ask("update", activity="idle", turn_ended=True)

    assert await ear.all_heard() == []


# --- listeners -------------------------------------------------------------------------------------


async def test_whoever_begins_to_listen_is_told_of_what_waits_already(alice, bob):
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    ear = Listening(bob)

    assert await ear.all_heard() == [Arrival(1, wake=True)]


async def test_every_listener_is_told_and_the_wake_is_one(alice, bob):
    ears = [Listening(bob) for _ in range(50)]
    await alice.send(bob)
    heard = [await ear.all_heard() for ear in ears]

    assert heard == [[Arrival(1, wake=True)]] * 50


async def test_whoever_stops_hears_nothing_more_and_may_stop_twice(alice, bob):
    ears = [Listening(bob) for _ in range(3)]
    ears[1].stop()
    ears[1].stop()
    await alice.send(bob)
    await looked(bob)

    assert [len(ear.heard) for ear in ears] == [1, 0, 1]


async def test_one_that_stops_while_it_is_told_takes_nothing_from_the_others(alice, bob):
    told = []
    stops = []

    def once(arrival):
        told.append(arrival)
        stops[0]()

    stops.append(bob.coordinator.attention.listen(once))
    ear = Listening(bob)
    for _ in range(2):
        await alice.send(bob)
        await looked(bob)

    assert len(told) == 1
    assert len(ear.heard) == 2


async def test_without_a_listener_no_wake_is_spent(alice, bob):
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    await looked(bob)
    stopped = Listening(bob)
    stopped.stop()
    await looked(bob)
    ear = Listening(bob)

    assert (await ear.all_heard())[-1] == Arrival(1, wake=True)
    assert stopped.heard == []


async def test_nothing_is_told_once_the_session_has_ended(layout, alice):
    async with running(layout, BOB) as bob:
        ear = Listening(bob)
        await alice.sees(bob)
    await alice.send(bob, "for later")
    ear.stop()

    assert ear.heard == []


async def test_mail_that_came_while_it_slept_is_told_at_its_next_start(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
    await alice.send(bob)
    async with running(layout, BOB) as bob:
        ear = Listening(bob)

        assert await ear.all_heard() == [Arrival(1, wake=True)]


# --- faults ----------------------------------------------------------------------------------------


def broken_disk():
    return sqlite3.OperationalError("disk I/O error")


async def test_an_unhealthy_session_wakes_nobody_and_tells_what_waits_once_it_is_healthy(layout, alice):
    steps, clock = Steps(), FakeClock()
    async with running(layout, BOB, step=steps, clock=clock) as bob:
        await alice.sees(bob)
        await bob.sees(alice)
        await bob.ask("update", activity="working")
        await alice.send(bob)
        ear = Listening(bob)
        await ear.all_heard()
        steps.faults[COMMIT_BEFORE] = broken_disk
        with pytest.raises(RecoveryRequired):
            await bob.send(alice)
        await bob.ask("update", activity="idle")
        assert await ear.all_heard() == []
        del steps.faults[COMMIT_BEFORE]
        async with asyncio.timeout(IN_TIME_S):
            while bob.coordinator.health.fault is not None:
                clock.advance(60)
                await asyncio.sleep(0)
        await ear.hears(1)

        assert ear.heard == [Arrival(1, wake=True)]


async def test_nobody_is_woken_by_a_session_that_hands_nothing_over_although_it_can_be_read(alice, bob, ear):
    """Its record cannot be written, say: its mailbox can be read all the same."""
    await alice.send(bob)
    await bob.ask("update", activity="working")
    await ear.all_heard()
    bob.coordinator.health.observed(RecoveryRequired("the record cannot be written"))
    await bob.ask("update", activity="idle")

    assert await ear.all_heard() == []


async def test_a_fault_of_one_look_ends_none_of_the_later_ones(alice, bob, ear, monkeypatch):
    mailbox = bob.coordinator.mailbox

    async def refuses(_):
        raise RecoveryRequired("not just now")

    with monkeypatch.context() as patch:
        patch.setattr(mailbox, "read", refuses)
        bob.coordinator.attention.look()
        await looked(bob)
    await alice.send(bob)

    assert await ear.all_heard() == [Arrival(1, wake=True)]


async def test_what_is_given_back_by_a_reader_that_outlives_the_session_tells_nobody(layout, alice):
    async with running(layout, BOB) as bob:
        ear = Listening(bob)
        await alice.sees(bob)
        await alice.send(bob)
        reader = bob.other_adapter()
        await asked(reader, "drain")
        await ear.all_heard()
    reader.ended()

    assert ear.heard == []


async def test_a_hand_over_under_way_is_no_news_once_it_is_made(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps) as bob:
        ear = Listening(bob)
        await alice.sees(bob)
        await alice.send(bob)
        await ear.all_heard()
        given = asyncio.ensure_future(drained(bob))
        await steps.reached(HANDOVER_AFTER)
        bob.coordinator.attention.look()
        await given
        await looked(bob)

        assert ear.heard == []
        await until(lambda: not bob.coordinator.attention._again)


async def test_a_wake_whose_turn_never_begins_is_told_again_once_its_time_is_over(alice, bob, ear, clock):
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    await ear.hears(1)
    assert ear.wakes == 1
    await clock.wait_for_sleepers(2)  # the wake, and the watch over undrained mail

    clock.advance(WAKE_OPEN_S)
    await ear.hears(2)
    assert ear.wakes == 2


async def test_nothing_is_timed_once_the_woken_turn_has_begun(alice, bob, ear, clock):
    await bob.ask("update", activity="idle")
    await alice.send(bob)
    await ear.hears(1)
    await clock.wait_for_sleepers(2)
    assert await turn(bob)

    await until(lambda: clock.sleeping == 0)
    assert ear.wakes == 1
