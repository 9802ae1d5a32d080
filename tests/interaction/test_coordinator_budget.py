"""Sessions that always answer each other: where that ends, why, and what begins it afresh."""

import asyncio

import pytest

from herd.core.errors import AutomaticReplyLimit, MessageIdConflict
from herd.core.limits import DEFAULT_LIMITS
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import running
from tests.fakes.incoming import incoming
from tests.fakes.listening import Listening, looked
from tests.fakes.records import BOB, CAROL

MOST = DEFAULT_LIMITS.automatic_replies


@pytest.fixture
async def carol(layout):
    async with running(layout, CAROL) as one:
        yield one


class Agent:
    """A session that hands every message to an agent, which always writes to somebody next.

    Args:
        session: The session.
        said: Where each thing it sends is noted, by its depth.
        replies: Whether it names what it answers.
    """

    def __init__(self, session, said, *, replies):
        self.session = session
        self.next = self
        self.refusal = None
        self.over = asyncio.Event()
        self._said = said
        self._replies = replies
        self._ear = Listening(session)

    async def prompted(self, text):
        await self.session.ask("update", person_prompted=True, activity="working")
        sent = await self.session.send(self.next.session, text)
        await self.session.ask("update", turn_ended=True, activity="idle")
        return sent

    async def lives(self):
        """Begin a turn at every wake, until what it would say is refused."""
        while True:
            await self._ear.hears(1)
            heard = await self._ear.all_heard()
            if not any(one.wake for one in heard):
                continue
            await self.session.ask("update", activity="working")
            await self._turn()
            await self.session.ask("update", turn_ended=True, activity="idle")

    async def _turn(self):
        for message in (await self.session.read())["messages"]:
            await self.session.ask("confirm", message_ids=[message["message_id"]], evidence="test")
            to_whom, more = self.next.session.target, {}
            if self._replies:
                to_whom, more = message["from"]["target"], {"reply_to": message["message_id"]}
            try:
                sent = await self.session.send(to_whom, f"after {message['text']}", **more)
            except AutomaticReplyLimit as refusal:
                self.refusal = refusal
                self.over.set()
            else:
                self._said.append(sent["message_id"])


async def depths(*sessions):
    rows = [row for session in sessions for row in await session.outgoing()]
    return [row.depth for row in sorted(rows, key=lambda row: (row.created_at, row.depth))]


async def first_over(agents):
    waits = [asyncio.ensure_future(agent.over.wait()) for agent in agents]
    try:
        async with asyncio.timeout(40):
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    return next(agent for agent in agents if agent.over.is_set())


@pytest.mark.requirement("C11")
async def test_a_ring_that_always_writes_on_ends_at_the_budget_and_begins_afresh_with_a_person(
    alice, bob, carol
):
    said = []
    agents = [Agent(session, said, replies=False) for session in (alice, bob, carol)]
    for agent, after in zip(agents, agents[1:] + agents[:1], strict=True):
        await agent.session.sees(after.session)
        agent.next = after
    lives = [asyncio.ensure_future(agent.lives()) for agent in agents]
    try:
        for times in (1, 2):
            await agents[0].prompted("go")
            over = await first_over(agents)

            assert over.refusal.code == "AUTOMATIC_REPLY_LIMIT"
            assert f"{MOST} messages have followed" in over.refusal.message
            assert len(said) == times * MOST
            assert sorted(await depths(alice, bob, carol)) == sorted([*range(MOST + 1)] * times)
            assert agents[(MOST + 1) % 3] is over
            over.over.clear()
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)


@pytest.mark.requirement("C11")
async def test_two_that_always_answer_end_at_the_budget(alice, bob):
    said = []
    agents = [Agent(session, said, replies=True) for session in (alice, bob)]
    agents[0].next, agents[1].next = agents[1], agents[0]
    await alice.sees(bob)
    lives = [asyncio.ensure_future(agent.lives()) for agent in agents]
    try:
        await agents[0].prompted("go")
        over = await first_over(agents)
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    assert over is agents[1]
    assert await depths(alice, bob) == [*range(MOST + 1)]
    rows = [*await alice.outgoing(), *await bob.outgoing()]
    assert len({row.conversation_id for row in rows}) == 1
    assert len({row.correlation_id for row in rows}) == 1


