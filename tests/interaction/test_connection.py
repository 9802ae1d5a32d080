import asyncio
import errno
import json
import logging
import os
import socket
from contextlib import asynccontextmanager

import pytest

from herd.core.clock import FakeClock
from herd.core.errors import (
    AuthenticationFailed,
    DeliveryUnknown,
    FrameTooLarge,
    HerdError,
    InvalidParams,
    InvalidRpc,
    MethodNotFound,
    QueueFull,
    ScopeDenied,
    UnsupportedProtocol,
)
from herd.core.limits import DEFAULT_LIMITS
from herd.rpc.connection import Connection
from herd.rpc.handshake import ClientHandshake, Identity, KeyPair, NonceMemory, ServerHandshake
from herd.rpc.steps import check_version
from herd.rpc.streams import streams_of

IN_TIME_S = 10


class Answers:
    """A handler whose requests wait, fail or answer as their params say."""

    def __init__(self):
        self.begun = []
        self.notified = []
        self.cancelled = []
        self.taken_back = []
        self.waiting = 0
        self.may_end = asyncio.Event()
        self.changed = asyncio.Event()

    async def request(self, connection, method, params):
        self.begun.append((method, params))
        self.changed.set()
        answer = getattr(self, f"on_{method.replace(' ', '_')}", None)
        if answer is None:
            raise MethodNotFound(f"there is no {method}")
        return await answer(connection, params)

    async def on_echo(self, connection, params):
        return params

    async def on_refuse(self, connection, params):
        raise ScopeDenied("not you", retry_after_ms=7, secret="kept here")

    async def on_fault(self, connection, params):
        raise RuntimeError("the password is hunter2")

    async def on_result(self, connection, params):
        return self.result

    async def on_raise(self, connection, params):
        raise self.error

    async def on_ask_back(self, connection, params):
        return await connection.request("echo", {"back": params})

    async def on_close(self, connection, params):
        await connection.close()

    async def on_authenticate(self, connection, params):
        connection.finish()
        raise AuthenticationFailed("no")

    async def on_versioned(self, connection, params):
        check_version(params, InvalidParams)
        return {}

    async def on_cancel_itself(self, connection, params):
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    async def on_wait(self, connection, params):
        await self._wait(params)
        return params

    async def _wait(self, params):
        self.waiting += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.append(params)
            raise

    async def unsent(self, connection, method, params, result):
        self.taken_back.append((method, params, result))
        if params.get("faulty"):
            raise RuntimeError("the password is hunter2")

    def notification(self, connection, method, params):
        self.notified.append((method, params))
        self.changed.set()
        if method == "fault":
            raise RuntimeError("the password is hunter2")

    async def until(self, condition):
        async with asyncio.timeout(IN_TIME_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Peer:
    """The other side as raw bytes."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def send(self, *frames):
        lines = [frame if isinstance(frame, bytes) else json.dumps(frame).encode() for frame in frames]
        await self.send_bytes(b"".join(line + b"\n" for line in lines))

    async def send_bytes(self, data):
        self.writer.write(data)
        async with asyncio.timeout(IN_TIME_S):
            await self.writer.drain()

    async def frame(self):
        async with asyncio.timeout(IN_TIME_S):
            line = await self.reader.readline()
        return json.loads(line) if line else None

    async def frames(self, count):
        return [await self.frame() for _ in range(count)]

    async def rest(self):
        """Everything until the connection closes."""
        async with asyncio.timeout(IN_TIME_S):
            return [json.loads(line) for line in (await self.reader.read()).splitlines()]


async def fill(connection):
    """Notify until a frame is refused, and give how many were taken."""
    for number in range(10_000):
        try:
            await connection.notify("m", {"n": number, "a": "x" * 60_000})
        except QueueFull:
            return number
        await asyncio.sleep(0)
    raise AssertionError("ten thousand frames were queued")


async def flood(peer, line):
    async with asyncio.timeout(IN_TIME_S):
        while True:
            peer.writer.write(line * 100)
            await peer.writer.drain()


async def until_inside_a_frame(peer):
    """Send the beginning of a frame behind a whole one, whose answer tells that both have come."""
    await peer.send_bytes(json.dumps(call(1)).encode() + b'\n{"jsonrpc":"2.0"')
    await peer.frame()


def call(request_id, method="echo", **params):
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notice_of(method, **params):
    return {"jsonrpc": "2.0", "method": method, "params": params}


def code(frame):
    return frame["error"]["data"]["code"]


async def streams(sock):
    # A small buffer on both ends, so that a side that does not read is noticed early.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    return await _streams[-1](sock)


async def asyncios_own(sock):
    return await asyncio.open_unix_connection(sock=sock)


_streams = [streams_of]


@pytest.fixture(autouse=True, params=[streams_of, asyncios_own])
def every_reader(request):
    """A connection does the same whether what comes is taken at once or goes through a reader's buffer."""
    _streams.append(request.param)
    yield
    _streams.pop()


@asynccontextmanager
async def served(limits=DEFAULT_LIMITS, frame_bytes=None, gate=lambda handler: handler):
    """A connection that runs, its handler, and the other side as raw bytes."""
    ours, theirs = socket.socketpair()
    handler = Answers()
    connection = Connection(*await streams(ours), gate(handler), limits=limits, frame_bytes=frame_bytes)
    peer = Peer(*await streams(theirs))
    running = asyncio.create_task(connection.run())
    try:
        yield connection, handler, peer
    finally:
        handler.may_end.set()
        peer.writer.close()
        async with asyncio.timeout(IN_TIME_S):
            await connection.close()
            await running


@asynccontextmanager
async def pair(limits=DEFAULT_LIMITS):
    """Two connections that run, joined to each other, and their handlers."""
    sides = []
    for sock in socket.socketpair():
        handler = Answers()
        sides.append((Connection(*await streams(sock), handler, limits=limits), handler))
    (first, _), (second, _) = sides
    async with asyncio.timeout(IN_TIME_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(first.run())
        tasks.create_task(second.run())
        yield first, second, sides[0][1], sides[1][1]
        for _, handler in sides:
            handler.may_end.set()
        await first.close()
        await second.close()


def bounds(**changed):
    return DEFAULT_LIMITS._replace(**changed)


class TestTaking:
    @pytest.mark.parametrize("size", [1, 7, 64, 4_096, 65_536])
    async def test_requests_begin_in_their_order_however_their_bytes_come(self, size):
        async with served(bounds(pending_requests=5)) as (_connection, handler, peer):
            data = b"".join(json.dumps(call(n, "echo", n=n)).encode() + b"\n" for n in range(200))
            answers = asyncio.create_task(peer.frames(200))
            for start in range(0, len(data), size):
                await peer.send_bytes(data[start : start + size])

            told = await answers
            taken = [frame["id"] for frame in told if "result" in frame]
            assert [params["n"] for _, params in handler.begun] == sorted(taken)
            assert sorted(frame["id"] for frame in told) == list(range(200))
            assert {code(frame) for frame in told if "error" in frame} <= {"QUEUE_FULL"}

    @pytest.mark.parametrize("bad", [b"{bad", b'{"jsonrpc":"1.0"}', b"x" * 70_000])
    @pytest.mark.parametrize("behind", [b"", b'{"jsonrpc":"2.0","method":"late","params":{}}'])
    async def test_what_comes_before_a_bad_frame_is_taken_and_nothing_behind_it(self, bad, behind):
        async with served() as (connection, handler, peer):
            await peer.send(call(1, n=1), notice_of("early"), bad, behind)

            told = await peer.rest()
            assert [frame["id"] for frame in told] == [1, None] or [frame["id"] for frame in told] == [
                None,
                1,
            ]
            assert handler.begun == [("echo", {"n": 1})]
            assert handler.notified in ([], [("early", {})]), "the connection ends before it is told"
            assert connection.fault is not None


class TestAsking:
    async def test_either_side_asks_the_other(self):
        async with pair() as (first, second, _, _):
            assert await first.request("echo", {"a": "é😀"}) == {"a": "é😀"}
            assert await second.request("echo", {"b": 2}) == {"b": 2}
            assert await first.request("ask back", {"c": 3}) == {"back": {"c": 3}}

    async def test_replies_find_their_requests_in_any_order(self):
        async with served() as (connection, _, peer):
            asked = [asyncio.create_task(connection.request("m", {"n": number})) for number in range(32)]
            requests = await peer.frames(32)
            for request in reversed(requests):
                result = request["params"]
                await peer.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

            assert await asyncio.gather(*asked) == [{"n": number} for number in range(32)]
            assert len({request["id"] for request in requests}) == 32

    async def test_a_refusal_of_the_other_side_is_raised_as_its_own_class(self):
        async with pair() as (first, _, _, _):
            with pytest.raises(ScopeDenied, match="not you") as refused:
                await first.request("refuse", {})
            assert refused.value.details == {"retry_after_ms": 7}

    @pytest.mark.requirement("A-errors-24")
    async def test_an_unknown_method_is_answered_as_such(self):
        async with pair() as (first, _, _, _):
            with pytest.raises(MethodNotFound):
                await first.request("peer.nothing", {})

    @pytest.mark.parametrize("result", [None, [], 0, "x"])
    async def test_a_result_that_is_no_object_is_no_answer(self, result):
        async with served() as (connection, _, peer):
            asked = asyncio.create_task(connection.request("m", {}))
            request = await peer.frame()
            await peer.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

            with pytest.raises(InvalidRpc):
                await asked

    @pytest.mark.requirement("A-frames-09")
    async def test_a_reply_to_what_was_settled_or_never_asked_is_ignored(self):
        async with served() as (connection, _, peer):
            with pytest.raises(DeliveryUnknown):
                await connection.request("late", {}, timeout_ms=1)
            late = await peer.frame()
            asked = asyncio.create_task(connection.request("m", {}))
            request = await peer.frame()
            success = {"jsonrpc": "2.0", "result": {"wrong": 1}}
            failure = {"jsonrpc": "2.0", "error": {"code": 1, "message": "m"}}
            for never in (late["id"], 999, -1, None, str(request["id"]), "x"):
                await peer.send(success | {"id": never}, failure | {"id": never})
            right = {"jsonrpc": "2.0", "id": request["id"], "result": {"right": 1}}
            await peer.send(right, right | {"result": {"again": 1}})

            assert await asked == {"right": 1}
            await peer.send(call(5))
            assert await peer.frame() == {"jsonrpc": "2.0", "id": 5, "result": {}}

    @pytest.mark.requirement("A-limits-10")
    async def test_an_unanswered_request_is_of_unknown_outcome_after_two_seconds_unless_set(self):
        assert DEFAULT_LIMITS.acknowledgement_ms == 2_000
        loop = asyncio.get_running_loop()
        async with served() as (connection, _, peer):
            start = loop.time()
            with pytest.raises(DeliveryUnknown, match="2000 ms"):
                await connection.request("m", {})
            assert 1.99 < loop.time() - start < IN_TIME_S
        async with served(bounds(acknowledgement_ms=20)) as (connection, _, peer):
            with pytest.raises(DeliveryUnknown, match="20 ms"):
                await connection.request("m", {})
            with pytest.raises(DeliveryUnknown, match="10 ms"):
                await connection.request("m", {}, timeout_ms=10)
            assert connection.idle
            assert len(await peer.frames(2)) == 2

    async def test_a_cancelled_request_is_forgotten(self):
        async with served(bounds(pending_requests=1)) as (connection, _, peer):
            asked = asyncio.create_task(connection.request("m", {}))
            request = await peer.frame()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert connection.idle

            again = asyncio.create_task(connection.request("m", {}))
            other = await peer.frame()
            await peer.send({"jsonrpc": "2.0", "id": request["id"], "result": {"old": 1}})
            await peer.send({"jsonrpc": "2.0", "id": other["id"], "result": {"new": 1}})
            assert await again == {"new": 1}

    async def test_a_frame_too_large_is_refused_before_a_byte_leaves(self):
        async with served(bounds(frame_bytes=300)) as (connection, _, peer):
            with pytest.raises(FrameTooLarge):
                await connection.request("m", {"a": "x" * 300})
            with pytest.raises(FrameTooLarge):
                await connection.notify("m", {"a": "x" * 300})
            with pytest.raises(InvalidParams):
                await connection.notify("m", {"a": "\ud800"})
            assert connection.idle
            await connection.notify("small", {})

            assert (await peer.frame())["method"] == "small"

    async def test_a_raised_limit_bounds_what_is_read_and_raises_nothing_that_is_sent(self):
        async with served(bounds(frame_bytes=100_000)) as (connection, handler, peer):
            await peer.send(call(1, a="x" * 90_000))
            assert code(await peer.frame()) == "FRAME_TOO_LARGE"
            assert handler.begun == [("echo", {"a": "x" * 90_000})]
            with pytest.raises(FrameTooLarge):
                await connection.notify("m", {"a": "x" * 65_536})

    async def test_frame_bytes_of_its_own_replace_the_limit_both_ways(self):
        async with served(frame_bytes=100_000) as (connection, _, peer):
            peer.reader._limit = 200_000
            await peer.send(call(1, a="x" * 90_000))
            assert len((await peer.frame())["result"]["a"]) == 90_000
            with pytest.raises(FrameTooLarge):
                await connection.notify("m", {"a": "x" * 100_000})


class TestAnswering:
    @pytest.mark.requirement("A-frames-03")
    async def test_several_frames_of_one_read_are_begun_in_order(self):
        async with served() as (_, handler, peer):
            await peer.send(*[call(number, n=number) for number in range(32)])

            assert [frame["id"] for frame in await peer.frames(32)] == list(range(32))
            assert handler.begun == [("echo", {"n": number}) for number in range(32)]

    async def test_notifications_overtake_no_request_that_came_before_them(self):
        async with served() as (_, handler, peer):
            begun = handler.begun = handler.notified
            notice = {"jsonrpc": "2.0", "method": "notice", "params": {}}
            await peer.send(call(1, "wait"), notice, call(2), notice, call(3, "wait"))
            await handler.until(lambda: len(begun) == 5)

            assert [method for method, _ in begun] == ["wait", "notice", "echo", "notice", "wait"]

    @pytest.mark.requirement("A-frames-02")
    async def test_a_peer_that_writes_byte_by_byte_is_understood(self):
        async with served() as (_, _, peer):
            for byte in json.dumps(call("é", a="😀"), ensure_ascii=False).encode() + b"\n":
                await peer.send_bytes(bytes([byte]))
                await asyncio.sleep(0)

            assert (await peer.frame())["result"] == {"a": "😀"}

    async def test_a_slow_request_delays_neither_others_nor_our_own_replies(self):
        async with served() as (connection, handler, peer):
            await peer.send(*[call(number, "wait") for number in range(31)])
            await handler.until(lambda: handler.waiting == 31)
            await peer.send(call("quick"))
            assert (await peer.frame())["id"] == "quick"
            asked = asyncio.create_task(connection.request("m", {}))
            request = await peer.frame()
            await peer.send({"jsonrpc": "2.0", "id": request["id"], "result": {"a": 1}})

            assert await asked == {"a": 1}
            handler.may_end.set()
            assert len(await peer.frames(31)) == 31

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EROFS])
    async def test_what_the_disk_or_the_kernel_refuses_is_told_as_that_and_is_no_fault(
        self, number, tmp_path, caplog
    ):
        async with served() as (_, handler, peer):
            handler.error = OSError(number, os.strerror(number), str(tmp_path))
            await peer.send(call(1, "raise"))
            answer = await peer.frame()

        assert code(answer) == "RECOVERY_REQUIRED"
        assert str(tmp_path) in answer["error"]["message"]
        assert not any(record.exc_info for record in caplog.records)

    @pytest.mark.requirement("A-errors-03")
    async def test_a_fault_inside_is_logged_and_told_without_its_cause(self, caplog):
        async with served() as (connection, _, peer):
            await peer.send(call(1, "fault"))
            answer = await peer.frame()
            assert code(answer) == "INVALID_RPC"
            assert answer["error"]["code"] == -32000
            assert "hunter2" not in json.dumps(answer)
            fault = answer["error"]["message"].rpartition(" ")[2]
            [record] = [record for record in caplog.records if fault in record.getMessage()]
            assert "hunter2" in str(record.exc_info)

            asked = asyncio.create_task(connection.request("m", {}))
            request = await peer.frame()
            error = {"code": -32602, "message": "m", "data": {"code": "OF_A_LATER_VERSION"}}
            await peer.send({"jsonrpc": "2.0", "id": request["id"], "error": error})
            with pytest.raises(InvalidRpc):
                await asked

    async def test_what_a_handler_waits_for_may_be_cancelled_without_silence(self, caplog):
        async with served() as (_, _, peer):
            await peer.send(call(1, "cancel itself"))

            assert code(await peer.frame()) == "INVALID_RPC"

    async def test_a_result_that_fits_no_frame_is_refused_as_too_large(self):
        async with served(bounds(frame_bytes=1_000)) as (_, handler, peer):
            handler.result = {"a": "x" * 1_000}
            await peer.send(call(1, "result"), call(2))

            answers = {answer["id"]: answer for answer in await peer.frames(2)}
            assert code(answers[1]) == "FRAME_TOO_LARGE"
            assert answers[2]["result"] == {}
            assert handler.taken_back == [("result", {}, handler.result)]

    async def test_a_handler_that_cannot_take_its_result_back_leaves_the_caller_its_refusal(self, caplog):
        async with served(bounds(frame_bytes=1_000)) as (_, handler, peer):
            handler.result = {"a": "x" * 1_000}
            await peer.send(call(1, "result", faulty=True))

            assert code(await peer.frame()) == "FRAME_TOO_LARGE"
            assert "hunter2" in caplog.text

    @pytest.mark.parametrize("result", [{"a": "\ud800"}, {"a": object()}, {"a": float("nan")}])
    async def test_a_result_that_is_no_json_is_a_fault_of_ours(self, result, caplog):
        async with served() as (_, handler, peer):
            handler.result = result
            await peer.send(call(1, "result"))

            assert code(await peer.frame()) == "INVALID_RPC"
            assert [method for method, _, _ in handler.taken_back] == ["result"]

    @pytest.mark.parametrize("text", ["x" * 5_000, "\ud800"])
    async def test_a_refusal_whose_text_cannot_be_sent_keeps_its_code(self, text):
        async with served(bounds(frame_bytes=1_000)) as (_, handler, peer):
            handler.error = ScopeDenied(text)
            await peer.send(call(1, "raise"))

            assert code(await peer.frame()) == "SCOPE_DENIED"

    async def test_where_not_even_a_refusal_fits_the_connection_ends(self):
        async with served(bounds(frame_bytes=80)) as (connection, _, peer):
            await peer.send(call(1, "no"))

            assert await peer.rest() == []
            peer.writer.close()
            await connection.wait_closed()

    async def test_a_failing_notification_ends_nothing_and_answers_nothing(self, caplog):
        async with served() as (_, handler, peer):
            await peer.send({"jsonrpc": "2.0", "method": "fault"}, call(1))

            assert (await peer.frame())["id"] == 1
            assert handler.notified == [("fault", {})]
            assert "hunter2" in caplog.text

    @pytest.mark.requirement("A-frames-10")
    async def test_a_wrong_protocol_version_and_a_wrong_json_rpc_are_told_apart(self):
        async with served() as (_, _, peer):
            await peer.send(call(1, "versioned", version=1), call(2, "versioned", version=2))
            right, wrong = await peer.frames(2)
            assert right["result"] == {}
            assert code(wrong) == UnsupportedProtocol.code
            await peer.send(call(3, "versioned", version=1) | {"jsonrpc": "1.0"})

            assert [code(answer) for answer in await peer.rest()] == ["INVALID_RPC"]


