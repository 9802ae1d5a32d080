"""`on_restart = "review"`: what waits at a start is shown to a person, whose yes lets the model have it."""

import pytest

from herd.coordinator.attention import Arrival
from herd.core.config import RESTART_REVIEW
from herd.core.errors import CapabilityDenied
from tests.fakes.coordinators import running, sleeping_target
from tests.fakes.listening import Listening, drained
from tests.fakes.mail import started_once
from tests.fakes.records import BOB, session_of

pytestmark = pytest.mark.requirement("A-restart-02")


def reviewing(layout):
    return running(layout, BOB, on_restart=RESTART_REVIEW)


async def left(layout, alice):
    """Leave Bob one message that he was given in vain, one that he never saw, and one by a visit."""
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        ids = [(await alice.send(bob, "in vain"))["message_id"]]
        assert await bob.texts() == ["in vain"]
        ids.append((await alice.send(bob, "never seen"))["message_id"])
    ids.append((await alice.send(sleeping_target(BOB), "by a visit"))["message_id"])
    return ids


async def test_the_model_is_given_nothing_of_it_and_the_person_is_told_how_many_wait(layout, alice):
    ids = await left(layout, alice)
    async with reviewing(layout) as bob:
        ear = Listening(bob)
        await bob.ask("update", activity="idle")

        assert {(one.unread, one.wake, one.held_back) for one in await ear.all_heard()} == {(0, False, 3)}
        answer = await bob.read()
        assert (answer["messages"], "set_aside" in answer) == ([], False)
        assert await drained(bob) == {"text": "", "message_ids": [], "more": False}
        shown = await bob.ask("waiting")
        assert (shown["messages"], shown["held_back"]) == ([], 3)
        for one in ids:
            with pytest.raises(CapabilityDenied) as refused:
                await bob.read(message_id=one)
            assert "herd inbox --session TARGET --accept" in refused.value.next_step
            assert await alice.state(one) == "accepted"
        for reader in (bob.other_adapter(), bob.other_adapter(command=True)):
            assert (await reader.request(None, "session.read", {}))["messages"] == []


@pytest.mark.requirement("A-restart-02")
async def test_an_answer_takes_nothing_out_of_the_person_s_review(layout, alice):
    ids = await left(layout, alice)
    async with reviewing(layout) as bob:
        await bob.sees(alice)
        for one in ids:
            with pytest.raises(CapabilityDenied):
                await bob.send(alice, "unread", reply_to=one)
        assert (await bob.ask("waiting"))["held_back"] == 3
        assert await alice.texts() == []
        for one in ids:
            assert await alice.state(one) == "accepted"


async def test_the_person_sees_all_of_it_and_their_yes_lets_it_through_once(layout, alice):
    ids = await left(layout, alice)
    async with reviewing(layout) as bob:
        shown = await bob.ask("waiting", review=True)
        assert [one["text"] for one in shown["messages"]] == ["in vain", "never seen", "by a visit"]
        ear = Listening(bob)
        await bob.ask("update", activity="idle")
        await ear.all_heard()

        assert await bob.ask("let_through") == {"let_through": 3}
        assert await ear.all_heard() == [Arrival(3, wake=True)]
        assert await bob.texts() == ["in vain", "never seen", "by a visit"]
        await bob.ask("confirm", message_ids=ids, evidence="a test")
        assert await bob.ask("let_through") == {"let_through": 0}
    async with reviewing(layout) as bob:
        assert await bob.texts() == []


async def test_what_comes_after_the_start_is_given_at_once(layout, alice):
    await left(layout, alice)
    async with reviewing(layout) as bob:
        await alice.send(bob, "new")

        assert await bob.texts() == ["new"]
        assert len((await bob.ask("waiting", review=True))["messages"]) == 4


async def test_a_yes_holds_for_this_instance_alone(layout, alice):
    await left(layout, alice)
    async with reviewing(layout) as bob:
        await bob.ask("let_through")
    async with reviewing(layout) as bob:
        assert await bob.texts() == []
        assert (await bob.ask("waiting"))["held_back"] == 3


async def test_without_the_setting_it_is_given(layout, alice):
    await left(layout, alice)
    async with running(layout, BOB) as bob:
        assert await bob.texts() == ["in vain", "never seen", "by a visit"]


async def test_a_session_that_nothing_waits_for_holds_nothing_back(layout, alice):
    started_once(layout, BOB)
    async with reviewing(layout) as bob:
        await alice.sees(bob)
        await alice.send(bob, "first")

        assert await bob.texts() == ["first"]
        assert "held_back" not in await bob.ask("waiting")


async def test_the_terminal_s_own_mail_is_the_person_s(layout, alice):
    terminal = session_of(9, "terminal")
    async with running(layout, terminal) as one:
        await alice.sees(one)
    await alice.send(sleeping_target(terminal), "for you")
    async with running(layout, terminal, on_restart=RESTART_REVIEW) as one:
        assert await one.texts() == ["for you"]
