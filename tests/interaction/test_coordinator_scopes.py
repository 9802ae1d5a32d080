"""Scopes between real sessions: who is listed, who may write, and what is judged at each end."""

import asyncio
import itertools
import json
import os

import pytest

from herd.core.clock import SystemClock
from herd.core.errors import InvalidParams, ScopeDenied, UnknownTarget
from herd.mail.receipts import ACCEPTED, REJECTED
from herd.presence.scopes import SCOPES, Extent, mutual
from herd.presence.session_file import read_session_file
from tests.fakes.checkouts import Checkouts
from tests.fakes.coordinators import IN_TIME_S, asked, content_of, running, until
from tests.fakes.mail import inside
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL, LEAD, seen


@pytest.fixture
def at(tmp_path):
    return Checkouts(tmp_path)


async def listed(session, **asking):
    return [peer["target"] for peer in (await session.ask("list", **asking))["peers"]]


async def taken(layout):
    """Give the texts that Bob's inbox holds while he sleeps."""
    asking = "SELECT content FROM inbox ORDER BY sequence"
    rows = await asyncio.to_thread(inside, layout, BOB, lambda c: c.execute(asking).fetchall())
    return [content for (content,) in rows]


async def denied(asking):
    with pytest.raises(ScopeDenied) as refused:
        await asking
    return refused.value


# --- what is published -----------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-07", "A-discover-08")
async def test_the_record_and_the_file_have_the_scope_and_both_ids_from_the_first(layout, at):
    async with running(layout, ALICE, cwd=str(at.linked), scope="repository") as alice:
        extent = Extent("repository", str(at.linked), at.repository)
        assert alice.presence().extent == extent
        assert read_session_file(layout, ALICE.key).extent == extent
        assert (await alice.ask("whoami"))["scope"] == "repository"
    assert read_session_file(layout, ALICE.key).extent == extent


async def test_a_session_that_moves_takes_its_ids_with_it_and_keeps_its_scope(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main), scope="repository") as alice,
        running(layout, BOB, cwd=str(at.linked)) as bob,
    ):
        assert await listed(alice) == [bob.target]
        await bob.ask("update", cwd=str(at.plain))
        await until(lambda: bob.presence().workspace == str(at.plain))

        assert bob.presence().extent == Extent("machine", str(at.plain), None)
        assert read_session_file(layout, BOB.key).extent == bob.presence().extent
        assert await listed(alice) == []
        await alice.ask("update", cwd=str(at.plain))
        await until(lambda: alice.presence().workspace == str(at.plain))
        assert await listed(alice) == [bob.target]


async def test_several_moves_end_where_the_last_one_led(layout, at):
    async with running(layout, ALICE, cwd=str(at.main)) as alice:
        for folder in (at.linked, at.plain, at.clone):
            alice.coordinator.update(cwd=str(folder))
        last = Extent("machine", str(at.clone), str(at.clone / ".git"))
        await until(lambda: alice.presence().extent == last)
        await until(lambda: read_session_file(layout, ALICE.key).extent == last)


async def test_a_start_in_the_same_place_writes_nothing(layout, at):
    async with running(layout, ALICE, cwd=str(at.main)):
        before = seen(layout.session_file(ALICE.key))
    async with running(layout, ALICE, cwd=str(at.main)):
        assert seen(layout.session_file(ALICE.key)) == before


async def test_a_mailbox_that_is_made_later_leaves_the_ids_in_the_file(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main)) as alice,
        running(layout, BOB, cwd=str(at.main)) as bob,
    ):
        await alice.ask("update", cwd=str(at.linked))
        await until(lambda: alice.presence().workspace == str(at.linked))
        await alice.sees(bob)

        file = read_session_file(layout, ALICE.key)
        assert (file.custody_id, file.extent) == (
            alice.coordinator.mailbox.custody_id,
            Extent("machine", str(at.linked), at.repository),
        )


# --- listing ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-06")
async def test_a_machine_lists_whoever_is_here_wherever_that_is(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main)) as alice,
        running(layout, BOB, cwd=str(at.plain)) as bob,
        running(layout, CAROL, cwd="/not/there") as carol,
    ):
        assert set(await listed(alice)) == {bob.target, carol.target}
        assert set(await listed(alice, scope="machine")) == {bob.target, carol.target}
        await alice.send(carol)
        assert await carol.texts() == ["hello"]


