"""What a sender makes of the other side's answers, right or wrong, lost or late, over a real pair of sockets.

The far side is a script: it reads frames and does with each what the test says. What both ways of reaching a
session owe stands in `tests/contracts/test_reach.py`.
"""

import asyncio
import json
import socket
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from herd.core.errors import BY_CODE, DeliveryUnknown, HerdError, InvalidRpc, MessageIdConflict, QueueFull
from herd.core.paths import Layout
from herd.mail import acceptance, inbox
from herd.mail.mailbox import Mailbox
from herd.mail.reach import ConnectionReach
from herd.mail.receipts import Receipt
from herd.mail.wire import read_envelope, receipt_to_wire
from herd.rpc.connection import Connection
from tests.fakes.bounds import UNHURRIED
from tests.fakes.mail import (
    BOB,
    CUSTODY,
    NOW,
    admission,
    envelope,
    mailbox_of,
    params,
    receipt,
    sender,
    target,
)
from tests.fakes.records import layout_at

IN_TIME_S = 20
Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]


class Silent:
    """Our side answers nothing."""

    async def request(self, connection: Connection, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"{method} was asked back")

    async def unsent(
        self, connection: Connection, method: str, params: dict[str, Any], result: dict[str, Any]
    ) -> None:
        raise AssertionError(f"{method} was answered")

    def notification(self, connection: Connection, method: str, params: dict[str, Any]) -> None:
        raise AssertionError(f"{method} was told")


class Far:
    """The far side: every frame it read, and what it answers."""

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self.frames: list[dict[str, Any]] = []
        self._sock = sock
        self._answer = answer

    async def serve(self) -> None:
        """Answer each frame; None hangs up instead."""
        reader, writer = await asyncio.open_unix_connection(sock=self._sock)
        try:
            while line := await reader.readline():
                frame = json.loads(line)
                self.frames.append(frame)
                result = await self._answer(frame)
                if result is None:
                    return
                writer.write(json.dumps({"jsonrpc": "2.0", "id": frame["id"], **result}).encode() + b"\n")
        finally:
            writer.close()
            with suppress(OSError):  # our side may be gone by then
                await writer.wait_closed()


@asynccontextmanager
async def reached(answer: Answer, **limits: int) -> AsyncIterator[tuple[ConnectionReach, Far]]:
    """Give the custody at the far end of a connection that was proved."""
    near, far_end = socket.socketpair()
    near.setblocking(False)
    far = Far(far_end, answer)
    connection = Connection(
        *await asyncio.open_unix_connection(sock=near), Silent(), limits=UNHURRIED._replace(**limits)
    )
    async with asyncio.timeout(IN_TIME_S), asyncio.TaskGroup() as group:
        group.create_task(far.serve())
        group.create_task(connection.run())
        try:
            yield ConnectionReach(connection), far
        finally:
            await connection.close()


def always(result: dict[str, Any]) -> Answer:
    async def answer(_: dict[str, Any]) -> dict[str, Any]:
        return result

    return answer


def result(told: Receipt) -> dict[str, Any]:
    return {"result": receipt_to_wire(told)}


# --- what is asked and what is read ----------------------------------------------------------------


@pytest.mark.requirement("A-methods-02")
async def test_handing_in_sends_exactly_the_envelope_and_reads_the_receipt():
    async with reached(always(result(receipt()))) as (reach, far):
        assert await reach.accept(envelope(noReplyNeeded=True)) == receipt()

    (frame,) = far.frames
    assert (frame["method"], frame["params"]) == ("peer.send", params(noReplyNeeded=True))


async def test_asking_names_the_message_and_its_exact_recipient():
    async with reached(always(result(receipt()))) as (reach, far):
        assert await reach.status("m-1", target(BOB)) == receipt()

    (frame,) = far.frames
    assert (frame["method"], frame["params"]) == ("peer.status", {"messageId": "m-1", "to": target(BOB)})


async def test_telling_sends_the_receipt_and_what_its_message_says_where_that_is_known():
    async with reached(always({"result": {"recorded": True}})) as (reach, far):
        await reach.offer(receipt())
        await reach.offer(receipt(), "d" * 64)

    told = {"receipt": receipt_to_wire(receipt())}
    assert [(frame["method"], frame["params"]) for frame in far.frames] == [
        ("peer.receipt", told),
        ("peer.receipt", told | {"digest": "d" * 64}),
    ]