class TestBounds:
    @pytest.mark.requirement("A-limits-04")
    async def test_32_requests_are_in_flight_each_way_and_the_next_is_refused(self):
        assert DEFAULT_LIMITS.pending_requests == 32
        async with pair() as (first, _, _, answers):
            asked = [asyncio.create_task(first.request("wait", {"n": number})) for number in range(32)]
            async with asyncio.timeout(IN_TIME_S):
                await answers.until(lambda: len(answers.begun) == 32)
            with pytest.raises(QueueFull) as refused:
                await first.request("echo", {})
            assert refused.value.details["retry_after_ms"] > 0
            answers.may_end.set()
            assert len(await asyncio.gather(*asked)) == 32
            assert await first.request("echo", {"a": 1}) == {"a": 1}
        async with served() as (_, answers, peer):
            await peer.send(*[call(number, "wait") for number in range(32)], call("next", "wait"))
            refusal = await peer.frame()
            assert refusal["id"] == "next"
            assert code(refusal) == "QUEUE_FULL"
            assert refusal["error"]["data"]["retry_after_ms"] > 0
            answers.may_end.set()
            assert sorted(frame["id"] for frame in await peer.frames(32)) == list(range(32))
            await peer.send(call("again"))
            assert (await peer.frame())["result"] == {}
            assert len(answers.begun) == 33

    @pytest.mark.requirement("A-events-07")
    async def test_what_is_told_waits_for_room_and_comes_whole_and_in_order(self):
        async with served() as (connection, _, peer):

            async def tell() -> None:
                for number in range(200):
                    await connection.tell("m", {"n": number, "a": "x" * 10_000})

            telling = asyncio.create_task(tell())
            assert [frame["params"]["n"] for frame in await peer.frames(200)] == list(range(200))
            await telling

    async def test_whoever_waits_to_tell_hears_of_the_end(self):
        async with served() as (connection, _, peer):
            await fill(connection)
            telling = asyncio.create_task(connection.tell("m", {}))
            await asyncio.sleep(0)
            assert not telling.done()
            peer.writer.transport.abort()

            async with asyncio.timeout(IN_TIME_S):
                await asyncio.wait({telling})
                await connection.wait_closed()
            with pytest.raises(DeliveryUnknown):
                await connection.tell("m", {})

    async def test_a_flood_in_one_read_is_refused_one_by_one_and_ends_nothing(self):
        async with served(bounds(pending_requests=1)) as (_, answers, peer):
            sending = asyncio.create_task(peer.send(*[call(number, "wait") for number in range(2_000)]))
            refused = await peer.frames(1_999)
            await sending
            answers.may_end.set()

            assert {code(frame) for frame in refused} == {"QUEUE_FULL"}
            assert [frame["id"] for frame in refused] == list(range(1, 2_000))
            assert (await peer.frame())["id"] == 0

    @pytest.mark.requirement("A-frames-07")
    async def test_a_peer_that_stops_reading_costs_twice_pending_requests_frames_and_then_queue_full(self):
        async with served() as (connection, _, peer):
            peer.writer.transport.pause_reading()
            accepted = await fill(connection)
            assert connection._outgoing.waiting == 64
            assert connection._writer.transport.get_write_buffer_size() < 65_536
            with pytest.raises(QueueFull):
                await connection.request("m", {})

            peer.writer.transport.resume_reading()
            reader = peer.reader
            reader._limit = 1_000_000
            assert [(await peer.frame())["params"]["n"] for _ in range(accepted)] == list(range(accepted))
            async with asyncio.timeout(IN_TIME_S):
                await connection._outgoing.flushed()
            await connection.notify("again", {})
            assert (await peer.frame())["method"] == "again"

    async def test_frames_queued_at_once_are_bounded_too(self):
        async with served(bounds(pending_requests=3)) as (connection, _, peer):
            for number in range(6):
                await connection.notify("m", {"n": number})
            with pytest.raises(QueueFull) as refused:
                await connection.notify("m", {})

            assert refused.value.details["retry_after_ms"] > 0
            assert [frame["params"]["n"] for frame in await peer.frames(6)] == list(range(6))

    async def test_a_peer_that_asks_and_never_reads_is_cut_off(self):
        async with served(bounds(pending_requests=2, acknowledgement_ms=50)) as (connection, handler, peer):
            peer.writer.transport.pause_reading()
            handler.result = {"a": "x" * 60_000}
            line = json.dumps(call(1, "result")).encode() + b"\n"

            with pytest.raises(ConnectionError):
                await flood(peer, line)
            await connection.wait_closed()
            assert connection._outgoing.waiting <= 4


