"""Who is listed, what counts as shown, and whom a target, a peer id or a name means."""

import asyncio
import json
import os
import resource
from contextlib import AsyncExitStack, ExitStack

import pytest

from assignments.worktrees.fake import FakeTopology
from assignments.worktrees.topology import Whereabouts
from herd.core.clock import SystemClock
from herd.core.config import Place
from herd.core.errors import (
    AmbiguousTarget,
    EligibilityDenied,
    EligibilityUnverified,
    HerdError,
    InvalidParams,
    RecoveryRequired,
    UnknownTarget,
)
from herd.core.identity import SessionName, peer_id_of, target_of
from herd.core.limits import DEFAULT_LIMITS
from herd.core.locks import Owner
from herd.mail import shown
from herd.presence.record import Presence, encode
from herd.presence.session_file import SessionFile, write_session_file
from roles.eligibility_fake import FakeJudge
from roles.model import Denied, Unverified
from tests.fakes.coordinators import asked, content_of, running, sleeping_target, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL, LEAD, layout_at, living, put, session_of

COLLIDING = SessionName("claude", "twin-1339143"), SessionName("claude", "twin-22396715")
"""Two sessions whose targets are the same 50 bits; it took 22 million tries to find them."""


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


async def shown_to(session):
    """Give the targets that count as shown to a session's tools."""
    return set(await session.coordinator.mailbox.read(shown.every) or {})


# --- what a list holds -----------------------------------------------------------------------------


@pytest.mark.requirement("H-list-04", "H-list-06")
async def test_a_list_tells_the_caller_apart_and_gives_each_peer_its_labels(layout, alice):
    topology = FakeTopology({"/work/b": Whereabouts("herd", "main", "desk")})
    async with running(layout, BOB, topology=topology, cwd="/work/b", name="bob") as bob:
        await bob.ask("update", activity="idle")
        await until(lambda: bob.presence().repo is not None)
        found = await alice.ask("list")

    own = alice.coordinator.own
    assert found["self"] == {"target": own.target, "name": own.name, "role": "lead", "kind": "ordinary"}
    (peer,) = found["peers"]
    assert peer == {
        "target": bob.target,
        "name": "bob",
        "cwd": "/work/b",
        "repo": "herd",
        "branch": "main",
        "workspace_label": "desk",
        "activity": "idle",
        "since": peer["since"],
    }


@pytest.mark.requirement("H-presence-08")
async def test_a_peer_without_any_label_is_listed_by_its_target(layout, alice):
    with living(layout, BOB, Presence("lead", "none")):
        assert (await alice.ask("list"))["peers"] == [{"target": sleeping_target(BOB)}]


