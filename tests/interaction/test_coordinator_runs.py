"""Child runs: bound through the adapter API, with mail of their own, until they end."""

import asyncio
import os
import sqlite3

import pytest

from herd.core.clock import FakeClock, SystemClock
from herd.core.errors import (
    CapabilityDenied,
    HerdError,
    InvalidParams,
    PeerOffline,
    QueueFull,
    RecoveryRequired,
    TargetEnded,
)
from herd.core.identity import peer_id_of
from herd.core.limits import DEFAULT_LIMITS
from herd.mail.steps import COMMIT_BEFORE, RUN_END_BEFORE, SEND_BEFORE
from tests.fakes.coordinators import IN_TIME_S, Running, Steps, asked, running, until, until_async
from tests.fakes.records import ALICE, BOB


class Run:
    """One run, as the parent that bound it asks for it."""

    def __init__(self, session: Running, target: str) -> None:
        self.session = session
        self.target = target

    async def ask(self, method, **params):
        return await asked(self.session.adapter, method, run=self.target, **params)

    async def texts(self, **query):
        return [one["text"] for one in (await self.ask("read", **query))["messages"]]

    async def end(self):
        await self.session.ask("end_run", run=self.target)

    async def state(self, message_id):
        status = await self.ask("status", message_id=message_id)
        return status["state"], status.get("outcome")


async def bound(session, run_id="r-1", **more):
    result = await session.ask("bind_run", run_id=run_id, **more)
    return Run(session, result["target"])


async def refused(call, kind):
    with pytest.raises(HerdError) as caught:
        await call
    assert type(caught.value) is kind, caught.value
    return caught.value


async def listed(session, *runs):
    """List the peers; those runs must be among them."""
    page = await session.ask("list")
    entries = {entry["target"]: entry for entry in page["peers"]}
    assert {run.target for run in runs} <= entries.keys()
    return entries


async def stored(session, message_id):
    return [row for row in (await rows_of(session)) if row[0] == message_id]


async def rows_of(session):
    def work(connection):
        query = "SELECT message_id, run, instance_id, state, outcome FROM inbox ORDER BY sequence"
        return connection.execute(query).fetchall()

    return await session.coordinator.mailbox.read(work) or []


# --- binding and listing ---------------------------------------------------------------------------


@pytest.mark.requirement("A-runs-01", "A-ident-10")
async def test_a_bound_run_has_a_peer_id_by_which_it_is_reached_before_it_does_anything(alice, bob):
    result = await bob.ask("bind_run", run_id="r-1", name="tester")
    entries = await listed(alice)

    assert result["target"] == peer_id_of(bob.record().instance_id, "r-1")
    assert result["name"] == "tester"
    assert result["capabilities"] == ["message.send", "message.receive", "message.wait"]
    assert entries[result["target"]] == {
        "target": result["target"],
        "name": "tester",
        "run_of": bob.target,
    }
    sent = await alice.send(result["target"], "to the run")
    assert sent["status"] == "accepted"
    assert await Run(bob, result["target"]).texts() == ["to the run"]


@pytest.mark.requirement("A-ident-03")
async def test_a_second_bind_of_an_id_is_refused_also_after_the_run_is_over(bob):
    run = await bound(bob)
    await refused(bob.ask("bind_run", run_id="r-1"), InvalidParams)
    await run.end()

    await refused(bob.ask("bind_run", run_id="r-1"), InvalidParams)
    await refused(bob.ask("bind_run", run_id="a\tb"), InvalidParams)
    await refused(bob.ask("bind_run", run_id="x" * 257), InvalidParams)


@pytest.mark.parametrize(
    "params", [{}, {"run_id": "r", "more": 1}, {"run_id": "r", "capabilities": ["peer.read"]}]
)
async def test_a_bind_of_another_shape_is_refused(bob, params):
    await refused(bob.ask("bind_run", **params), InvalidParams)

    assert not bob.coordinator.runs.live()


@pytest.mark.requirement("A-limits-17")
async def test_as_many_runs_live_at_once_as_the_limits_say(layout):
    async with running(layout, BOB, limits=DEFAULT_LIMITS._replace(published_runs=2)) as bob:
        first, _ = await bound(bob, "r-1"), await bound(bob, "r-2")
        await refused(bob.ask("bind_run", run_id="r-3"), QueueFull)
        await first.end()

        await bound(bob, "r-3")


