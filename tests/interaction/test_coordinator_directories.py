"""`peer.directory`: what a coordinator tells of its runs, and what it believes of others'."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import CapabilityDenied, HerdError, TargetEnded
from herd.core.identity import peer_id_of
from herd.core.limits import DEFAULT_LIMITS, DIRECTORY_ENTRIES
from herd.presence.record import Presence
from tests.fakes.checkouts import Checkouts
from tests.fakes.coordinators import running, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL, DAVE, LEAD, session_of

RUNS: Presence = LEAD._replace(runs=True)


@pytest.fixture
def bob(layout):
    """A peer made by hand, on record."""
    with RawPeer(BOB).registered(layout) as one:
        yield one


@pytest.fixture
async def connection(alice, bob):
    """A connection of Bob's on which both sides are proved."""
    async with await bob.proved(alice.record()) as one:
        yield one


def entry_of(peer, run_id="r-1", **changed):
    right = {
        "peerId": peer_id_of(peer.instance_id, run_id),
        "runId": run_id,
        "instanceId": peer.instance_id,
        "name": f"run {run_id}",
        "capabilities": ["message.send", "message.receive"],
    }
    return {**right, **changed}


def from_run(peer, to, run_id="r-1", **more):
    sender = {"session": peer.target, "run": peer_id_of(peer.instance_id, run_id)}
    return peer.envelope(to, **{"from": sender, **more})


async def sent_from_run(connection, envelope, *answers):
    """Send a message of a run and answer the questions about it; gives the frame that answers the send."""
    connection.say("peer.send", envelope, 900)
    questions = []
    left = list(answers)
    while True:
        frame = await connection.said()
        if frame.get("id") == 900 and "method" not in frame:
            return frame, questions
        assert frame["method"] == "peer.directory", frame
        questions.append(frame["params"])
        connection.answer(frame, {"peers": left.pop(0)})


async def answered(server, *peers):
    """Take one call and answer its question for the directory; gives the params."""
    connection = await server.proved()
    request = await connection.asked()
    assert request["method"] == "peer.directory", request
    connection.answer(request, {"peers": list(peers)})
    return connection, request["params"]


async def inbox_of(session):
    return await session.coordinator.mailbox.read(
        lambda c: c.execute("SELECT sender_key, recipient, run FROM inbox").fetchall()
    )


# --- what is told ----------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [{}, {"version": 1}])
async def test_a_directory_has_the_live_runs_of_the_coordinator_asked_and_nothing_else(
    layout, alice, connection, params
):
    assert await connection.accepted("peer.directory", params) == {"peers": []}
    async with running(layout, CAROL) as carol:
        await carol.ask("bind_run", run_id="carols")
        first = await alice.ask("bind_run", run_id="r-1", name="first")
        below = await alice.ask("bind_run", run_id="r-2", name="below", parent=first["target"])
        over = await alice.ask("bind_run", run_id="r-3")
        await alice.ask("end_run", run=over["target"])
        found = await connection.accepted("peer.directory", params)

    instance = alice.record().instance_id
    whole = ["message.send", "message.receive", "message.wait"]
    one = {"instanceId": instance, "capabilities": whole}
    assert found == {
        "peers": [
            {"peerId": first["target"], "runId": "r-1", "name": "first", **one},
            {
                "peerId": below["target"],
                "runId": "r-2",
                "name": "below",
                **one,
                "parent": first["target"],
            },
        ]
    }


async def test_one_run_may_be_asked_about_alone(alice, connection):
    first, _ = [await alice.ask("bind_run", run_id=f"r-{number}") for number in range(2)]

    found = await connection.accepted("peer.directory", {"run": first["target"]})
    none = await connection.accepted("peer.directory", {"run": "peer-" + "0" * 32})

    assert [entry["peerId"] for entry in found["peers"]] == [first["target"]]
    assert none == {"peers": []}


@pytest.mark.parametrize("params", [{"version": 2}, {"run": "r-1"}, {"more": 1}, {"version": True}])
async def test_a_question_of_another_shape_is_refused(connection, params):
    assert await connection.refused("peer.directory", params) == "INVALID_PARAMS"


async def test_an_answer_fits_into_its_frame(layout, bob):
    limits = DEFAULT_LIMITS._replace(published_runs=300)
    async with running(layout, ALICE, limits=limits) as alice:
        for number in range(300):
            await alice.ask("bind_run", run_id=f"{number:03}" + "é" * 250)
        async with await bob.proved(alice.record()) as connection:
            found = await connection.accepted("peer.directory", {})

    assert 20 < len(found["peers"]) <= DIRECTORY_ENTRIES


