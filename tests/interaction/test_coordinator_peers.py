"""What a peer may do at a coordinator's socket, tried by one that is made by hand."""

import asyncio
import base64
import os
import secrets

import pytest

from herd.core.errors import RecoveryRequired
from herd.core.identity import peer_id_of
from herd.core.locks import AuthorityLock
from herd.mail.steps import COMMIT_AFTER, INBOX_AFTER, SEVERAL_TAKEN_AFTER
from herd.presence.record import Presence
from herd.presence.session_file import SessionFile, write_session_file
from roles.eligibility_fake import FakeJudge
from roles.model import Denied, Unverified
from tests.fakes.bounds import UNHURRIED
from tests.fakes.coordinators import IN_TIME_S, Steps, asked, content_of, running
from tests.fakes.raw_peer import DOMAIN, Key, RawPeer
from tests.fakes.records import ALICE, BOB, CAROL, LEAD, put


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


def nonce():
    return base64.b64encode(secrets.token_bytes(32)).decode()


# --- the handshake ---------------------------------------------------------------------------------


@pytest.mark.requirement("A-auth-02", "A-auth-03", "A-auth-04", "A-auth-05")
async def test_a_right_handshake_is_answered_field_by_field(alice, bob):
    record = alice.record()
    async with await bob.connect(record) as connection:
        hello = await connection.accepted("peer.hello", connection.hello())
        done = await connection.accepted("peer.authenticate", {"proof": connection.proof(hello)})

    assert hello.keys() == {"version", "instanceId", "publicKey", "nonce", "proof", "capabilities"}
    assert (hello["version"], hello["instanceId"], hello["publicKey"]) == (
        1,
        record.instance_id,
        record.public_key,
    )
    assert len(hello["publicKey"]) == 60
    assert len(base64.b64decode(hello["nonce"])) == 32
    assert hello["capabilities"] == list(record.capabilities)
    assert done == {"authenticated": True, "version": 1}


async def refused_hello(alice, peer, **changed):
    """Say a hello that must be refused; gives the code, once the connection has been closed."""
    async with await peer.connect(alice.record()) as connection:
        code = await connection.refused("peer.hello", connection.hello(**changed))
        assert await connection.ended()
    return code


@pytest.mark.requirement("A-auth-10", "A-errors-19")
async def test_an_instance_that_is_not_on_record_is_refused(alice):
    assert await refused_hello(alice, RawPeer(BOB)) == "AUTHENTICATION_FAILED"


@pytest.mark.requirement("A-auth-10")
async def test_an_instance_on_record_with_another_key_is_refused(alice, bob):
    assert await refused_hello(alice, RawPeer(BOB, bob.instance_id)) == "AUTHENTICATION_FAILED"


@pytest.mark.requirement("A-auth-10")
async def test_the_record_of_an_instance_that_is_dead_proves_nothing(layout, alice):
    dead = RawPeer(BOB)
    with dead.registered(layout):
        data = content_of(layout.record(BOB.key))
    put(layout.record(BOB.key), data)

    assert await refused_hello(alice, dead) == "AUTHENTICATION_FAILED"


async def test_two_sessions_that_claim_one_instance_are_both_refused(layout, alice, bob):
    twin = RawPeer(CAROL, bob.instance_id, bob.key)
    with twin.registered(layout):
        assert await refused_hello(alice, bob) == "AUTHENTICATION_FAILED"


async def test_a_record_that_became_malformed_proves_nothing_any_more(layout, alice, bob):
    async with await bob.proved(alice.record()):
        put(layout.record(BOB.key), b"{")

    assert await refused_hello(alice, bob) == "AUTHENTICATION_FAILED"
    assert await refused_hello(alice, bob) == "AUTHENTICATION_FAILED"


async def test_an_instance_says_hello_to_nobody_as_ourselves(alice):
    record = alice.record()
    assert await refused_hello(alice, RawPeer(ALICE, record.instance_id)) == "AUTHENTICATION_FAILED"


@pytest.mark.requirement("A-auth-10", "A-auth-05")
@pytest.mark.parametrize("wrong", ["key", "domain", "role", "nonce", "text", "nothing"])
async def test_a_proof_of_anything_else_is_refused(alice, bob, wrong):
    async with await bob.connect(alice.record()) as connection:
        hello = await connection.accepted("peer.hello", connection.hello())
        right = connection.proof(hello)
        if wrong == "key":
            bob.key = Key()
        proofs = {
            "key": connection.proof(hello),
            "domain": connection.proof(hello, domain="autohand.local-peers.handshake.v1"),
            "role": connection.proof(hello, role="server"),
            "nonce": connection.proof({**hello, "nonce": nonce()}),
            "text": ("B" if right[0] == "A" else "A") + right[1:],
            "nothing": "",
        }
        assert (
            await connection.refused("peer.authenticate", {"proof": proofs[wrong]}) == "AUTHENTICATION_FAILED"
        )
        assert await connection.ended()
    assert DOMAIN == "herd.peers.handshake.v1"


@pytest.mark.requirement("A-auth-09")
async def test_a_nonce_that_was_used_before_is_refused_whoever_used_it(layout, alice, bob):
    with RawPeer(CAROL).registered(layout) as carol:
        async with await bob.connect(alice.record()) as first:
            hello = await first.accepted("peer.hello", first.hello())
        for peer, used in ((bob, first.nonce), (carol, first.nonce), (carol, hello["nonce"])):
            assert await refused_hello(alice, peer, nonce=used) == "AUTHENTICATION_FAILED"

        async with await carol.proved(alice.record()):
            pass