class TestBadFrames:
    @pytest.mark.requirement("A-frames-06")
    @pytest.mark.parametrize(
        ("bad", "expected"),
        [
            (b"\xff", "PARSE_ERROR"),
            (b"{", "PARSE_ERROR"),
            (b"[]", "INVALID_RPC"),
            (b"{}", "INVALID_RPC"),
            (b'{"jsonrpc":"2.0","id":true,"method":"echo"}', "INVALID_RPC"),
            (b"x" * 70_000, "FRAME_TOO_LARGE"),
        ],
    )
    async def test_one_error_frame_goes_out_and_nothing_behind_the_bad_one_is_read(self, bad, expected):
        async with served() as (connection, handler, peer):
            await peer.send(call(1, n=1))
            assert (await peer.frame())["id"] == 1
            await peer.send(bad, call(2, n=2), bad, call(3, n=3), *[call(4)] * 20_000)

            assert [(frame["id"], code(frame)) for frame in await peer.rest()] == [(None, expected)]
            peer.writer.close()
            await connection.wait_closed()
            assert handler.begun == [("echo", {"n": 1})]

    @pytest.mark.requirement("A-errors-21", "A-errors-22", "A-errors-23")
    @pytest.mark.parametrize(
        ("bad", "expected"),
        [
            (b'{"a":"\xc3"}', "PARSE_ERROR"),
            (b"nothing", "PARSE_ERROR"),
            (b'{"a":1}', "INVALID_RPC"),
            (b"[1]", "INVALID_RPC"),
            (b'{"a":"' + b"x" * 65_536 + b'"}', "FRAME_TOO_LARGE"),
        ],
    )
    async def test_the_error_frame_has_id_null_and_the_code_of_what_was_wrong(self, bad, expected):
        async with served() as (connection, _, peer):
            await peer.send(bad)
            [answer] = await peer.rest()

            assert answer["id"] is None
            assert code(answer) == expected
            peer.writer.close()
            await connection.wait_closed()
            with pytest.raises(DeliveryUnknown):
                await connection.request("m", {})
        with pytest.raises(FrameTooLarge):
            async with served() as (connection, _, peer):
                await connection.notify("m", {"a": "x" * 65_536})

    async def test_a_side_that_sends_on_forever_is_cut_off(self):
        async with served(bounds(acknowledgement_ms=50)) as (connection, _, peer):
            await peer.send(b"bad")
            assert code(await peer.frame()) == "PARSE_ERROR"
            with pytest.raises(ConnectionError):
                await flood(peer, b"x" * 1_000)
            await connection.wait_closed()

    async def test_a_side_that_hears_the_end_and_does_nothing_is_cut_off(self):
        async with served(bounds(acknowledgement_ms=50)) as (connection, _, peer):
            await peer.send(b"bad")
            assert len(await peer.rest()) == 1
            async with asyncio.timeout(IN_TIME_S):
                await connection.wait_closed()

    async def test_what_came_before_the_bad_frame_is_still_answered(self):
        async with served() as (_, handler, peer):
            await peer.send(call(1, "wait"), call(2), b"bad")
            frames = await peer.frames(2)
            handler.may_end.set()
            frames += await peer.rest()

            assert sorted(str(frame["id"]) for frame in frames) == ["1", "2", "None"]

    async def test_a_frame_left_unfinished_at_the_end_is_told(self):
        async with served() as (_, _, peer):
            await peer.send_bytes(b'{"jsonrpc":"2.0"')
            peer.writer.write_eof()

            assert [code(frame) for frame in await peer.rest()] == ["PARSE_ERROR"]

    async def test_our_own_requests_are_settled_at_once(self):
        async with served() as (connection, _, peer):
            asked = asyncio.create_task(connection.request("m", {}, timeout_ms=60_000))
            await peer.frame()
            await peer.send(b"bad")

            with pytest.raises(DeliveryUnknown):
                async with asyncio.timeout(IN_TIME_S):
                    await asked


