"""Handing in the bodies of one message, in pieces, before the message itself."""

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from herd.core.errors import DeliveryUnknown, InvalidParams
from herd.core.limits import BODY_REQUESTS, BODY_TRIES, Limits
from herd.mail.body_wire import Piece, piece_bytes, read_received
from herd.mail.parts import Bodies


class Requester(Protocol):
    """What an upload, or a reach, needs of a connection."""

    async def request(
        self, method: str, params: dict[str, Any], *, timeout_ms: int | None = None
    ) -> dict[str, Any]:
        """Ask and await the result."""
        ...


async def upload(connection: Requester, message_id: str, to: str, bodies: Bodies, limits: Limits) -> None:
    """Hand in every body of a message; one that is there already, whole or in part, is not sent again.

    Raises:
        InvalidParams: a body is damaged where it comes from.
        DeliveryUnknown: the other side goes on having something else than it was sent.
        HerdError: it refused.
    """
    for number, described in bodies.parts.numbered.items():
        data = bodies.data[number]
        if len(data) != described.size:
            raise InvalidParams(
                f"{len(data)} of {described.size} bytes of part {number} are left at its sender"
            )
        size = piece_bytes(limits.sent_frame_bytes)
        blank = Piece(message_id, to, number, described, 0, b"")
        pieces = [
            blank._replace(offset=start, data=data[start : start + size])
            for start in range(0, max(len(data), 1), size)
        ]
        at_once = max(min(BODY_REQUESTS, limits.pending_requests // 2), 1)
        await _handed_in(connection, pieces, size, at_once)


async def _handed_in(connection: Requester, pieces: Sequence[Piece], size: int, at_once: int) -> None:
    whole = pieces[0].described.size
    # The first goes alone: its answer tells what is there from an attempt that was interrupted.
    received = await _sent(connection, pieces[0], whole)
    for _ in range(BODY_TRIES):
        if received == whole:
            return
        left = _rest(pieces, received, size)
        for at in range(0, len(left), at_once):
            some = left[at : at + at_once]
            received = (await asyncio.gather(*[_sent(connection, one, whole) for one in some]))[-1]
    if received != whole:
        raise DeliveryUnknown(f"{received} of {whole} bytes of a body are there, whatever is sent")


def _rest(pieces: Sequence[Piece], received: int, size: int) -> list[Piece]:
    """Give the pieces from a byte on; the first one is cut where that byte lies inside it."""
    at, inside = divmod(received, size)
    left = list(pieces[at:])
    if left and inside:
        left[0] = left[0]._replace(offset=received, data=left[0].data[inside:])
    return left


async def _sent(connection: Requester, piece: Piece, whole: int) -> int:
    return read_received(await connection.request("peer.body", piece.to_wire()), whole)
