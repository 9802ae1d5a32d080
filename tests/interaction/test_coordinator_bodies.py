"""Long texts between coordinators: in pieces, found right, and seen by nobody before all of it is there."""

import asyncio
import hashlib
import json

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import InvalidParams, MessageIdConflict, MessageTooLarge, RecoveryRequired
from herd.core.limits import (
    CHUNK_BYTES,
    DEFAULT_LIMITS,
    ENVELOPE_BYTES,
    READ_BYTES,
    UPLOAD_IDLE_S,
    UPLOADS,
    UPLOADS_OF_ONE,
)
from herd.mail.body_wire import piece_bytes, read_piece
from herd.mail.cutting import cut
from herd.mail.steps import INBOX_AFTER
from roles.eligibility_fake import FakeJudge
from roles.model import Denied
from tests.fakes.coordinators import Steps, running, until_async
from tests.fakes.raw_peer import RawPeer
from tests.fakes.records import ALICE, BOB, LEAD

TEXT = "日本語 \U0001f469\u200d\U0001f467 \x00\x1b[31m\r\n" + "".join(f"line {n}\n" for n in range(9_000))
PAYLOAD = DEFAULT_LIMITS.mailbox_payload_bytes


@pytest.fixture
async def raw(layout, alice):
    """A peer made by hand on a proved connection to Alice."""
    peer = RawPeer(BOB)
    with peer.registered(layout):
        async with await peer.proved(alice.record()) as connection:
            yield connection


def digest(data):
    return hashlib.sha256(data).hexdigest()


def described(data):
    return {"sha256": digest(data), "bytes": len(data)}


def piece(to, data, offset=0, until=None, message_id="m-1", part=0, **changed):
    """Give the params of `peer.body` with some bytes of a text."""
    return {
        "messageId": message_id,
        "to": to,
        "part": part,
        **described(data),
        "offset": offset,
        "text": data[offset:until].decode(),
        **changed,
    }


def message(to, data, message_id="m-1", **changed):
    """Give an envelope whose text goes by `peer.body`."""
    whole = RawPeer(BOB).envelope(to, messageId=message_id, correlationId=message_id, **changed)
    del whole["content"]
    return {**whole, "body": described(data)}


async def stored(one, table):
    return await one.coordinator.mailbox.run(lambda c: c.execute(f"SELECT * FROM {table}").fetchall())


# --- sending and reading ---------------------------------------------------------------------------


@pytest.mark.requirement("A-methods-14", "A-limits-02", "H-files-10", "H-files-12")
async def test_a_text_too_long_for_its_envelope_arrives_byte_for_byte(pair):
    alice, bob = pair
    sent = await alice.send(bob, TEXT, topic="long")

    (row,) = await bob.incoming()
    assert (row.content, json.loads(row.parts)["body"]) == ("", described(TEXT.encode()))
    assert await bob.whole(sent["message_id"]) == TEXT
    chunks = [len(one[-1]) for one in await stored(bob, "chunks")]
    assert max(chunks) <= CHUNK_BYTES
    assert sum(chunks) == len(TEXT.encode())


@pytest.mark.requirement("A-limits-02", "H-files-10", "H-files-12")
async def test_a_text_for_a_session_that_sleeps_lies_there_with_its_message(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        target = bob.target
    sent = await alice.send(target, TEXT)
    assert (sent["status"], sent["peer_running"]) == ("accepted", False)

    async with running(layout, BOB) as bob:
        assert await bob.whole(sent["message_id"]) == TEXT


@pytest.mark.requirement("A-limits-02")
@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("x" * 7_600, True),
        ("é" * 3_800, True),
        ("x" * 7_900, False),  # under message_bytes, and the envelope has no room for it
        ("é" * 4_001, False),
        ("\x01" * 1_400, False),
        ("x" * 8_001, False),
    ],
    ids=["latin", "utf-8", "other-fields", "utf-8-over", "escapes", "over"],
)
async def test_what_fits_rides_inside_and_everything_else_goes_by_body(pair, text, inside):
    alice, bob = pair
    sent = await alice.send(bob, text)

    (row,) = await bob.incoming()
    assert (row.content == text, row.parts is None) == (inside, inside)
    assert await bob.whole(sent["message_id"]) == text