@pytest.mark.requirement("A-runs-02")
async def test_a_run_without_delegation_may_all_that_its_session_may(bob):
    run = await bound(bob, "r-1")
    below = await bob.ask("bind_run", run_id="r-2", parent=run.target)

    assert below["capabilities"] == list(bob.record().capabilities)
    assert "resource.control" not in below["capabilities"]


@pytest.mark.requirement("A-runs-04")
async def test_an_external_run_is_listed_and_can_do_nothing(alice, bob):
    run = await bound(bob, external=True)
    entries = await listed(alice, run)

    assert entries[run.target]["read_only"] is True
    await refused(alice.send(run.target), CapabilityDenied)
    await refused(bob.send(run.target), CapabilityDenied)
    for method, params in (
        ("send", {"target": alice.target, "message": "x"}),
        ("read", {}),
        ("waiting", {}),
        ("drain", {}),
        ("confirm", {"message_ids": [], "evidence": "e"}),
        ("release", {"message_ids": []}),
        ("status", {"message_id": "m"}),
        ("cancel", {"message_id": "m"}),
        ("subscribe", {}),
        ("list", {}),
    ):
        await refused(run.ask(method, **params), CapabilityDenied)
    assert await rows_of(bob) == []


async def test_a_run_does_what_was_delegated_to_it_and_no_more(alice, bob):
    await bob.sees(alice)
    mute = await bound(bob, "r-1", capabilities=["message.receive"])
    deaf = await bound(bob, "r-2", capabilities=["message.send"])
    await listed(alice, mute, deaf)

    await refused(mute.ask("send", target=alice.target, message="x"), CapabilityDenied)
    await refused(mute.ask("read", wait_ms=1), CapabilityDenied)
    await refused(deaf.ask("read"), CapabilityDenied)
    await refused(alice.send(deaf.target), CapabilityDenied)
    assert (await alice.send(mute.target, "m"))["status"] == "accepted"
    assert (await deaf.ask("send", target=alice.target, message="d"))["status"] == "accepted"


async def test_a_list_shows_runs_in_the_order_of_their_targets_and_tells_twins_apart(alice, bob):
    runs = [await bound(bob, f"r-{number}", name="twin") for number in range(3)]
    page = await alice.ask("list")
    found = [entry for entry in page["peers"] if "run_of" in entry]

    assert [entry["target"] for entry in page["peers"]] == sorted(entry["target"] for entry in page["peers"])
    assert {entry["name"] for entry in found} == {f"twin-{run.target[-6:]}" for run in runs}
    assert len((await alice.ask("list", query=runs[0].target))["peers"]) == 1


async def test_a_list_makes_no_connection_where_nobody_has_runs(alice, bob):
    await alice.ask("list")
    assert alice.coordinator.connections.open_to(bob.key) is None
    assert bob.presence().runs is None

    run = await bound(bob)
    assert bob.presence().runs is True
    await listed(alice, run)
    await run.end()

    assert bob.presence().runs is None


# --- mail of its own -------------------------------------------------------------------------------


@pytest.mark.requirement("A-runs-03", "A-storage-03")
async def test_a_runs_mail_shows_up_in_no_other_inbox(alice, bob):
    parent = await bound(bob, "r-1")
    child = await bound(bob, "r-2", parent=parent.target)
    sibling = await bound(bob, "r-3")
    await alice.sees(bob)
    await listed(alice, parent, child, sibling)
    sent = await alice.send(child.target, "for the child")
    plain = await alice.send(bob, "for the session")

    for other in (parent, sibling, bob):
        waiting = await other.ask("waiting")
        assert [one["text"] for one in waiting["messages"]] == (["for the session"] if other is bob else [])
        with pytest.raises(HerdError):
            await other.ask("read", message_id=sent["message_id"])
        await other.ask("confirm", message_ids=[sent["message_id"]], evidence="not mine")
    assert (await bob.coordinator.attention.waits()).unread == 1
    assert (await alice.ask("status", message_id=sent["message_id"]))["state"] == "accepted"
    assert await bob.texts() == ["for the session"]
    assert await child.texts() == ["for the child"]
    await child.ask("confirm", message_ids=[sent["message_id"]], evidence="read")
    await alice.until_state(sent["message_id"], "delivered")

    instance = bob.record().instance_id
    assert await stored(bob, sent["message_id"]) == [
        (sent["message_id"], child.target, instance, "delivered", None)
    ]
    [row] = await stored(bob, plain["message_id"])
    assert row[1:3] == (None, instance)
    history = await bob.ask("history")
    told = {one["message_id"]: one.get("run") for one in history["messages"]}
    assert told == {sent["message_id"]: child.target, plain["message_id"]: None}


