"""JSON lines on the process's own standard input and output, as asyncio streams.

It owns taking the two descriptors over, so that nothing else of this process can reach the wire. How they are
read and written is `herd.rpc.descriptors`' matter. It is ignorant of what is said.
"""

import asyncio
import os

from herd.core.errors import UnsafeEndpoint
from herd.rpc.descriptors import DescriptorTransport


async def stdio_streams(
    stdin_fd: int = 0, stdout_fd: int = 1
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Take over standard input and output.

    From then on anything printed goes to standard error, and a child or a library that reads standard input
    finds it at its end: neither can touch the wire. Pipes, sockets, files, terminals and /dev/null all do.
    Closing the writer ends both directions.

    Args:
        stdin_fd: Where frames come from.
        stdout_fd: Where frames go.

    Raises:
        UnsafeEndpoint: one of them is closed.
    """
    source, sink = _taken_over(stdin_fd, stdout_fd)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = DescriptorTransport(loop, protocol, source, sink)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def _taken_over(stdin_fd: int, stdout_fd: int) -> tuple[int, int]:
    try:
        source = os.dup(stdin_fd)
    except OSError as error:
        raise UnsafeEndpoint(f"standard input cannot be used: {error.strerror}") from None
    try:
        sink = os.dup(stdout_fd)
    except OSError as error:
        os.close(source)
        raise UnsafeEndpoint(f"standard output cannot be used: {error.strerror}") from None
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, stdin_fd)
    try:
        os.dup2(2, stdout_fd)
    except OSError:
        os.dup2(nothing, stdout_fd)  # standard error is closed
    os.close(nothing)
    return source, sink
