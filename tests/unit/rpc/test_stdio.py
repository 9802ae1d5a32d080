import asyncio
import fcntl
import gc
import json
import os
import pty
import subprocess
import sys
import threading
import tty
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from herd.core.errors import UnsafeEndpoint
from herd.rpc.connection import Connection
from herd.rpc.stdio import stdio_streams

IN_TIME_S = 10
ROOT = Path(__file__).parents[3]

ECHO = """
import asyncio, os, subprocess, sys
from herd.rpc.connection import Connection
from herd.rpc.stdio import stdio_streams

class Echo:
    async def request(self, connection, method, params):
        print("printed")
        os.write(1, b"written\\n")
        sys.stdout.flush()
        heard = subprocess.run(["cat"], capture_output=True, timeout=10).stdout
        return {"params": params, "heard by a child": heard.decode()}
    def notification(self, connection, method, params):
        pass

async def main():
    await Connection(*await stdio_streams(), Echo()).run()

print("before", flush=False)
asyncio.run(main())
"""


@contextmanager
def pipe():
    ends = list(os.pipe())
    try:
        yield ends
    finally:
        for end in ends:
            close(end)


def close(descriptor):
    try:
        os.close(descriptor)
    except OSError:
        assert descriptor >= 0


@asynccontextmanager
async def standing_on(source, sink):
    """Streams over copies of two descriptors, so that the test keeps its own."""
    copies = os.dup(source), os.dup(sink)
    try:
        reader, writer = await stdio_streams(*copies)
    finally:
        for copy in copies:
            os.close(copy)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def bounded(waiting):
    async with asyncio.timeout(IN_TIME_S):
        return await waiting


def opened(path, flags):
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class TestReading:
    async def test_lines_come_as_they_are_written_until_the_end(self):
        with pipe() as (source, theirs), pipe() as (_, sink):
            async with standing_on(source, sink) as (reader, _):
                for line in (b"one\n", "é😀\n".encode(), b"x" * 30_000 + b"\n"):
                    os.write(theirs, line)
                    assert await bounded(reader.readline()) == line
                os.write(theirs, b"rest")
                os.close(theirs)
                assert await bounded(reader.read()) == b"rest"

    @pytest.mark.parametrize("content", [b"", b"one\ntwo\n", b"x" * 1_000_000])
    async def test_a_regular_file_is_read_to_its_end(self, tmp_path, content):
        (tmp_path / "in").write_bytes(content)
        source, sink = (
            opened(tmp_path / "in", os.O_RDONLY),
            opened(tmp_path / "out", os.O_CREAT | os.O_WRONLY),
        )
        async with standing_on(source, sink) as (reader, _):
            assert await bounded(reader.read()) == content
        os.close(source)
        os.close(sink)

    async def test_dev_null_is_at_its_end_and_takes_everything(self):
        null = opened(os.devnull, os.O_RDWR)
        async with standing_on(null, null) as (reader, writer):
            assert await bounded(reader.read()) == b""
            writer.write(b"x" * 1_000_000)
            await bounded(writer.drain())
            writer.close()
            await bounded(writer.wait_closed())
        os.close(null)

    async def test_a_terminal_will_do_and_its_hanging_up_is_the_end(self):
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        async with standing_on(theirs, theirs) as (reader, writer):
            os.write(ours, b"hello\n")
            assert await bounded(reader.readline()) == b"hello\n"
            writer.write(b"answer\n")
            await bounded(writer.drain())
            assert await asyncio.to_thread(os.read, ours, 100) == b"answer\n"
            os.close(ours)
            assert await bounded(reader.read()) == b""
        os.close(theirs)

    async def test_a_reader_that_is_slow_holds_the_other_side_up(self):
        with pipe() as (source, theirs), pipe() as (_, sink):
            os.set_blocking(theirs, False)
            async with standing_on(source, sink) as (reader, writer):
                sent = 0
                still = 0
                while still < 50:  # nothing moved for 50 rounds of both threads
                    try:
                        sent += os.write(theirs, b"x" * 65_536)
                        still = 0
                    except BlockingIOError:
                        still += 1
                        await asyncio.to_thread(int)
                assert not writer.transport.is_reading()
                assert sent < 1_000_000
                heard = 0
                while heard < sent:
                    heard += len(await bounded(reader.read(100_000)))
                assert heard == sent
                os.write(theirs, b"!")
                assert await bounded(reader.read(10)) == b"!"

    async def test_a_busy_event_loop_has_one_piece_waiting_and_not_more(self):
        with pipe() as (source, theirs), pipe() as (_, sink):
            os.set_blocking(theirs, False)
            async with standing_on(source, sink) as (reader, _):
                sent = refused = 0
                while refused < 20_000 and sent < 1_000_000:  # and the loop gets no turn meanwhile
                    try:
                        sent += os.write(theirs, b"x" * 4_096)
                        refused = 0
                    except BlockingIOError:
                        refused += 1
                        os.sched_yield()
                assert sent <= 65_536 * 3
                assert len(await bounded(reader.readexactly(sent))) == sent

    async def test_a_descriptor_that_somebody_made_non_blocking_is_waited_for(self):
        with pipe() as (source, theirs), pipe() as (ours, sink):
            os.set_blocking(source, False)
            os.set_blocking(sink, False)
            async with standing_on(source, sink) as (reader, writer):
                reading = asyncio.create_task(reader.readline())
                await asyncio.to_thread(int)
                assert not reading.done()
                os.write(theirs, b"late\n")
                assert await bounded(reading) == b"late\n"
                writer.write(b"x" * 500_000)
                assert len(await asyncio.to_thread(read_exactly, ours, 500_000)) == 500_000
                await bounded(writer.drain())