@pytest.mark.requirement("A-runs-03")
async def test_a_run_has_the_bound_of_its_own_inbox(layout):
    async with (
        running(layout, ALICE, clock=SystemClock()) as alice,
        running(layout, BOB, limits=DEFAULT_LIMITS._replace(inbox_messages=2)) as bob,
    ):
        runs = [await bound(bob, f"r-{number}") for number in range(2)]
        await alice.sees(bob)
        await listed(alice, *runs)
        for to in (runs[0].target, runs[1].target, bob.target):
            for number in range(2):
                await alice.until_state((await alice.send(to, f"{number}"))["message_id"], "accepted")
        third = await alice.send(runs[0].target, "third")

        assert third["status"] == "queued"
        await alice.until_outcome(third["message_id"], "QUEUE_FULL")
        assert await runs[1].texts() == ["0", "1"]


async def test_a_message_from_a_run_names_it_and_is_answered_to_it_alone(alice, bob):
    await bob.sees(alice)
    run = await bound(bob, name="tester")
    sent = await run.ask("send", target=alice.target, message="question")
    [question] = (await alice.read())["messages"]

    assert question["from"] == {
        "target": run.target,
        "name": "tester",
        "role": "lead",
        "run_of": bob.target,
    }
    await alice.sees(bob)
    await refused_as(alice.send(bob, "x", reply_to=sent["message_id"]), "INVALID_REPLY")
    answer = await alice.send(run.target, "answer", reply_to=sent["message_id"])
    assert answer["status"] == "accepted"
    assert await bob.texts() == []
    taken = await run.ask("read")
    assert [one["text"] for one in taken["messages"]] == ["answer"]
    assert [(one["message_id"], one["status"]) for one in taken["receipts"]] == [
        (sent["message_id"], "replied")
    ]
    assert (await bob.read())["receipts"] == []
    with pytest.raises(HerdError):
        await bob.ask("status", message_id=sent["message_id"])


async def refused_as(call, code):
    with pytest.raises(HerdError) as caught:
        await call
    assert caught.value.code == code


async def test_a_session_and_its_runs_write_to_each_other(bob):
    one, other = await bound(bob, "r-1"), await bound(bob, "r-2")

    down = await bob.send(one.target, "down")
    up = await one.ask("send", target=bob.target, message="up")
    across = await one.ask("send", target=other.target, message="across")

    assert {sent["status"] for sent in (down, up, across)} == {"accepted"}
    assert await bob.texts() == ["up"]
    assert await one.texts() == ["down"]
    assert await other.texts() == ["across"]
    reply = await one.ask("send", target=bob.target, message="reply", reply_to=down["message_id"])
    assert reply["status"] == "accepted"
    await bob.until_state(down["message_id"], "replied")
    entries = {entry["target"] for entry in (await one.ask("list"))["peers"]}
    assert other.target in entries
    assert one.target not in entries


async def test_a_wait_in_a_run_ends_with_its_own_mail_and_no_other(alice, bob):
    run, other = await bound(bob, "r-1"), await bound(bob, "r-2")
    await listed(alice, run, other)
    waiting = asyncio.ensure_future(run.ask("read", wait_ms=30_000))
    await alice.send(other.target, "other")
    assert await other.texts() == ["other"]
    assert not waiting.done()

    await alice.send(run.target, "mine")

    assert [one["text"] for one in (await waiting)["messages"]] == ["mine"]


async def test_a_call_made_twice_is_one_message_of_that_run(alice, bob):
    await bob.sees(alice)
    one, other = await bound(bob, "r-1"), await bound(bob, "r-2")
    sends = [
        await whose.ask("send", target=alice.target, message="x", call_id="c")
        for whose in (one, one, other, bob)
    ]

    assert len({sent["message_id"] for sent in sends}) == 3
    assert len(await alice.texts()) == 3