@pytest.mark.requirement("A-custody-09")
async def test_every_attempt_has_an_rpc_id_of_its_own_and_the_same_message_id():
    async with reached(always({"error": QueueFull("full").to_wire()})) as (reach, far):
        for _ in range(3):
            with pytest.raises(QueueFull):
                await reach.accept(envelope())

    assert len({frame["id"] for frame in far.frames}) == 3
    assert [frame["params"] for frame in far.frames] == [envelope().to_wire()] * 3


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=lambda kind: kind.__name__)
async def test_a_refusal_keeps_its_class_over_the_wire(kind: type[HerdError]):
    async with reached(always({"error": kind("the reason", retry_after_ms=7).to_wire()})) as (reach, _):
        with pytest.raises(kind) as caught:
            await reach.accept(envelope())

    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.details) == ("the reason", {"retry_after_ms": 7})


BOGUS = [
    {},
    {"recorded": True},
    receipt_to_wire(receipt("m-2")),
    receipt_to_wire(receipt(to="lead:0000000000")),
    receipt_to_wire(receipt(state="pending")),
    receipt_to_wire(receipt(state="unknown")),
    receipt_to_wire(receipt(state="rejected")),
    {**receipt_to_wire(receipt()), "text": "more"},
    {**receipt_to_wire(receipt()), "cursor": "1"},
    {**receipt_to_wire(receipt()), "custodyId": ""},
]


@pytest.mark.parametrize("bogus", BOGUS)
async def test_an_answer_that_is_no_receipt_of_this_message_settles_nothing(bogus: dict[str, Any]):
    # Believed, some of these would end the sender's attempts although nobody has the message.
    async with reached(always({"result": bogus})) as (reach, _):
        for ask in (lambda: reach.accept(envelope()), lambda: reach.status("m-1", target(BOB))):
            with pytest.raises(InvalidRpc) as caught:
                await ask()
            assert caught.value.may_pass


# --- answers that are lost -------------------------------------------------------------------------


@pytest.fixture
def layout(home: Path) -> Layout:
    return layout_at(home)


def accepting(mailbox: Mailbox, *, answers: bool = True) -> Answer:
    """Answer as a receiver does that commits first; or hang up where the answer should come."""

    async def answer(frame: dict[str, Any]) -> dict[str, Any] | None:
        try:
            acceptance = await mailbox.run(accepted(frame["params"]))
        except HerdError as refusal:
            return {"error": refusal.to_wire()}
        return result(acceptance.receipt) if answers else None

    return answer


def accepted(given: dict[str, Any]) -> Callable[[sqlite3.Connection], inbox.Acceptance]:
    def work(connection: sqlite3.Connection) -> inbox.Acceptance:
        one = read_envelope(given)
        return acceptance.accept(connection, one, sender(), admission(CUSTODY, 32, NOW))

    return work


@pytest.mark.requirement("C9", "A-custody-08")
@pytest.mark.parametrize("restarted", [False, True])
async def test_when_the_connection_dies_after_the_commit_the_retry_makes_one_entry(
    layout: Layout, restarted: bool
):
    async with mailbox_of(layout, BOB) as mailbox:
        async with reached(accepting(mailbox, answers=False)) as (reach, _):
            with pytest.raises(DeliveryUnknown) as caught:
                await reach.accept(envelope())
            assert caught.value.may_pass
        if not restarted:
            await retried(mailbox)
    if restarted:
        async with mailbox_of(layout, BOB) as mailbox:
            await retried(mailbox)


async def retried(mailbox: Mailbox) -> None:
    """Send once more, and then with other text, over a connection that holds."""
    (before,) = await mailbox.run(inbox.undelivered)
    async with reached(accepting(mailbox)) as (reach, _):
        again = await reach.accept(envelope())
        with pytest.raises(MessageIdConflict):
            await reach.accept(envelope(content="other"))

    assert again == before.receipt._replace(custody_id=CUSTODY)
    assert await mailbox.run(inbox.undelivered) == [before]


@pytest.mark.requirement("A-custody-08")
async def test_an_answer_that_comes_too_late_is_not_believed_and_the_next_attempt_gets_it(layout: Layout):
    may_answer = asyncio.Event()
    async with mailbox_of(layout, BOB) as mailbox:
        accept = accepting(mailbox)

        async def slow(frame: dict[str, Any]) -> dict[str, Any] | None:
            outcome = await accept(frame)
            await may_answer.wait()
            return outcome

        async with reached(slow, acknowledgement_ms=50) as (reach, _):
            with pytest.raises(DeliveryUnknown):
                await reach.accept(envelope())
            may_answer.set()
        async with reached(accept) as (reach, _):
            assert (await reach.accept(envelope())).accepted_at == NOW

        assert len(await mailbox.run(inbox.undelivered)) == 1