@pytest.mark.requirement("A-auth-08")
@pytest.mark.parametrize(
    "form",
    [
        "",
        base64.b64encode(bytes(31)).decode(),
        base64.b64encode(bytes(33)).decode(),
        base64.b64encode(bytes(32)).decode().rstrip("="),
        base64.b64encode(bytes(32)).decode()[:-2] + "B=",
        base64.b64encode(bytes(32)).decode() + "\n",
        base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        7,
        None,
        [nonce()],
    ],
)
async def test_a_nonce_of_another_form_is_refused(alice, bob, form):
    assert await refused_hello(alice, bob, nonce=form) == "AUTHENTICATION_FAILED"


@pytest.mark.requirement("A-frames-10", "A-errors-18")
async def test_another_protocol_version_is_told_apart_from_another_rpc_version(alice, bob):
    assert await refused_hello(alice, bob, version=2) == "UNSUPPORTED_PROTOCOL"
    async with await bob.connect(alice.record()) as connection:
        connection.say_bytes(b'{"jsonrpc":"1.0","id":1,"method":"peer.hello","params":{}}\n')
        answer = await connection.said()

    assert answer["error"]["data"]["code"] == "INVALID_RPC"


@pytest.mark.requirement("A-auth-13")
@pytest.mark.parametrize("extra", [{"capabilities": ["message.send"]}, {"role": "manager"}, {"token": "x"}])
async def test_a_hello_that_claims_more_is_refused(alice, bob, extra):
    assert await refused_hello(alice, bob, **extra) == "INVALID_PARAMS"


@pytest.mark.requirement("A-auth-12")
@pytest.mark.parametrize(
    "steps", [["authenticate"], ["hello", "hello"], ["hello", "authenticate", "authenticate"]], ids=str
)
async def test_a_step_out_of_order_or_twice_closes_the_connection(alice, bob, steps):
    async with await bob.connect(alice.record()) as connection:
        hello = connection.hello_result(connection.hello())
        for step in steps[:-1]:
            if step == "hello":
                hello = await connection.accepted("peer.hello", connection.hello())
            else:
                await connection.accepted("peer.authenticate", {"proof": connection.proof(hello)})
        last = {"hello": connection.hello(nonce=nonce()), "authenticate": {"proof": connection.proof(hello)}}
        assert await connection.refused(f"peer.{steps[-1]}", last[steps[-1]]) == "AUTHENTICATION_FAILED"
        assert await connection.ended()


@pytest.mark.requirement("A-auth-12")
async def test_overlapping_steps_close_the_connection(alice, bob):
    async with await bob.connect(alice.record()) as connection:
        connection.say("peer.hello", connection.hello(), 1)
        connection.say("peer.hello", connection.hello(nonce=nonce()), 2)
        first, second = await connection.said(), await connection.said()

        assert "result" in first
        assert second["error"]["data"]["code"] == "AUTHENTICATION_FAILED"
        assert await connection.ended()


@pytest.mark.requirement("A-auth-07", "A-custody-02")
async def test_a_request_before_both_proofs_is_refused_and_a_notification_is_dropped(alice, bob):
    for after_hello in (False, True):
        async with await bob.connect(alice.record()) as connection:
            if after_hello:
                await connection.accepted("peer.hello", connection.hello())
            connection.say("peer.send", bob.envelope(alice.target))
            assert (
                await connection.refused("peer.send", bob.envelope(alice.target)) == "AUTHENTICATION_FAILED"
            )
            assert await connection.ended()

    assert await alice.incoming() == []


@pytest.mark.requirement("A-auth-07")
@pytest.mark.parametrize(
    "method", ["peer.status", "peer.read", "resource.request", "session.list", "nonsense"]
)
async def test_no_method_at_all_is_served_before_the_proofs(alice, bob, method):
    async with await bob.connect(alice.record()) as connection:
        assert await connection.refused(method, {}) == "AUTHENTICATION_FAILED"
        assert await connection.ended()


@pytest.mark.requirement("A-auth-11")
async def test_an_instance_that_leaves_the_record_during_the_handshake_is_refused(alice, bob):
    async with await bob.connect(alice.record()) as connection:
        hello = await connection.accepted("peer.hello", connection.hello())
        bob.publisher.remove()
        code = await connection.refused("peer.authenticate", {"proof": connection.proof(hello)})

        assert code == "AUTHENTICATION_FAILED"
        assert await connection.ended()


@pytest.mark.requirement("A-limits-09")
@pytest.mark.parametrize("said", ["nothing", "hello", "half a frame"])
async def test_whoever_has_proved_nothing_in_time_is_shut_out(layout, bob, said):
    limits = UNHURRIED._replace(handshake_ms=50)
    async with (
        running(layout, ALICE, limits=limits) as alice,
        await bob.connect(alice.record()) as connection,
    ):
        if said == "hello":
            await connection.accepted("peer.hello", connection.hello())
        elif said == "half a frame":
            connection.say_bytes(b'{"jsonrpc":"2.0",')

        assert await connection.ended()


async def test_whoever_has_proved_himself_may_be_silent_for_longer(layout, bob):
    limits = UNHURRIED._replace(handshake_ms=50)
    async with running(layout, ALICE, limits=limits) as alice, await bob.proved(alice.record()) as connection:
        async with await bob.connect(alice.record()) as other:
            assert await other.ended(), "that long"

        await connection.accepted("peer.send", bob.envelope(alice.target))