# --- the end ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-runs-08", "A-errors-07")
async def test_from_its_end_on_a_run_sends_and_reads_and_is_sent_nothing(alice, bob):
    await bob.sees(alice)
    run = await bound(bob)
    await listed(alice, run)
    reading = asyncio.ensure_future(run.ask("read", wait_ms=30_000))
    await until(lambda: bob.coordinator.runs.require(run.target).open == 1)
    await run.end()

    await refused(reading, TargetEnded)
    for method, params in (
        ("send", {"target": alice.target, "message": "x"}),
        ("read", {}),
        ("waiting", {}),
        ("status", {"message_id": "m"}),
        ("list", {}),
    ):
        await refused(run.ask(method, **params), TargetEnded)
    ended = await refused(alice.send(run.target), TargetEnded)
    assert ended.next_step == PeerOffline.hint
    await refused(bob.ask("end_run", run=run.target), TargetEnded)
    assert await alice.outgoing() == []
    assert run.target not in await listed(alice)


@pytest.mark.requirement("A-runs-08")
async def test_an_open_request_finishes_while_its_run_closes_and_none_is_admitted(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps) as bob:
        await bob.sees(alice)
        run = await bound(bob)
        live = bob.coordinator.runs.require(run.target)
        live.begun()  # a request that takes its time
        ending = asyncio.ensure_future(run.end())
        await until(lambda: not bob.coordinator.runs.lives(run.target))
        await refused(run.ask("read"), TargetEnded)
        assert not ending.done()
        assert not steps.taken(RUN_END_BEFORE)
        live.ended()

        async with asyncio.timeout(IN_TIME_S):
            await ending


@pytest.mark.requirement("A-runs-08")
async def test_what_has_not_finished_in_time_is_aborted(layout):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob:
        run = await bound(bob)
        live = bob.coordinator.runs.require(run.target)
        channel = bob.adapter._runs
        stuck = asyncio.ensure_future(channel.carried_out(live, None, never()))
        await until(lambda: live.open == 1)
        ending = asyncio.ensure_future(run.end())
        await clock.wait_for_sleepers()
        clock.advance(2)

        await refused(stuck, TargetEnded)
        async with asyncio.timeout(IN_TIME_S):
            await ending


async def never():
    await asyncio.Event().wait()
    return {}


@pytest.mark.requirement("A-receipts-09")
async def test_what_a_run_has_not_read_stays_accepted_and_its_sender_is_told(alice, bob):
    run, other = await bound(bob, "r-1"), await bound(bob, "r-2")
    await listed(alice, run, other)
    unread = await alice.send(run.target, "unread")
    handed = await alice.send(run.target, "handed over, never confirmed")
    read = await alice.send(run.target, "read")
    await run.ask("read", message_id=handed["message_id"])
    await run.ask("read", message_id=read["message_id"])
    await run.ask("confirm", message_ids=[read["message_id"]], evidence="e")
    kept = await alice.send(other.target, "for another")
    await alice.read()
    waiting = asyncio.ensure_future(alice.read(wait_ms=30_000, reply_to=unread["message_id"]))
    await run.end()

    receipts = (await waiting)["receipts"]
    assert [(one["status"], one["outcome"]) for one in receipts] == [("accepted", "TARGET_ENDED")]
    for sent in (unread, handed):
        status = await alice.ask("status", message_id=sent["message_id"])
        assert (status["state"], status["outcome"]) == ("accepted", "TARGET_ENDED")
    assert (await alice.ask("status", message_id=read["message_id"]))["state"] == "delivered"
    assert "outcome" not in await alice.ask("status", message_id=kept["message_id"])
    assert await other.texts() == ["for another"]
    assert await bob.texts() == []


@pytest.mark.requirement("A-runs-10")
async def test_with_a_run_end_all_below_it(alice, bob):
    top = await bound(bob, "top")
    middle = await bound(bob, "middle", parent=top.target)
    deep = await bound(bob, "deep", parent=middle.target)
    other = await bound(bob, "other")
    await listed(alice, deep, other)
    sent = await alice.send(deep.target, "unread")
    live = bob.coordinator.runs.require(deep.target)
    live.begun()
    ending = asyncio.ensure_future(top.end())
    await until(lambda: not bob.coordinator.runs.lives(top.target))

    for closing in (top, middle, deep):
        await refused(bob.ask("bind_run", run_id="late", parent=closing.target), TargetEnded)
    live.ended()
    async with asyncio.timeout(IN_TIME_S):
        await ending
    assert [one.run.peer_id for one in bob.coordinator.runs.live()] == [other.target]
    status = await alice.ask("status", message_id=sent["message_id"])
    assert (status["state"], status["outcome"]) == ("accepted", "TARGET_ENDED")
    await refused(bob.ask("bind_run", run_id="later", parent=middle.target), TargetEnded)


