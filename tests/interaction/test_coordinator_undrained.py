"""Mail that its host leaves lying: shown in the session's record after a while, for as long as it is so."""

import asyncio
import json
import sqlite3
import subprocess
import time

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import RecoveryRequired
from herd.core.limits import HANDOVERS, UNDRAINED_S
from herd.core.paths import open_layout
from herd.mail.steps import COMMIT_BEFORE
from tests.fakes.coordinators import IN_TIME_S, Steps, asked, content_of, running, until
from tests.fakes.herd_session import HERD, environment
from tests.fakes.listening import drained
from tests.fakes.records import ALICE, BOB


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def bob(layout, alice, clock):
    async with running(layout, BOB, clock=clock) as one:
        await alice.sees(one)
        yield one


async def waits(clock, seconds):
    """Let time pass for the one timer that there is."""
    async with asyncio.timeout(IN_TIME_S):
        await clock.wait_for_sleepers()
    clock.advance(seconds)


async def looked(session):
    """Wait until the watch has looked, or has ended."""
    await session.coordinator.mailbox.run(lambda _: None)
    for _ in range(20):
        await asyncio.sleep(0)


def since(session):
    return session.presence().undrained_since


def shows(session, at):
    return until(lambda: since(session) == at)


async def test_what_nobody_takes_for_its_time_is_shown_with_when_it_came(alice, bob, clock):
    clock.advance(1_000)
    came = clock.wall_ms()
    await alice.send(bob)
    await waits(clock, UNDRAINED_S - 0.001)
    await looked(bob)
    assert since(bob) is None
    clock.advance(0.001)
    await shows(bob, came)

    shown = json.loads(content_of(bob.layout.record(bob.key)))["presence"]
    assert shown["undrained_since"] == came


async def test_it_is_the_oldest_that_counts(alice, bob, clock):
    came = clock.wall_ms()
    await alice.send(bob)
    await waits(clock, UNDRAINED_S - 10)
    await alice.send(bob)
    clock.advance(10)
    await shows(bob, came)


@pytest.mark.parametrize("method", ["drain", "read"])
async def test_a_hand_over_takes_it_back_at_once(alice, bob, clock, method):
    came = clock.wall_ms()
    await alice.send(bob)
    await waits(clock, UNDRAINED_S)
    await shows(bob, came)
    await bob.ask(method)
    await shows(bob, None)
    await until(lambda: clock.sleeping == 0)


async def test_mail_that_comes_later_gets_its_own_time_and_is_shown_again(alice, bob, clock):
    await alice.send(bob)
    await waits(clock, UNDRAINED_S)
    await shows(bob, 1_800_000_000_000)
    await drained(bob)
    await shows(bob, None)
    await until(lambda: clock.sleeping == 0)
    came = clock.wall_ms()
    await alice.send(bob)
    await waits(clock, UNDRAINED_S - 1)
    await looked(bob)
    assert since(bob) is None
    clock.advance(1)
    await shows(bob, came)


async def test_what_comes_while_an_older_one_waits_is_looked_at_when_it_is_due_itself(alice, bob, clock):
    await alice.send(bob, "first")
    await waits(clock, 100)
    came = clock.wall_ms()
    await alice.send(bob, "second")
    clock.advance(100)
    first = (await bob.incoming())[0]
    await asked(bob.adapter, "read", message_id=first.message_id)
    await looked(bob)
    await waits(clock, UNDRAINED_S - 100 - 1)
    await looked(bob)
    assert since(bob) is None
    clock.advance(1)
    await shows(bob, came)


async def test_one_hand_over_of_several_leaves_it_shown_since_the_next(alice, bob, clock):
    await alice.send(bob, "first")
    await waits(clock, 10)
    later = clock.wall_ms()
    await alice.send(bob, "second")
    clock.advance(UNDRAINED_S)
    await shows(bob, later - 10_000)
    first = (await bob.incoming())[0]
    await asked(bob.adapter, "read", message_id=first.message_id)
    await shows(bob, later)


async def test_what_was_handed_over_without_evidence_lies_with_the_host_and_not_with_us(alice, bob, clock):
    await alice.send(bob)
    for _ in range(HANDOVERS):
        reader = bob.other_adapter()
        await asked(reader, "drain")
        reader.ended()
    await waits(clock, UNDRAINED_S)
    await until(lambda: clock.sleeping == 0)

    assert since(bob) is None


async def test_what_never_reached_the_session_counts_as_never_handed_over(alice, bob, clock):
    came = clock.wall_ms()
    await alice.send(bob)
    given = await drained(bob)
    await until(lambda: clock.sleeping == 0)
    await bob.ask("release", message_ids=given["message_ids"], counted=False)
    await waits(clock, UNDRAINED_S)
    await shows(bob, came)


