"""`session.subscribe`: a connection that is told whenever mail waits, and of nothing a peer has written."""

import asyncio

import pytest

from herd.coordinator.adapter_api import AdapterApi
from herd.coordinator.binding import Binding
from herd.core.errors import DeliveryUnknown, InvalidParams
from herd.mail.header import NOTICE
from tests.fakes.coordinators import asked, opening_of, running, until
from tests.fakes.listening import looked, within_bounds
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL


@pytest.fixture
async def alice(layout):
    async with running(layout, ALICE, name="\x1b[1mroot](user)") as one:
        yield one


@pytest.fixture
async def bob(layout, alice):
    async with running(layout, BOB) as one:
        await alice.sees(one)
        yield one


class Wire:
    """The adapter's end of a connection that can be notified.

    Attributes:
        told: Each notification.
        broken: Whether it has ended.
    """

    def __init__(self):
        self.told = []
        self.broken = False

    async def notify(self, method, params):
        if self.broken:
            raise DeliveryUnknown("the connection has ended")
        self.told.append((method, params))

    async def hears(self, *updates):
        """Wait until exactly these updates were told since the last time."""
        wanted = [("peer_update", update) for update in updates]
        await until(lambda: len(self.told) >= len(wanted))
        told, self.told[:] = list(self.told), []
        assert told == wanted


def update(unread, *, wake):
    return {"unread": unread, "wake": wake}


async def subscribed(adapter, wire):
    return await within_bounds(adapter.request(wire, "session.subscribe", {}))


class Socket:
    """An adapter on the session's socket, and what it is notified of."""

    def __init__(self, connection):
        self._connection = connection
        self._ids = iter(range(100, 10_000))
        self.updates = []

    async def ask(self, method, **params):
        number = next(self._ids)
        self._connection.say(f"session.{method}", params, number)
        while (frame := await self._connection.said()).get("id") != number:
            self.updates.append(frame)
        return frame["result"]

    async def update(self):
        while not self.updates:
            self.updates.append(await self._connection.said())
        return self.updates.pop(0)


async def on_socket(session):
    connection = await RawPeer(CAROL).connect(session.record())
    adapter = Socket(connection)
    await adapter.ask("authenticate", token=session.token)
    return connection, adapter


def frame(unread, *, wake):
    return {"jsonrpc": "2.0", "method": "peer_update", "params": update(unread, wake=wake)}


# --- over a real socket ----------------------------------------------------------------------------


@pytest.mark.requirement("D-host-08", "A-boundary-10")
async def test_the_socket_gives_the_fixed_notice_and_tells_each_arrival_once(alice, bob):
    connection, adapter = await on_socket(bob)
    async with connection:
        assert await adapter.ask("subscribe") == {"notice": NOTICE}
        await adapter.ask("update", activity="idle")
        await alice.send(bob, "first")
        assert await adapter.update() == frame(1, wake=True)
        await alice.send(bob, "second")
        assert await adapter.update() == frame(2, wake=False)
        await adapter.ask("update", activity="working")
        drain = await adapter.ask("drain")
        await adapter.ask("confirm", message_ids=drain["message_ids"], evidence="test")
        await adapter.ask("update", activity="idle", turn_ended=True)
        await alice.send(bob, "third")

        assert await adapter.update() == frame(1, wake=True)
        assert adapter.updates == []


async def test_what_waits_already_is_told_at_once(alice, bob):
    await alice.send(bob)
    connection, adapter = await on_socket(bob)
    async with connection:
        await adapter.ask("subscribe")

        assert await adapter.update() == frame(1, wake=True)


@pytest.mark.requirement("D-host-08", "A-boundary-13")
async def test_nothing_that_a_peer_wrote_is_in_what_is_told(alice, bob):
    connection, adapter = await on_socket(bob)
    async with connection:
        notice = (await adapter.ask("subscribe"))["notice"]
        await alice.send(bob, "secret \x1b[31m words", topic="a topic")
        told = await adapter.update()

    assert told == frame(1, wake=True)
    assert notice == NOTICE
    for written in ("root", "secret", "topic", alice.target, "\x1b"):
        assert written not in notice


async def test_a_connection_that_ended_is_told_nothing_and_the_next_one_everything(alice, bob):
    connection, adapter = await on_socket(bob)
    async with connection:
        await adapter.ask("subscribe")
        await alice.send(bob)
        await adapter.update()
        await adapter.ask("drain")
    await until(lambda: not bob.coordinator.thread.driven)
    connection, adapter = await on_socket(bob)
    async with connection:
        await adapter.ask("subscribe")

        assert (await adapter.update())["params"]["unread"] == 1


async def test_who_has_not_proved_itself_is_told_nothing(bob):
    async with await RawPeer(CAROL).connect(bob.record()) as connection:
        assert await connection.refused("session.subscribe", {}) == "AUTHENTICATION_FAILED"