async def test_what_an_ended_run_has_pending_goes_nowhere_unless_a_mailbox_has_it(layout):
    async with (
        running(layout, ALICE, clock=SystemClock()) as alice,
        running(layout, BOB, limits=DEFAULT_LIMITS._replace(inbox_messages=1)) as bob,
    ):
        await alice.sees(bob)
        run = await bound(alice)
        first = await run.ask("send", target=bob.target, message="taken")
        await until_async(lambda: has_state(alice, first["message_id"], "accepted"))
        second = await run.ask("send", target=bob.target, message="no room")
        assert second["status"] == "queued"
        await run.end()

        await until_async(lambda: settled(alice, second["message_id"]))
        rows = {row.message_id: row for row in await all_sent(alice)}
        assert rows[first["message_id"]].receipt.state == "accepted"
        assert rows[second["message_id"]].receipt[3] == "rejected"
        assert rows[second["message_id"]].receipt.outcome == "TARGET_ENDED"
        assert await bob.texts() == ["taken"]


async def has_state(session, message_id, state):
    return any((row.message_id, row.receipt.state) == (message_id, state) for row in await all_sent(session))


async def all_sent(session):
    from herd.mail import outbox

    def work(connection):
        ids = connection.execute("SELECT message_id FROM outbox ORDER BY position").fetchall()
        return [outbox.find(connection, one) for (one,) in ids]

    return await session.coordinator.mailbox.read(work) or []


async def settled(session, message_id):
    return any(
        row.message_id == message_id and row.receipt.state != "pending" for row in await all_sent(session)
    )


async def test_an_end_that_could_not_be_written_is_written_once_the_disk_lets_it(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps) as bob:
        run = await bound(bob)
        await listed(alice, run)
        sent = await alice.send(run.target, "unread")
        steps.faults[COMMIT_BEFORE] = lambda: sqlite3.OperationalError("database or disk is full")
        await refused(run.end(), RecoveryRequired)
        assert not bob.coordinator.runs.all_parts()
        assert "outcome" not in await status_row(alice, sent["message_id"])
        del steps.faults[COMMIT_BEFORE]
        bob.coordinator.health.hasten()

        await until_async(lambda: is_told(alice, sent["message_id"]))


async def is_told(session, message_id):
    return (await status_row(session, message_id)).get("outcome") == "TARGET_ENDED"


async def status_row(session, message_id):
    [row] = [one for one in await all_sent(session) if one.message_id == message_id]
    return {name: value for name, value in row.receipt._asdict().items() if value is not None}


async def test_a_message_on_its_way_when_its_run_ends_is_refused_as_its_end(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps) as bob:
        await bob.sees(alice)
        run = await bound(bob)
        runs = bob.coordinator.runs
        shown = runs.shown_to
        runs.shown_to = lambda _: []  # the question comes when the run has just begun to close
        lives, runs.lives = runs.lives, lambda peer_id: not steps.taken(SEND_BEFORE) and lives(peer_id)
        sending = run.ask("send", target=alice.target, message="x")

        await refused(sending, TargetEnded)
        runs.shown_to, runs.lives = shown, lives
        assert await alice.texts() == []


async def test_a_person_selects_a_run_in_a_text_and_writes_to_it(alice, bob):
    run = await bound(bob, name="tester")
    await listed(alice, run)
    selected = {"start": 0, "end": 7, "to": run.target}
    composed = await alice.ask("compose", text=":tester look at this", references=[selected])
    assert composed["sent"]["status"] == "accepted"
    assert await run.texts() == ["look at this"]

    mentioned = {"start": 4, "end": 11, "to": run.target}
    found = await alice.ask("compose", text="ask :tester\nand go on", references=[mentioned])
    assert found["references"][0]["peer"] == {"target": run.target, "name": "tester"}
    await run.end()
    await refused(alice.ask("compose", text=":tester again", references=[selected]), TargetEnded)