async def test_nothing_is_timed_while_nothing_waits(layout, alice, bob, clock):
    assert clock.sleeping == 0
    await alice.send(bob)
    await waits(clock, 0)
    await drained(bob)
    await until(lambda: clock.sleeping == 0)
    for method in ("read", "drain", "whoami"):
        await bob.ask(method)

    assert clock.sleeping == 0


async def test_however_much_waits_there_is_one_timer(alice, bob, clock):
    for number in range(20):
        await alice.send(bob, str(number))
    await waits(clock, 0)
    await looked(bob)

    assert clock.sleeping == 1


async def test_a_new_instance_gives_its_host_the_same_time(layout, alice):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob:
        came = clock.wall_ms()
        await alice.sees(bob)
        await alice.send(bob)
        await waits(clock, UNDRAINED_S)
        await shows(bob, came)
    async with running(layout, BOB, clock=clock) as bob:
        assert since(bob) is None
        await waits(clock, UNDRAINED_S - 1)
        await looked(bob)
        assert since(bob) is None
        clock.advance(1)
        await shows(bob, came)


async def test_mail_that_came_while_it_slept_is_watched_and_a_session_without_any_is_not(layout, alice):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
    sent = await alice.send(bob)
    assert sent["peer_running"] is False
    async with running(layout, BOB, clock=clock) as bob:
        await waits(clock, UNDRAINED_S)
        await until(lambda: since(bob) is not None)


async def test_a_wall_clock_that_jumps_back_only_delays_it(alice, bob, clock):
    await alice.send(bob)
    async with asyncio.timeout(IN_TIME_S):
        await clock.wait_for_sleepers()
    clock.shift_wall(-3_600_000)
    clock.advance(UNDRAINED_S)
    await looked(bob)
    assert since(bob) is None
    clock.shift_wall(3_600_000)
    await waits(clock, UNDRAINED_S)
    await until(lambda: since(bob) is not None)


async def test_labels_that_change_meanwhile_keep_it(alice, bob, clock):
    came = clock.wall_ms()
    await alice.send(bob)
    await waits(clock, UNDRAINED_S)
    await shows(bob, came)
    await bob.ask("update", name="renamed", activity="idle", cwd="/elsewhere")

    assert (bob.presence().name, since(bob)) == ("renamed", came)


async def test_a_session_that_was_unhealthy_watches_again(layout, alice):
    steps, clock = Steps(), FakeClock()
    async with running(layout, BOB, step=steps, clock=clock) as bob:
        await alice.sees(bob)
        await bob.sees(alice)
        came = clock.wall_ms()
        await alice.send(bob)
        async with asyncio.timeout(IN_TIME_S):
            await clock.wait_for_sleepers()
        steps.faults[COMMIT_BEFORE] = lambda: sqlite3.OperationalError("disk I/O error")
        with pytest.raises(RecoveryRequired):
            await bob.send(alice)
        clock.advance(UNDRAINED_S)  # the look that is due now fails
        await looked_at(steps)
        del steps.faults[COMMIT_BEFORE]
        async with asyncio.timeout(IN_TIME_S):
            while bob.coordinator.health.fault is not None:
                clock.advance(60)
                await asyncio.sleep(0)
            while since(bob) != came:
                clock.advance(60)
                await asyncio.sleep(0)


async def looked_at(steps):
    taken = steps.taken(COMMIT_BEFORE)
    await steps.reached(COMMIT_BEFORE, taken + 1)


@pytest.mark.requirement("D-evidence-08")
async def test_the_sender_and_herd_peers_are_told_for_how_many_minutes(home):
    began = time.time_ns() // 1_000_000 - 7 * 60_000
    clock = FakeClock(start_wall_ms=began)
    layout = open_layout(str(home))  # where a command looks
    async with running(layout, ALICE) as alice, running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
        message_id = (await alice.send(bob))["message_id"]
        assert "undrained_minutes" not in await alice.ask("status", message_id=message_id)
        await waits(clock, UNDRAINED_S)
        await shows(bob, began)

        assert (await alice.ask("status", message_id=message_id))["undrained_minutes"] == 7
        # An agent is told when it writes again: it has no other way to ask.
        assert (await alice.send(bob, "and this"))["undrained_minutes"] == 7
        peers = await asyncio.to_thread(shown_by_herd_peers, home)
        assert f"{bob.target}  " in peers
        assert "(undrained for 7 minutes)" in peers

        given = await drained(bob)
        await bob.ask("confirm", message_ids=given["message_ids"], evidence="test")
        await shows(bob, None)
        assert "undrained" not in await asyncio.to_thread(shown_by_herd_peers, home)
        assert "undrained_minutes" not in await alice.ask("status", message_id=message_id)


def shown_by_herd_peers(home):
    words = [*HERD, "peers", "--as", "somebody"]
    done = subprocess.run(words, env=environment(home), cwd=home, capture_output=True, check=True, timeout=60)
    return done.stdout.decode()