@pytest.mark.requirement("A-endpoint-12")
@pytest.mark.parametrize(("connections", "most"), [(1, 32), (9, 36)])
async def test_callers_beyond_the_bound_are_closed_unread(layout, bob, connections, most):
    limits = UNHURRIED._replace(connections=connections)
    async with running(layout, ALICE, limits=limits) as alice:
        record = alice.record()
        held = [await bob.connect(record) for _ in range(most)]
        async with await bob.connect(record) as one_more:
            assert await one_more.ended()
        await held.pop().close()
        async with asyncio.timeout(IN_TIME_S):
            while True:  # its place is free again as soon as its end was noticed
                async with await bob.connect(record) as instead:
                    instead.say("peer.hello", instead.hello(), 1)
                    if await instead.heard() is not None:
                        break
        for connection in held:
            await connection.close()


# --- what a proved peer may call -------------------------------------------------------------------


@pytest.mark.requirement("A-methods-11")
@pytest.mark.parametrize("params", [{}, {"messageId": "m-1"}, {"session": "x", "capabilities": ["all"]}])
async def test_no_peer_reads_an_inbox(connection, params):
    assert await connection.refused("peer.read", params) == "SCOPE_DENIED"


@pytest.mark.requirement("A-methods-12", "A-errors-17")
@pytest.mark.parametrize("method", ["status", "request", "grant", "set_controller", "anything"])
async def test_no_peer_gets_at_a_resource(connection, method):
    assert await connection.refused(f"resource.{method}", {"resource": "gpu"}) == "CAPABILITY_DENIED"


@pytest.mark.requirement("A-auth-15")
async def test_no_peer_calls_what_is_the_adapters(layout, connection):
    for method in ("list", "send", "read", "confirm", "bind", "whoami", "accept_remote"):
        assert await connection.refused(f"session.{method}", {}) == "CAPABILITY_DENIED"


@pytest.mark.requirement("A-auth-15")
async def test_a_peers_connection_does_not_become_an_adapters_even_with_the_token(layout, alice, connection):
    token = alice.token
    assert await connection.refused("session.authenticate", {"token": token}) == "AUTHENTICATION_FAILED"
    assert await connection.ended()


@pytest.mark.requirement("A-errors-24")
async def test_an_unknown_method_is_named_and_the_connection_goes_on(alice, bob, connection):
    answer = await connection.request("peer.frobnicate", {})
    assert (answer["error"]["code"], answer["error"]["data"]["code"]) == (-32601, "METHOD_NOT_FOUND")
    await connection.accepted("peer.send", bob.envelope(alice.target))


async def test_a_proved_caller_that_says_hello_again_is_shut_out(alice, connection):
    code = await connection.refused("peer.hello", connection.hello(nonce=nonce()))
    assert code == "AUTHENTICATION_FAILED"
    assert await connection.ended()


async def test_who_was_called_may_not_begin_a_handshake_of_its_own(layout, alice):
    """It was proved by ours; a second one would only be a way to be somebody else."""
    bob = RawPeer(BOB)
    async with bob.listening(layout) as server:
        await alice.ask("list")
        sending = asyncio.ensure_future(alice.send(bob.target))
        connection = await server.proved()
        request = await connection.message()
        assert (
            await connection.refused("peer.hello", connection.hello(nonce=nonce())) == "AUTHENTICATION_FAILED"
        )
        assert await connection.ended()
        sending.cancel()
    assert request["params"]["content"] == "hello"


@pytest.mark.requirement("A-methods-13", "A-custody-09")
async def test_a_send_without_an_id_stores_nothing(alice, bob, connection):
    unanswered = bob.envelope(alice.target, messageId="m-1")
    connection.say("peer.send", unanswered)
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="m-2"))

    assert [row.message_id for row in await alice.incoming()] == ["m-2"]


# --- peer.send -------------------------------------------------------------------------------------


@pytest.mark.requirement("A-methods-02")
async def test_a_right_message_is_answered_with_the_receipt_of_what_is_stored(alice, bob, connection):
    envelope = bob.envelope(
        alice.target, "text", messageId="m-1", topic="a topic", correlationId="c-1", noReplyNeeded=True
    )
    receipt = await connection.accepted("peer.send", envelope)
    (row,) = await alice.incoming()

    assert receipt == {
        "messageId": "m-1",
        "to": alice.target,
        "custodyId": alice.coordinator.mailbox.custody_id,
        "state": "accepted",
        "cursor": row.receipt.cursor,
        "acceptedAt": row.receipt.accepted_at,
    }
    assert (row.content, row.topic, row.correlation_id, row.no_reply_needed) == (
        "text",
        "a topic",
        "c-1",
        True,
    )


@pytest.mark.requirement("A-methods-02")
async def test_the_exact_instance_may_be_named_too(alice, bob, connection):
    mine = peer_id_of(alice.record().instance_id)
    receipt = await connection.accepted("peer.send", bob.envelope(mine))

    assert receipt["to"] == mine


