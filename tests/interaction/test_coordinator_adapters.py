"""The adapter API: what a session's host and its command lines may ask, and how strictly."""

import asyncio

import pytest

from herd.coordinator.adapter_api import AdapterApi
from herd.coordinator.binding import Binding
from herd.core.errors import HerdError, InvalidParams, MethodNotFound, NoSession
from tests.fakes.coordinators import asked, running, until
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, CAROL


async def refused(asking, kind=HerdError):
    with pytest.raises(kind) as refusal:
        await asking
    return refusal.value


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("whoami", {}),
        ("list", {}),
        ("send", {"target": "lead:0000000000", "message": "x"}),
        ("read", {}),
        ("drain", {}),
        ("subscribe", {}),
        ("release", {"message_ids": []}),
        ("confirm", {"message_ids": [], "evidence": "x"}),
        ("status", {"message_id": "m-1"}),
        ("cancel", {"message_id": "m-1"}),
        ("update", {}),
    ],
)
async def test_before_a_session_is_named_every_method_says_so(method, params):
    refusal = await refused(asked(AdapterApi(Binding()), method, **params), NoSession)
    assert refusal.code == "NO_SESSION"


@pytest.mark.parametrize("method", ["session.nonsense", "session.accept_remote", "peer.send", "", "whoami"])
async def test_an_unknown_method_is_unknown_with_or_without_a_session(alice, method):
    for adapter in (alice.adapter, AdapterApi(Binding())):
        await refused(adapter.request(None, method, {}), MethodNotFound)


@pytest.mark.requirement("A-errors-25")
@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("whoami", {"extra": 1}, "extra"),
        ("update", {"session_id": "other"}, "session_id"),
        ("update", {"cwd": ""}, "cwd"),
        ("update", {"cwd": "x" * 4_097}, "cwd"),
        ("update", {"name": "x" * 513}, "name"),
        ("update", {"activity": "asleep"}, "activity"),
        ("update", {"activity": "idle\n"}, "activity"),
        ("update", {"person_prompted": 1}, "person_prompted"),
        ("update", {"person_prompted": "yes"}, "person_prompted"),
        ("update", {"turn_ended": 0}, "turn_ended"),
        ("drain", {"most": 999}, "most"),
        ("drain", {"most": 24_001}, "most"),
        ("drain", {"most": "8000"}, "most"),
        ("drain", {"wait_ms": 1}, "wait_ms"),
        ("subscribe", {"since": 0}, "since"),
        ("release", {}, "message_ids"),
        ("release", {"message_ids": "m-1"}, "message_ids"),
        ("release", {"message_ids": ["m 1"]}, "message_ids"),
        ("release", {"message_ids": ["m-1"] * 1_025}, "message_ids"),
        ("release", {"message_ids": [], "counted": "no"}, "counted"),
        ("release", {"message_ids": [], "evidence": "x"}, "evidence"),
        ("confirm", {"message_ids": []}, "evidence"),
        ("confirm", {"message_ids": "m-1", "evidence": "x"}, "message_ids"),
        ("confirm", {"message_ids": ["m-1"] * 1_025, "evidence": "x"}, "message_ids"),
        ("confirm", {"message_ids": ["m 1"], "evidence": "x"}, "message_ids"),
        ("confirm", {"message_ids": [], "evidence": ""}, "evidence"),
        ("status", {}, "message_id"),
        ("status", {"message_id": "m-1", "force": True}, "force"),
        ("cancel", {"message_id": "m-1\n"}, "message_id"),
        ("bind", {"host": "claude", "session_id": "x", "cwd": "/", "role": "manager"}, "role"),
        ("bind", {"host": "claude", "session_id": "x"}, "cwd"),
        ("bind", {"host": 7, "session_id": "x", "cwd": "/"}, "host"),
    ],
)
async def test_a_field_that_is_not_as_described_is_named_before_anything_is_done(
    alice, method, params, field
):
    before = alice.record()
    refusal = await refused(asked(alice.adapter, method, **params), InvalidParams)

    assert refusal.message.startswith(field)
    assert refusal.details["field"].split(".")[0] == field
    assert alice.record() == before