async def test_a_connection_that_has_ended_says_that_nothing_is_known():
    async with reached(always(result(receipt()))) as (reach, _):
        pass

    with pytest.raises(DeliveryUnknown):
        await reach.accept(envelope())


# --- several at once -------------------------------------------------------------------------------

THREE = [envelope("m-1"), envelope("m-2"), envelope("m-3")]


async def test_several_are_sent_in_one_request_in_their_order():
    given = {"receipts": [receipt_to_wire(receipt(one.message_id)) for one in THREE]}
    async with reached(always({"result": given})) as (reach, far):
        together = await reach.accept_together(THREE)

    assert together.receipts == tuple(receipt(one.message_id) for one in THREE)
    assert together.refusal is None
    (frame,) = far.frames
    assert (frame["method"], frame["params"]) == (
        "peer.sendMany",
        {"messages": [params(f"m-{number}", noReplyNeeded=False) for number in (1, 2, 3)]},
    )


def singly(refusal: HerdError, bad: dict[str, HerdError]) -> Answer:
    """Refuse a request for several, and take single ones but for the bad ones."""

    async def answer(frame: dict[str, Any]) -> dict[str, Any]:
        if frame["method"] == "peer.sendMany":
            return {"error": refusal.to_wire()}
        message_id = frame["params"]["messageId"]
        if message_id in bad:
            return {"error": bad[message_id].to_wire()}
        return result(receipt(message_id))

    return answer


WITH_THE_REQUEST = ["METHOD_NOT_FOUND", "INVALID_PARAMS", "MESSAGE_TOO_LARGE", "UNSUPPORTED_PROTOCOL"]


@pytest.mark.parametrize("code", [*WITH_THE_REQUEST, "FRAME_TOO_LARGE"])
async def test_where_the_request_for_several_is_refused_each_goes_by_itself(code: str):
    async with reached(singly(BY_CODE[code]("no"), {})) as (reach, far):
        together = await reach.accept_together(THREE)

    assert together.receipts == tuple(receipt(one.message_id) for one in THREE)
    assert together.refusal is None
    assert [frame["method"] for frame in far.frames] == ["peer.sendMany", *["peer.send"] * 3]
    assert [frame["params"] for frame in far.frames[1:]] == [one.to_wire() for one in THREE]


async def test_one_that_is_made_wrong_is_refused_alone_and_none_behind_it_goes_in_front():
    bad = {"m-2": BY_CODE["INVALID_PARAMS"]("content: too odd")}
    async with reached(singly(BY_CODE["INVALID_PARAMS"]("content: too odd"), bad)) as (reach, far):
        together = await reach.accept_together(THREE)

    assert together.receipts == (receipt("m-1"),)
    assert together.refusal is not None
    assert together.refusal.code == "INVALID_PARAMS"
    assert [frame["params"].get("messageId") for frame in far.frames] == [None, "m-1", "m-2"]


async def test_what_does_not_fit_into_one_frame_goes_one_by_one():
    large = [envelope(f"m-{number}", "x" * 3_000) for number in range(1, 4)]
    async with reached(singly(BY_CODE["INVALID_RPC"]("never asked"), {}), frame_bytes=8_192) as (reach, far):
        together = await reach.accept_together(large)

    assert [one.message_id for one in together.receipts] == ["m-1", "m-2", "m-3"]
    assert [frame["method"] for frame in far.frames] == ["peer.send"] * 3


@pytest.mark.parametrize(
    "kind", [kind for kind in BY_CODE.values() if kind.code not in {*WITH_THE_REQUEST, "FRAME_TOO_LARGE"}]
)
async def test_any_other_refusal_of_the_request_is_given_as_it_is(kind: type[HerdError]):
    async with reached(singly(kind("the reason"), {})) as (reach, far):
        with pytest.raises(kind):
            await reach.accept_together(THREE)

    assert [frame["method"] for frame in far.frames] == ["peer.sendMany"]


async def test_an_answer_about_other_messages_settles_none_of_them():
    given = {"receipts": [receipt_to_wire(receipt(one)) for one in ("m-1", "m-3", "m-2")]}
    async with reached(always({"result": given})) as (reach, _):
        with pytest.raises(InvalidRpc):
            await reach.accept_together(THREE)