class TestTheEnd:
    @pytest.mark.requirement("A-frames-08")
    async def test_a_disconnect_settles_every_request_at_once(self):
        async with served() as (connection, _, peer):
            asked = [asyncio.create_task(connection.request("m", {}, timeout_ms=60_000)) for _ in range(32)]
            await peer.frames(32)
            peer.writer.close()
            async with asyncio.timeout(IN_TIME_S):
                ended = await asyncio.gather(*asked, return_exceptions=True)

            assert {type(error) for error in ended} == {DeliveryUnknown}
            with pytest.raises(DeliveryUnknown):
                await connection.request("m", {})
            with pytest.raises(DeliveryUnknown):
                await connection.notify("m", {})
            await connection.wait_closed()
            assert connection.closed

    async def test_a_reset_is_a_disconnect(self):
        async with served() as (connection, _, peer):
            asked = asyncio.create_task(connection.request("m", {}, timeout_ms=60_000))
            # Closing with the request unread makes the kernel report a reset instead of an end.
            peer.writer.transport.pause_reading()
            peer.writer.transport.abort()
            with pytest.raises(DeliveryUnknown):
                async with asyncio.timeout(IN_TIME_S):
                    await asked
            await connection.wait_closed()

    async def test_a_frame_left_unfinished_when_somebody_is_shut_out_is_told_and_ends_it_in_order(self):
        async with served() as (connection, _, peer):
            await until_inside_a_frame(peer)
            connection.shut_out()

            assert [code(frame) for frame in await peer.rest()] == ["PARSE_ERROR"]
            peer.writer.write_eof()
            await connection.wait_closed()

    async def test_what_is_wrong_after_our_own_end_is_told_nobody_and_breaks_nothing(self):
        async with served() as (connection, _, peer):
            await until_inside_a_frame(peer)
            connection.finish()
            assert await peer.rest() == []
            peer.writer.write_eof()  # inside its frame, once our side is closed already

            await connection.wait_closed()
            assert connection.fault is not None

    async def test_somebody_shut_out_between_two_frames_is_told_nothing(self):
        async with served() as (connection, _, peer):
            connection.shut_out()

            assert await peer.rest() == []

    async def test_a_side_that_only_finished_sending_gets_its_answers(self):
        async with served() as (connection, handler, peer):
            await peer.send(call(1), call(2, "wait"))
            peer.writer.write_eof()
            assert (await peer.frame())["id"] == 1
            handler.may_end.set()

            assert [frame["id"] for frame in await peer.rest()] == [2]
            await connection.wait_closed()

    async def test_requests_of_a_side_that_is_gone_are_cancelled_in_the_end(self):
        async with served(bounds(acknowledgement_ms=20)) as (connection, handler, peer):
            await peer.send(call(1, "wait", n=1))
            await handler.until(lambda: handler.begun)
            peer.writer.close()
            await connection.wait_closed()

            assert handler.cancelled == [{"n": 1}]

    async def test_close_writes_what_is_queued_and_cancels_what_is_being_answered(self):
        async with served(bounds(acknowledgement_ms=60_000)) as (connection, handler, peer):
            await peer.send(call(1, "wait", n=1))
            await handler.until(lambda: handler.begun)
            asked = asyncio.create_task(connection.request("m", {}, timeout_ms=60_000))
            await asyncio.sleep(0)
            for number in range(20):
                await connection.notify("m", {"n": number})
            async with asyncio.timeout(IN_TIME_S):  # neither the request nor the other side is waited for
                await connection.close()

            assert len(await peer.rest()) == 21
            assert handler.cancelled == [{"n": 1}]
            with pytest.raises(DeliveryUnknown):
                await asked
            assert connection.closed
            await connection.close()

    async def test_close_is_bounded_though_the_other_side_does_not_read(self):
        async with served(bounds(acknowledgement_ms=50)) as (connection, _, peer):
            peer.writer.transport.pause_reading()
            for _ in range(20):
                await connection.notify("m", {"a": "x" * 60_000})
            async with asyncio.timeout(IN_TIME_S):
                await connection.close()

            assert connection._writer.is_closing()

    async def test_a_handler_may_close_its_own_connection(self):
        async with served() as (connection, _, peer):
            await peer.send(call(1, "close"))

            assert await peer.rest() == []
            await connection.wait_closed()

    async def test_a_refused_caller_hears_the_refusal_and_is_listened_to_no_more(self):
        async with served() as (connection, handler, peer):
            notice = {"jsonrpc": "2.0", "method": "notice"}
            await peer.send(call(1, "authenticate"), call(2), notice)

            assert [code(frame) for frame in await peer.rest()] == ["AUTHENTICATION_FAILED"]
            await peer.send(call(3), b"bad", notice)
            peer.writer.close()
            await connection.wait_closed()
            assert handler.begun == [("authenticate", {})]
            assert handler.notified == []

    async def test_closing_before_it_ran_closes_the_streams(self):
        ours, theirs = socket.socketpair()
        with theirs:
            connection = Connection(*await streams(ours), Answers())
            await connection.close()
            await connection.run()

            assert connection.closed
            assert theirs.recv(1) == b""

    async def test_cancelling_run_settles_and_closes_everything(self):
        ours, theirs = socket.socketpair()
        handler = Answers()
        connection = Connection(*await streams(ours), handler)
        peer = Peer(*await streams(theirs))
        running = asyncio.create_task(connection.run())
        await peer.send(call(1, "wait", n=1))
        await handler.until(lambda: handler.begun)
        asked = asyncio.create_task(connection.request("m", {}, timeout_ms=60_000))
        await peer.frame()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        with pytest.raises(DeliveryUnknown):
            await asked
        assert handler.cancelled == [{"n": 1}]
        assert await peer.rest() == []
        peer.writer.close()
        await connection.wait_closed()

    @pytest.mark.parametrize("turns", range(4))
    async def test_what_comes_while_run_is_being_cancelled_is_not_begun_and_does_no_harm(self, turns, caplog):
        ours, theirs = socket.socketpair()
        handler = Answers()
        reader, writer = await streams(ours)
        connection = Connection(reader, writer, handler)
        peer = Peer(*await streams(theirs))
        running = asyncio.create_task(connection.run())
        await peer.send(call(1, "wait", n=1))
        await handler.until(lambda: handler.begun)
        running.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        if not running.done():
            reader.feed_data(json.dumps(call(2, "echo")).encode() + b"\n")
        with pytest.raises(asyncio.CancelledError):
            await running

        assert handler.begun == [("wait", {"n": 1})]
        assert caplog.records == []
        peer.writer.close()
        await connection.wait_closed()

    async def test_requests_made_before_it_runs_are_sent_when_it_does(self):
        ours, theirs = socket.socketpair()
        connection = Connection(*await streams(ours), Answers())
        peer = Peer(*await streams(theirs))
        asked = asyncio.create_task(connection.request("m", {"a": 1}))
        await asyncio.sleep(0)
        running = asyncio.create_task(connection.run())
        request = await peer.frame()
        await peer.send({"jsonrpc": "2.0", "id": request["id"], "result": {"b": 2}})

        assert await asked == {"b": 2}
        peer.writer.close()
        await running


