import asyncio
import errno
import fcntl
import os
import resource
import shutil
import socket
import stat
import tempfile
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from herd.core.errors import AuthenticationFailed, InvalidParams, PeerOffline, UnsafeEndpoint
from herd.core.limits import SOCKET_PATH_BYTES
from herd.rpc import unix
from herd.rpc.unix import bind, bound, checked_endpoint, dial, peer_credentials

IN_TIME_S = 10
NAME = "0f3c-instance"
NOBODY = 65_534


@pytest.fixture
def run():
    """A private folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="run-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def shared():
    """A folder that everybody may write to, as /tmp is."""
    folder = Path(tempfile.mkdtemp(prefix="shared-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


class Calls:
    """Serves connections: echoes one line each, and stays until it is let go."""

    def __init__(self):
        self.open = 0
        self.seen = []
        self.changed = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def accepted(self, reader, writer):
        self.open += 1
        self.changed.set()
        try:
            line = await reader.readline()
            self.seen.append(line)
            writer.write(line)
            await writer.drain()
            await self.may_end.wait()
        finally:
            self.open -= 1
            self.changed.set()

    async def until_open(self, count):
        async with asyncio.timeout(IN_TIME_S):
            while self.open != count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def listening(folder, *, limit=32, **seams):
    listener = await asyncio.to_thread(bind, str(folder), NAME, **seams)
    calls = Calls()
    try:
        await listener.start(calls.accepted, limit_connections=limit)
        yield listener, calls
    finally:
        await listener.close()


async def dialled(path, name=NAME, timeout_ms=2_000, **seams):
    return await dial(str(path), name, timeout_ms=timeout_ms, **seams)


async def echo(reader, writer, text=b"hello\n"):
    writer.write(text)
    async with asyncio.timeout(IN_TIME_S):
        return await reader.readline()


async def ended(reader):
    async with asyncio.timeout(IN_TIME_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def answers(path):
    """Whether a call made now is served."""
    reader, writer = await dialled(path)
    heard = b""
    with suppress(ConnectionError):
        heard = await echo(reader, writer)
    writer.close()
    return heard != b""


def bound_socket(path, kind=socket.SOCK_STREAM, mode=0o600):
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    path.chmod(mode)
    return sock


def long_folder(parent):
    folder = parent / ("x" * 90)
    folder.mkdir(mode=0o700)
    return folder


def forked(work, *args):
    """Do some work in a child of this process, which ends with what it gives."""
    child = os.fork()
    if child:
        return child
    status = 9
    try:
        status = work(*args) or 0
    finally:
        os._exit(status)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


class TestBinding:
    @pytest.mark.requirement("A-endpoint-04")
    async def test_the_socket_is_named_after_its_instance_in_the_run_folder(self, run):
        async with listening(run) as (listener, _):
            assert listener.path == f"{run}/{NAME}.sock"
            assert stat.S_ISSOCK(os.lstat(listener.path).st_mode)
        exactly = run / ("d" * (SOCKET_PATH_BYTES - len(f"{run}//{NAME}.sock")))
        exactly.mkdir(mode=0o700)
        async with listening(exactly) as (listener, _):
            assert len(listener.path) == 103
            assert os.path.dirname(listener.path) == str(exactly)

    @pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
    def test_it_is_private_before_it_can_be_heard_whatever_the_umask(self, run, umask):
        before = os.umask(umask)
        try:
            listener = bind(str(run), NAME)
        finally:
            os.umask(before)

        assert mode_of(listener.path) == 0o600
        assert os.lstat(listener.path).st_uid == os.geteuid()
        asyncio.run(listener.close())

    async def test_a_path_too_long_gives_a_private_locked_folder_in_the_shared_one(self, run, shared):
        folder = long_folder(run)
        async with listening(folder, fallback_parent=str(shared)) as (listener, _):
            [made] = shared.iterdir()
            assert listener.path == f"{made}/{NAME}.sock"
            assert made.name.startswith("herd-")
            assert mode_of(made) == 0o700
            assert mode_of(listener.path) == 0o600
            assert list(folder.iterdir()) == []
            descriptor = os.open(made, os.O_RDONLY)
            try:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            finally:
                os.close(descriptor)
            listener.self_check()
            reader, writer = await dialled(listener.path)
            assert await echo(reader, writer) == b"hello\n"
            writer.close()

        assert list(shared.iterdir()) == []

    @pytest.mark.parametrize("umask", [0o077, 0o777])
    def test_the_folder_in_the_shared_one_is_0700_whatever_the_umask(self, run, shared, umask):
        before = os.umask(0)
        folder = long_folder(run)
        os.umask(umask)
        try:
            listener = bind(str(folder), NAME, fallback_parent=str(shared))
        finally:
            os.umask(before)

        assert mode_of(os.path.dirname(listener.path)) == 0o700
        asyncio.run(listener.close())

    def test_a_setgid_shared_folder_changes_nothing(self, run, shared):
        shared.chmod(0o3777)
        listener = bind(str(long_folder(run)), NAME, fallback_parent=str(shared))

        assert mode_of(os.path.dirname(listener.path)) == 0o700
        asyncio.run(listener.close())

    def test_where_no_path_fits_nothing_is_left_behind(self, run, shared):
        parent = long_folder(shared)
        with pytest.raises(UnsafeEndpoint, match="103 bytes"):
            bind(str(long_folder(run)), NAME, fallback_parent=str(parent))

        assert list(parent.iterdir()) == []

    def test_where_no_folder_can_be_made_it_is_named(self, run):
        with pytest.raises(UnsafeEndpoint, match="/dev/null"):
            bind(str(long_folder(run)), NAME, fallback_parent="/dev/null")

    @pytest.mark.parametrize("kind", ["file", "socket", "folder", "link", "dangling link"])
    def test_it_never_binds_over_what_is_there(self, run, kind):
        path = run / f"{NAME}.sock"
        match kind:
            case "file":
                path.write_text("mine", encoding="utf-8")
            case "socket":
                bound_socket(path).close()
            case "folder":
                path.mkdir()
            case "link":
                (run / "target").touch()
                path.symlink_to(run / "target")
            case "dangling link":
                path.symlink_to(run / "target")
        before = os.lstat(path)
        with pytest.raises(UnsafeEndpoint, match=NAME):
            bind(str(run), NAME)

        assert os.lstat(path) == before
        assert (run / "target").exists() is (kind == "link")

    @pytest.mark.parametrize("mode", [0o755, 0o701, 0o1700, 0o500])
    def test_a_folder_of_another_mode_is_refused_and_left(self, run, mode):
        run.chmod(mode)
        with pytest.raises(UnsafeEndpoint, match="mode"):
            bind(str(run), NAME)

        assert mode_of(run) == mode
        run.chmod(0o700)
        assert list(run.iterdir()) == []

    def test_a_link_to_a_folder_is_refused_and_its_destination_left(self, run):
        (run / "real").mkdir(mode=0o700)
        (run / "link").symlink_to(run / "real")
        with pytest.raises(UnsafeEndpoint):
            bind(str(run / "link"), NAME)

        assert list((run / "real").iterdir()) == []

    @pytest.mark.parametrize("folder", ["relative", "", ".", "absent", "file"])
    def test_a_folder_that_is_none_is_refused(self, run, folder):
        (run / "file").touch()
        with pytest.raises(UnsafeEndpoint):
            bind(folder if folder in {"relative", "", "."} else str(run / folder), NAME)

    @pytest.mark.parametrize("name", ["", "../up", "a/b", "a.b", "x" * 129, "a\0b", "é"])
    def test_an_instance_id_of_another_form_names_no_socket(self, run, name):
        with pytest.raises(InvalidParams):
            bind(str(run), name)

        assert list(run.iterdir()) == []

    def test_its_descriptors_reach_no_child(self, run, shared):
        listener = bind(str(long_folder(run)), NAME, fallback_parent=str(shared))
        descriptors = [listener._sock.fileno(), listener._folder.descriptor]

        assert [os.get_inheritable(descriptor) for descriptor in descriptors] == [False, False]
        asyncio.run(listener.close())


class TestSelfCheck:
    async def test_it_passes_before_and_after_the_start(self, run):
        listener = await asyncio.to_thread(bind, str(run), NAME)
        listener.self_check()
        calls = Calls()
        await listener.start(calls.accepted, limit_connections=2)
        for _ in range(3):
            listener.self_check()
            await asyncio.sleep(0)
        await listener.close()

        assert set(calls.seen) <= {b""}

    def test_a_socket_file_that_is_gone_or_replaced_fails_it(self, run):
        listener = bind(str(run), NAME)
        path = Path(listener.path)
        path.rename(run / "moved")
        with pytest.raises(UnsafeEndpoint):
            listener.self_check()
        with bound_socket(path) as other:
            other.listen()
            with pytest.raises(UnsafeEndpoint):
                listener.self_check()
        asyncio.run(listener.close())

        assert path.exists()

    def test_a_socket_on_which_nobody_listens_fails_it(self, run):
        listener = bind(str(run), NAME)
        listener._sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(UnsafeEndpoint, match="does not answer"):
            listener.self_check()
        asyncio.run(listener.close())

    def test_another_process_listening_fails_it(self, run):
        listener = bind(str(run), NAME)
        child = forked(listener._sock.listen)  # who called it last is whom the kernel names, alive or not
        os.waitpid(child, 0)
        with pytest.raises(UnsafeEndpoint, match=str(child)):
            listener.self_check()
        asyncio.run(listener.close())


class TestClosing:
    async def test_it_unlinks_its_own_socket_and_refuses_callers(self, run):
        async with listening(run) as (listener, _):
            pass

        assert list(run.iterdir()) == []
        with pytest.raises(PeerOffline):
            await dialled(listener.path)
        await listener.close()

    @pytest.mark.requirement("A-endpoint-09")
    @pytest.mark.parametrize("replaced", ["socket", "owner", "folder"])
    async def test_it_leaves_what_was_put_in_its_place(self, run, replaced):
        folder = run / "run"
        folder.mkdir(mode=0o700)
        async with listening(folder) as (listener, _):
            path = Path(listener.path)
            match replaced:
                case "socket":
                    os.rename(path, run / "moved")
                    bound_socket(path).close()
                case "owner":
                    # Another owner needs root; remembering another one is the same comparison.
                    listener._bound = listener._bound._replace(owner=listener._bound.owner + 1)
                case "folder":
                    os.rename(folder, run / "moved")
                    os.mkdir(folder, mode=0o700)
                    os.link(run / "moved" / path.name, path)  # the same socket, in another folder
            found = os.lstat(path)

        left = os.lstat(path)
        assert (left.st_ino, left.st_uid, left.st_mode) == (found.st_ino, found.st_uid, found.st_mode)
        async with listening(run) as (listener, _):
            pass
        with pytest.raises(FileNotFoundError):
            os.lstat(listener.path)

    async def test_a_socket_file_that_is_gone_is_no_fault(self, run):
        async with listening(run) as (listener, _):
            os.unlink(listener.path)

        assert list(run.iterdir()) == []

    async def test_the_same_path_can_be_bound_again(self, run):
        for _ in range(3):
            async with listening(run) as (listener, _):
                reader, writer = await dialled(listener.path)
                assert await echo(reader, writer) == b"hello\n"
                writer.close()

    async def test_a_folder_of_ours_with_something_in_it_is_left(self, run, shared, caplog):
        async with listening(long_folder(run), fallback_parent=str(shared)):
            [made] = shared.iterdir()
            (made / "file").touch()

        assert [path.name for path in made.iterdir()] == ["file"]
        assert "rpc.folder.left" in caplog.text

    async def test_connections_that_are_open_are_ended(self, run):
        async with listening(run) as (listener, calls):
            calls.may_end.clear()
            reader, writer = await dialled(listener.path)
            assert await echo(reader, writer) == b"hello\n"
            await listener.close()

            assert await ended(reader) == b""
            assert calls.open == 0
            writer.close()

    async def test_a_caller_that_does_not_read_keeps_nothing_open(self, run):
        listener = await asyncio.to_thread(bind, str(run), NAME)
        writing = asyncio.Event()

        async def talkative(_, writer):
            writer.write(b"x" * 10_000_000)
            writing.set()
            await writer.drain()

        await listener.start(talkative, limit_connections=1)
        reader, writer = await dialled(listener.path)
        writer.transport.pause_reading()
        async with asyncio.timeout(IN_TIME_S):
            await writing.wait()
            await listener.close()
        writer.transport.resume_reading()

        assert len(await ended(reader)) < 10_000_000
        writer.close()

    async def test_callers_that_were_only_just_accepted_are_closed(self, run):
        async with listening(run) as (listener, calls):
            sockets = [socket.socket(socket.AF_UNIX) for _ in range(5)]
            for sock in sockets:
                sock.connect(listener.path)
            listener._accepting._take_callers()  # accepted, and no task of theirs has begun
        for sock in sockets:
            with sock:
                assert sock.recv(1) == b""
        assert calls.open == 0

    async def test_a_listener_that_never_started_closes(self, run):
        listener = await asyncio.to_thread(bind, str(run), NAME)
        await listener.close()

        assert list(run.iterdir()) == []

    async def test_whoever_is_cancelled_while_a_thread_binds_leaves_no_socket(self, run, monkeypatch):
        going, go_on = threading.Event(), threading.Event()

        def slow(*arguments):
            going.set()
            assert go_on.wait(10)
            return bind(*arguments)

        monkeypatch.setattr(unix, "bind", slow)
        binding = asyncio.ensure_future(bound(str(run), NAME))
        assert await asyncio.to_thread(going.wait, 10)
        binding.cancel()
        go_on.set()

        with pytest.raises(asyncio.CancelledError):
            await binding
        assert list(run.iterdir()) == []


class TestAccepting:
    async def test_callers_between_bind_and_start_are_served(self, run):
        listener = await asyncio.to_thread(bind, str(run), NAME)
        calls = Calls()
        reader, writer = await dialled(listener.path)
        await listener.start(calls.accepted, limit_connections=32)

        assert await echo(reader, writer) == b"hello\n"
        writer.close()
        await listener.close()

    @pytest.mark.requirement("A-endpoint-12")
    @pytest.mark.parametrize("connections", [1, 8, 16])
    async def test_connections_above_the_bound_are_closed_unread(self, run, connections):
        limit = max(32, 4 * connections)
        async with listening(run, limit=limit) as (listener, calls):
            calls.may_end.clear()
            streams = [await dialled(listener.path) for _ in range(limit)]
            for reader, writer in streams:
                assert await echo(reader, writer) == b"hello\n"
            assert calls.open == limit
            for _ in range(3):
                reader, writer = await dialled(listener.path)
                with suppress(ConnectionError):
                    writer.write(b"unread\n")
                assert await ended(reader) == b""
                writer.close()
            calls.may_end.set()
            await calls.until_open(0)
            reader, writer = await dialled(listener.path)
            assert await echo(reader, writer, b"again\n") == b"again\n"
            for _, each in [*streams, (reader, writer)]:
                each.close()

        assert b"unread\n" not in calls.seen
        assert len(calls.seen) == limit + 1

    @pytest.mark.requirement("A-auth-14")
    async def test_another_user_s_process_is_closed_before_a_byte_is_read(self, run, caplog):
        asked = []

        def another_user(sock):
            asked.append(sock.recv(1_000, socket.MSG_PEEK | socket.MSG_DONTWAIT))
            return 4_711, os.geteuid() + 1, 0

        async with listening(run, credentials=another_user) as (listener, calls):
            with socket.socket(socket.AF_UNIX) as caller:
                caller.connect(listener.path)
                caller.sendall(b'{"jsonrpc":"2.0"}\n')
                reader, writer = await asyncio.open_unix_connection(sock=caller)
                assert await ended(reader) == b""
                writer.close()

        assert asked == [b'{"jsonrpc":"2.0"}\n']
        assert calls.seen == []
        assert "uid=" in caplog.text

    async def test_a_caller_whose_process_cannot_be_told_is_closed(self, run):
        def nobody_knows(sock):
            raise OSError(errno.ENOTCONN, "gone")

        async with listening(run, credentials=nobody_knows) as (listener, calls):
            reader, writer = await dialled(listener.path)
            assert await ended(reader) == b""
            writer.close()

        assert calls.seen == []

    async def test_the_kernel_says_whose_process_is_at_either_end(self, run):
        seen = []

        def noted(sock):
            seen.append(peer_credentials(sock))
            return seen[-1]

        async with listening(run, credentials=noted) as (listener, _):
            _, writer = await dialled(listener.path, credentials=noted)
            writer.close()

        assert seen == [(os.getpid(), os.geteuid(), os.getegid())] * 2

    async def test_one_connection_that_fails_ends_no_other(self, run, caplog):
        listener = await asyncio.to_thread(bind, str(run), NAME)

        async def failing(reader, writer):
            line = await reader.readline()
            if line == b"fail\n":
                raise RuntimeError("no")
            writer.write(line)
            await writer.drain()

        await listener.start(failing, limit_connections=32)
        reader, writer = await dialled(listener.path)
        writer.write(b"fail\n")
        assert await ended(reader) == b""
        writer.close()
        reader, writer = await dialled(listener.path)
        assert await echo(reader, writer) == b"hello\n"
        writer.close()
        await listener.close()

        assert "rpc.connection.failed" in caplog.text

    async def test_callers_that_leave_at_once_cost_no_place(self, run):
        async with listening(run, limit=2) as (listener, _):
            for _ in range(50):
                _, writer = await dialled(listener.path)
                writer.transport.abort()
                await asyncio.sleep(0)
            async with asyncio.timeout(IN_TIME_S):
                while not await answers(listener.path):
                    pass

    async def test_a_process_out_of_descriptors_goes_on_when_it_has_some_again(self, run, caplog):
        failed = asyncio.Event()
        async with listening(run) as (listener, _):
            listener._accepting._resume = lambda resume=listener._accepting._resume: (failed.set(), resume())
            with socket.socket(socket.AF_UNIX) as caller:
                soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                lowest = os.dup(0)
                os.close(lowest)
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
                try:
                    caller.connect(listener.path)
                    async with asyncio.timeout(IN_TIME_S):
                        await failed.wait()
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                reader, writer = await asyncio.open_unix_connection(sock=caller)
                assert await echo(reader, writer) == b"hello\n"
                writer.close()

        assert caplog.text.count("rpc.accept.failed") < 50


class TestDialling:
    async def test_a_socket_that_is_absent_is_offline(self, run):
        for path in (run / f"{NAME}.sock", run / "gone" / f"{NAME}.sock"):
            with pytest.raises(PeerOffline):
                await dialled(path)

    @pytest.mark.requirement("A-endpoint-10")
    async def test_a_socket_that_refuses_hangs_or_is_absent_is_offline_and_left_as_it_is(self, run):
        path = run / f"{NAME}.sock"
        with pytest.raises(PeerOffline):
            await dialled(path)
        bound_socket(path).close()
        before = os.lstat(path)
        with pytest.raises(PeerOffline):
            await dialled(path)
        assert os.lstat(path) == before
        path.unlink()
        with bound_socket(path) as full, socket.socket(socket.AF_UNIX) as waiting:
            full.listen(0)
            waiting.connect(str(path))
            before = os.lstat(path)
            async with asyncio.timeout(IN_TIME_S):
                with pytest.raises(PeerOffline, match="100 ms"):
                    await dialled(path, timeout_ms=100)
            assert os.lstat(path) == before

    async def test_a_socket_whose_queue_is_full_is_reached_once_there_is_room(self, run):
        path = run / f"{NAME}.sock"
        with bound_socket(path) as full, socket.socket(socket.AF_UNIX) as waiting:
            full.listen(0)
            waiting.connect(str(path))
            dialling = asyncio.create_task(dialled(path, timeout_ms=10_000))
            await asyncio.sleep(0)
            first, _ = full.accept()
            _, writer = await dialling
            second, _ = full.accept()
            for each in (first, second, writer):
                each.close()

    async def test_a_cancelled_call_leaves_no_socket_open(self, run):
        path = run / f"{NAME}.sock"
        with bound_socket(path) as full, socket.socket(socket.AF_UNIX) as waiting:
            full.listen(0)
            waiting.connect(str(path))
            dialling = asyncio.create_task(dialled(path, timeout_ms=10_000))
            await asyncio.sleep(0)
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling

    async def test_a_hundred_callers_at_once_all_get_through(self, run):
        async with listening(run, limit=200) as (listener, _):
            streams = await asyncio.gather(*[dialled(listener.path) for _ in range(150)])
            answers = await asyncio.gather(*[echo(*each, b"%d\n" % n) for n, each in enumerate(streams)])
            for _, writer in streams:
                writer.close()

            assert answers == [b"%d\n" % n for n in range(150)]

    async def test_a_process_of_another_user_at_the_socket_is_unsafe(self, run):
        async with listening(run) as (listener, _):
            with pytest.raises(UnsafeEndpoint, match="user"):
                await dialled(listener.path, credentials=lambda _: (4_711, os.geteuid() + 1, 0))

    async def test_a_datagram_socket_is_unsafe(self, run):
        with bound_socket(run / f"{NAME}.sock", socket.SOCK_DGRAM), pytest.raises(UnsafeEndpoint):
            await dialled(run / f"{NAME}.sock")


class TestTheCheckBeforeDialling:
    @pytest.mark.requirement("A-endpoint-11")
    @pytest.mark.parametrize(
        ("break_it", "expected"),
        [
            (lambda run, path: path.rename(run / "other.sock"), AuthenticationFailed),
            (lambda run, path: run.chmod(0o750), UnsafeEndpoint),
            (lambda run, path: run.chmod(0o1700), UnsafeEndpoint),
            (lambda run, path: (run.rename(f"{run}-m"), run.symlink_to(f"{run}-m")), UnsafeEndpoint),
            (lambda run, path: path.chmod(0o660), UnsafeEndpoint),
            (lambda run, path: path.chmod(0o601), UnsafeEndpoint),
            (lambda run, path: (path.unlink(), path.touch(mode=0o600)), UnsafeEndpoint),
            (lambda run, path: (path.unlink(), path.mkdir(mode=0o700)), UnsafeEndpoint),
            (lambda run, path: (path.rename(run / "m"), path.symlink_to(run / "m")), UnsafeEndpoint),
            (lambda run, path: path.unlink(), PeerOffline),
        ],
        ids=["name", "group", "sticky", "linked folder", "660", "601", "file", "folder", "link", "absent"],
    )
    async def test_name_folder_and_socket_are_what_they_must_be(self, run, break_it, expected):
        folder = run / "run"
        folder.mkdir(mode=0o700)
        path = folder / f"{NAME}.sock"
        with bound_socket(path) as sock:
            sock.listen()
            checked_endpoint(str(path), NAME)
            break_it(folder, path)
            dialled_path = folder / "other.sock" if expected is AuthenticationFailed else path
            with pytest.raises(expected):
                await dialled(dialled_path)

            sock.setblocking(False)
            with pytest.raises(BlockingIOError):  # nobody was dialled
                sock.accept()

    def test_a_socket_narrower_than_0600_will_do(self, run):
        path = run / f"{NAME}.sock"
        with bound_socket(path, mode=0o400):
            checked_endpoint(str(path), NAME)

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            (f"run/{NAME}.sock", UnsafeEndpoint),
            (f"{NAME}.sock", UnsafeEndpoint),
            ("", AuthenticationFailed),
            (f"/tmp/{NAME}", AuthenticationFailed),
            (f"/tmp/{NAME}.sock/", AuthenticationFailed),
            (f"/tmp/{NAME}.sock\n", AuthenticationFailed),
            (f"/tmp/a\0b/{NAME}.sock", UnsafeEndpoint),
            (f"/tmp/\ud800/{NAME}.sock", UnsafeEndpoint),
            (f"/tmp/{'x' * 200}/{NAME}.sock", UnsafeEndpoint),
            (f"/dev/null/{NAME}.sock", UnsafeEndpoint),
            (f"/dev/null/x/{NAME}.sock", PeerOffline),
            (f"/tmp/herd-nothing-here/{NAME}.sock", PeerOffline),
        ],
    )
    def test_a_path_that_is_none_of_ours_is_refused(self, path, expected):
        with pytest.raises(expected) as refused:
            checked_endpoint(path, NAME)

        assert refused.value.message.isprintable()


@pytest.mark.machine
class TestAsRoot:
    """What only shows with two real users."""

    @pytest.mark.requirement("A-auth-14")
    def test_another_user_s_process_is_closed_on_what_the_kernel_says(self, run):
        async def serve():
            async with listening(run) as (listener, calls):
                os.chmod(listener.path, 0o666)
                run.chmod(0o711)
                child = forked(as_nobody, listener.path)
                _, status = await asyncio.to_thread(os.waitpid, child, 0)
                run.chmod(0o700)
                return os.waitstatus_to_exitcode(status), calls.seen

        assert asyncio.run(serve()) == (0, [])

    def test_sockets_and_folders_of_another_user_are_unsafe(self, run):
        path = run / f"{NAME}.sock"
        with bound_socket(path):
            os.chown(path, NOBODY, NOBODY)
            with pytest.raises(UnsafeEndpoint, match=str(NOBODY)):
                checked_endpoint(str(path), NAME)
            os.chown(path, os.geteuid(), -1)
            os.chown(run, NOBODY, NOBODY)
            with pytest.raises(UnsafeEndpoint, match=str(NOBODY)):
                checked_endpoint(str(path), NAME)
            with pytest.raises(UnsafeEndpoint, match=str(NOBODY)):
                bind(str(run), "other")
            os.chown(run, os.geteuid(), -1)

    def test_a_server_of_another_user_is_unsafe_on_what_the_kernel_says(self, run):
        path = run / f"{NAME}.sock"
        with bound_socket(path) as sock:
            os.waitpid(forked(listen_as_nobody, sock), 0)
            with pytest.raises(UnsafeEndpoint, match=str(NOBODY)):
                asyncio.run(dialled(path))


def listen_as_nobody(sock):
    os.setuid(NOBODY)
    sock.listen()


def as_nobody(path):
    """Call as another user: 0 if the connection is closed unanswered."""
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(IN_TIME_S)
        try:
            caller.connect(path)
        except OSError:
            return 1
        with suppress(ConnectionError):
            caller.sendall(b"hello\n")
            return len(caller.recv(100))
    return 0
