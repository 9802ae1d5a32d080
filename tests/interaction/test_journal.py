"""Events: told to adapters that asked for them, in order and once, from any cursor on, over restarts."""

import pytest

from herd.core.errors import InvalidParams
from herd.mail import counter, events
from tests.fakes.coordinators import asked, running, until
from tests.fakes.records import ALICE, BOB


@pytest.fixture
async def bob(layout, alice):
    async with running(layout, BOB) as one:
        await alice.sees(one)
        await one.sees(alice)
        yield one


class Wire:
    """The adapter's end of a connection: what it is notified of, until it has had enough."""

    def __init__(self):
        self.told = []

    async def notify(self, method, params):
        assert method == "peer_update"
        self.told.append(params)

    async def tell(self, method, params):
        await self.notify(method, params)

    @property
    def events(self):
        return [one["event"] for one in self.told if "event" in one]

    async def hears(self, *states):
        await until(lambda: len(self.events) >= len(states))
        assert [(one["kind"], one["state"]) for one in self.events] == list(states)
        return self.events


async def following(session, after=None):
    wire = Wire()
    adapter = session.other_adapter()
    params = {"events": True} | ({} if after is None else {"after": after})
    answer = await adapter.request(wire, "session.subscribe", params)
    return wire, adapter, answer["cursor"]


async def exchange(alice, bob, text="hello"):
    """Let a message be sent, read, confirmed and answered."""
    sent = await alice.send(bob, text)
    await bob.read()
    await bob.ask("confirm", message_ids=[sent["message_id"]], evidence="test")
    await alice.until_state(sent["message_id"], "delivered")
    await bob.send(alice, "answer", reply_to=sent["message_id"])
    await alice.until_state(sent["message_id"], "replied")
    return sent["message_id"]


OF_AN_EXCHANGE = [
    ("receipt", "accepted"),
    ("receipt", "delivered"),
    ("message", "accepted"),
    ("receipt", "replied"),
]


@pytest.mark.requirement("A-events-01", "A-events-04")
async def test_the_arrival_of_mail_and_each_change_of_a_receipt_are_events(alice, bob):
    mine, _, _ = await following(alice)
    his, _, _ = await following(bob)
    message_id = await exchange(alice, bob)

    told = await mine.hears(*OF_AN_EXCHANGE)
    assert {(one["message_id"], one["target"]) for one in told if one["kind"] == "receipt"} == {
        (message_id, bob.target)
    }
    assert {one["correlation_id"] for one in told} == {message_id}
    arrival = (await his.hears(("message", "accepted"), ("receipt", "accepted")))[0]
    assert (arrival["message_id"], arrival["target"], arrival["correlation_id"]) == (
        message_id,
        alice.target,
        message_id,
    )
    cursors = [int(one["cursor"]) for one in told]
    assert cursors == sorted(set(cursors))


@pytest.mark.requirement("A-events-03")
async def test_who_did_not_ask_for_events_is_told_what_it_was_told_before(alice, bob):
    plain, asking = Wire(), (await following(bob))[0]
    adapter = bob.other_adapter()
    answer = await adapter.request(plain, "session.subscribe", {})
    assert set(answer) == {"notice"}
    await alice.send(bob)

    await asking.hears(("message", "accepted"))
    await until(lambda: bool(plain.told))
    assert plain.told == [{"unread": 1, "wake": True}]


@pytest.mark.requirement("A-events-07")
async def test_whoever_reads_on_from_a_cursor_gets_every_later_event_once_over_restarts(layout):
    seen = []

    async def hear(session, count):
        wire, adapter, _ = await following(session, seen[-1]["cursor"] if seen else "0")
        await until(lambda: len(wire.events) >= count)
        adapter.ended()
        seen.extend(wire.events[:count])

    async with running(layout, BOB) as bob:
        for life in range(3):
            async with running(layout, ALICE) as alice:
                await alice.sees(bob)
                await bob.sees(alice)
                await exchange(alice, bob, f"life {life}")
                await hear(alice, 3)  # cut off in the middle of what there is
        async with running(layout, ALICE) as alice:
            await hear(alice, 3)
            every = await alice.coordinator.mailbox.run(lambda c: events.after(c, 0, 100))

    assert [int(one["cursor"]) for one in seen] == [event.cursor for event in every]
    assert len(seen) == 3 * len(OF_AN_EXCHANGE)


@pytest.mark.requirement("A-events-07")
@pytest.mark.parametrize("after", ["x", "-1", "1.0", "", 1, "9" * 18])
async def test_a_cursor_that_is_no_number_or_past_the_last_event_is_refused(alice, bob, after):
    await alice.send(bob)
    adapter = alice.other_adapter()
    with pytest.raises(InvalidParams, match="after"):
        await adapter.request(Wire(), "session.subscribe", {"events": True, "after": after})
    with pytest.raises(InvalidParams, match="after"):
        await asked(adapter, "read", after=after)

    last = await alice.coordinator.mailbox.run(counter.last_cursor)
    assert (await following(alice, str(last)))[2] == str(last)


async def test_a_session_without_a_mailbox_has_no_event_to_read_on_from(alice):
    adapter = alice.other_adapter()
    for after in ("1", "5"):
        with pytest.raises(InvalidParams, match="past the last event"):
            await adapter.request(Wire(), "session.subscribe", {"events": True, "after": after})
    with pytest.raises(InvalidParams, match="past the last event"):
        await asked(adapter, "read", after="1")

    assert (await following(alice, "0"))[2] == "0"


async def test_a_cursor_goes_with_events_alone(alice):
    with pytest.raises(InvalidParams, match="events"):
        await alice.adapter.request(Wire(), "session.subscribe", {"after": "0"})


async def test_what_is_kept_no_longer_is_passed_over(alice, bob):
    await exchange(alice, bob)

    def pruned(connection):
        kept = events.after(connection, 0, 100)[2:]
        connection.execute("DELETE FROM events WHERE cursor < ?", (kept[0].cursor,))
        return kept

    kept = await alice.coordinator.mailbox.run(pruned)
    wire, _, _ = await following(alice, "0")
    await until(lambda: len(wire.events) >= len(kept))

    assert [int(one["cursor"]) for one in wire.events] == [event.cursor for event in kept]


async def test_an_adapter_that_ended_is_told_no_more(alice, bob):
    wire, adapter, _ = await following(bob)
    adapter.ended()
    other, _, _ = await following(bob)
    await alice.send(bob)
    await other.hears(("message", "accepted"))

    assert wire.events == []