@pytest.mark.requirement("A-discover-09")
@pytest.mark.parametrize("scopes", list(itertools.product(SCOPES, SCOPES)))
async def test_each_lists_the_other_exactly_where_both_scopes_take_the_other_in(layout, at, scopes):
    async with (
        running(layout, ALICE, cwd=str(at.main), scope=scopes[0]) as alice,
        running(layout, BOB, cwd=str(at.linked), scope=scopes[1]) as bob,
    ):
        together = mutual(alice.presence().extent, bob.presence().extent)

        assert together is ("workspace" not in scopes)
        assert await listed(alice) == [bob.target] * together
        assert await listed(bob) == [alice.target] * together


@pytest.mark.requirement("A-discover-11", "A-config-03", "A-errors-05")
async def test_a_call_asks_for_less_and_is_refused_more(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main), scope="repository") as alice,
        running(layout, BOB, cwd=str(at.main)) as bob,
        running(layout, CAROL, cwd=str(at.linked)) as carol,
    ):
        assert set(await listed(alice)) == {bob.target, carol.target}
        assert await listed(alice, scope="workspace") == [bob.target]
        for adapter in (alice.adapter, alice.other_adapter(command=True)):
            refusal = await denied(asked(adapter, "list", scope="machine"))
            assert "machine was asked for, and this session's scope is repository" in refusal.message
        assert alice.presence().scope == "repository"
        with pytest.raises(InvalidParams):
            await alice.ask("list", scope="world")


@pytest.mark.requirement("A-discover-12")
async def test_a_cursor_is_good_for_its_own_scope_alone(layout, at, monkeypatch):
    monkeypatch.setattr("herd.coordinator.listing.LIST_PAGE", 1)
    async with (
        running(layout, ALICE, cwd=str(at.main)) as alice,
        running(layout, BOB, cwd=str(at.main)) as bob,
        running(layout, CAROL, cwd=str(at.linked)) as carol,
    ):
        first = await alice.ask("list", scope="repository")
        for other in ({}, {"scope": "machine"}, {"scope": "workspace"}):
            with pytest.raises(InvalidParams, match="another scope"):
                await alice.ask("list", cursor=first["next_cursor"], **other)
        rest = await alice.ask("list", scope="repository", cursor=first["next_cursor"])

        found = [peer["target"] for page in (first, rest) for peer in page["peers"]]
        assert found == sorted([bob.target, carol.target])


async def test_a_name_that_a_person_types_means_nobody_out_of_scope(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main), scope="repository") as alice,
        running(layout, BOB, cwd=str(at.plain), name="bob"),
        running(layout, CAROL, cwd=str(at.linked), name="bob") as carol,
    ):
        person = alice.other_adapter(command=True)
        sent = await asked(person, "send", target="bob", message="hello")
        assert sent["target"] == carol.target
        await asked(carol.adapter, "update", name="carol")
        with pytest.raises(UnknownTarget):
            await asked(person, "send", target="bob", message="hello")


@pytest.mark.requirement("A-discover-15")
async def test_the_scope_of_one_session_is_no_other_ones(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main), scope="workspace") as alice,
        running(layout, BOB, cwd=str(at.plain)) as bob,
        running(layout, CAROL, cwd=str(at.clone)) as carol,
    ):
        assert await listed(alice) == []
        assert await listed(bob) == [carol.target]
        assert await listed(carol) == [bob.target]


# --- sending ---------------------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-09", "A-config-03", "A-errors-05")
@pytest.mark.parametrize("sleeps", [False, True], ids=["who runs", "who sleeps"])
@pytest.mark.parametrize("narrow", ["sender", "recipient"])
async def test_a_send_beyond_either_scope_is_refused_before_anything_is_queued(layout, at, narrow, sleeps):
    mine, theirs = ("repository", "machine") if narrow == "sender" else ("machine", "repository")
    async with running(layout, ALICE, cwd=str(at.main), scope=mine) as alice:
        async with running(layout, BOB, cwd=str(at.linked), scope=theirs) as bob:
            await alice.sees(bob)
            await alice.send(bob, "in scope")
            await bob.ask("update", cwd=str(at.plain))
            await until(lambda: bob.presence().workspace == str(at.plain))
            before = len(await alice.outgoing())
            if not sleeps:
                refusal = await denied(alice.send(bob, "out of scope"))
        if sleeps:
            refusal = await denied(alice.send(bob.target, "out of scope"))

        assert f"the sender's scope is {mine} and the recipient's is {theirs}" in refusal.message
        assert not refusal.may_pass
        assert len(await alice.outgoing()) == before
    assert await taken(layout) == ["in scope"]