# --- a message from a run --------------------------------------------------------------------------


@pytest.mark.requirement("A-methods-05")
async def test_a_run_in_from_is_looked_up_at_the_coordinator_that_sends(alice, bob, connection):
    envelope = from_run(bob, alice.target)
    answer, questions = await sent_from_run(connection, envelope, [entry_of(bob)])

    assert answer["result"]["state"] == "accepted"
    assert questions == [{"run": peer_id_of(bob.instance_id, "r-1")}]
    [message] = (await alice.read())["messages"]
    assert message["from"] == {
        "target": peer_id_of(bob.instance_id, "r-1"),
        "name": "run r-1",
        "role": "lead",
        "run_of": bob.target,
    }


@pytest.mark.requirement("A-methods-05")
@pytest.mark.parametrize(
    "changed",
    [
        None,
        {"instanceId": "another"},
        {"runId": "r-2"},
        {"peerId": "peer-" + "0" * 32},
    ],
    ids=["absent", "another instance", "another run id", "another peer id"],
)
async def test_a_run_that_its_own_coordinator_does_not_show_sends_nothing(alice, bob, connection, changed):
    entries = [] if changed is None else [entry_of(bob, **changed)]
    answer, _ = await sent_from_run(connection, from_run(bob, alice.target), entries)

    assert answer["error"]["data"]["code"] == "INVALID_PARAMS"
    assert not await inbox_of(alice)


@pytest.mark.requirement("A-methods-05")
async def test_a_run_of_somebody_else_is_not_in_the_senders_directory(alice, bob, connection):
    mine = (await alice.ask("bind_run", run_id="r-1"))["target"]
    envelope = bob.envelope(alice.target, **{"from": {"session": bob.target, "run": mine}})
    right = entry_of(bob, peerId=mine, instanceId=alice.record().instance_id)
    answer, _ = await sent_from_run(connection, envelope, [right])

    assert answer["error"]["data"]["code"] == "INVALID_PARAMS"
    assert not await inbox_of(alice)


async def test_a_run_without_the_right_to_send_sends_nothing(alice, bob, connection):
    entry = entry_of(bob, capabilities=["message.receive"])
    answer, _ = await sent_from_run(connection, from_run(bob, alice.target), [entry])

    assert answer["error"]["data"]["code"] == "CAPABILITY_DENIED"


@pytest.mark.parametrize("run", ["r-1", "peer-", 7])
async def test_a_run_that_is_no_peer_id_is_refused_without_a_question(alice, bob, connection, run):
    envelope = bob.envelope(alice.target, **{"from": {"session": bob.target, "run": run}})

    assert await connection.refused("peer.send", envelope) == "INVALID_PARAMS"


async def test_what_was_told_of_a_run_is_believed_for_a_second_on_that_connection(layout, bob):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice, await bob.proved(alice.record()) as connection:
        _, asked_first = await sent_from_run(connection, from_run(bob, alice.target), [entry_of(bob)])
        fresh, asked_again = await sent_from_run(connection, from_run(bob, alice.target))
        clock.advance(1)
        old, asked_at_last = await sent_from_run(connection, from_run(bob, alice.target), [])

    assert [len(asked) for asked in (asked_first, asked_again, asked_at_last)] == [1, 0, 1]
    assert fresh["result"]["state"] == "accepted"
    assert old["error"]["data"]["code"] == "INVALID_PARAMS"


async def test_one_id_from_a_session_and_from_its_runs_is_a_message_each(alice, bob, connection):
    entries = [entry_of(bob, run_id) for run_id in ("r-1", "r-2")]
    for envelope, told in (
        (bob.envelope(alice.target, messageId="m-1"), []),
        (from_run(bob, alice.target, "r-1", messageId="m-1"), [[entries[0]]]),
        (from_run(bob, alice.target, "r-2", messageId="m-1"), [[entries[1]]]),
        (from_run(bob, alice.target, "r-2", messageId="m-1"), []),
    ):
        answer, _ = await sent_from_run(connection, envelope, *told)
        assert answer["result"]["state"] == "accepted"

    assert len(await inbox_of(alice)) == 3
    for run in (None, *(entry["peerId"] for entry in entries)):
        question = {"messageId": "m-1", "to": alice.target} | ({"run": run} if run else {})
        assert (await connection.accepted("peer.status", question))["state"] == "accepted"