# --- after the instance ----------------------------------------------------------------------------


@pytest.mark.requirement("A-ident-10", "A-errors-07", "A-restart-03", "A-reply-06")
async def test_a_run_dies_with_its_instance_and_its_mail_moves_to_nobody(layout, alice):
    async with running(layout, BOB) as bob:
        await bob.sees(alice)
        run = await bound(bob, "r-1")
        await listed(alice, run)
        unread = await alice.send(run.target, "unread")
        asked_by_run = await run.ask("send", target=alice.target, message="question")
        assert await alice.texts() == ["question"]
    await refused(alice.send(run.target, "x"), PeerOffline)
    async with running(layout, BOB) as bob:
        successor = await bound(bob, "r-1")
        assert successor.target != run.target
        await listed(alice, successor)

        status = await alice.ask("status", message_id=unread["message_id"])
        assert (status["state"], status["outcome"]) == ("accepted", "TARGET_ENDED")
        await refused(alice.send(run.target, "x"), TargetEnded)
        await refused(alice.send(run.target, "answer", reply_to=asked_by_run["message_id"]), TargetEnded)
        await refused_as(
            alice.send(successor.target, "answer", reply_to=asked_by_run["message_id"]), "INVALID_REPLY"
        )
        await refused_as(alice.send(bob, "answer", reply_to=asked_by_run["message_id"]), "INVALID_REPLY")
        assert await bob.texts() == []
        assert await successor.texts() == []
        left = {one["message_id"]: one["run"] for one in (await bob.ask("history", left=True))["messages"]}
        assert left == {
            unread["message_id"]: run.target,
            asked_by_run["message_id"]: run.target,
        }


@pytest.mark.requirement("A-reply-06")
async def test_a_reply_to_a_run_that_ended_goes_to_nobody(alice, bob):
    await bob.sees(alice)
    run, other = await bound(bob, "r-1"), await bound(bob, "r-2")
    sent = await run.ask("send", target=alice.target, message="question")
    assert await alice.texts() == ["question"]
    await run.end()
    await listed(alice, other)

    await refused(alice.send(run.target, "answer", reply_to=sent["message_id"]), TargetEnded)
    for target in (other.target, bob.target):
        await refused_as(alice.send(target, "answer", reply_to=sent["message_id"]), "INVALID_REPLY")
    assert await rows_of(bob) == []


# --- the channel -----------------------------------------------------------------------------------


@pytest.mark.requirement("A-runs-05")
async def test_only_the_channel_that_bound_a_run_speaks_for_it(alice, bob):
    await bob.sees(alice)
    run = await bound(bob)
    stranger = bob.other_adapter()
    theirs = (await asked(stranger, "bind_run", run_id="r-2"))["target"]

    for method, params in (
        ("send", {"target": alice.target, "message": "x"}),
        ("read", {}),
        ("status", {"message_id": "m"}),
        ("end_run", {}),
    ):
        await refused(asked(stranger, method, run=run.target, **params), TargetEnded)
        await refused(asked(bob.adapter, method, run=theirs, **params), TargetEnded)
        await refused(asked(bob.adapter, method, run="peer-" + "0" * 32, **params), TargetEnded)
    await refused(asked(stranger, "bind_run", run_id="r-3", parent=run.target), TargetEnded)
    assert (await run.ask("send", target=alice.target, message="mine"))["status"] == "accepted"


@pytest.mark.requirement("A-runs-07")
async def test_a_runs_requests_and_answers_are_strict(alice, bob):
    run = await bound(bob)

    for method, params in (
        ("send", {"target": alice.target, "message": "x", "from": alice.target}),
        ("read", {"wait_ms": 30_001}),
        ("confirm", {"message_ids": "m", "evidence": "e"}),
        ("confirm", {"message_ids": [], "evidence": "e", "run_id": "r-1"}),
        ("release", {}),
        ("read", {"wait_ms": True}),
    ):
        with pytest.raises(InvalidParams):
            await bob.adapter.request(None, f"session.{method}", {"run": run.target, **params})
    with pytest.raises(InvalidParams):
        await bob.adapter.request(None, "session.read", {"run": "r-1"})


