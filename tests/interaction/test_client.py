"""The blocking client of a coordinator's socket, against real coordinators and ones that misbehave."""

import asyncio
import json
import os
import socket
import threading
from contextlib import closing, contextmanager, suppress

import pytest

from herd.client import Client
from herd.core.errors import (
    AuthenticationFailed,
    DeliveryUnknown,
    FrameTooLarge,
    HerdError,
    InvalidParams,
    InvalidRpc,
    MessageTooLarge,
    NoSession,
    PeerOffline,
    UnknownTarget,
    UnsafeEndpoint,
)
from tests.fakes.coordinators import running
from tests.fakes.records import ALICE, BOB, put, record_of


async def with_client(session, work, **chosen):
    """Use a client in a thread, as a command line does, and give what the work gives."""

    def use():
        with Client(session.layout, session.record(), **chosen) as client:
            return work(client)

    return await asyncio.to_thread(use)


# --- against a real one ----------------------------------------------------------------------------


async def test_a_command_asks_and_gets_the_result(alice):
    me = await with_client(alice, lambda client: client.request("session.whoami", {}))
    assert me == await alice.ask("whoami")


async def test_a_refusal_arrives_as_its_own_class_with_its_words(alice):
    def ask(client):
        with pytest.raises(UnknownTarget) as refusal:
            client.request("session.send", {"target": "lead:0000000000", "message": "x"})
        return refusal.value

    refusal = await with_client(alice, ask)
    assert "lead:0000000000" in refusal.message
    assert refusal.next_step


async def test_many_calls_go_over_one_connection(layout, alice):
    async with running(layout, BOB) as bob:

        def send(client):
            return [
                client.request("session.send", {"target": bob.target, "message": f"{number} 日本語 \x1b"})
                for number in range(5)
            ]

        sent = await with_client(alice, send)
        assert {one["status"] for one in sent} <= {"accepted", "queued"}
        texts = []
        while len(texts) < 5:
            answer = await bob.read(wait_ms=30_000)
            texts += [one["text"] for one in answer["messages"]]
        assert texts == [f"{number} 日本語 \x1b" for number in range(5)]


async def test_a_command_may_name_what_resolves_now_and_a_hook_may_not(layout, alice):
    params = {"target": "worker", "message": "x"}
    async with running(layout, BOB, name="worker"):
        sent = await with_client(alice, lambda client: client.request("session.send", params))
        assert sent["target"] != "worker"

        def refused(client):
            with pytest.raises(UnknownTarget):
                client.request("session.send", params)

        await with_client(alice, refused, command=False)


async def test_an_argument_that_was_no_text_is_refused_by_its_field(alice):
    def ask(client):
        with pytest.raises(InvalidParams, match="message"):
            client.request("session.send", {"target": "lead:0000000000", "message": "\udcff"})
        return client.request("session.whoami", {})["target"]

    assert await with_client(alice, ask) == alice.target


async def test_what_is_too_large_for_a_frame_is_refused_before_a_byte_leaves(layout, alice):
    def ask(client):
        with pytest.raises(FrameTooLarge):
            client.request("session.send", {"target": "lead:0000000000", "message": "x" * 100_000})
        with pytest.raises(HerdError) as refusal:
            client.request("session.send", {"target": "lead:0000000000", "message": "x" * 20_000})
        assert isinstance(refusal.value, MessageTooLarge | UnknownTarget)
        return client.request("session.whoami", {})["target"]

    assert await with_client(alice, ask) == alice.target


async def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one(alice):
    def ask(client):
        with pytest.raises(DeliveryUnknown):
            client.request("session.read", {"wait_ms": 300}, wait_s=0.05)
        return client.request("session.whoami", {})["target"]

    assert await with_client(alice, ask) == alice.target


async def test_a_wrong_token_is_refused(layout, alice):
    put(layout.token(ALICE.key), b"0" * 64)
    with pytest.raises(AuthenticationFailed):
        await with_client(alice, lambda client: None)


@pytest.mark.parametrize("gone", ["token", "socket", "record"])
async def test_a_session_that_has_ended_is_told_as_such(layout, gone):
    async with running(layout, ALICE) as alice:
        record = alice.record()
        if gone == "token":
            os.unlink(layout.token(ALICE.key))
            with pytest.raises(NoSession):
                await asyncio.to_thread(Client, layout, record)
    if gone != "token":
        with pytest.raises(PeerOffline):
            await asyncio.to_thread(Client, layout, record)