class Gate:
    """The accepting side of the handshake in front of a handler: what a coordinator does."""

    def __init__(self, handshake, behind):
        self.handshake = handshake
        self.behind = behind

    async def request(self, connection, method, params):
        if connection.principal is not None and not method.startswith("peer."):
            return await self.behind.request(connection, method, params)
        try:
            if method == "peer.hello":
                return self.handshake.hello(params)
            if method != "peer.authenticate":
                raise AuthenticationFailed(f"{method} came before both proofs")
            result = self.handshake.authenticate(params)
        except HerdError:
            connection.finish()
            raise
        connection.principal = self.handshake.peer_instance_id
        return result

    def notification(self, connection, method, params):
        if connection.principal is not None:
            self.behind.notification(connection, method, params)


class TestTheHandshakeOverAConnection:
    @asynccontextmanager
    async def gated(self):
        clock = FakeClock()
        client, server = Identity("client-1", KeyPair.generate()), Identity("server-1", KeyPair.generate())
        record = {"client-1": client.keys.public_key}
        accepting = ServerHandshake(server, NonceMemory(clock), record.get, ["message.receive"])
        dialling = ClientHandshake(client, "server-1", server.keys.public_key, NonceMemory(clock))
        async with served(gate=lambda handler: Gate(accepting, handler)) as sides:
            yield (dialling, *sides)

    async def test_both_proofs_open_the_way(self):
        async with self.gated() as (client, connection, _, peer):
            await peer.send(call(1, "peer.hello", **client.hello()))
            answer = await peer.frame()
            await peer.send(call(2, "peer.authenticate", **client.authenticate(answer["result"])))
            client.finish((await peer.frame())["result"])
            assert connection.principal == "client-1"
            await peer.send(call(3, a=1))
            assert (await peer.frame())["result"] == {"a": 1}

    @pytest.mark.parametrize("order", ["early", "repeated", "overlapping", "backwards"])
    async def test_steps_out_of_order_repeated_or_overlapping_end_the_connection(self, order):
        async with self.gated() as (client, connection, handler, peer):
            hello = call(1, "peer.hello", **client.hello())
            proof = call(2, "peer.authenticate", proof="x" * 88)
            notice = {"jsonrpc": "2.0", "method": "notice"}
            frames = {
                "early": [call(3), hello],
                "repeated": [hello, hello],
                "overlapping": [hello, proof, hello],
                "backwards": [proof, hello],
            }[order]
            await peer.send(notice, *frames, call(4), notice)
            answers = [frame for frame in await peer.rest() if "error" in frame]
            peer.writer.close()
            await connection.wait_closed()

            assert [code(frame) for frame in answers] == ["AUTHENTICATION_FAILED"]
            assert handler.begun == handler.notified == []
            assert connection.principal is None