def leaves(value):
    """Give every key and every value at any depth."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    else:
        yield str(value)


@pytest.mark.requirement("H-list-07", "A-presence-09")
async def test_no_answer_names_an_id_a_socket_or_a_key_at_any_depth(layout):
    place = Place("/run/herdr-of-mine.sock", "pane-number-1", "tab-number-2", "workspace-number-3")
    sessions = SessionName("claude", "the-session-id-of-a"), SessionName("pi", "the-session-id-of-b")
    async with (
        running(layout, sessions[0], place=place, cwd="/a") as alice,
        running(layout, sessions[1], place=place, cwd="/b") as bob,
    ):
        found = [await alice.ask("list"), await asked(alice.other_adapter(command=True), "list")]
        secrets = {alice.token, bob.token, *place}
        for record in (alice.record(), bob.record()):
            secrets |= {record.session.session_id, record.key, record.instance_id, record.endpoint}
            secrets |= {record.public_key, record.claim.id, record.claim.start, record.build.sha256}
            secrets |= {peer_id_of(record.instance_id)}

    assert len(found[0]["peers"]) == 1
    said = set(leaves(found))
    assert not {"session_id", "pane_id", "tab_id", "workspace_id", "instance_id", "socket", "key"} & said
    assert [one for one in said for secret in secrets if secret in one] == []


@pytest.mark.requirement("H-list-05")
async def test_exactly_the_peers_of_the_same_role_that_may_be_written_to_are_listed(layout, alice, bob):
    manager, managed, dead = session_of(4), session_of(5), session_of(6)
    write_session_file(layout, SessionFile(managed, kind="managed"))
    with living(layout, dead):
        data = content_of(layout.record(dead.key))
    put(layout.record(dead.key), data)
    with living(layout, manager, LEAD._replace(role="manager")), living(layout, session_of(7), None):
        async with running(layout, managed) as other:
            assert other.record().kind == "managed"
            found = await alice.ask("list")

    assert [peer["target"] for peer in found["peers"]] == [bob.target]


@pytest.mark.requirement("H-list-05")
async def test_nobody_is_listed_whom_the_verdict_does_not_allow(layout, bob):
    judge = FakeJudge()
    async with running(layout, ALICE, judge=judge) as alice:
        for verdict, peers in ((judge.now, 1), (Denied("no"), 0), (Unverified("no record"), 0)):
            judge.now = verdict
            assert len((await alice.ask("list"))["peers"]) == peers
        for sender, target in judge.asked:
            assert (sender.key, target.key, target.kind) == (ALICE.key, BOB.key, "ordinary")


@pytest.mark.requirement("H-presence-04")
async def test_sessions_on_different_herdr_sockets_and_on_none_write_to_each_other(layout):
    async with (
        running(layout, ALICE, place=Place("/run/one.sock", "p")) as alice,
        running(layout, BOB, place=Place("/run/two.sock", "p")) as bob,
        running(layout, CAROL) as carol,
    ):
        for sender, recipient in ((alice, bob), (bob, carol), (carol, alice)):
            await sender.sees(recipient)
            await sender.send(recipient)
            assert await recipient.texts() == ["hello"]


@pytest.mark.requirement("A-discover-14")
async def test_sessions_of_another_data_root_are_neither_listed_nor_reached(layout, alice, tmp_path):
    tmp_path.chmod(0o700)
    async with running(layout_at(tmp_path), BOB) as elsewhere:
        assert (await alice.ask("list"))["peers"] == []
        await refused(asked(alice.other_adapter(command=True), "send", target=elsewhere.target, message="x"))
        assert await elsewhere.texts() == []


# --- query, pages ----------------------------------------------------------------------------------


@pytest.mark.requirement("H-list-03")
@pytest.mark.parametrize(
    "wrong",
    [
        {"all": True},
        {"from": "lead:0000000000"},
        {"scope": "world"},
        {"scope": 1},
        {"query": ""},
        {"query": "x" * 257},
        {"query": 7},
        {"cursor": ""},
        {"cursor": "x" * 2_049},
        {"limit": 5},
    ],
    ids=str,
)
async def test_a_list_takes_its_three_fields_and_refuses_any_other(alice, wrong):
    refusal = await refused(asked(alice.adapter, "list", **wrong), InvalidParams)
    assert next(iter(wrong)) in refusal.message


@pytest.mark.requirement("H-list-03")
async def test_a_list_takes_nothing_or_each_of_its_fields(alice, bob):
    for right in ({}, {"scope": "machine"}, {"query": "SESSION-2"}, {"query": "x" * 256}):
        found = await alice.ask("list", **right)
        assert len(found["peers"]) == (0 if "x" in right.get("query", "") else 1)


async def test_a_query_finds_a_text_in_any_label_whatever_its_case(layout, alice):
    with living(layout, BOB, LEAD._replace(name="Größe", branch="feature/x")), living(layout, CAROL, LEAD):
        for query, wanted in (("GRÖSSE", BOB), ("Feature/", BOB), (sleeping_target(CAROL)[5:], CAROL)):
            found = await alice.ask("list", query=query)
            assert [peer["target"] for peer in found["peers"]] == [sleeping_target(wanted)], query


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.requirement("A-discover-12", "A-tools-01")
async def test_a_thousand_peers_come_in_pages_that_each_fit_into_a_frame(layout, alice, many_files):
    sessions = [session_of(number) for number in range(1_000, 2_000)]
    seen = []
    with ExitStack() as stack:
        for number, session in enumerate(sessions):
            # Some fill a record with what takes the most room in a list.
            cwd = "/" + "\x01" * 1_200 if number % 20 == 0 else f"/work/{number}"
            stack.enter_context(living(layout, session, LEAD._replace(cwd=cwd)))
        async with await RawPeer(BOB).connect(alice.record()) as adapter:
            await adapter.accepted("session.authenticate", {"token": alice.token})
            page = await adapter.accepted("session.list", {})
            while True:
                frame = len(json.dumps(page, ensure_ascii=False, separators=(",", ":")).encode())
                assert frame < DEFAULT_LIMITS.frame_bytes
                assert 1 <= len(page["peers"]) <= 50
                seen += [peer["target"] for peer in page["peers"]]
                if "next_cursor" not in page:
                    break
                page = await adapter.accepted("session.list", {"cursor": page["next_cursor"]})

    assert seen == sorted(sleeping_target(session) for session in sessions)


@pytest.mark.requirement("A-discover-12")
async def test_a_cursor_is_good_for_its_own_query_alone(layout, alice):
    with ExitStack() as stack:
        for number in range(60):
            stack.enter_context(living(layout, session_of(number + 100), LEAD._replace(name=f"n{number}")))
        first = await alice.ask("list", query="n")
        rest = await alice.ask("list", query="n", cursor=first["next_cursor"])
        for query in ({}, {"query": "N"}, {"query": "n1"}):
            await refused(asked(alice.adapter, "list", cursor=first["next_cursor"], **query), InvalidParams)

    assert len(first["peers"]) + len(rest["peers"]) == 60
    assert "next_cursor" not in rest


@pytest.mark.parametrize(
    "cursor", ["x", "e30=", "W10=", "WyJuIl0=", "bnVsbA==", "ÿÿ", "[" * 2_000, "W251bGwsMV0="]
)
async def test_a_cursor_that_no_list_gave_is_refused(alice, cursor):
    await refused(asked(alice.adapter, "list", cursor=cursor), InvalidParams)


@pytest.mark.requirement("A-order-09")
async def test_a_list_tries_at_once_what_waits(layout, alice):
    raw = RawPeer(BOB)
    async with raw.listening(layout) as server:
        await alice.ask("list")
        sending = asyncio.ensure_future(alice.send(raw.target))
        connection = await server.proved()
        for _ in range(12):  # by now it would wait for a minute
            connection.refuse(await connection.message(), "PEER_OFFLINE")
            await alice.ask("list")
        connection.accept(await connection.message())
        sent = await sending
        await alice.until_state(sent["message_id"], "accepted")


# --- twins -----------------------------------------------------------------------------------------


@pytest.mark.requirement("C6", "A-discover-04", "H-list-23", "H-target-08")
async def test_of_two_sessions_with_one_name_no_mail_goes_to_the_wrong_one(layout, alice):
    async with running(layout, CAROL, name="api-worker", cwd="/two") as carol:
        async with running(layout, BOB, name="api-worker", cwd="/one") as bob:
            found = await alice.ask("list")
            names = {peer["target"]: peer["name"] for peer in found["peers"]}
            command = alice.other_adapter(command=True)
            refusal = await refused(asked(command, "send", target="api-worker", message="x"), AmbiguousTarget)
            to_bob = await asked(command, "send", target=names[bob.target], message="by the name of the list")
        assert await alice.outgoing() == [
            row for row in await alice.outgoing() if row.recipient == bob.target
        ]
        async with running(layout, BOB, name="api-worker", cwd="/one") as bob:
            await alice.send(bob, "by target")

            assert await bob.texts() == ["by the name of the list", "by target"]
            assert await carol.texts() == []

    assert names == {one: f"api-worker-{one[-4:]}" for one in (bob.target, carol.target)}
    assert refusal.details["candidates"] == sorted(names)
    assert all(target in refusal.message for target in names)
    assert to_bob["target"] == bob.target


@pytest.mark.requirement("H-target-09")
async def test_two_sessions_with_one_target_get_nothing_from_anybody(layout, alice):
    first, second = COLLIDING
    target = sleeping_target(first)
    assert first.key != second.key
    assert target == sleeping_target(second)
    async with running(layout, first) as one:
        await alice.sees(one)
        await alice.send(one, "while it was alone")
        async with running(layout, second) as other:
            assert (await alice.ask("list"))["peers"] == []
            await refused(alice.send(target), AmbiguousTarget)
            await refused(
                asked(alice.other_adapter(command=True), "send", target=target, message="x"), AmbiguousTarget
            )
            assert await other.texts() == []
        # It sleeps now, and may have been meant all the same.
        assert [peer["target"] for peer in (await alice.ask("list"))["peers"]] == [target]
        await refused(alice.send(target), AmbiguousTarget)

        assert len(await alice.outgoing()) == 1
        assert await one.texts() == ["while it was alone"]


@pytest.mark.requirement("H-target-09")
async def test_a_target_stays_with_the_session_it_was_shown_for(layout, alice):
    """The other bearer of the same target comes later, and writes to us first."""
    first, second = COLLIDING
    async with running(layout, first) as one:
        await alice.sees(one)
    async with running(layout, second) as other:
        await other.sees(alice)
        await other.send(alice, "I am another one")
        (message,) = (await alice.read())["messages"]
        await refused(alice.send(message["from"]["target"], reply_to=message["message_id"]), AmbiguousTarget)


# --- what counts as shown --------------------------------------------------------------------------


@pytest.mark.requirement("H-target-04", "H-target-06", "A-discover-05", "A-errors-09")
async def test_a_tool_takes_only_a_target_that_this_very_session_was_shown(layout, alice, bob):
    async with running(layout, CAROL) as carol:
        await carol.sees(bob)
        refusal = await refused(alice.send(bob), UnknownTarget)
        await carol.send(bob)

        assert "herd peers" in refusal.next_step
        assert await alice.outgoing() == []
        assert not os.path.exists(layout.mailbox(ALICE.key)), "nothing was stored"  # noqa: ASYNC240


@pytest.mark.requirement("H-target-05", "H-target-14")
async def test_what_was_shown_stays_good_over_restarts_of_either_side(layout):
    async with running(layout, BOB) as bob, running(layout, ALICE) as alice:
        await alice.sees(bob)
    async with running(layout, BOB) as bob:
        async with running(layout, ALICE) as alice:
            await alice.send(bob)

        assert await bob.texts() == ["hello"]


@pytest.mark.requirement("H-target-05")
async def test_a_fork_of_a_session_was_shown_nothing(layout, alice, bob):
    await alice.sees(bob)
    async with running(layout, SessionName("claude", "session-1-fork")) as fork:
        await refused(fork.send(bob), UnknownTarget)


@pytest.mark.requirement("H-target-13")
async def test_whoever_wrote_to_a_session_may_be_answered(layout, bob):
    async with running(layout, ALICE) as alice:
        await alice.sees(bob)
        await alice.send(bob)
    (message,) = (await bob.read())["messages"]
    await bob.send(message["from"]["target"], "an answer", reply_to=message["message_id"])
    async with running(layout, ALICE) as alice:
        assert await alice.texts() == ["an answer"]


@pytest.mark.requirement("H-target-10", "A-ident-05", "A-errors-09")
async def test_nothing_but_a_target_or_peer_id_is_taken_from_a_tool(layout, alice):
    topology = FakeTopology({"/work/b": Whereabouts("the-repo", "the-branch", "the-desk")})
    async with running(layout, BOB, topology=topology, cwd="/work/b", name="the-name") as bob:
        await until(lambda: bob.presence().repo is not None)
        await alice.sees(bob)
        record = bob.record()
        for label in (
            "the-name",
            "/work/b",
            "the-repo",
            "the-branch",
            "the-desk",
            record.endpoint,
            str(os.getpid()),
        ):
            await refused(alice.send(label), UnknownTarget)
        for ident in (BOB.session_id, BOB.key, record.instance_id, bob.target.upper(), f" {bob.target}"):
            await refused(alice.send(ident), UnknownTarget)
        never_shown = peer_id_of(record.instance_id)
        await refused(alice.send(never_shown), UnknownTarget)

        assert await alice.outgoing() == []


@pytest.mark.requirement("H-target-12")
async def test_the_callers_own_names_are_refused_in_every_form(alice):
    own = alice.coordinator.own
    for name in (own.target, peer_id_of(alice.record().instance_id)):
        await refused(alice.send(name), UnknownTarget)
        await refused(
            asked(alice.other_adapter(command=True), "send", target=name, message="x"), UnknownTarget
        )
    await refused(
        asked(alice.other_adapter(command=True), "send", target=own.name, message="x"), UnknownTarget
    )


@pytest.mark.requirement("H-target-08")
async def test_who_takes_over_a_sessions_name_folder_and_pane_gets_none_of_its_mail(layout, alice):
    place = Place("/run/herdr.sock", "pane-1", "tab-1", "workspace-1")
    async with running(layout, BOB, name="worker", cwd="/w", place=place) as bob:
        await alice.sees(bob)
    async with running(layout, CAROL, name="worker", cwd="/w", place=place) as carol:
        sent = await alice.send(bob.target)

        assert sent["peer_running"] is False
        assert await carol.texts() == []
    async with running(layout, BOB) as bob:
        assert await bob.texts() == ["hello"]


@pytest.mark.requirement("C5")
@pytest.mark.parametrize("socket_there", [False, True], ids=["no socket", "a stranger's socket"])
async def test_a_record_whose_process_is_another_by_now_is_not_listed_and_not_dialled(
    layout, alice, socket_there
):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        left = bob.record()
    living_stranger = Owner(os.getppid(), "another-boot:1:2", left.claim.id)
    put(layout.record(BOB.key), encode(left._replace(claim=living_stranger)))
    calls = []

    async def called(reader, writer):
        calls.append(await reader.read())
        writer.close()

    async with AsyncExitStack() as stack:
        if socket_there:
            await stack.enter_async_context(await asyncio.start_unix_server(called, left.endpoint))
            os.chmod(left.endpoint, 0o600)
        found = await alice.ask("list")
        sent = await alice.send(bob.target, "for bob alone")

    assert found["peers"] == []
    assert sent["peer_running"] is False
    assert calls == []
    async with running(layout, BOB) as bob:
        assert await bob.texts() == ["for bob alone"]


# --- the command line ------------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-04")
async def test_a_person_may_type_a_name_that_one_other_peer_bears(layout, alice):
    command = alice.other_adapter(command=True)
    async with running(layout, BOB, name="worker") as bob:
        await asked(command, "send", target="worker", message="by name")
        for nobody in ("work", "WORKER", alice.coordinator.own.name, "", "/work/session-2"):
            await refused(asked(command, "send", target=nobody, message="x"))

        assert await bob.texts() == ["by name"]


async def test_a_name_is_no_way_around_the_verdict(layout):
    judge = FakeJudge(Denied("no"))
    async with running(layout, ALICE, judge=judge) as alice, running(layout, BOB, name="worker") as bob:
        command = alice.other_adapter(command=True)
        await refused(asked(command, "send", target="worker", message="x"), UnknownTarget)
        await refused(asked(command, "send", target=bob.target, message="x"), EligibilityDenied)


async def test_nothing_counts_as_shown_by_what_a_command_lists_or_writes_to(alice, bob):
    command = alice.other_adapter(command=True)
    await asked(command, "list")
    await asked(command, "send", target=bob.target, message="x")

    assert await shown_to(alice) == set()
    await refused(alice.send(bob), UnknownTarget)


@pytest.mark.requirement("A-errors-07", "A-ident-06", "A-restart-03", "A-restart-04")
async def test_a_peer_id_reaches_one_exact_instance_and_a_target_the_session(layout):
    async with running(layout, ALICE, clock=SystemClock()) as alice:
        await send_to_an_instance_and_to_its_session(layout, alice)


async def send_to_an_instance_and_to_its_session(layout, alice):
    command = alice.other_adapter(command=True)
    raw = RawPeer(BOB)
    instance = peer_id_of(raw.instance_id)
    async with raw.listening(layout) as server:
        await alice.ask("list")
        sending = asyncio.ensure_future(asked(command, "send", target=instance, message="to the instance"))
        connection = await server.proved()
        request = await connection.message()
        assert request["params"]["to"] == instance
        connection.refuse(request, "QUEUE_FULL")
        kept = await sending
        assert kept["status"] == "queued"
    async with running(layout, BOB) as bob:
        await refused(asked(command, "send", target=instance, message="x"), UnknownTarget)
        sent = await alice.send(bob, "to the session")
        await alice.until_state(sent["message_id"], "accepted")
        await alice.ask("list")
        status = await alice.ask("status", message_id=kept["message_id"])

        assert await bob.texts() == ["to the session"]
        assert (status["state"], status["outcome"]) == ("rejected", "TARGET_ENDED")


# --- damage and refusals ---------------------------------------------------------------------------


async def test_a_damaged_file_of_another_session_keeps_nobody_from_writing(layout, alice, bob):
    await alice.sees(bob)
    async with running(layout, CAROL):
        pass
    for damage in (b"{", b'{"version": 99}', b""):
        put(layout.session_file(CAROL.key), damage)
        assert (await alice.send(bob))["status"] == "accepted"
        assert (await asked(alice.other_adapter(command=True), "send", target=bob.target, message="x"))[
            "status"
        ]


async def test_a_damaged_file_of_the_target_itself_is_named(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
    put(layout.session_file(BOB.key), b"{")
    refusal = await refused(alice.send(bob.target), RecoveryRequired)

    assert layout.session_file(BOB.key) in refusal.message
    assert await alice.outgoing() == []


@pytest.mark.requirement("H-target-07")
async def test_every_refusal_for_an_uncertain_identity_or_eligibility_says_to_list_again(layout, bob):
    judge = FakeJudge()
    hints = set()
    async with running(layout, ALICE, judge=judge) as alice:
        hints.add((await refused(alice.send(bob), UnknownTarget)).next_step)
        hints.add((await refused(alice.send("worker"), UnknownTarget)).next_step)
        await alice.sees(bob)
        judge.now = Denied("no")
        hints.add((await refused(alice.send(bob), EligibilityDenied)).next_step)
        judge.now = Unverified("no record")
        hints.add((await refused(alice.send(bob), EligibilityUnverified)).next_step)

    assert len(hints) == 2
    assert all("Call `list_peers` (or `herd peers`) again" in hint for hint in hints)


def test_a_target_is_of_one_role():
    assert target_of("lead", ALICE.key)[5:] != target_of("manager", ALICE.key)[8:]
