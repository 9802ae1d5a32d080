"""The streams of a connected socket, with a reader that can hand on what comes in the turn in which it comes.

asyncio's own reader wakes the task that waits for it in the next turn of the event loop. Between two sessions
that answer each other, those turns are a tenth of a message's way.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TypeAlias

Taker: TypeAlias = Callable[[bytes], bool]
"""Takes bytes that have just come, all of them, or gives False and has taken none."""


class PromptReader(asyncio.StreamReader):
    """A stream reader that offers what comes to a taker, and keeps for `read` what that does not take.

    Attributes:
        taker: Asked first, where it is not None. It must not take what comes behind bytes that wait here.
    """

    taker: Taker | None = None

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # a transport gives bytes
        """See `asyncio.StreamReader`; the transport calls it."""
        if self.taker is None or not self.taker(data):
            super().feed_data(data)


async def streams_of(sock: socket.socket) -> tuple[PromptReader, asyncio.StreamWriter]:
    """Give the streams of a connected Unix socket, which they close.

    Raises:
        OSError: the socket is no connected one.
    """
    loop = asyncio.get_running_loop()
    reader = PromptReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_unix_connection(lambda: protocol, sock=sock)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