async def handed(session, sender, depth):
    """Have a session be handed a message of a depth, which is how deep its sender's conversation is."""
    thread = sender.coordinator.thread
    thread.driven = True
    thread.prompted()
    if depth:
        thread.handed([incoming(depth=depth - 1)])
    await sender.sees(session)
    await sender.send(session, f"depth {depth}")
    return (await session.read())["messages"]


async def test_at_the_budget_nothing_is_queued(alice, bob):
    Listening(bob)
    await handed(bob, alice, MOST)
    for more in ({}, {"reply_to": (await bob.incoming())[0].message_id}, {"call_id": "c-1"}):
        with pytest.raises(AutomaticReplyLimit):
            await bob.send(alice, **more)

    assert await bob.outgoing() == []


async def test_a_call_that_is_made_again_is_not_refused_since_its_message_is_queued(alice, bob):
    Listening(bob)
    await bob.sees(alice)
    first = await bob.send(alice, "once", call_id="c-1")
    await handed(bob, alice, MOST)
    again = await bob.send(alice, "once", call_id="c-1")

    assert again == {**first, "status": again["status"]}
    with pytest.raises(MessageIdConflict):
        await bob.send(alice, "something else", call_id="c-1")
    with pytest.raises(AutomaticReplyLimit):
        await bob.send(alice, "another", call_id="c-2")
    assert [row.depth for row in await bob.outgoing()] == [0]


async def test_a_session_that_nobody_listens_for_is_not_bounded(alice, bob):
    (message,) = await handed(bob, alice, MOST)
    reply = await bob.send(alice, "an answer", reply_to=message["message_id"])
    fresh = await bob.send(alice, "something new")
    rows = {row.message_id: row.depth for row in await bob.outgoing()}

    assert (rows[reply["message_id"]], rows[fresh["message_id"]]) == (MOST + 1, 0)


async def test_once_nobody_listens_any_more_nobody_need_prompt_it(alice, bob):
    ears = [Listening(bob), Listening(bob)]
    await handed(bob, alice, MOST)
    ears[0].stop()
    with pytest.raises(AutomaticReplyLimit):
        await bob.send(alice)
    ears[1].stop()

    assert (await bob.send(alice))["message_id"]
    ears[1].stop()
    Listening(bob)
    with pytest.raises(AutomaticReplyLimit):
        await bob.send(alice)


async def test_activity_alone_is_no_person(alice, bob):
    Listening(bob)
    await handed(bob, alice, MOST)
    await bob.ask("update", activity="working", turn_ended=True, person_prompted=False, name="renamed")
    with pytest.raises(AutomaticReplyLimit):
        await bob.send(alice)
    await bob.ask("update", person_prompted=True)

    assert (await bob.send(alice))["message_id"]


async def test_the_budget_is_the_person_s_setting(layout, alice):
    async with running(layout, BOB, limits=UNHURRIED._replace(automatic_replies=1)) as bob:
        ear = Listening(bob)
        await handed(bob, alice, 0)
        sent = await bob.send(alice, "the one that is allowed")
        await handed(bob, alice, 1)
        with pytest.raises(AutomaticReplyLimit):
            await bob.send(alice)
        await looked(bob)

    assert sent["message_id"]
    assert ear.wakes == 1, "what cannot be answered is too deep to wake"


async def test_a_read_and_a_drain_count_alike(alice, bob):
    Listening(bob)
    await alice.sees(bob)
    await bob.sees(alice)
    await alice.send(bob)
    await bob.ask("drain")
    await bob.send(alice)
    await alice.send(bob)
    await bob.read()
    await bob.send(alice)

    assert [row.depth for row in await bob.outgoing()] == [1, 1]