# --- one at a time, and for as long as it lasts ----------------------------------------------------


async def test_a_second_one_takes_the_place_of_the_first(alice, bob):
    adapter, wire = bob.adapter, Wire()
    for _ in range(3):
        await subscribed(adapter, wire)
    await alice.send(bob)

    await wire.hears(update(1, wake=True))
    await looked(bob)
    assert wire.told == []


async def test_a_second_one_is_told_again_of_what_waits(alice, bob):
    adapter, wire = bob.adapter, Wire()
    await subscribed(adapter, wire)
    await alice.send(bob)
    await wire.hears(update(1, wake=True))
    await subscribed(adapter, wire)

    await wire.hears(update(1, wake=False))


async def test_several_adapters_of_one_session_are_each_told(alice, bob):
    wires = [Wire() for _ in range(3)]
    for wire in wires:
        await subscribed(bob.other_adapter(), wire)
    await alice.send(bob)

    for wire in wires:
        await wire.hears(update(1, wake=True))


async def test_an_adapter_that_ended_is_told_nothing(alice, bob):
    adapter, wire = bob.other_adapter(), Wire()
    await subscribed(adapter, wire)
    adapter.ended()
    await alice.send(bob)
    await looked(bob)

    assert wire.told == []
    assert not bob.coordinator.thread.driven


async def test_a_connection_that_takes_nothing_more_disturbs_no_other(alice, bob, caplog):
    broken, wire = Wire(), Wire()
    broken.broken = True
    for one in (broken, wire):
        await subscribed(bob.other_adapter(), one)
    await alice.send(bob)

    await wire.hears(update(1, wake=True))
    assert "failed" not in caplog.text


async def test_without_a_connection_there_is_nothing_to_tell(bob):
    with pytest.raises(InvalidParams, match="notified"):
        await asked(bob.adapter, "subscribe")
    with pytest.raises(InvalidParams):
        await bob.adapter.request(Wire(), "session.subscribe", {"wake": True})

    assert not bob.coordinator.thread.driven


# --- of the session that is bound ------------------------------------------------------------------


@pytest.fixture
async def binding():
    binding = Binding()
    yield binding
    await within_bounds(binding.close())


def named(session):
    return {"host": session.host, "session_id": session.session_id, "cwd": "/work"}


def api_of(binding, layout, hold=None):
    """Give an adapter API whose `session.bind` waits for `hold`."""

    async def bind(params):
        if hold is not None:
            await hold.wait()
        session = next(one for one in (BOB, CAROL) if one.session_id == params.session_id)
        return await binding.bind(opening_of(layout, session))

    return AdapterApi(binding, bind)


async def test_after_the_session_has_changed_it_is_begun_again(layout, alice, binding):
    api, wire = api_of(binding, layout), Wire()
    for session in (BOB, CAROL):
        await api.request(wire, "session.bind", named(session))
        await subscribed(api, wire)
        await alice.sees()
        target = binding.current().own.target
        await alice.send(target)
        await wire.hears(update(1, wake=True))
    api.ended()


async def test_the_session_before_tells_nothing_more(layout, alice, binding):
    api, wire = api_of(binding, layout), Wire()
    await api.request(wire, "session.bind", named(BOB))
    await subscribed(api, wire)
    await alice.sees()
    before = binding.current().own.target
    await api.request(wire, "session.bind", named(CAROL))
    await alice.send(before)
    api.ended()

    assert wire.told == []


async def test_one_that_waits_for_the_binding_is_not_lost_by_what_is_asked_behind_it(layout, alice, binding):
    """An extension sends all three at once; a tool's call comes without a connection."""
    hold = asyncio.Event()
    api, wire = api_of(binding, layout, hold), Wire()
    asking = [
        asyncio.ensure_future(api.request(wire, "session.bind", named(BOB))),
        asyncio.ensure_future(subscribed(api, wire)),
        asyncio.ensure_future(api.request(None, "session.read", {})),
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    hold.set()
    answers = await within_bounds(asyncio.gather(*asking))
    await alice.sees()
    await alice.send(binding.current().own.target)

    assert answers[1] == {"notice": NOTICE}
    await wire.hears(update(1, wake=True))
    api.ended()


async def test_an_adapter_that_held_mail_of_an_earlier_session_ends_without_a_fault(layout, alice, binding):
    api, wire = api_of(binding, layout), Wire()
    await api.request(wire, "session.bind", named(BOB))
    await alice.sees()
    await alice.send(binding.current().own.target)
    assert (await api.request(wire, "session.drain", {}))["message_ids"]
    await api.request(wire, "session.bind", named(CAROL))
    await subscribed(api, wire)
    api.ended()

    assert not binding.current().thread.driven