def read_exactly(descriptor, size):
    data = b""
    while len(data) < size:
        data += os.read(descriptor, size - len(data))
    return data


class TestWriting:
    async def test_closing_writes_what_waits_and_then_ends(self):
        with pipe() as (source, _), pipe() as (ours, sink):
            async with standing_on(source, sink) as (reader, writer):
                os.close(sink)
                for number in range(1_000):
                    writer.write(b"%d\n" % number)
                writer.close()
                writer.write(b"too late\n")
                await bounded(writer.wait_closed())
                assert writer.is_closing()
                expected = b"".join(b"%d\n" % number for number in range(1_000))
                assert await asyncio.to_thread(read_exactly, ours, len(expected)) == expected
                assert os.read(ours, 1) == b""
                assert await bounded(reader.read()) == b""

    async def test_a_host_that_does_not_read_holds_the_writer_up(self):
        with pipe() as (source, _), pipe() as (ours, sink):
            async with standing_on(source, sink) as (_, writer):
                writer.transport.set_write_buffer_limits(high=0)
                writer.write(b"x" * 1_000_000)
                draining = asyncio.create_task(writer.drain())
                await asyncio.to_thread(int)
                await asyncio.sleep(0)
                assert not draining.done()
                assert writer.transport.get_write_buffer_size() == 1_000_000
                await asyncio.to_thread(read_exactly, ours, 1_000_000)
                await bounded(draining)
                assert writer.transport.get_write_buffer_size() == 0

    async def test_a_host_that_is_gone_ends_both_directions(self):
        with pipe() as (source, _), pipe() as (ours, sink):
            async with standing_on(source, sink) as (reader, writer):
                os.close(ours)
                writer.write(b"hello\n")
                with pytest.raises(ConnectionError):
                    await bounded(until_refused(writer))
                with pytest.raises(BrokenPipeError):
                    await bounded(reader.read())
                with pytest.raises(BrokenPipeError):
                    await bounded(writer.wait_closed())

    async def test_aborting_waits_for_nobody(self):
        with pipe() as (source, _), pipe() as (_, sink):
            async with standing_on(source, sink) as (_, writer):
                writer.write(b"x" * 1_000_000)
                writer.transport.abort()
                await bounded(writer.wait_closed())

    async def test_nothing_that_is_shared_becomes_non_blocking(self):
        with pipe() as (source, _), pipe() as (_, sink):
            async with standing_on(source, sink):
                flags = [fcntl.fcntl(descriptor, fcntl.F_GETFL) for descriptor in (source, sink)]

        assert not any(flag & os.O_NONBLOCK for flag in flags)


