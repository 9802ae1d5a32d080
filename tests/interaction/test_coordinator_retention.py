"""Retention while a session runs: what goes, what stays, and what the rest is still good for."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from herd.coordinator.shapes import size_of
from herd.core.clock import FakeClock
from herd.core.errors import InvalidReply, MessageIdConflict, ResourceBusy, UnknownTarget
from herd.core.limits import DEFAULT_LIMITS, IDENTITY_MS, SWEEP_MS
from herd.mail import inbox
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, Running, running
from tests.fakes.mail import ALICE, BOB, envelope

DAY_S = DEFAULT_LIMITS.retention_ms / 1000
CONFIRMED = {"evidence": "a test"}


async def swept_until(clock: FakeClock, condition: Callable[[], Awaitable[bool]]) -> float:
    """Let time pass, a sweep at a time, until something holds; gives the seconds that it took."""
    began = clock.elapsed()
    async with asyncio.timeout(IN_TIME_S):
        while not await condition():
            if clock.sleeping:
                clock.advance(SWEEP_MS / 1000)
    return clock.elapsed() - began


async def delivered(alice: Running, bob: Running, text: str) -> str:
    sent = str((await alice.send(bob, text))["message_id"])
    [message] = (await bob.read(message_id=sent))["messages"]
    assert message["text"] == text
    await bob.ask("confirm", message_ids=[sent], **CONFIRMED)
    await alice.until_state(sent, "delivered")
    return sent


async def without_text(side, table: str) -> set[str]:
    rows = await side.coordinator.mailbox.run(
        lambda c: c.execute(f"SELECT message_id FROM {table} WHERE content = '' AND stripped").fetchall()
    )
    return {one for (one,) in rows}


@pytest.mark.requirement("A-limits-14", "A-custody-19")
async def test_after_retention_resolved_mail_loses_its_text_and_unresolved_mail_nothing(layout):
    clocks = FakeClock(), FakeClock()
    async with running(layout, ALICE, clock=clocks[0]) as alice, running(layout, BOB, clock=clocks[1]) as bob:
        await alice.sees(bob)
        read = await delivered(alice, bob, "read")
        unread = (await alice.send(bob, "unread"))["message_id"]

        took_s = [
            await swept_until(clocks[0], lambda: has(alice, "outbox", read)),
            await swept_until(clocks[1], lambda: has(bob, "inbox", read)),
        ]

        assert all(DAY_S <= seconds <= DAY_S + 2 * SWEEP_MS / 1000 for seconds in took_s)
        assert await without_text(bob, "inbox") == await without_text(alice, "outbox") == {read}
        [message] = (await bob.read())["messages"]
        assert (message["message_id"], message["text"]) == (unread, "unread")
        with pytest.raises(UnknownTarget, match="its text is removed"):
            await bob.read(message_id=read)
        assert (await alice.ask("status", message_id=read))["state"] == "delivered"


async def has(side, table: str, message_id: str) -> bool:
    return message_id in await without_text(side, table)


@pytest.mark.requirement("A-custody-19", "A-limits-14")
async def test_what_identifies_a_message_makes_a_late_resend_a_duplicate_and_a_late_reply_known(layout):
    clocks = FakeClock(), FakeClock()
    async with running(layout, ALICE, clock=clocks[0]) as alice, running(layout, BOB, clock=clocks[1]) as bob:
        await alice.sees(bob)
        sent = (await alice.send(bob, "the text", call_id="a call"))["message_id"]
        await bob.read(message_id=sent)
        await bob.ask("confirm", message_ids=[sent], **CONFIRMED)
        await alice.until_state(sent, "delivered")
        await swept_until(clocks[0], lambda: has(alice, "outbox", sent))
        await swept_until(clocks[1], lambda: has(bob, "inbox", sent))

        again = await alice.send(bob, "the text", call_id="a call")
        assert (again["message_id"], again["status"]) == (sent, "delivered")
        with pytest.raises(MessageIdConflict):
            await alice.send(bob, "another text", call_id="a call")
        assert [row.message_id for row in await bob.incoming()] == [sent]

        await bob.sees(alice)
        reply = await bob.send(alice, "late", reply_to=sent)
        assert reply["status"] == "accepted"
        await alice.until_state(sent, "replied")


@pytest.mark.requirement("A-custody-19")
async def test_a_resend_that_the_receiver_alone_can_know_is_a_duplicate_after_retention(layout):
    clock = FakeClock()
    async with running(layout, ALICE) as alice, running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
        sent = await delivered(alice, bob, "once")
        [row] = await bob.incoming()
        await swept_until(clock, lambda: has(bob, "inbox", sent))

        def again(connection):
            known = inbox.find(connection, row.sender_key, sent, row.recipient)
            return known.digest, known.receipt.state

        assert await bob.coordinator.mailbox.run(again) == (row.digest, "delivered")


@pytest.mark.requirement("A-custody-19")
async def test_what_identifies_a_message_goes_after_four_hundred_days_and_not_before(layout):
    clock = FakeClock()
    async with running(layout, ALICE) as alice, running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
        sent = await delivered(alice, bob, "once")
        await swept_until(clock, lambda: has(bob, "inbox", sent))

        clock.advance(IDENTITY_MS / 1000 - DAY_S - 4 * SWEEP_MS / 1000)
        later = await delivered(alice, bob, "later")  # an occasion to look
        assert {row.message_id for row in await bob.incoming()} == {sent, later}

        async def gone() -> bool:
            return {row.message_id for row in await bob.incoming()} == {later}

        await swept_until(clock, gone)
        await bob.sees(alice)
        with pytest.raises(InvalidReply):
            await bob.send(alice, "too late", reply_to=sent)


@pytest.mark.requirement("A-limits-14")
async def test_what_was_resolved_in_a_former_life_goes_in_this_one_though_the_clock_was_set_back(layout):
    clock = FakeClock()
    async with running(layout, ALICE) as alice, running(layout, BOB, clock=clock) as bob:
        await alice.sees(bob)
        sent = await delivered(alice, bob, "once")
        async with asyncio.timeout(IN_TIME_S):
            await clock.wait_for_sleepers()
    clock.shift_wall(-900_000)
    async with running(layout, BOB, clock=clock) as bob:
        await swept_until(clock, lambda: has(bob, "inbox", sent))


@pytest.mark.requirement("A-storage-15")
async def test_a_purge_removes_the_texts_of_what_is_resolved_and_no_other(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        read = await delivered(alice, bob, "read")
        unread = (await alice.send(bob, "unread"))["message_id"]

        assert await bob.ask("purge") == {"removed": 1}
        assert await bob.ask("purge") == {"removed": 0}
        assert await without_text(bob, "inbox") == {read}
        assert await bob.texts() == ["unread"]
        with pytest.raises(ResourceBusy):
            await bob.ask("purge", message_id=unread)


@pytest.mark.requirement("A-storage-15")
async def test_an_undelivered_message_that_a_person_removes_is_told_to_its_sender_as_rejected(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        unread = (await alice.send(bob, "unread"))["message_id"]

        assert await bob.ask("purge", message_id=unread) == {"removed": 1}

        await alice.until_state(unread, "rejected")
        assert (await alice.ask("status", message_id=unread))["outcome"] == "PURGED"
        assert await bob.texts() == []
        with pytest.raises(MessageIdConflict):
            await bob.ask("purge", message_id=unread)
        with pytest.raises(UnknownTarget):
            await bob.ask("purge", message_id="m-unknown")


async def test_a_long_history_comes_in_answers_that_each_fit_into_a_frame(layout):
    wide = UNHURRIED._replace(inbox_messages=1_000)
    async with running(layout, ALICE, limits=wide) as alice, running(layout, BOB, limits=wide) as bob:
        await alice.sees(bob)
        sent = [(await alice.send(bob, "x", topic="t" * 256))["message_id"] for _ in range(120)]

        found, answers = [], 0
        while True:
            answer = await alice.ask("history", most=500, skip=len(found))
            assert size_of(answer) < DEFAULT_LIMITS.frame_bytes
            found = [*(one["message_id"] for one in answer["messages"]), *found]
            answers += 1
            if "more" not in answer:
                break

    assert found == sent
    assert answers > 1


async def test_the_history_tells_each_step_with_its_time_and_wakes_who_follows(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent = (await alice.send(bob, "a secret"))["message_id"]
        [stored] = (await bob.ask("history"))["messages"]
        assert (stored["direction"], stored["message_id"], stored["state"]) == ("in", sent, "accepted")
        assert stored["peer"] == alice.target
        assert not {"handed_over", "seen_at"} & set(stored)

        following = asyncio.ensure_future(bob.ask("history", wait_ms=20_000))
        await asyncio.sleep(0)
        await bob.read()
        [handed] = (await following)["messages"]
        assert (handed["handed_over"], "handed_over_at" in handed, "seen_at" in handed) == (1, True, False)

        await bob.ask("confirm", message_ids=[sent], **CONFIRMED)
        [seen] = (await bob.ask("history"))["messages"]
        assert (seen["state"], seen["evidence"]) == ("delivered", "a test")
        assert seen["stored_at"] <= seen["handed_over_at"] <= seen["seen_at"]
        assert "a secret" not in str(seen)
        await alice.until_state(sent, "delivered")
        [out] = (await alice.ask("history"))["messages"]
        assert (out["direction"], out["peer"], out["state"]) == ("out", bob.target, "delivered")
        assert envelope().content not in str(out)
