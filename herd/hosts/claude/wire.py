"""The server's side of one exchange with a hook; `herd.hosts.claude.hook` says what goes over the wire.

A hook is a program of this user's with the token; still nothing it claims is believed longer than a length.
"""

import asyncio
import hmac
from typing import NamedTuple

from herd.core.limits import HOOK_INPUT_BYTES

_MAGIC = b"HERD1"
_NAME_BYTES = 64
_TOKEN_BYTES = 256
_PRINTED = b"!"


class Malformed(Exception):
    """What came is no exchange, or not with this server."""


class Told(NamedTuple):
    """What a hook was started for."""

    event: str
    """The name of the event, from its command line."""
    data: bytes
    """Its input."""
    whole: bool
    """Whether that is all of it."""


async def read_told(reader: asyncio.StreamReader, token: str) -> Told:
    """Read what a hook tells; nothing behind a wrong token is read.

    Raises:
        Malformed: it is no exchange with this server, or ended too early.
    """
    try:
        if await reader.readexactly(len(_MAGIC)) != _MAGIC:
            raise Malformed("another protocol")
        if not hmac.compare_digest(await _sized(reader, 2, _TOKEN_BYTES), token.encode()):
            raise Malformed("another token")
        event = (await _sized(reader, 2, _NAME_BYTES)).decode("ascii", "replace")
        whole = await reader.readexactly(1) == b"\0"
        return Told(event, await _sized(reader, 4, HOOK_INPUT_BYTES), whole)
    except asyncio.IncompleteReadError:
        raise Malformed("the end came too early") from None


def answer(text: bytes) -> bytes:
    """Give the bytes that have a hook print a text."""
    return len(text).to_bytes(4, "big") + text


async def read_printed(reader: asyncio.StreamReader) -> bool:
    """Wait for the hook's word that it has printed everything, or its end."""
    return await reader.read(1) == _PRINTED


async def _sized(reader: asyncio.StreamReader, width: int, most: int) -> bytes:
    size = int.from_bytes(await reader.readexactly(width), "big")
    if size > most:
        raise Malformed(f"{size} bytes where {most} are the most")
    return await reader.readexactly(size)