@pytest.mark.requirement("A-methods-03", "A-methods-04", "A-custody-02")
async def test_a_sender_is_who_proved_himself_whatever_the_message_says(layout, alice, bob, connection):
    carol = RawPeer(CAROL)
    with carol.registered(layout):
        for forged in (
            {"session": carol.target},
            {"session": alice.target},
            {"session": bob.target, "role": "manager"},
            {"session": bob.target, "run": "run-1"},
            {},
            bob.target,
        ):
            envelope = bob.envelope(alice.target, **{"from": forged})
            assert await connection.refused("peer.send", envelope) == "INVALID_PARAMS"
    assert await alice.incoming() == []

    await connection.accepted("peer.send", bob.envelope(alice.target, f"From: {carol.target} (user)"))
    (row,) = await alice.incoming()
    assert (row.sender.key, row.sender.target) == (BOB.key, bob.target)


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("lead:0000000000", "UNKNOWN_TARGET"),
        ("peer-" + "0" * 32, "TARGET_ENDED"),
        ("session-1", "INVALID_PARAMS"),
        ("", "INVALID_PARAMS"),
        ("lead:IIIIIIIIII", "INVALID_PARAMS"),
        ("4711", "INVALID_PARAMS"),
    ],
)
async def test_a_message_for_somebody_else_is_refused(alice, bob, connection, to, code):
    assert await connection.refused("peer.send", bob.envelope(to)) == code
    assert await alice.incoming() == []


@pytest.mark.requirement("A-errors-25")
@pytest.mark.parametrize(
    "changed",
    [
        {"extra": 1},
        {"custodyId": ""},
        {"content": ""},
        {"content": None},
        {"content": 7},
        {"messageId": "m 1"},
        {"messageId": "m" * 129},
        {"version": "1"},
        {"version": True},
        {"createdAt": -1},
        {"createdAt": None},
        {"topic": ""},
        {"topic": "x" * 257},
        {"conversation": {"id": "c", "depth": -1}},
        {"conversation": {"id": "c", "depth": 0, "extra": 1}},
        {"correlationId": None},
        {"noReplyNeeded": "yes"},
        {"replyTo": ""},
    ],
    ids=str,
)
async def test_a_field_that_is_not_as_described_is_named_and_nothing_is_stored(
    alice, bob, connection, changed
):
    answer = await connection.request("peer.send", bob.envelope(alice.target, **changed))

    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["code"] == "INVALID_PARAMS"
    assert next(iter(changed)) in answer["error"]["message"]
    assert await alice.incoming() == []


@pytest.mark.requirement("A-errors-36")
@pytest.mark.parametrize(
    "content", ["x" * 8_192, "é" * 4_096, "\x01" * 1_500], ids=["bytes", "utf-8", "escapes"]
)
async def test_a_message_over_its_bound_is_refused_whole(alice, bob, connection, content):
    assert await connection.refused("peer.send", bob.envelope(alice.target, content)) == "MESSAGE_TOO_LARGE"
    assert await alice.incoming() == []


@pytest.mark.requirement("A-auth-13", "A-errors-17")
async def test_what_a_caller_may_do_is_what_its_record_says_now(layout, alice):
    bob = RawPeer(BOB)
    with bob.registered(layout, capabilities=("message.receive",)):
        async with await bob.proved(alice.record()) as connection:
            assert await connection.refused("peer.send", bob.envelope(alice.target)) == "CAPABILITY_DENIED"
            bob.publisher._instance = bob.publisher._instance._replace(capabilities=("message.send",))
            bob.publisher.publish(LEAD)
            await connection.accepted("peer.send", bob.envelope(alice.target))
            bob.publisher._instance = bob.publisher._instance._replace(capabilities=())
            bob.publisher.publish(LEAD)
            assert await connection.refused("peer.send", bob.envelope(alice.target)) == "CAPABILITY_DENIED"

    assert len(await alice.incoming()) == 1


@pytest.mark.requirement("A-auth-11", "A-errors-19")
@pytest.mark.parametrize("how", ["removed", "replaced", "malformed", "other key"])
async def test_an_instance_that_left_the_record_loses_its_open_connection(
    layout, alice, bob, connection, how
):
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="before"))
    publisher = bob.publisher
    if how == "removed":
        publisher.remove()
    elif how == "malformed":
        put(layout.record(BOB.key), b"{")
    else:
        changed = {"instance_id": "a-newer-one"} if how == "replaced" else {"public_key": Key().public}
        publisher._instance = publisher._instance._replace(**changed)
        publisher.publish(LEAD)

    assert await connection.refused("peer.send", bob.envelope(alice.target)) == "AUTHENTICATION_FAILED"
    assert await connection.ended()
    assert [row.message_id for row in await alice.incoming()] == ["before"]


@pytest.mark.requirement("A-auth-11")
async def test_an_instance_that_only_lost_its_presence_keeps_its_rights(layout, alice, bob, connection):
    write_session_file(layout, SessionFile(BOB))
    bob.publisher.withdraw()
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="m-1"))
    assert (await connection.accepted("peer.status", {"messageId": "m-1", "to": alice.target}))[
        "state"
    ] == "accepted"


@pytest.mark.requirement("A-auth-18")
async def test_the_check_of_a_caller_costs_one_stat(layout, alice, bob, connection, monkeypatch):
    question = {"messageId": "m-1", "to": alice.target}
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="m-1"))
    calls = []

    def counted(name):
        real = getattr(os, name)

        def call(path, *args, **kwargs):
            calls.append((name, path))
            return real(path, *args, **kwargs)

        return call

    for name in ("stat", "lstat", "open", "listdir", "scandir"):
        monkeypatch.setattr(os, name, counted(name))
    await connection.accepted("peer.status", question)
    monkeypatch.undo()

    # The mailbox is looked at once, too: by its own thread, before the transaction ends.
    assert calls == [("stat", layout.record(BOB.key)), ("lstat", layout.mailbox(ALICE.key))]


