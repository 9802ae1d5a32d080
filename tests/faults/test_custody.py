"""Who answers for a message after a death: one promise at a time, each with its own death."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from herd.core.identity import SessionName, peer_id_of, target_of
from herd.core.locks import AuthorityLock
from herd.core.paths import Layout
from herd.mail.receipts import ACCEPTED, DELIVERED, PENDING, REJECTED
from herd.mail.steps import (
    COMMIT_BEFORE,
    EVIDENCE_AFTER,
    EVIDENCE_BEFORE,
    HANDOVER_AFTER,
    HANDOVER_BEFORE,
    INBOX_BEFORE,
    OFFER_AFTER,
    OUTBOX_BEFORE,
    RECEIPT_BEFORE,
)
from herd.presence.record import Record
from herd.presence.registry import Registry
from tests.fakes.raw_peer import RawPeer
from tests.faults.forked import DiedError, Process
from tests.faults.forks import Forks
from tests.faults.pair import ALICE, BOB, Pair
from tests.faults.truth import look

# --- before the message leaves ---------------------------------------------------------------------


@pytest.mark.requirement("A-custody-01")
async def test_nobody_is_even_called_before_the_row_of_the_first_message_is_committed(
    layout: Layout, forks: Forks
):
    raw = RawPeer(BOB)
    fate = {"at": COMMIT_BEFORE, "behind": OUTBOX_BEFORE, "what": "freeze"}
    async with raw.listening(layout) as server:
        alice = await Process.started(forks, layout, ALICE, fate=fate)
        await alice.ask("session.list")
        sending = alice.begin("session.send", target=raw.target, message="hello", call_id="one")
        await alice.ask("test.stopped")
        await alice.kill()
        await asyncio.wait({sending})

        assert look(layout, ALICE).outbox == []
        assert server._calls.empty()
        alice = await Process.started(forks, layout, ALICE)
        sending = alice.begin("session.send", target=raw.target, message="hello", call_id="one")
        connection = await server.proved()
        request = await connection.message()
        assert look(layout, ALICE).outbox[0].message_id == request["params"]["messageId"]
        connection.accept(request)
        assert (await sending)["status"] == ACCEPTED
        await alice.kill()


@pytest.mark.requirement("A-custody-01")
async def test_no_byte_goes_over_an_open_connection_before_the_row_of_the_message_is_committed(
    layout: Layout, forks: Forks
):
    raw = RawPeer(BOB)
    fate = {"at": COMMIT_BEFORE, "behind": OUTBOX_BEFORE, "behind_nth": 2, "what": "freeze"}
    async with raw.listening(layout) as server:
        alice = await Process.started(forks, layout, ALICE, fate=fate)
        await alice.ask("session.list")
        first = alice.begin("session.send", target=raw.target, message="one")
        connection = await server.proved()
        connection.accept(await connection.message())
        assert (await first)["status"] == ACCEPTED
        second = alice.begin("session.send", target=raw.target, message="two")
        await alice.ask("test.stopped")
        await alice.kill()
        await asyncio.wait({second})

        assert [row.content for row in look(layout, ALICE).outbox] == ["one"]
        assert await connection.heard() is None


# --- accepted --------------------------------------------------------------------------------------


@pytest.mark.requirement("A-custody-03", "H-inbox-01")
async def test_a_receiver_killed_the_moment_it_has_answered_accepted_has_the_message(pair: Pair):
    await pair.start()
    texts = [f"text {number}" for number in range(20)]
    for text in texts:
        message_id = await pair.alice.send(text)
        # Or it was not answered within the wait of a send, which promises nothing yet.
        await pair.alice.until_told({message_id: ACCEPTED})
        await pair.bob.killed()  # finds the row, among others

    await pair.bob.receive(*texts)
    assert [one.text for one in pair.bob.record] == texts


@pytest.mark.requirement("A-custody-03", "H-inbox-01")
async def test_accepted_is_not_answered_while_the_row_of_the_inbox_is_not_committed(pair: Pair):
    await pair.start(bob={"at": COMMIT_BEFORE, "behind": INBOX_BEFORE, "what": "freeze"})
    sending = pair.alice.process.begin("session.send", target=pair.bob.target, message="hello")
    await pair.bob.process.ask("test.stopped")

    sent = await sending
    assert sent["status"] == "queued"
    assert (await pair.alice.process.ask("session.status", message_id=sent["message_id"]))["state"] == PENDING
    pair.alice.sent.append("hello")
    await pair.bob.killed()
    assert pair.bob.at_death.inbox == []
    await pair.bob.receive("hello")


@pytest.mark.requirement("A-custody-22")
async def test_a_sender_that_dies_between_telling_its_caller_and_writing_down_is_told_again(
    pair: Pair, folder: Path
):
    steps = folder / "steps"
    dying = {"at": COMMIT_BEFORE, "behind": RECEIPT_BEFORE, "what": "freeze"}
    await pair.start(alice=dying, bob={"log": str(steps)})
    message_id = await pair.alice.send("hello")
    await pair.alice.process.ask("test.stopped")
    assert pair.alice.told == {message_id: ACCEPTED}
    assert look(pair.layout, ALICE).outbox[0].state == PENDING
    await pair.alice.process.kill()

    # The receipt is told to the sender that sleeps, before it has any chance to ask.
    assert await pair.bob.read_once() == ["hello"]
    await pair.bob.confirm("hello")
    while OFFER_AFTER not in steps.read_text(encoding="utf-8"):
        await pair.bob.process.ask("session.whoami")
    assert look(pair.layout, ALICE).outbox[0].state == DELIVERED
    await pair.alice.died()
    await pair.alice.until_told({message_id: DELIVERED})
    assert len(look(pair.layout, BOB).inbox) == 1


def status_of(envelope: dict[str, Any]) -> dict[str, Any]:
    return {"messageId": envelope["messageId"], "to": envelope["to"]}


async def test_who_asks_behind_its_message_is_not_told_that_it_has_not_come(layout: Layout, forks: Forks):
    bob = await Process.started(forks, layout, BOB)
    await bob.ask("session.list")
    raw = RawPeer(ALICE)
    with raw.registered(layout):
        async with await raw.proved(record_of(layout)) as connection:
            envelope = raw.envelope(target_of("lead", BOB.key))
            # Both frames come at once, as to a process that stood still for a while.
            connection.say("peer.send", envelope, 101)
            connection.say("peer.status", status_of(envelope), 102)
            states = [(await connection.said())["result"]["state"] for _ in range(2)]
    assert states == [ACCEPTED, ACCEPTED]
    await bob.kill()


async def test_who_comes_back_and_asks_waits_for_what_becomes_of_its_message(layout: Layout, forks: Forks):
    bob = await Process.started(forks, layout, BOB)
    await bob.ask("session.list")
    raw = RawPeer(ALICE)
    envelope = raw.envelope(target_of("lead", BOB.key))
    with raw.registered(layout):
        authority = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
        async with await raw.proved(record_of(layout)) as broken:
            changing = await asyncio.to_thread(authority.exclusive)
            broken.say("peer.send", envelope, 101)
            # What is answered behind it came behind it: the message is there, and waits for its verdict.
            assert await broken.refused("peer.read", {}) == "SCOPE_DENIED"
        async with await raw.proved(record_of(layout)) as connection:
            connection.say("peer.status", status_of(envelope), 102)
            # An answer to the question before would have come in front of this one, and been dropped.
            assert await connection.refused("peer.read", {}) == "SCOPE_DENIED"
            changing.release()
            assert (await connection.said())["result"]["state"] == ACCEPTED
    await bob.kill()


def record_of(layout: Layout) -> Record:
    record = Registry(layout).record(BOB.key)
    assert record is not None
    return record


# --- from hand-over to evidence --------------------------------------------------------------------


@pytest.mark.requirement("A-custody-14")
async def test_nothing_is_handed_over_while_the_count_is_not_committed(pair: Pair):
    await pair.start(bob={"at": COMMIT_BEFORE, "behind": HANDOVER_BEFORE, "what": "freeze"})
    await pair.alice.send("hello")
    reading = pair.bob.process.begin("session.read", wait_ms=1_000)
    await pair.bob.process.ask("test.stopped")
    assert not reading.done()
    await pair.bob.killed()
    await asyncio.wait({reading})

    assert reading.exception() is not None
    assert [row.handovers for row in pair.bob.at_death.inbox] == [0]
    await pair.bob.receive("hello")
    assert [one.again for one in pair.bob.record] == [False]


@pytest.mark.requirement("C1", "A-custody-13", "A-custody-15", "H-inbox-10")
@pytest.mark.parametrize("at", [HANDOVER_AFTER, EVIDENCE_BEFORE, ""])
async def test_a_message_given_to_the_host_and_not_confirmed_comes_again_once_and_was_never_delivered(
    pair: Pair, at: str
):
    await pair.start(bob={"at": at})
    message_id = await pair.alice.send("hello")
    await pair.alice.ask_for_all()
    if at == HANDOVER_AFTER:
        with pytest.raises(DiedError):
            await pair.bob.read_once(wait_ms=10_000)
        await pair.bob.died()
    else:
        await pair.bob.receive("hello")
        await pair.alice.ask_for_all()
        if at:
            with pytest.raises(DiedError):
                await pair.bob.process.ask(
                    "session.confirm", message_ids=[message_id], evidence="its session file"
                )
            await pair.bob.died()
        else:
            await pair.bob.killed()
    await pair.alice.ask_for_all()
    before = pair.bob.life

    await pair.bob.receive("hello")
    assert [(one.message_id, one.again) for one in pair.bob.record if one.life == before] == [
        (message_id, True)
    ]
    await pair.alice.ask_for_all()
    assert pair.alice.told == {message_id: ACCEPTED}
    await pair.bob.confirm("hello")
    await pair.alice.until_told({message_id: DELIVERED})
    await pair.bob.killed()
    assert await pair.bob.read_once() == []


@pytest.mark.requirement("A-custody-15", "H-inbox-10")
async def test_after_a_second_hand_over_that_nobody_confirmed_there_is_no_third(pair: Pair):
    await pair.start()
    message_id = await pair.alice.send("hello")
    for _ in range(2):
        await pair.bob.receive("hello")
        await pair.bob.killed()
    assert [one.again for one in pair.bob.record] == [False, True]

    for _ in range(3):
        assert await pair.bob.read_once() == []
        await pair.bob.killed()
    assert [row.handovers for row in pair.bob.at_death.inbox] == [2]
    await pair.alice.ask_for_all()
    assert pair.alice.told == {message_id: ACCEPTED}


@pytest.mark.requirement("A-custody-14")
async def test_recorded_evidence_makes_a_message_delivered_after_a_death_and_it_is_not_given_again(
    pair: Pair,
):
    await pair.start(bob={"at": EVIDENCE_AFTER})
    message_id = await pair.alice.send("hello")
    await pair.bob.receive("hello")
    pair.bob.evidence.add(message_id)
    with pytest.raises(DiedError):
        await pair.bob.process.ask("session.confirm", message_ids=[message_id], evidence="its session file")
    await pair.bob.died()

    row = pair.bob.at_death.came(message_id)
    assert row is not None
    assert (row.handovers, row.evidence) == (1, "its session file")
    await pair.alice.until_told({message_id: DELIVERED})
    assert await pair.bob.read_once() == []


# --- the next life ---------------------------------------------------------------------------------


@pytest.mark.requirement("A-restart-01", "H-inbox-09")
async def test_mail_of_a_killed_session_goes_once_to_its_next_life_and_to_no_other_session(
    pair: Pair, layout: Layout, forks: Forks
):
    await pair.start()
    texts = ["one", "two", "three"]
    for text in texts:
        await pair.alice.until_told({await pair.alice.send(text): ACCEPTED})
    await pair.bob.process.kill()
    fork = await Process.started(forks, layout, SessionName("claude", "bob-forked"))
    stranger = await Process.started(forks, layout, SessionName("codex", "bob"))
    for other in (fork, stranger):
        await other.ask("session.list")
        assert (await other.ask("session.read"))["messages"] == []

    await pair.bob.died()
    await pair.bob.receive(*texts)
    await pair.bob.confirm(*texts)
    assert [(one.text, one.again) for one in pair.bob.record] == [(text, False) for text in texts]
    for other in (fork, stranger):
        assert (await other.ask("session.read"))["messages"] == []
        await other.kill()
    await pair.bob.killed()
    assert await pair.bob.read_once() == []


@pytest.mark.requirement("A-restart-04")
async def test_what_is_pending_goes_to_the_next_life_of_its_session_and_what_named_an_instance_goes_nowhere(
    pair: Pair, layout: Layout
):
    await pair.start(bob={"at": COMMIT_BEFORE, "behind": INBOX_BEFORE, "what": "freeze"})
    record = record_of(layout)
    alice = pair.alice.process
    to_instance = await alice.ask(
        "command.send", target=peer_id_of(record.instance_id), message="to the instance"
    )
    to_session = await alice.ask("session.send", target=pair.bob.target, message="to the session")
    assert to_instance["status"] == to_session["status"] == "queued"
    pair.alice.sent += ["to the session"]
    await pair.bob.killed()

    await pair.bob.receive("to the session")
    assert [one.message_id for one in pair.bob.record] == [to_session["message_id"]]
    await alice.ask("session.list")
    status = await alice.ask("session.status", message_id=to_instance["message_id"])
    while status["state"] == PENDING:  # each look is an answer of its own; the next try comes by itself
        status = await alice.ask("session.status", message_id=to_instance["message_id"])
    assert (status["state"], status["outcome"]) == (REJECTED, "TARGET_ENDED")
    assert [row.content for row in look(layout, BOB).inbox] == ["to the session"]
