"""Handing in the bodies of one message, in pieces, before the message itself."""

import asyncio
from itertools import islice
from typing import Any, Protocol

from herd.core.errors import DeliveryUnknown, InvalidParams, InvalidRpc
from herd.core.limits import BODY_REQUESTS, BODY_TRIES, Limits
from herd.mail.body_wire import Piece, piece_bytes, read_received
from herd.mail.cutting import cut, is_inside
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
        InvalidRpc: the other side answers what cannot be.
        DeliveryUnknown: the other side goes on having something else than it was sent.
        HerdError: it refused.
    """
    for number, described in bodies.parts.numbered.items():
        data = bodies.data[number]
        if len(data) != described.size:
            raise InvalidParams(
                f"{len(data)} of {described.size} bytes of part {number} are left at its sender"
            )
        blank = Piece(message_id, to, number, described, 0, b"")
        at_once = max(min(BODY_REQUESTS, limits.pending_requests // 2), 1)
        await _handed_in(connection, blank, data, piece_bytes(limits.sent_frame_bytes), at_once)


async def _handed_in(connection: Requester, blank: Piece, data: bytes, most: int, at_once: int) -> None:
    # The first goes alone: its answer tells what is there from an attempt that was interrupted.
    _, first = next(cut(data, 0, most), (0, b""))
    received = await _sent(connection, blank._replace(data=first), data)
    for _ in range(BODY_TRIES):
        if received == len(data):
            return
        left = cut(data, received, most)
        while some := [blank._replace(offset=at, data=piece) for at, piece in islice(left, at_once)]:
            received = (await asyncio.gather(*[_sent(connection, one, data) for one in some]))[-1]
    if received != len(data):
        raise DeliveryUnknown(f"{received} of {len(data)} bytes of a body are there, whatever is sent")


async def _sent(connection: Requester, piece: Piece, whole: bytes) -> int:
    received = read_received(await connection.request("peer.body", piece.to_wire()), len(whole))
    if is_inside(whole, received):
        raise InvalidRpc("the other side says that it has a part of a character")
    return received
