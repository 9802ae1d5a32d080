"""Private Unix sockets: binding one's own, accepting on it, dialling another's.

It owns the socket's file from bind to unlink, and the way to another's. Who is let in is decided in
`herd.rpc.accepting`, what a socket must look like in `herd.rpc.endpoints`. It is ignorant of what is said.
"""

import asyncio
import errno
import os
import socket
from contextlib import suppress

from herd.core.errors import PeerOffline, UnsafeEndpoint
from herd.core.limits import CONNECT_PAUSE_MS, SOCKET_PATH_BYTES
from herd.core.refusals import mending, refused
from herd.rpc.accepting import Accepted, Accepting, Credentials
from herd.rpc.endpoints import (
    PRIVATE_SOCKET,
    Bound,
    bound_at,
    check_bound,
    check_private_folder,
    checked_endpoint,
    fits_socket_path,
    is_still,
    peer_credentials,
    socket_name,
)
from herd.rpc.steps import checked_instance_id
from herd.rpc.streams import streams_of
from herd.rpc.temporary_folder import TemporaryFolder, make_temporary_folder

__all__ = ["Listener", "bind", "checked_endpoint", "dial", "peer_credentials"]

_BACKLOG = 128
"""Callers that the kernel lets wait until they are accepted."""


class Listener:
    """A bound and listening socket of ours; `bind` makes it, `close` must be called.

    Attributes:
        path: The socket's absolute path, as a record advertises it.
    """

    def __init__(
        self,
        path: str,
        sock: socket.socket,
        bound: Bound,
        folder: TemporaryFolder | None,
        credentials: Credentials,
    ) -> None:
        self.path = path
        self._sock = sock
        self._bound = bound
        self._folder = folder
        self._credentials = credentials
        self._accepting: Accepting | None = None
        self._closed = False

    def self_check(self) -> None:
        """Connect to the path and check that the socket that answers is this one.

        The connection it makes is accepted like any other, and has ended by then.

        Raises:
            UnsafeEndpoint: another file is there, or another process listens at it.
        """
        if not is_still(self.path, self._bound):
            raise UnsafeEndpoint(f"{self.path} is not the socket that was bound there")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(self.path)
                pid, uid, _ = peer_credentials(probe)
            except OSError as error:
                raise refused(f"{self.path} does not answer", error, self.path) from None
        if (pid, uid) != (os.getpid(), os.geteuid()):
            raise UnsafeEndpoint(f"process {pid} of user {uid} answers at {self.path}")

    async def start(self, accepted: Accepted, *, limit_connections: int) -> None:
        """Begin to accept; callers that came since the bind are waiting.

        Args:
            accepted: Serves one connection, in a task of its own.
            limit_connections: Connections open at once; those above it are closed unread.
        """
        assert self._accepting is None, "a listener is started once"
        self._accepting = Accepting(self._sock, accepted, self._credentials, limit_connections)
        await self._accepting.start()

    async def close(self) -> None:
        """Stop accepting, unlink the socket if it still is the one we bound, end what was accepted.

        Called before the same path is bound again: the file system may give a new file the old one's inode.
        """
        if self._closed:
            return
        self._closed = True
        if self._accepting is not None:
            self._accepting.stop()
        try:
            await asyncio.to_thread(self._unlink)
        finally:
            if self._accepting is not None:
                await self._accepting.end()
            self._sock.close()

    def _unlink(self) -> None:
        if is_still(self.path, self._bound):
            with suppress(FileNotFoundError):
                os.unlink(self.path)
        if self._folder is not None:
            self._folder.remove()


def bind(
    run_folder: str,
    instance_id: str,
    *,
    fallback_parent: str = "/tmp",  # noqa: S108 - a folder of ours inside it, made by mkdtemp and checked
    credentials: Credentials = peer_credentials,
) -> Listener:
    """Bind the socket of an instance, private before the first caller is heard; it touches the file system.

    Args:
        run_folder: Our private folder for sockets; it exists.
        instance_id: Names the socket.
        fallback_parent: Where a private folder is made when the path in `run_folder` would be too long.
        credentials: Who is at the other end of an accepted connection.

    Raises:
        UnsafeEndpoint: a folder or the socket is not private, something is there already, or no path fits.
        InvalidParams: `instance_id` has not the form of one.
    """
    name = socket_name(checked_instance_id(instance_id))
    path = os.path.join(run_folder, name)
    if fits_socket_path(path):
        return _listening(path, None, credentials)
    folder = make_temporary_folder(fallback_parent)
    try:
        return _listening(os.path.join(folder.path, name), folder, credentials)
    except BaseException:
        folder.remove()
        raise


async def bound(run_folder: str, instance_id: str) -> Listener:
    """Do as `bind` does, in a thread; whoever is cancelled meanwhile leaves no socket behind."""
    binding = asyncio.ensure_future(asyncio.to_thread(bind, run_folder, instance_id))
    try:
        return await asyncio.shield(binding)
    except asyncio.CancelledError:
        # A thread cannot be called off, and what it binds now would be nobody's.
        await (await binding).close()
        raise


async def dial(
    path: str, instance_id: str, *, timeout_ms: int, credentials: Credentials = peer_credentials
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the socket of an instance; its file is never changed, whatever happens.

    Args:
        path: As its record advertises it.
        instance_id: The instance expected there.
        timeout_ms: Milliseconds until a socket that takes no call counts as offline.
        credentials: Who is at the other end.

    Raises:
        PeerOffline: nothing is there, or it takes no call.
        AuthenticationFailed: the socket is not named after the instance.
        UnsafeEndpoint: the socket, its folder or its process is not of this user alone.
    """
    checked_endpoint(path, instance_id)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(timeout_ms / 1_000):
            await _connect(sock, path)
        _, uid, _ = credentials(sock)
        if uid != os.geteuid():
            raise UnsafeEndpoint(f"a process of user {uid} listens at {path}")
        return await streams_of(sock)
    except TimeoutError:
        sock.close()
        raise PeerOffline(f"{path} took no call within {timeout_ms} ms") from None
    except BaseException:
        sock.close()
        raise


def _listening(path: str, folder: TemporaryFolder | None, credentials: Credentials) -> Listener:
    if not os.path.isabs(path) or not fits_socket_path(path):
        raise UnsafeEndpoint(f"{path} is no absolute path of at most {SOCKET_PATH_BYTES} bytes")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound = None
    try:
        check_private_folder(os.path.dirname(path))
        sock.setblocking(False)
        sock.bind(path)  # refuses a path at which anything is
        bound = bound_at(path)
        # Until `listen` nobody can connect, so the mode that the umask gave it was never in force.
        os.chmod(path, PRIVATE_SOCKET)
        sock.listen(_BACKLOG)
        check_bound(path)
        return Listener(path, sock, bound, folder, credentials)
    except BaseException as error:
        sock.close()
        if bound is not None and is_still(path, bound):
            os.unlink(path)
        if isinstance(error, OSError):
            raise refused(f"{path} cannot be bound", error, path) from None
        raise


async def _connect(sock: socket.socket, path: str) -> None:
    # Not loop.sock_connect: a Unix socket whose queue of callers is full answers EAGAIN, which asyncio takes
    # for a connection under way and then for an established one.
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            await asyncio.sleep(CONNECT_PAUSE_MS / 1_000)
        except OSError as error:
            text = f"{path} cannot be connected"
            if error.errno in {errno.EPROTOTYPE, errno.EACCES} or mending(error):
                raise refused(text, error, path) from None
            raise PeerOffline(f"{text}: {error.strerror}") from None
        else:
            return