@pytest.mark.requirement("A-methods-15", "A-custody-05", "A-custody-06")
async def test_a_repeated_message_is_recognised_whatever_labels_and_times_it_bears(alice, bob, connection):
    envelope = bob.envelope(alice.target, "text", messageId="m-1", topic="t")
    first = await connection.accepted("peer.send", envelope)
    bob.publisher.publish(LEAD._replace(name="renamed"))
    again = await connection.accepted("peer.send", {**envelope, "createdAt": 5, "noReplyNeeded": True})

    assert again == first
    assert len(await alice.incoming()) == 1


@pytest.mark.requirement("A-errors-27", "A-custody-06")
@pytest.mark.parametrize(
    "changed",
    [{"content": "other"}, {"topic": "other"}, {"correlationId": "other"}, {"replyTo": "other"}],
    ids=str,
)
async def test_a_known_id_with_other_content_is_a_conflict_and_the_first_message_stands(
    alice, bob, connection, changed
):
    envelope = bob.envelope(alice.target, "text", messageId="m-1", topic="t")
    await connection.accepted("peer.send", envelope)
    before = await alice.incoming()

    assert await connection.refused("peer.send", {**envelope, **changed}) == "MESSAGE_ID_CONFLICT"
    assert await alice.incoming() == before


async def test_one_id_of_two_senders_is_two_messages(layout, alice, bob, connection):
    with RawPeer(CAROL).registered(layout) as carol:
        async with await carol.proved(alice.record()) as other:
            await connection.accepted("peer.send", bob.envelope(alice.target, "bob's", messageId="m-1"))
            await other.accepted("peer.send", carol.envelope(alice.target, "carol's", messageId="m-1"))

    assert sorted(await alice.texts()) == ["bob's", "carol's"]


@pytest.mark.requirement("A-limits-03", "A-limits-19", "A-custody-02", "A-custody-07")
async def test_a_full_inbox_refuses_the_next_and_still_answers_a_duplicate(alice, bob, connection):
    first = bob.envelope(alice.target, messageId="m-0")
    receipt = await connection.accepted("peer.send", first)
    for number in range(1, 32):
        await connection.accepted("peer.send", bob.envelope(alice.target, messageId=f"m-{number}"))
    answer = await connection.request("peer.send", bob.envelope(alice.target))

    assert answer["error"]["data"]["code"] == "QUEUE_FULL"
    assert answer["error"]["data"]["retry_after_ms"] == 250
    assert await connection.accepted("peer.send", first) == receipt
    assert len(await alice.incoming()) == 32


async def test_a_message_that_may_lie_in_another_custody_is_not_taken(alice, bob, connection):
    code = await connection.refused("peer.send", bob.envelope(alice.target, custodyId="another-custody"))
    assert code == "CUSTODY_CHANGED"
    assert await alice.incoming() == []


@pytest.mark.requirement("A-order-04")
async def test_the_receiver_numbers_messages_as_it_accepts_them(layout, alice, bob, connection):
    with RawPeer(CAROL).registered(layout) as carol:
        async with await carol.proved(alice.record()) as other:
            for number in range(3):
                await connection.accepted("peer.send", bob.envelope(alice.target, createdAt=10 - number))
                await other.accepted("peer.send", carol.envelope(alice.target, createdAt=number))

    sequences = [row.sequence for row in await alice.incoming()]
    assert sequences == list(range(sequences[0], sequences[0] + 6))


async def test_a_message_whose_sender_leaves_at_once_reaches_a_waiting_reader(layout, bob):
    """Its commit is under way when the connection breaks; nothing else tells the reader of it."""
    steps = Steps()
    async with running(layout, ALICE, step=steps) as alice:
        reading = asyncio.ensure_future(alice.read(wait_ms=30_000))
        connection = await bob.proved(alice.record())
        connection.say("peer.send", bob.envelope(alice.target), 9)
        connection.break_off()
        await steps.reached(INBOX_AFTER)

        assert [message["text"] for message in (await reading)["messages"]] == ["hello"]


# --- peer.sendMany ---------------------------------------------------------------------------------


def several(bob, alice, *names, **changed):
    """Give the params of a request with these messages."""
    return {"messages": [bob.envelope(alice.target, name, messageId=name, **changed) for name in names]}


@pytest.mark.requirement("A-methods-02", "A-order-01")
async def test_several_messages_are_answered_with_a_receipt_each_in_their_order(alice, bob, connection):
    result = await connection.accepted("peer.sendMany", several(bob, alice, "m-1", "m-2", "m-3"))
    rows = await alice.incoming()

    assert result == {
        "receipts": [
            {
                "messageId": row.message_id,
                "to": alice.target,
                "custodyId": alice.coordinator.mailbox.custody_id,
                "state": "accepted",
                "cursor": row.receipt.cursor,
                "acceptedAt": row.receipt.accepted_at,
            }
            for row in rows
        ]
    }
    assert [row.message_id for row in rows] == ["m-1", "m-2", "m-3"]
    assert await alice.texts() == ["m-1", "m-2", "m-3"]
    again = await connection.accepted("peer.send", bob.envelope(alice.target, "m-2", messageId="m-2"))
    assert again == result["receipts"][1]


@pytest.mark.requirement("A-order-02", "A-errors-27")
async def test_the_first_that_is_refused_is_told_behind_those_that_are_taken(alice, bob, connection):
    given = several(bob, alice, "m-1", "m-2", "m-1", "m-3")
    given["messages"][2]["content"] = "other"
    result = await connection.accepted("peer.sendMany", given)

    assert [receipt["messageId"] for receipt in result["receipts"]] == ["m-1", "m-2"]
    assert result["refusal"]["data"]["code"] == "MESSAGE_ID_CONFLICT"
    assert result["refusal"].keys() == {"code", "message", "data"}
    assert await alice.texts() == ["m-1", "m-2"]