class TestWhatOthersSee:
    async def test_it_is_idle_only_while_nothing_is_in_progress_either_way(self):
        async with served() as (connection, handler, peer):
            assert connection.idle
            await peer.send(call(1, "wait"))
            await handler.until(lambda: handler.begun)
            assert not connection.idle
            handler.may_end.set()
            await peer.frame()
            asked = asyncio.create_task(connection.request("m", {}))
            request = await peer.frame()
            assert not connection.idle
            await peer.send({"jsonrpc": "2.0", "id": request["id"], "result": {}})
            await asked
            assert connection.idle

    async def test_last_used_follows_messages_both_ways(self):
        loop = asyncio.get_running_loop()
        async with served() as (connection, handler, peer):
            seen = [connection.last_used]
            await connection.notify("m", {})
            seen.append(connection.last_used)
            await peer.send({"jsonrpc": "2.0", "method": "notice"})
            await handler.until(lambda: handler.notified)
            seen.append(connection.last_used)
            await peer.send(call(1, "wait"))
            await handler.until(lambda: handler.waiting)
            came = connection.last_used
            handler.may_end.set()
            await peer.frames(2)
            seen += [came, connection.last_used]

            assert seen == sorted(set(seen))
            assert seen[-1] <= loop.time()

    async def test_nobody_is_proved_until_somebody_says_so(self):
        async with served() as (connection, _, _):
            assert connection.principal is None

    async def test_what_is_said_is_not_logged(self, caplog):
        caplog.set_level(logging.DEBUG, logger="herd")
        async with pair() as (first, _, _, _):
            await first.request("echo", {"a": "hunter2"})
            with pytest.raises(ScopeDenied):
                await first.request("refuse", {"a": "hunter2"})

        assert "hunter2" not in caplog.text