@pytest.mark.parametrize("mode", [0o640, 0o604])
async def test_a_token_that_others_may_read_is_not_used(layout, alice, mode):
    os.chmod(layout.token(ALICE.key), mode)
    with pytest.raises(UnsafeEndpoint):
        await asyncio.to_thread(Client, layout, alice.record())


async def test_a_socket_that_is_not_private_gets_no_token(layout, alice):
    os.chmod(alice.record().endpoint, 0o666)
    with pytest.raises(UnsafeEndpoint):
        await asyncio.to_thread(Client, layout, alice.record())


# --- against one that misbehaves -------------------------------------------------------------------


@contextmanager
def answering(layout, *answers):
    """Listen as the coordinator of a session, answer with these bytes one after the other, and then leave."""
    record = record_of(ALICE, instance_id="an-instance")
    record = record._replace(endpoint=os.path.join(layout.run, "an-instance.sock"))
    os.makedirs(layout.session_folder(ALICE.key), mode=0o700)
    put(layout.token(ALICE.key), b"0" * 64)

    def serve():
        with (
            suppress(OSError),
            closing(listening.accept()[0]) as connection,
            connection.makefile("rb") as lines,
        ):
            for answer in answers:
                if not lines.readline():
                    return
                connection.sendall(answer)

    with closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind(record.endpoint)
        os.chmod(record.endpoint, 0o600)
        listening.listen()
        server = threading.Thread(target=serve)
        server.start()
        yield record
        server.join(10)
        assert not server.is_alive()


def frame(value):
    return json.dumps(value).encode() + b"\n"


ADMITTED = frame({"jsonrpc": "2.0", "id": 1, "result": {"instance_id": "an-instance"}})


def test_an_end_before_the_token_was_answered_is_offline(layout):
    with answering(layout, b"") as record, pytest.raises(PeerOffline):
        Client(layout, record)


def test_an_end_in_the_middle_of_an_answer_is_unknown(layout):
    with (
        answering(layout, ADMITTED, b'{"jsonrpc":') as record,
        Client(layout, record) as client,
        pytest.raises(DeliveryUnknown),
    ):
        client.request("session.whoami", {})


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\n",
        b"[]\n",
        b"7\n",
        b'{"jsonrpc":"2.0","id":2,"result":[]}\n',
        b'{"id":2}\n',
        b'{"id":2,"error":5}\n',
    ],
)
def test_an_answer_that_is_none_is_named(layout, answer):
    with (
        answering(layout, ADMITTED, answer) as record,
        Client(layout, record) as client,
        pytest.raises(InvalidRpc),
    ):
        client.request("session.whoami", {})


def test_a_refusal_of_the_frame_itself_is_told(layout):
    refusal = {"code": -32700, "message": "PARSE_ERROR: no", "data": {"code": "PARSE_ERROR"}}
    answer = frame({"jsonrpc": "2.0", "id": None, "error": refusal})
    with (
        answering(layout, ADMITTED, answer) as record,
        Client(layout, record) as client,
        pytest.raises(HerdError) as told,
    ):
        client.request("session.whoami", {})
    assert told.value.code == "PARSE_ERROR"


def test_what_is_said_beside_the_answer_is_not_taken_for_it(layout):
    beside = frame({"jsonrpc": "2.0", "method": "peer_update", "params": {}})
    other = frame({"jsonrpc": "2.0", "id": 99, "result": {"not": "mine"}})
    asked = frame({"jsonrpc": "2.0", "id": 2, "method": "session.whoami", "params": {}})
    mine = frame({"jsonrpc": "2.0", "id": 2, "result": {"mine": True}})
    with (
        answering(layout, ADMITTED, beside + other + asked + mine) as record,
        Client(layout, record) as client,
    ):
        assert client.request("session.whoami", {}) == {"mine": True}


def test_an_answer_without_an_end_is_not_read_for_ever(layout):
    with (
        answering(layout, ADMITTED, b"x" * 400_000) as record,
        Client(layout, record) as client,
        pytest.raises(DeliveryUnknown),
    ):
        client.request("session.whoami", {})


def test_an_answer_that_trickles_is_bounded_as_a_whole(layout):
    """Each byte comes in time; the answer does not."""
    may_end = threading.Event()
    with answering(layout, ADMITTED) as record, Client(layout, record) as client:
        ours, theirs = socket.socketpair()
        client._socket.close()
        client._socket = ours

        def trickle():
            while not may_end.wait(0.02):
                theirs.sendall(b" ")

        trickling = threading.Thread(target=trickle)
        trickling.start()
        try:
            with pytest.raises(DeliveryUnknown):
                client.request("session.whoami", {}, wait_s=0.2)
        finally:
            may_end.set()
            trickling.join(10)
            theirs.close()