@pytest.mark.requirement("A-runs-07")
async def test_so_many_requests_of_a_run_are_open_at_once(layout):
    async with running(layout, BOB, limits=DEFAULT_LIMITS._replace(pending_requests=2)) as bob:
        run, other = await bound(bob, "r-1"), await bound(bob, "r-2")
        live = bob.coordinator.runs.require(run.target)
        waits = [asyncio.ensure_future(run.ask("read", wait_ms=30_000)) for _ in range(2)]
        await until(lambda: live.open == 2)

        await refused(run.ask("read"), QueueFull)
        assert await other.texts() == []
        await run.end()
        for wait in waits:
            await refused(wait, TargetEnded)


@pytest.mark.requirement("A-runs-07")
async def test_so_many_answers_with_mail_are_unconfirmed_at_once(layout, alice):
    async with running(layout, BOB, limits=DEFAULT_LIMITS._replace(pending_requests=2)) as bob:
        run = await bound(bob)
        await listed(alice, run)
        ids = []
        for number in range(2):
            sent = await alice.send(run.target, f"{number}")
            ids.append(sent["message_id"])
            assert await run.texts() == [f"{number}"]
        await alice.send(run.target, "third")

        await refused(run.ask("read"), QueueFull)
        await refused(run.ask("drain"), QueueFull)
        await run.ask("confirm", message_ids=ids[:1], evidence="e")
        assert await run.texts() == ["third"]


@pytest.mark.requirement("A-runs-11")
async def test_what_is_handed_down_and_not_confirmed_for_30_s_stays_accepted(layout, alice):
    clock = FakeClock()
    async with running(layout, BOB, clock=clock) as bob:
        run = await bound(bob)
        await listed(alice, run)
        lost = (await alice.send(run.target, "lost"))["message_id"]
        had = (await alice.send(run.target, "had"))["message_id"]
        assert await run.texts() == ["lost", "had"]
        await run.ask("confirm", message_ids=[had], evidence="e")
        assert await run.texts() == []
        await clock.wait_for_sleepers()
        clock.advance(29)
        assert await run.texts() == []
        clock.advance(1)
        live = bob.coordinator.runs.require(run.target)
        [row] = await bob.coordinator.mailbox.read(lambda c: run_rows(c, run.target, lost))
        await until(lambda: not live.delivery.is_held(row.sequence))

        assert row.receipt.state == "accepted"
        [again] = (await run.ask("read"))["messages"]
        assert (again["text"], again["again"]) == ("lost", True)


def run_rows(connection, run, message_id):
    from herd.mail import inbox

    return inbox.by_id(connection, message_id, run)


@pytest.mark.requirement("A-runs-11")
async def test_the_end_of_the_channel_settles_what_is_open_and_ends_the_runs_it_bound(alice, bob):
    run = await bound(bob)
    await listed(alice, run)
    sent = await alice.send(run.target, "handed down")
    assert await run.texts() == ["handed down"]
    waiting = asyncio.ensure_future(run.ask("read", wait_ms=30_000))
    await until(lambda: bob.coordinator.runs.require(run.target).open == 1)
    bob.adapter.ended()

    await refused(waiting, PeerOffline)
    await until(lambda: not bob.coordinator.runs.all_parts())
    status = await alice.ask("status", message_id=sent["message_id"])
    assert (status["state"], status["outcome"]) == ("accepted", "TARGET_ENDED")
    await refused(alice.send(run.target), TargetEnded)


@pytest.mark.requirement("A-runs-06")
async def test_what_a_run_sends_goes_by_its_sessions_connection_and_key(alice, bob):
    await bob.sees(alice)
    run = await bound(bob)
    await bob.send(alice, "so that there is a mailbox")
    before = files_of(bob)
    await run.ask("send", target=alice.target, message="x")
    await listed(alice, run)
    await alice.send(run.target, "y")

    assert files_of(bob) == before
    connection = alice.coordinator.connections.open_to(bob.key)
    assert connection is not None
    assert connection.principal.record.instance_id == bob.record().instance_id


def files_of(session):
    """Give every file of the session's own: keys, sockets and the rest."""
    layout = session.layout
    return {
        os.path.join(folder, name)
        for top in (layout.run, layout.session_folder(session.key))
        for folder, _, names in os.walk(top)
        for name in names
    }