async def test_a_settled_adapter_is_bound_to_nothing_else(alice):
    bind = {"host": "claude", "session_id": "x", "cwd": "/"}
    await refused(asked(alice.adapter, "bind", **bind), InvalidParams)


async def test_a_session_says_who_it_is(layout):
    async with running(layout, ALICE, name="worker") as alice:
        me = await alice.ask("whoami")

    assert me.keys() == {"target", "name", "role", "kind", "scope", "socket", "build"}
    assert (me["target"], me["name"], me["role"], me["kind"], me["socket"]) == (
        alice.target,
        "worker",
        "lead",
        "ordinary",
        "none",
    )


@pytest.mark.requirement("A-ident-08")
async def test_a_session_that_chose_no_name_gets_one_of_its_project(layout):
    async with (
        running(layout, ALICE, cwd="/work/My Project") as one,
        running(layout, BOB, cwd="/work/My Project/") as two,
        running(layout, CAROL, cwd="/", name="   ") as three,
    ):
        names = [(await session.ask("whoami"))["name"] for session in (one, two, three)]

    assert names[0].startswith("my-project-")
    assert names[1].startswith("my-project-")
    assert names[2].startswith("agent-")
    assert len(set(names)) == 3


@pytest.mark.requirement("D-adapter-01", "A-endpoint-03")
async def test_the_socket_serves_the_same_api_as_the_process_itself(layout, alice, bob):
    async with await RawPeer(CAROL).connect(alice.record()) as adapter:
        assert await adapter.refused("session.whoami", {}) == "AUTHENTICATION_FAILED"
        assert await adapter.ended()
    async with await RawPeer(CAROL).connect(alice.record()) as adapter:
        await adapter.accepted("session.authenticate", {"token": alice.token})
        await adapter.accepted("session.update", {"name": "renamed"})
        listed = await adapter.accepted("session.list", {})
        sent = await adapter.accepted("session.send", {"target": bob.target, "message": "over the socket"})
        status = await adapter.accepted("session.status", {"message_id": sent["message_id"]})
        code = await adapter.refused("session.cancel", {"message_id": sent["message_id"]})
        read = await adapter.accepted("session.read", {"wait_ms": 0})
        await adapter.accepted("session.confirm", {"message_ids": [], "evidence": "x"})

        assert await adapter.accepted("session.whoami", {}) == await alice.ask("whoami")
        assert listed == await alice.ask("list")
        assert listed["self"]["name"] == "renamed"
        assert status == await alice.ask("status", message_id=sent["message_id"])
        assert code == "MESSAGE_ID_CONFLICT"
        assert read.keys() == {"messages", "receipts", "cursor", "timed_out"}
    assert await bob.texts() == ["over the socket"]


async def test_what_is_asked_without_an_id_does_nothing(alice, bob):
    await alice.sees(bob)
    async with await RawPeer(CAROL).connect(alice.record()) as adapter:
        await adapter.accepted("session.authenticate", {"token": alice.token})
        adapter.say("session.send", {"target": bob.target, "message": "x"})
        adapter.say("session.update", {"name": "renamed"})
        me = await adapter.accepted("session.whoami", {})

    assert me["name"] != "renamed"
    assert await alice.outgoing() == []


async def test_a_read_that_waits_delays_no_other_call_on_its_connection(alice):
    async with await RawPeer(CAROL).connect(alice.record()) as adapter:
        await adapter.accepted("session.authenticate", {"token": alice.token})
        adapter.say("session.read", {"wait_ms": 30_000}, 99)
        for _ in range(3):
            await adapter.accepted("session.whoami", {})


@pytest.mark.requirement("A-order-09")
async def test_whoever_comes_back_is_written_to_at_once(layout, alice):
    raw = RawPeer(BOB)
    with raw.registered(layout, endpoint=f"{layout.run}/{raw.instance_id}.sock"):
        await alice.ask("list")
        sending = asyncio.ensure_future(alice.send(raw.target))
        await until(lambda: alice.coordinator.waiting.watches)
    async with raw.listening(layout) as server:
        connection = await server.proved()
        connection.accept(await connection.message())
        await sending