@pytest.mark.requirement("A-discover-09")
async def test_an_answer_is_judged_as_any_other_message(layout, at):
    async with (
        running(layout, ALICE, cwd=str(at.main)) as alice,
        running(layout, BOB, cwd=str(at.linked), scope="repository") as bob,
    ):
        await alice.sees(bob)
        sent = await alice.send(bob, "a question")
        [message] = (await bob.read())["messages"]
        await alice.ask("update", cwd=str(at.plain))
        await until(lambda: alice.presence().workspace == str(at.plain))

        await denied(bob.send(alice.target, "an answer", reply_to=message["message_id"]))
        assert await alice.state(sent["message_id"]) == ACCEPTED
        assert await bob.outgoing() == []


@pytest.mark.requirement("A-discover-09")
async def test_what_was_queued_before_the_scopes_parted_is_refused_for_good_where_it_arrives(layout, at):
    bob, clock = RawPeer(BOB), SystemClock()
    async with running(layout, ALICE, cwd=str(at.main), scope="repository", clock=clock) as alice:
        presence = LEAD._replace(workspace=str(at.linked), repository=at.repository)
        nobody = f"{layout.run}/{bob.instance_id}.sock"
        with bob.registered(layout, presence, endpoint=nobody):  # so that what is queued stays so
            await alice.sees()
            assert await listed(alice) == [bob.target]
            sent = await alice.send(bob.target)
            assert sent["status"] == "queued"
        async with running(layout, BOB, cwd=str(at.plain)):
            alice.coordinator.retry()
            await alice.until_state(sent["message_id"], REJECTED)
        [row] = await alice.outgoing()
        assert row.receipt.outcome == "SCOPE_DENIED"
    assert await taken(layout) == []


# --- acceptance ------------------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-09")
async def test_the_receiver_judges_by_the_callers_record_and_by_nothing_it_says(layout, at):
    async with running(layout, ALICE, cwd=str(at.main), scope="repository") as alice:
        raw = RawPeer(BOB)
        near = LEAD._replace(workspace=str(at.linked), repository=at.repository)
        with raw.registered(layout, near):
            async with await raw.proved(alice.record()) as connection:
                receipt = await connection.accepted("peer.send", raw.envelope(alice.target, "near"))
                assert receipt["state"] == ACCEPTED
                for presence in (
                    near._replace(repository=None),  # evidence that is missing narrows
                    near._replace(workspace=str(at.clone), repository=str(at.clone / ".git")),
                    near._replace(scope="workspace"),
                ):
                    raw.publisher.publish(presence)
                    one, several = raw.envelope(alice.target), {"messages": [raw.envelope(alice.target)]}
                    assert await connection.refused("peer.send", one) == "SCOPE_DENIED"
                    assert await connection.refused("peer.sendMany", several) == "SCOPE_DENIED"
        assert await alice.texts() == ["near"]


@pytest.mark.requirement("A-discover-09")
async def test_a_caller_that_is_withdrawn_is_judged_by_what_is_durable(layout, at):
    async def said(raw, alice):
        with raw.registered(layout, None):
            async with await raw.proved(alice.record()) as connection:
                answer = await connection.request("peer.send", raw.envelope(alice.target, "near"))
        return answer["error"]["data"]["code"] if "error" in answer else answer["result"]["state"]

    async with running(layout, ALICE, cwd=str(at.main), scope="repository") as alice:
        for folder, outcome in ((at.linked, ACCEPTED), (at.plain, "SCOPE_DENIED")):
            async with running(layout, BOB, cwd=str(folder)):
                pass
            assert await said(RawPeer(BOB), alice) == outcome
        os.unlink(layout.session_file(BOB.key))
        assert await said(RawPeer(BOB), alice) == "ELIGIBILITY_UNVERIFIED"


async def test_no_move_is_half_published(layout, at):
    """Whoever reads the record at any time finds the ids of one place."""
    folders = {str(folder): folder for folder in (at.main, at.linked, at.clone)}
    repositories = {
        str(at.main): at.repository,
        str(at.linked): at.repository,
        str(at.clone): str(at.clone / ".git"),
    }
    async with running(layout, ALICE, cwd=str(at.main)) as alice:
        for folder in itertools.islice(itertools.cycle(folders), 9):
            alice.coordinator.update(cwd=folder)
            async with asyncio.timeout(IN_TIME_S):
                while True:
                    presence = json.loads(content_of(layout.record(ALICE.key)))["presence"]
                    assert presence["repository"] == repositories[presence["workspace"]]
                    if presence["workspace"] == folder:
                        break
                    await asyncio.sleep(0)