@pytest.mark.requirement("A-limits-03", "A-limits-19", "A-custody-07")
async def test_an_inbox_that_becomes_full_says_so_of_the_first_that_has_no_room(alice, bob, connection):
    names = [f"m-{number}" for number in range(33)]
    result = await connection.accepted("peer.sendMany", several(bob, alice, *names))

    assert [receipt["messageId"] for receipt in result["receipts"]] == names[:32]
    assert result["refusal"]["data"]["code"] == "QUEUE_FULL"
    assert result["refusal"]["data"]["retry_after_ms"] == 250
    assert [row.message_id for row in await alice.incoming()] == names[:32]


@pytest.mark.requirement("A-methods-03")
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"extra": 1}, "INVALID_PARAMS"),
        ({"createdAt": "now"}, "INVALID_PARAMS"),
        ({"from": {"session": "lead:0000000000"}}, "INVALID_PARAMS"),
        ({"to": "lead:0000000000"}, "INVALID_PARAMS"),
        ({"version": 2}, "UNSUPPORTED_PROTOCOL"),
        ({"content": "x" * 8_192}, "MESSAGE_TOO_LARGE"),
    ],
    ids=str,
)
async def test_one_that_is_made_wrong_refuses_the_whole_request(alice, bob, connection, changed, code):
    given = several(bob, alice, "m-1", "m-2", "m-3")
    given["messages"][1].update(changed)

    assert await connection.refused("peer.sendMany", given) == code
    assert await alice.incoming() == []


@pytest.mark.parametrize(
    ("to", "code"), [("lead:0000000000", "UNKNOWN_TARGET"), ("peer-" + "0" * 32, "TARGET_ENDED")]
)
async def test_several_for_another_recipient_are_not_taken(alice, bob, connection, to, code):
    given = {"messages": [bob.envelope(to), bob.envelope(to)]}

    assert await connection.refused("peer.sendMany", given) == code
    assert await alice.incoming() == []


@pytest.mark.requirement("A-methods-13")
async def test_several_that_come_as_a_notification_leave_nothing(alice, bob, connection):
    connection.say("peer.sendMany", several(bob, alice, "m-1", "m-2"))
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="m-3"))

    assert [row.message_id for row in await alice.incoming()] == ["m-3"]


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Denied("another group"), "ELIGIBILITY_DENIED"), (Unverified("no record"), "ELIGIBILITY_UNVERIFIED")],
    ids=["denied", "unverified"],
)
async def test_the_sender_of_several_is_judged_once_and_for_all_of_them(layout, bob, verdict, code):
    judge = FakeJudge(verdict)
    async with running(layout, ALICE, judge=judge) as alice, await bob.proved(alice.record()) as connection:
        assert await connection.refused("peer.sendMany", several(bob, alice, "m-1", "m-2")) == code
        assert await alice.incoming() == []
        assert len(judge.asked) == 1


async def test_an_unhealthy_session_takes_none_of_several(alice, bob, connection):
    alice.coordinator.health.observed(RecoveryRequired("the disk is full"))

    assert await connection.refused("peer.sendMany", several(bob, alice, "m-1")) == "RECOVERY_REQUIRED"


async def test_without_the_capability_nobody_sends_several(layout, alice):
    with RawPeer(BOB).registered(layout, capabilities=("message.receive",)) as bob:
        async with await bob.proved(alice.record()) as connection:
            code = await connection.refused("peer.sendMany", several(bob, alice, "m-1"))

    assert code == "CAPABILITY_DENIED"


async def test_several_take_one_commit(layout, bob):
    steps = Steps()
    async with running(layout, ALICE, step=steps) as alice, await bob.proved(alice.record()) as connection:
        await connection.accepted("peer.send", bob.envelope(alice.target))
        before = steps.taken(COMMIT_AFTER)
        await connection.accepted("peer.sendMany", several(bob, alice, *(f"m-{n}" for n in range(20))))

        assert steps.taken(COMMIT_AFTER) == before + 1
        assert steps.taken(SEVERAL_TAKEN_AFTER) == 1
        assert steps.taken(INBOX_AFTER) == 1


async def test_several_whose_sender_leaves_at_once_reach_a_waiting_reader(layout, bob):
    steps = Steps()
    async with running(layout, ALICE, step=steps) as alice:
        reading = asyncio.ensure_future(alice.read(wait_ms=30_000))
        connection = await bob.proved(alice.record())
        connection.say("peer.sendMany", several(bob, alice, "m-1", "m-2"), 9)
        connection.break_off()
        await steps.reached(SEVERAL_TAKEN_AFTER)

        assert [message["text"] for message in (await reading)["messages"]] == ["m-1", "m-2"]


async def test_a_status_asked_behind_several_waits_for_each_of_them(alice, bob, connection):
    """Also where one of them comes for the second time while the first is still being taken."""
    hold = await asyncio.to_thread(exclusive, alice.layout)
    connection.say("peer.send", bob.envelope(alice.target, "m-2", messageId="m-2"), 101)
    connection.say("peer.sendMany", several(bob, alice, "m-1", "m-2", "m-3"), 102)
    for number, name in enumerate(("m-3", "m-1", "m-2"), start=103):
        connection.say("peer.status", {"messageId": name, "to": alice.target}, number)
    assert await connection.refused("peer.read", {}) == "SCOPE_DENIED"
    hold.release()

    answers = {}
    while len(answers) < 5:
        frame = await connection.said()
        answers[frame["id"]] = frame["result"]
    assert [answers[number]["state"] for number in (101, 103, 104, 105)] == ["accepted"] * 4
    assert [receipt["messageId"] for receipt in answers[102]["receipts"]] == ["m-1", "m-2", "m-3"]
    assert answers[102]["receipts"][1] == answers[101]
    assert [row.message_id for row in await alice.incoming()] == ["m-2", "m-1", "m-3"]