async def until_refused(writer):
    while True:
        writer.write(b"hello\n")
        await writer.drain()
        await asyncio.sleep(0)


class TestTakingOver:
    async def test_the_descriptors_are_pointed_elsewhere(self):
        with pipe() as (source, theirs), pipe() as (_, sink):
            _, writer = await stdio_streams(source, sink)
            assert os.read(source, 1) == b""
            assert (os.fstat(sink).st_dev, os.fstat(sink).st_ino) == (os.fstat(2).st_dev, os.fstat(2).st_ino)
            writer.close()
            await bounded(writer.wait_closed())
            os.close(theirs)

    @pytest.mark.parametrize("closed", [0, 1])
    async def test_a_closed_descriptor_is_refused_and_leaves_nothing_open(self, closed):
        with pipe() as ends:
            unused = os.dup(0)
            os.close(unused)
            before = sorted(os.listdir("/proc/self/fd"))
            given = [ends[0], ends[1]]
            given[closed] = unused + 50
            with pytest.raises(UnsafeEndpoint, match="standard"):
                await stdio_streams(*given)

            assert sorted(os.listdir("/proc/self/fd")) == before

    def test_a_loop_that_closed_first_is_no_fault_of_the_threads(self):
        with pipe() as (source, theirs), pipe() as (_, sink):

            async def leave():
                return await stdio_streams(os.dup(source), os.dup(sink))

            reader, writer = asyncio.run(leave())
            threads = [each for each in threading.enumerate() if each.name.startswith("herd-stdio-")]
            os.write(theirs, b"nobody listens\n")
            os.close(theirs)
            writer.transport._to_write.put(None)
            writer.transport._closing = True
            writer.transport._may_read.set()
            for thread in threads:
                thread.join(IN_TIME_S)
            del reader, writer
            gc.collect()


class TestAProcessOfItsOwn:
    def run(self, data, **environment):
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment}
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", ECHO],
            input=data,
            env=environment,
            capture_output=True,
            check=True,
            timeout=30,
        )

    @pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1", "C.UTF-8"])
    def test_no_print_reaches_the_wire_no_child_hears_it_and_no_locale_matters(self, locale):
        request = {"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"text": "é😀"}}
        line = json.dumps(request, ensure_ascii=False).encode() + b"\n"

        ended = self.run(line, LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

        [answer] = ended.stdout.splitlines()
        assert "é😀".encode() in answer
        assert json.loads(answer)["result"] == {"params": {"text": "é😀"}, "heard by a child": ""}
        assert {b"before", b"printed", b"written"} <= set(ended.stderr.splitlines())

    def test_a_request_with_nothing_behind_it_is_answered_before_the_end(self):
        ended = self.run(b"not json")

        assert json.loads(ended.stdout)["error"]["data"]["code"] == "PARSE_ERROR"

    def test_it_ends_with_its_input(self):
        assert self.run(b"").stdout == b""


async def test_a_connection_runs_over_it():
    class Nobody:
        async def request(self, connection, method, params):
            return {"method": method}

        def notification(self, connection, method, params):
            raise AssertionError(method)

    with pipe() as (source, theirs), pipe() as (ours, sink):
        async with standing_on(source, sink) as streams:
            os.close(sink)
            connection = Connection(*streams, Nobody())
            running = asyncio.create_task(connection.run())
            os.write(theirs, b'{"jsonrpc":"2.0","id":1,"method":"m"}\n')
            answer = await asyncio.to_thread(os.read, ours, 1_000)
            assert json.loads(answer)["result"] == {"method": "m"}
            asked = asyncio.create_task(connection.request("ask", {}))
            question = json.loads(await asyncio.to_thread(os.read, ours, 1_000))
            os.write(theirs, b'{"jsonrpc":"2.0","id":%d,"result":{"a":1}}\n' % question["id"])
            assert await bounded(asked) == {"a": 1}
            await bounded(connection.close())
            await bounded(running)
            assert os.read(ours, 1) == b""