# --- a message to a run ----------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-03")
async def test_a_send_to_a_run_asks_its_own_coordinator_once_and_nobody_else(layout, alice):
    raw, other = RawPeer(BOB), RawPeer(CAROL)
    run = peer_id_of(raw.instance_id, "r-1")
    async with (
        raw.listening(layout, presence=RUNS) as server,
        other.listening(layout, presence=RUNS) as third,
    ):
        listing = asyncio.ensure_future(alice.ask("list"))
        connection, _ = await answered(server, entry_of(raw))
        elsewhere, _ = await answered(third)
        assert run in {entry["target"] for entry in (await listing)["peers"]}
        for _ in range(2):
            sending = asyncio.ensure_future(alice.send(run))
            question = await connection.said()
            assert (question["method"], question["params"]) == ("peer.directory", {"run": run})
            connection.answer(question, {"peers": [entry_of(raw)]})
            message = await connection.said()
            assert (message["method"], message["params"]["to"]) == ("peer.send", run)
            connection.answer(message, receipt_for(message["params"]))
            assert (await sending)["status"] == "accepted"

        sending = asyncio.ensure_future(alice.send(run))
        connection.answer(await connection.said(), {"peers": []})
        with pytest.raises(TargetEnded):
            await sending
        assert (server.calls, third.calls) == (1, 1)
        await elsewhere.close()
        await connection.close()


def receipt_for(envelope):
    return {
        "messageId": envelope["messageId"],
        "to": envelope["to"],
        "custodyId": "c",
        "state": "accepted",
        "cursor": 1,
        "acceptedAt": 1,
    }


@pytest.mark.parametrize(
    ("entry", "kind"),
    [({"capabilities": []}, CapabilityDenied), ({"instanceId": "another"}, TargetEnded)],
)
async def test_a_run_that_cannot_be_written_to_gets_nothing(layout, alice, entry, kind):
    raw = RawPeer(BOB)
    run = peer_id_of(raw.instance_id, "r-1")
    async with raw.listening(layout, presence=RUNS) as server:
        listing = asyncio.ensure_future(alice.ask("list"))
        connection, _ = await answered(server, entry_of(raw))
        await listing
        sending = asyncio.ensure_future(alice.send(run))
        connection.answer(await connection.said(), {"peers": [entry_of(raw, **entry)]})

        with pytest.raises(HerdError) as caught:
            await sending
        assert type(caught.value) is kind
        assert await alice.outgoing() == []
        await connection.close()


async def test_a_message_to_a_run_that_is_over_is_refused_and_a_known_one_keeps_its_receipt(
    alice, bob, connection
):
    run = (await alice.ask("bind_run", run_id="r-1"))["target"]
    known = bob.envelope(run, messageId="m-1")
    taken = await connection.accepted("peer.send", known)
    await alice.ask("end_run", run=run)

    again = await connection.accepted("peer.send", known)
    assert again == {**taken, "cursor": again["cursor"], "outcome": "TARGET_ENDED"}
    assert await connection.refused("peer.send", bob.envelope(run)) == "TARGET_ENDED"
    assert len(await inbox_of(alice)) == 1


@pytest.mark.requirement("A-custody-20")
async def test_a_run_that_closes_while_a_message_waits_for_its_verdict_gets_none_of_it(
    alice, bob, connection
):
    run = (await alice.ask("bind_run", run_id="r-1"))["target"]
    runs = alice.coordinator.runs
    holding = alice.coordinator.authority.hold

    async def closing_meanwhile():
        await alice.ask("end_run", run=run)
        return await holding()

    alice.coordinator.authority.hold = closing_meanwhile
    code = await connection.refused("peer.send", bob.envelope(run))
    alice.coordinator.authority.hold = holding

    assert code == "TARGET_ENDED"
    assert not runs.all_parts()
    assert not await inbox_of(alice)


# --- listings --------------------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-13")
async def test_four_coordinators_are_asked_at_once_and_who_fails_hides_nobody(layout, alice):
    raws = [RawPeer(session_of(number)) for number in range(10, 16)]
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(raw.listening(layout, presence=RUNS)) for raw in raws]
        listing = asyncio.ensure_future(alice.ask("list"))
        await until(lambda: sum(server.calls for server in servers) == 4)
        by_server = dict(zip(servers, raws, strict=True))
        first = [server for server in servers if server.calls]
        calls = [await server.call() for server in first]
        assert sum(server.calls for server in servers) == 4
        calls[0].break_off()  # it fails, calls[1] says nothing at all, and the others answer
        shown = []
        for server, call in [*zip(first, calls, strict=True)][2:]:
            await call.answer_handshake()
            raw = by_server[server]
            entries = [entry_of(raw, f"r-{number}") for number in range(DIRECTORY_ENTRIES + 4)]
            question = await call.asked()
            call.answer(question, {"peers": entries if server is first[2] else entries[:1]})
            shown.append(raw)
        for server in servers:
            if server not in first:
                await answered(server, entry_of(by_server[server]))
                shown.append(by_server[server])
        page = await listing
        found = [*page["peers"]]
        for raw in raws:
            assert raw.target in {entry["target"] for entry in page["peers"]}
        assert [entry for entry in found if entry.get("run_of") == by_server[first[1]].target] == []