@pytest.mark.requirement("A-limits-02")
async def test_message_bytes_counts_utf_8_and_decides_what_may_ride_inside(layout, bob):
    limits = DEFAULT_LIMITS._replace(message_bytes=10)
    async with running(layout, ALICE, limits=limits) as alice:
        await alice.sees(bob)
        for text in ("x" * 10, "é" * 5, "x" * 11, "é" * 6):
            await alice.send(bob, text)

    assert [bool(row.content) for row in await bob.incoming()] == [True, True, False, False]
    assert DEFAULT_LIMITS.message_bytes == 8_000


@pytest.mark.requirement("A-errors-26")
@pytest.mark.parametrize("text", ["x" * (PAYLOAD + 1), "é" * (PAYLOAD // 2 + 1)], ids=["bytes", "utf-8"])
async def test_a_text_over_mailbox_payload_bytes_is_refused_before_anything_is_stored(pair, text):
    alice, bob = pair
    with pytest.raises(MessageTooLarge) as refusal:
        await alice.send(bob, text)

    assert "mailbox_payload_bytes" in refusal.value.message
    assert [await stored(alice, table) for table in ("outbox", "bodies", "chunks")] == [[], [], []]
    assert await bob.incoming() == []


@pytest.mark.requirement("A-errors-26")
async def test_other_fields_that_fit_no_envelope_are_too_large_whatever_the_text_does(pair, tmp_path):
    alice, bob = pair
    files = []
    for number in range(32):
        path = tmp_path / f"{number}".rjust(200, "n")
        await asyncio.to_thread(path.write_text, f"{number}")
        files.append(str(path))
    with pytest.raises(MessageTooLarge) as refusal:
        await alice.send(bob, "hello", topic="\x01" * 256, files=files)

    assert str(ENVELOPE_BYTES) in refusal.value.message
    assert [await stored(alice, table) for table in ("outbox", "bodies", "chunks")] == [[], [], []]


@pytest.mark.requirement("A-errors-26")
async def test_a_receiver_with_a_smaller_bound_refuses_for_good_and_stores_nothing(layout, alice):
    async with running(layout, BOB, limits=DEFAULT_LIMITS._replace(mailbox_payload_bytes=10_000)) as bob:
        await alice.sees(bob)
        with pytest.raises(MessageTooLarge):
            await alice.send(bob, "x" * 10_001)

        assert await bob.incoming() == []
        (row,) = await alice.outgoing()
        await alice.until_state(row.message_id, "rejected")


async def test_the_same_call_is_the_same_message_also_where_only_by_then_it_would_not_fit(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        target = bob.target
    for size in range(7_600, 7_900, 20):
        text, call = "x" * size, f"call-{size}"
        first = await alice.send(target, text, call_id=call)
        # By now the mailbox's custody id is known and takes room.
        assert (await alice.send(target, text, call_id=call))["message_id"] == first["message_id"]
        with pytest.raises(MessageIdConflict):
            await alice.send(target, text + "y", call_id=call)


async def test_what_its_recipient_has_takes_no_room_at_its_sender(pair):
    alice, bob = pair
    sent = await alice.send(bob, TEXT)
    await alice.until_state(sent["message_id"], "accepted")

    assert [await stored(alice, table) for table in ("bodies", "chunks")] == [[], []]


async def test_long_and_short_messages_of_one_route_keep_their_order(pair):
    alice, bob = pair
    texts = [TEXT[:9_000] if n % 3 == 1 else f"short {n}" for n in range(9)]
    await asyncio.gather(*[alice.send(bob, text) for text in texts])
    await until_async(lambda: has(bob, 9))

    assert [row.parts is not None for row in await bob.incoming()] == [n % 3 == 1 for n in range(9)]


async def has(one, count):
    return len(await one.incoming()) == count


async def test_a_plain_message_writes_nothing_about_bodies(pair):
    alice, bob = pair
    await alice.send(bob, "x" * 1_024)

    for one in pair:
        assert [await stored(one, table) for table in ("bodies", "chunks", "bindings")] == [[], [], []]
    assert (await bob.incoming())[0].parts is None


async def test_an_answer_with_a_long_text_stays_within_its_bound(pair):
    alice, bob = pair
    await alice.send(bob, TEXT)
    (shown,) = (await bob.read())["messages"]

    assert len(shown["text"].encode()) <= READ_BYTES
    assert TEXT.startswith(shown["text"])
    assert shown["next_offset"] == len(shown["text"])


# --- peer.body ------------------------------------------------------------------------------------


@pytest.mark.requirement("A-methods-14", "H-files-12")
async def test_nothing_half_received_is_visible_and_the_message_comes_with_all_of_it(alice, raw):
    data = TEXT.encode()
    for offset, some in cut(data, 0, piece_bytes(DEFAULT_LIMITS.frame_bytes)):
        assert [await stored(alice, table) for table in ("inbox", "bodies", "chunks")] == [[], [], []]
        result = await raw.accepted("peer.body", piece(alice.target, data, offset, offset + len(some)))
        assert result == {"received": offset + len(some)}
    assert [await stored(alice, table) for table in ("inbox", "bodies", "chunks")] == [[], [], []]
    assert (await alice.ask("waiting"))["messages"] == []

    receipt = await raw.accepted("peer.send", message(alice.target, data))

    assert receipt["state"] == "accepted"
    assert await alice.whole("m-1") == TEXT


@pytest.mark.requirement("H-files-12")
async def test_an_interrupted_upload_goes_on_where_it_stopped(layout, alice):
    data = TEXT.encode()
    peer = RawPeer(BOB)
    with peer.registered(layout):
        async with await peer.proved(alice.record()) as first:
            await first.accepted("peer.body", piece(alice.target, data, 0, 40_000))
        async with await peer.proved(alice.record()) as second:
            # Whatever does not go on where it stopped is not taken, and answered by where that is.
            for offset in (0, 10, 40_001):
                again = piece(alice.target, data, offset, offset + 100)
                assert await second.accepted("peer.body", again) == {"received": 40_000}
            for offset in range(40_000, len(data), 40_000):
                await second.accepted("peer.body", piece(alice.target, data, offset, offset + 40_000))
            await second.accepted("peer.send", message(alice.target, data))

    assert await alice.whole("m-1") == TEXT


@pytest.mark.requirement("A-methods-14", "H-files-11")
async def test_a_message_before_its_body_is_refused_for_now_and_stored_by_nobody(alice, raw):
    data = TEXT.encode()
    assert await raw.refused("peer.send", message(alice.target, data)) == "BODY_MISSING"
    await raw.accepted("peer.body", piece(alice.target, data, 0, 1_000))
    assert await raw.refused("peer.send", message(alice.target, data)) == "BODY_MISSING"
    many = {"messages": [message(alice.target, data)]}
    assert (await raw.accepted("peer.sendMany", many))["refusal"]["data"]["code"] == "BODY_MISSING"

    assert await alice.incoming() == []


@pytest.mark.requirement("A-methods-14", "H-files-11")
@pytest.mark.parametrize("part", [0, 1])
async def test_a_body_with_another_sha_256_is_refused_and_forgotten(alice, raw, part):
    data = b"x" * 1_000
    wrong = piece(alice.target, data, part=part) | {"sha256": digest(b"y")}
    assert await raw.refused("peer.body", wrong) == "INVALID_PARAMS"

    again = {**wrong, "text": ""}
    assert await raw.accepted("peer.body", again) == {"received": 0}
    assert await alice.incoming() == []


@pytest.mark.requirement("H-files-11")
async def test_a_body_of_another_length_or_text_than_the_message_tells_is_not_taken(alice, raw):
    data = b"x" * 1_000
    await raw.accepted("peer.body", piece(alice.target, data))
    for other in (b"x" * 999, b"x" * 1_001, b"y" * 1_000):
        assert await raw.refused("peer.send", message(alice.target, other)) == "BODY_MISSING"
    assert await alice.incoming() == []

    await raw.accepted("peer.send", message(alice.target, data))
    assert await alice.texts() == [data.decode()]


@pytest.mark.requirement("A-methods-14")
async def test_a_body_that_is_no_text_is_refused(alice, raw):
    params = piece(alice.target, b"abc")
    with pytest.raises(InvalidParams, match="surrogate"):
        read_piece({**params, "text": "a\ud800"})
    assert await raw.refused("peer.send", message(alice.target, b"abc")) == "BODY_MISSING"
    assert await alice.incoming() == []


async def test_a_message_that_came_already_needs_its_body_no_more(alice, raw):
    data = TEXT.encode()
    for offset in range(0, len(data), 40_000):
        await raw.accepted("peer.body", piece(alice.target, data, offset, offset + 40_000))
    first = await raw.accepted("peer.send", message(alice.target, data))

    assert await raw.accepted("peer.body", piece(alice.target, data, 0, 10)) == {"received": len(data)}
    assert await raw.accepted("peer.send", message(alice.target, data)) == first
    assert len(await alice.incoming()) == 1
    assert await raw.refused("peer.send", message(alice.target, b"other")) == "MESSAGE_ID_CONFLICT"


@pytest.mark.parametrize(
    "changed",
    [
        {"part": -1},
        {"part": 33},
        {"part": "0"},
        {"sha256": "x"},
        {"bytes": 1_048_577},
        {"bytes": -1},
        {"bytes": 3},
        {"offset": 1_048_577},
        {"offset": 4},
        {"text": "x" * 2_000},
        {"text": 1},
        {"messageId": "no id!"},
        {"extra": 1},
        {"text": None},
    ],
    ids=str,
)
async def test_a_piece_that_is_made_wrong_is_refused(alice, raw, changed):
    whole = {**piece(alice.target, b"hello"), **changed}
    params = {name: value for name, value in whole.items() if value is not None}
    assert await raw.refused("peer.body", params) == "INVALID_PARAMS"


async def test_a_piece_is_taken_only_for_this_session_from_whom_may_write_to_it(layout):
    judge = FakeJudge()
    peer = RawPeer(BOB)
    async with running(layout, ALICE, judge=judge) as alice:
        with peer.registered(layout):
            async with await peer.proved(alice.record()) as raw:
                assert await raw.refused("peer.body", piece(BOB_TARGET, b"x")) == "UNKNOWN_TARGET"
                judge.now = Denied("another group")
                assert await raw.refused("peer.body", piece(alice.target, b"x")) == "ELIGIBILITY_DENIED"


BOB_TARGET = RawPeer(BOB).target


async def test_where_no_message_would_be_taken_no_body_is_either(layout):
    peer = RawPeer(BOB)
    async with running(layout, ALICE, limits=DEFAULT_LIMITS._replace(inbox_messages=1)) as alice:
        with peer.registered(layout):
            async with await peer.proved(alice.record()) as raw:
                await raw.accepted("peer.send", peer.envelope(alice.target))
                assert await raw.refused("peer.body", piece(alice.target, b"x")) == "QUEUE_FULL"


@pytest.mark.requirement("A-errors-26")
@pytest.mark.parametrize("part", [0, 1])
async def test_a_piece_of_more_than_this_session_takes_is_too_large(alice, raw, part):
    data = b"x" * (PAYLOAD + 1)
    assert await raw.refused("peer.body", piece(alice.target, data, 0, 1, part=part)) == "MESSAGE_TOO_LARGE"
    half = b"x" * (PAYLOAD // 2 + 1)
    await raw.accepted("peer.body", piece(alice.target, half, 0, 1))
    refused = await raw.refused("peer.body", piece(alice.target, half, 0, 1, part=1))
    assert refused == "MESSAGE_TOO_LARGE"


@pytest.mark.requirement("H-files-12")
async def test_uploads_are_bounded_and_those_that_lie_still_are_swept(layout):
    clock = FakeClock()
    async with running(layout, ALICE, clock=clock) as alice:
        uploads = alice.coordinator.uploads
        peer = RawPeer(BOB)
        with peer.registered(layout):
            async with await peer.proved(alice.record()) as raw:
                for number in range(UPLOADS_OF_ONE + 1):
                    clock.advance(1)
                    begun = piece(alice.target, b"xy", 0, 1, message_id=f"m-{number}")
                    await raw.accepted("peer.body", begun)
                # Of one sender the oldest gives way: the sender has it still, and begins again.
                assert len(uploads._coming) == UPLOADS_OF_ONE
                assert await raw.refused("peer.send", message(alice.target, b"xy", "m-0")) == "BODY_MISSING"
                clock.advance(UPLOAD_IDLE_S)
                await raw.accepted("peer.body", piece(alice.target, b"xy", 0, 1, message_id="m-9"))
                assert len(uploads._coming) == 1
    assert UPLOADS_OF_ONE < UPLOADS


# --- damage and crashes ---------------------------------------------------------------------------


async def spoil(one):
    def work(connection):
        connection.execute("UPDATE chunks SET data = zeroblob(length(data))")

    await one.coordinator.mailbox.run(work)


@pytest.mark.requirement("H-files-11")
async def test_a_body_damaged_where_it_is_stored_is_never_shown_and_told_of(pair):
    alice, bob = pair
    sent = await alice.send(bob, TEXT)
    await spoil(bob)
    await alice.send(bob, "the next one")

    found = await bob.read()
    assert [shown["text"] for shown in found["messages"]] == ["the next one"]
    assert found["unreadable"] == [sent["message_id"]]
    assert "set_aside" not in found
    with pytest.raises(RecoveryRequired):
        await bob.read(message_id=sent["message_id"])
    assert (await bob.ask("drain"))["text"] == ""
    waiting = await bob.ask("waiting")
    assert sent["message_id"] in waiting["unreadable"]
    assert sent["message_id"] not in {shown["message_id"] for shown in waiting["messages"]}
    assert await alice.state(sent["message_id"]) == "accepted"


@pytest.mark.requirement("H-files-11")
async def test_it_is_found_damaged_after_it_was_delivered_too(pair):
    alice, bob = pair
    sent = await alice.send(bob, TEXT)
    await bob.read()
    await bob.ask("confirm", message_ids=[sent["message_id"]], evidence="test")
    await spoil(bob)

    with pytest.raises(RecoveryRequired):
        await bob.read(message_id=sent["message_id"], offset=100)


async def test_a_body_damaged_at_its_sender_is_refused_by_whoever_gets_it(layout, alice):
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        target = bob.target
    async with RawPeer(BOB).listening(layout) as hand:
        sending = asyncio.ensure_future(alice.send(target, TEXT))
        call = await hand.proved()
        await call.asked()
        await spoil(alice)
        await hand.close()
    with pytest.raises(InvalidParams):
        await sending
    async with running(layout, BOB) as bob:
        assert await bob.incoming() == []


async def test_an_acceptance_whose_answer_was_lost_is_found_by_the_next_attempt(layout, alice):
    steps = Steps()
    async with running(layout, BOB, step=steps) as bob:
        await alice.sees(bob)
        steps.faults[INBOX_AFTER] = lambda: ConnectionResetError("lost")
        sending = asyncio.ensure_future(alice.send(bob, TEXT))
        await steps.reached(INBOX_AFTER)
        steps.faults.clear()
        sent = await sending
        assert sent["status"] == "accepted"
        assert len(await bob.incoming()) == 1
        assert await bob.whole(sent["message_id"]) == TEXT


async def test_bodies_go_with_the_row_that_they_belong_to(pair):
    alice, bob = pair
    await alice.send(bob, TEXT)

    await bob.coordinator.mailbox.run(lambda c: c.execute("DELETE FROM inbox").rowcount)
    assert [await stored(bob, table) for table in ("bodies", "chunks")] == [[], []]


@pytest.mark.requirement("H-files-12")
async def test_a_refused_body_leaves_no_row_behind(layout, alice):
    """The rows of a message and its bodies are one transaction: where one fails, none is there."""
    async with running(layout, BOB) as bob:
        await alice.sees(bob)
        await bob.coordinator.mailbox.run(lambda c: c.execute(TRIGGER).rowcount)
        sending = asyncio.ensure_future(alice.send(bob, TEXT))
        await until_async(lambda: refused_once(alice))
        assert [await stored(bob, table) for table in ("inbox", "bodies", "chunks")] == [[], [], []]
        await bob.coordinator.mailbox.run(lambda c: c.execute("DROP TRIGGER full").rowcount)
        alice.coordinator.retry()
        sent = await sending
        assert await bob.whole(sent["message_id"]) == TEXT


async def refused_once(one):
    rows = await one.outgoing()
    return bool(rows and one.coordinator.routes.refusal(rows[0]))


TRIGGER = (
    "CREATE TRIGGER full BEFORE INSERT ON chunks WHEN NEW.number = 1"
    " BEGIN SELECT RAISE(ABORT, 'no more of it'); END"
)


# --- scopes ----------------------------------------------------------------------------------------


@pytest.mark.requirement("A-discover-09")
async def test_who_is_out_of_scope_is_refused_at_the_first_piece_of_what_is_new_alone(layout, tmp_path):
    here, data = str(tmp_path.resolve()), b"x" * 20_000
    bob = RawPeer(BOB)
    async with running(layout, ALICE, cwd=here, scope="workspace") as alice:
        with bob.registered(layout, LEAD._replace(workspace=here)):
            async with await bob.proved(alice.record()) as raw:
                await raw.accepted("peer.body", piece(alice.target, data))
                receipt = await raw.accepted("peer.send", message(alice.target, data))
                bob.publisher.publish(LEAD._replace(workspace="/elsewhere"))

                new = piece(alice.target, data, message_id="m-2")
                assert await raw.refused("peer.body", new) == "SCOPE_DENIED"
                new_message = message(alice.target, data, message_id="m-2")
                assert await raw.refused("peer.send", new_message) == "SCOPE_DENIED"
                again = await raw.accepted("peer.body", piece(alice.target, data))
                assert again == {"received": len(data)}
                assert await raw.accepted("peer.send", message(alice.target, data)) == receipt