def exclusive(layout):
    """Change authority, as nobody does today, so that every verdict waits."""
    return AuthorityLock(
        layout.authority_lock, layout.authority_gate, layout.authority_generation
    ).exclusive()


# --- verdicts at acceptance ------------------------------------------------------------------------


@pytest.mark.requirement("H-inbox-06", "A-custody-02")
@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Denied("another group"), "ELIGIBILITY_DENIED"), (Unverified("no record"), "ELIGIBILITY_UNVERIFIED")],
    ids=["denied", "unverified"],
)
async def test_the_receiver_judges_for_itself_by_what_its_records_say(layout, bob, verdict, code):
    judge = FakeJudge(verdict)
    async with running(layout, ALICE, judge=judge) as alice, await bob.proved(alice.record()) as connection:
        answer = await connection.request("peer.send", bob.envelope(alice.target))

        assert answer["error"]["data"]["code"] == code
        assert verdict.reason in answer["error"]["message"]
        assert await alice.incoming() == []
        (sender, target) = judge.asked[-1]
        assert (sender.key, sender.role, sender.kind) == (BOB.key, "lead", "ordinary")
        assert target.key == ALICE.key


async def test_an_unhealthy_session_accepts_nothing_and_says_that_it_may_pass(alice, bob, connection):
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="before"))
    alice.coordinator.health.observed(RecoveryRequired("the disk is full"))

    assert await connection.refused("peer.send", bob.envelope(alice.target)) == "RECOVERY_REQUIRED"
    status = await connection.accepted("peer.status", {"messageId": "before", "to": alice.target})
    assert status["state"] == "accepted"


# --- peer.status and peer.receipt ------------------------------------------------------------------


@pytest.mark.requirement("A-methods-06", "A-methods-07", "A-errors-05")
@pytest.mark.parametrize("method", ["peer.status", "peer.subscribe"])
async def test_a_status_is_told_to_the_sender_alone(layout, alice, bob, connection, method):
    await connection.accepted("peer.send", bob.envelope(alice.target, messageId="m-1"))
    question = {"messageId": "m-1", "to": alice.target}
    with RawPeer(CAROL).registered(layout) as carol:
        async with await carol.proved(alice.record()) as other:
            assert await other.refused(method, question) == "SCOPE_DENIED"
            assert await other.refused(method, {**question, "messageId": "m-2"}) == "UNKNOWN_TARGET"

    answer = await connection.accepted(method, question)
    receipt = answer if method == "peer.status" else answer["receipt"]
    assert receipt["state"] == "accepted"
    assert receipt["messageId"] == "m-1"
    assert await connection.refused(method, {**question, "to": "lead:0000000000"}) == "SCOPE_DENIED"
    assert await connection.refused(method, {**question, "messageId": "m-2"}) == "UNKNOWN_TARGET"
    assert await connection.refused(method, {**question, "extra": 1}) == "INVALID_PARAMS"
    assert await connection.refused(method, {"messageId": "m-1"}) == "INVALID_PARAMS"


def receipt_of(request, **changed):
    """Give a receipt of a message that Alice sent, as its recipient would tell it."""
    sent = request["params"]
    right = {
        "messageId": sent["messageId"],
        "to": sent["to"],
        "custodyId": "raw-custody",
        "state": "delivered",
        "cursor": 2,
        "acceptedAt": 1_700_000_000_000,
        "deliveredAt": 1_700_000_000_500,
    }
    return {"receipt": {**right, **changed}}


@pytest.mark.requirement("A-methods-10")
async def test_only_a_messages_own_recipient_tells_its_receipt(layout, alice):
    bob = RawPeer(BOB)
    async with bob.listening(layout) as server:
        await alice.ask("list")
        sending = asyncio.ensure_future(alice.send(bob.target))
        connection = await server.proved()
        request = await connection.message()
        connection.accept(request)
        sent = await sending
        await alice.until_state(sent["message_id"], "accepted")
        with RawPeer(CAROL).registered(layout) as carol:
            async with await carol.proved(alice.record()) as other:
                assert await other.refused("peer.receipt", receipt_of(request)) == "SCOPE_DENIED"
                assert (
                    await other.refused("peer.receipt", receipt_of(request, state="rejected", outcome="X"))
                    == "SCOPE_DENIED"
                )
        for wrong in ({"to": carol.target}, {"messageId": "m-1"}, {"custodyId": "another"}):
            assert await connection.refused("peer.receipt", receipt_of(request, **wrong)) == "SCOPE_DENIED"
        for malformed in (
            {"state": "done"},
            {"state": "pending"},
            {"cursor": "2"},
            {"extra": 1},
            {"custodyId": None},
        ):
            assert (
                await connection.refused("peer.receipt", receipt_of(request, **malformed)) == "INVALID_PARAMS"
            )
        digest = {"digest": "d" * 64}
        assert await connection.refused("peer.receipt", receipt_of(request) | digest) == "MESSAGE_ID_CONFLICT"
        for params in ({}, {"receipt": []}, {**receipt_of(request), "extra": 1}, digest | {"receipt": []}):
            assert await connection.refused("peer.receipt", params) == "INVALID_PARAMS"
        assert await alice.state(sent["message_id"]) == "accepted"

        assert await connection.accepted("peer.receipt", receipt_of(request)) == {"recorded": True}
        assert await alice.state(sent["message_id"]) == "delivered"


