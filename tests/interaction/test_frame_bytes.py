"""Sessions whose settings of a frame's size differ, and answers that fit into no frame.

The setting can only be raised: the limits below it stand here for an answer that a fault makes too large.
"""

import asyncio
import json
import socket
from contextlib import asynccontextmanager

import pytest

from herd.coordinator.adapter_api import AdapterApi, Settled
from herd.core.errors import FrameTooLarge
from herd.core.limits import DEFAULT_LIMITS, FRAME_LEAST_BYTES
from herd.mail.receipts import ACCEPTED
from herd.mcp.tool_api import ToolApi
from herd.rpc.connection import Connection
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, running, until_async
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB

RAISED = UNHURRIED._replace(frame_bytes=1_048_576)
LONG = "".join(f"line {number}\n" for number in range(12_000))


@pytest.mark.parametrize(("mine", "yours"), [(RAISED, DEFAULT_LIMITS), (DEFAULT_LIMITS, RAISED)])
async def test_long_texts_reach_a_session_of_another_setting(layout, mine, yours):
    async with running(layout, ALICE, limits=mine) as alice, running(layout, BOB, limits=yours) as bob:
        await alice.sees(bob)
        sent = await alice.send(bob, LONG)

        await alice.until_state(sent["message_id"], ACCEPTED)
        assert await bob.whole(sent["message_id"]) == LONG


@pytest.mark.parametrize(("text", "method"), [(LONG, "peer.body"), ("x" * 7_000, "peer.sendMany")])
async def test_no_frame_is_larger_than_what_everybody_reads(layout, text, method):
    peer = RawPeer(BOB)
    async with peer.listening(layout) as server, running(layout, ALICE, limits=RAISED) as alice:
        await alice.ask("list")
        sends = [asyncio.ensure_future(alice.send(peer.target, "first"))]
        connection = await server.proved()
        first = await connection.message()
        sends += [asyncio.ensure_future(alice.send(peer.target, text)) for _ in range(12)]
        await until_async(lambda: _queued(alice, len(sends)))
        connection.accept(first)
        request = await connection.asked()
        while request["method"] != method:
            connection.refuse(request, "UNKNOWN_TARGET")
            request = await connection.asked()
        for one in sends:
            one.cancel()
        await asyncio.gather(*sends, return_exceptions=True)

    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    assert FRAME_LEAST_BYTES - 8_192 < size <= FRAME_LEAST_BYTES


async def _queued(session, count):
    return len(await session.outgoing()) == count


@asynccontextmanager
async def asking(session, frame_bytes):
    """Give what asks a session's host's own connection, which holds frames of this size."""
    ours, theirs = socket.socketpair()
    api = AdapterApi(Settled(session.coordinator))
    limits = DEFAULT_LIMITS._replace(frame_bytes=frame_bytes)
    tools = ToolApi(api, Settled(session.coordinator))
    serving = Connection(*await asyncio.open_unix_connection(sock=theirs), tools, limits=limits)
    host = Connection(*await asyncio.open_unix_connection(sock=ours), tools)
    tasks = [asyncio.create_task(one.run()) for one in (serving, host)]
    try:
        yield host.request
    finally:
        async with asyncio.timeout(IN_TIME_S):
            await host.close()
            await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session.read", {}),
        ("session.drain", {"most": 8_000}),
        ("session.tool", {"name": "peer_messages", "arguments": {}}),
    ],
)
async def test_what_an_answer_too_large_handed_over_was_never_handed_over(layout, method, params):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        sent = [(await alice.send(bob, "x" * 1_000))["message_id"] for _ in range(4)]
        async with asking(bob, 2_000) as ask:
            for _ in range(3):
                with pytest.raises(FrameTooLarge):
                    await ask(method, params)
                assert [(row.handovers, row.receipt.state) for row in await bob.incoming()] == [
                    (0, ACCEPTED)
                ] * 4
            again = await bob.read()

    assert [one["message_id"] for one in again["messages"]] == sent
    assert not any("again" in one for one in again["messages"])
    assert "set_aside" not in again


async def test_what_the_same_reader_was_given_before_stays_with_it(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        first = await alice.send(bob, "short")
        async with asking(bob, 2_000) as ask:
            given = await ask("session.read", {})
            await alice.send(bob, "x" * 3_000)
            with pytest.raises(FrameTooLarge):
                await ask("session.read", {})
            assert [row.handovers for row in await bob.incoming()] == [1, 0]
            await ask("session.confirm", {"message_ids": [first["message_id"]], "evidence": "shown"})

    assert [one["message_id"] for one in given["messages"]] == [first["message_id"]]


async def test_receipts_in_an_answer_too_large_are_told_again(layout):
    async with running(layout, ALICE) as alice, running(layout, BOB) as bob:
        await alice.sees(bob)
        await bob.sees(alice)
        sent = await bob.send(alice)
        await alice.send(bob, "x" * 3_000)
        async with asking(bob, 2_000) as ask:
            for _ in range(2):
                with pytest.raises(FrameTooLarge):
                    await ask("session.read", {})
            again = await bob.read()

    assert [one["message_id"] for one in again["receipts"]] == [sent["message_id"]]