@pytest.mark.requirement("A-discover-13")
async def test_of_one_directory_256_entries_are_used():
    from herd.coordinator.runs.directory import read_answer

    raw = RawPeer(BOB)
    peers = [entry_of(raw, f"r-{number}") for number in range(DIRECTORY_ENTRIES + 4)]
    found = read_answer({"peers": peers}, raw.instance_id)

    assert [one.run_id for one in found] == [f"r-{number}" for number in range(DIRECTORY_ENTRIES)]


# --- scopes ----------------------------------------------------------------------------------------


@pytest.fixture
def at(tmp_path):
    return Checkouts(tmp_path)


@pytest.fixture
async def scoped(layout, at):
    """Alice and Bob in one repository, Carol elsewhere; Bob has runs of every scope."""
    async with (
        running(layout, ALICE, cwd=str(at.main)) as alice,
        running(layout, BOB, cwd=str(at.linked)) as bob,
        running(layout, CAROL, cwd=str(at.plain)) as carol,
    ):
        runs = {
            scope: (await bob.ask("bind_run", run_id=scope, **({} if scope == "own" else {"scope": scope})))[
                "target"
            ]
            for scope in ("own", "machine", "repository", "workspace")
        }
        yield alice, bob, carol, runs


async def runs_seen(session):
    return {peer["target"] for peer in (await session.ask("list"))["peers"] if "run_of" in peer}


@pytest.mark.requirement("A-methods-01", "A-discover-10", "A-custody-20")
async def test_a_directory_shows_the_runs_whose_own_scope_takes_the_caller_in(layout, scoped):
    alice, bob, carol, runs = scoped

    assert await runs_seen(alice) == {runs["own"], runs["machine"], runs["repository"]}
    assert await runs_seen(carol) == {runs["own"], runs["machine"]}
    raw = RawPeer(DAVE)
    with raw.registered(layout):
        async with await raw.proved(bob.record()) as connection:
            found = await connection.accepted("peer.directory", {})
            assert {entry["peerId"] for entry in found["peers"]} == {runs["own"], runs["machine"]}
            for scope in ("repository", "workspace"):
                code = await connection.refused("peer.send", raw.envelope(runs[scope]))
                assert code == "SCOPE_DENIED"
            assert (await connection.accepted("peer.send", raw.envelope(runs["own"])))["state"] == "accepted"


@pytest.mark.requirement("A-discover-10")
async def test_a_run_writes_as_far_as_the_narrower_scope_reaches(scoped):
    alice, bob, carol, runs = scoped
    await bob.sees(alice, carol)
    reached = {
        (scope, other.target): await state_of(bob, run, other)
        for scope, run in runs.items()
        for other in (alice, carol)
    }

    assert reached == {
        ("own", alice.target): "accepted",
        ("own", carol.target): "accepted",
        ("machine", alice.target): "accepted",
        ("machine", carol.target): "accepted",
        ("repository", alice.target): "accepted",
        ("repository", carol.target): "SCOPE_DENIED",
        ("workspace", alice.target): "SCOPE_DENIED",
        ("workspace", carol.target): "SCOPE_DENIED",
    }


async def state_of(session, run, other):
    try:
        return (await session.ask("send", run=run, target=other.target, message="x"))["status"]
    except HerdError as refusal:
        return refusal.code


@pytest.mark.requirement("A-discover-10", "A-runs-01")
async def test_no_scope_delegated_to_a_run_is_wider_than_its_sessions(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main)) as alice,
        running(layout, BOB, cwd=str(at.linked), scope="workspace") as bob,
    ):
        await bob.ask("bind_run", run_id="r-1", scope="machine")

        assert await runs_seen(alice) == set()
        [live] = bob.coordinator.runs.live()
        assert live.own.as_party().extent.scope == "workspace"


@pytest.mark.requirement("A-discover-10")
async def test_the_scope_that_a_directory_tells_of_a_sending_run_is_judged(alice, bob, connection):
    entry = entry_of(bob, scope="workspace")
    answer, _ = await sent_from_run(connection, from_run(bob, alice.target), [entry])

    assert answer["error"]["data"]["code"] == "SCOPE_DENIED"
    assert not await inbox_of(alice)