async def test_no_receipt_makes_a_status_less_than_it_was(layout, alice):
    bob = RawPeer(BOB)
    async with bob.listening(layout) as server:
        await alice.ask("list")
        sending = asyncio.ensure_future(alice.send(bob.target))
        connection = await server.proved()
        request = await connection.message()
        connection.accept(request)
        sent = await sending
        await connection.accepted(
            "peer.receipt", receipt_of(request, state="replied", repliedAt=1_700_000_001_000)
        )
        for late in ("accepted", "delivered", "rejected", "expired"):
            outcome = {"outcome": "ELIGIBILITY_DENIED"} if late == "rejected" else {}
            await connection.accepted("peer.receipt", receipt_of(request, state=late, **outcome))

        assert await alice.state(sent["message_id"]) == "replied"


# --- adapters at the same door ---------------------------------------------------------------------


async def test_the_token_is_private_and_of_this_instance_alone(layout):
    tokens = set()
    for _ in range(2):
        async with running(layout, ALICE):
            status = await asyncio.to_thread(os.stat, layout.token(ALICE.key))
            tokens.add(content_of(layout.token(ALICE.key)))
            assert (status.st_mode & 0o777, status.st_uid) == (0o600, os.geteuid())

    assert len(tokens) == 2


@pytest.mark.parametrize(
    "params",
    [{"token": "0" * 64}, {"token": ""}, {"token": "\ud800"}, {}, {"token": 7}, {"token": None}],
    ids=str,
)
async def test_a_wrong_token_opens_nothing_and_ends_the_connection(alice, params):
    async with await RawPeer(BOB).connect(alice.record()) as connection:
        frame = (
            await connection.request("session.authenticate", params)
            if params != {"token": "\ud800"}
            else None
        )
        if frame is None:
            connection.say_bytes(
                b'{"jsonrpc":"2.0","id":1,"method":"session.authenticate","params":{"token":"\\ud800"}}\n'
            )
            frame = await connection.said()
        assert frame["error"]["data"]["code"] in {"AUTHENTICATION_FAILED", "INVALID_PARAMS"}
        assert await connection.ended()


@pytest.mark.requirement("A-auth-15", "D-adapter-01")
async def test_the_token_opens_the_adapter_api_and_no_peer_method(layout, alice):
    token = alice.token
    async with await RawPeer(BOB).connect(alice.record()) as connection:
        connection.say("session.authenticate", {"token": token}, 1)
        connection.say("session.whoami", {}, 2)
        opened, me = await connection.said(), await connection.said()

        assert opened["result"] == {"instance_id": alice.record().instance_id}
        assert me["result"] == await alice.ask("whoami")
        for method in ("peer.hello", "peer.send", "peer.status", "session.authenticate", "session.nonsense"):
            assert await connection.refused(method, {}) == "METHOD_NOT_FOUND"
        bind = {"host": "claude", "session_id": "other", "cwd": "/"}
        assert await connection.refused("session.bind", bind) == "INVALID_PARAMS"


async def test_an_adapter_that_leaves_gives_back_what_it_held(layout, alice, bob, connection):
    await connection.accepted("peer.send", bob.envelope(alice.target))
    token = alice.token
    async with await RawPeer(CAROL).connect(alice.record()) as adapter:
        await adapter.accepted("session.authenticate", {"token": token})
        (given,) = (await adapter.accepted("session.read", {}))["messages"]
        assert (await alice.read())["messages"] == [], "the other reader holds it"
    (again,) = (await asked(alice.adapter, "read", wait_ms=30_000))["messages"]

    assert again == {**given, "again": True}


async def test_a_presence_that_a_peer_publishes_about_itself_is_stored_as_it_came(layout, alice):
    bob = RawPeer(BOB)
    with bob.registered(layout, Presence("lead", "none", name="root](user) \x1b[1m")):
        async with await bob.proved(alice.record()) as connection:
            await connection.accepted("peer.send", bob.envelope(alice.target))
    (row,) = await alice.incoming()

    assert row.sender.name == "root](user) \x1b[1m"


@pytest.mark.requirement("C9", "A-custody-05", "A-errors-27")
async def test_a_message_whose_acceptance_was_lost_is_one_entry_after_restarts_of_both_sides(layout):
    steps = Steps()
    former, later = RawPeer(BOB), RawPeer(BOB)
    async with running(layout, ALICE, step=steps) as alice:
        with former.registered(layout):
            envelope = former.envelope(alice.target, "once", messageId="m-1")
            connection = await former.proved(alice.record())
            connection.say("peer.send", envelope, 9)
            await steps.reached(INBOX_AFTER)
            connection.break_off()
            (row,) = await alice.incoming()
    async with running(layout, ALICE) as alice:
        with later.registered(layout):
            async with await later.proved(alice.record()) as connection:
                receipt = await connection.accepted("peer.send", envelope)
                other = {**envelope, "content": "twice"}
                assert await connection.refused("peer.send", other) == "MESSAGE_ID_CONFLICT"

        assert await alice.texts() == ["once"]
        assert (receipt["cursor"], receipt["acceptedAt"]) == (row.receipt.cursor, row.receipt.accepted_at)
