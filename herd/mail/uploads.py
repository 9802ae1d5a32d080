"""Bodies that are coming in for messages that have not come yet: seen by nobody, and bounded.

They are in memory alone. A message and its bodies become rows in one transaction, and until then its sender
has them and hands them in again, from where it was interrupted or from the beginning: so what a crash leaves
of an upload is nothing, and no upload fills a disk.
"""

import hashlib
from typing import NamedTuple

from herd.core.clock import Clock
from herd.core.errors import InvalidParams, MessageTooLarge, QueueFull
from herd.core.limits import RETRY_WHEN_FULL_MS, UPLOAD_IDLE_S, UPLOADS, UPLOADS_OF_ONE, Limits
from herd.mail.body_wire import Piece
from herd.mail.parts import TEXT, Bodies, Part, Parts, require_payload


class _Coming(NamedTuple):
    sender_key: str
    message_id: str
    to: str


class _Body:
    """One part, as far as it has come. Its digest grows with it, so that its last piece costs no more."""

    def __init__(self, described: Part) -> None:
        self.described = described
        self.data = bytearray()
        self._digest = hashlib.sha256()

    @property
    def whole(self) -> bool:
        return len(self.data) == self.described.size

    def add(self, piece: Piece) -> None:
        """Take a piece that goes on where the body ends; of another one only the length is told."""
        if piece.offset == len(self.data):
            self.data += piece.data
            self._digest.update(piece.data)

    def is_right(self) -> bool:
        return self._digest.hexdigest() == self.described.sha256


class _Upload:
    def __init__(self) -> None:
        self.bodies: dict[int, _Body] = {}
        self.touched = 0.0


class Uploads:
    """What one coordinator is taking in.

    Args:
        limits: The bounds in force.
        clock: Says since when an upload lies still.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._coming: dict[_Coming, _Upload] = {}

    def has(self, sender_key: str, piece: Piece) -> bool:
        """Tell whether bodies of that message are coming in already."""
        return _Coming(sender_key, piece.message_id, piece.to) in self._coming

    def add(self, sender_key: str, piece: Piece) -> int:
        """Take a piece and give how many bytes of its part are here now, wherever the piece belonged.

        Raises:
            MessageTooLarge: the part, or the message with it, is more than this session takes.
            InvalidParams: the part is whole now and has not the SHA-256 that it was to have; it is forgotten.
            QueueFull: too many are coming in at once.
        """
        key = _Coming(sender_key, piece.message_id, piece.to)
        upload = self._coming.get(key) or self._begun(key)
        upload.touched = self._clock.elapsed()
        body = upload.bodies.get(piece.part)
        if body is None or body.described != piece.described:
            self._require_room(upload, piece)
            body = upload.bodies[piece.part] = _Body(piece.described)
        body.add(piece)
        if body.whole and not body.is_right():
            del upload.bodies[piece.part]
            raise InvalidParams(f"part {piece.part} has not the SHA-256 that it was to have", field="sha256")
        return len(body.data)

    def whole(self, sender_key: str, message_id: str, to: str, parts: Parts) -> Bodies | None:
        """Give the bodies of a message that has come; None where not all are here as it tells of them."""
        upload = self._coming.get(_Coming(sender_key, message_id, to)) or _Upload()
        data: dict[int, bytes] = {}
        for number, described in parts.numbered.items():
            body = upload.bodies.get(number)
            if body is None or not body.whole or body.described != described._replace(name=None):
                return None
            data[number] = bytes(body.data)
        return Bodies(parts, data)

    def end(self, sender_key: str, message_id: str, to: str) -> None:
        """Forget the bodies of a message that is settled."""
        self._coming.pop(_Coming(sender_key, message_id, to), None)

    def _begun(self, key: _Coming) -> _Upload:
        since = self._clock.elapsed() - UPLOAD_IDLE_S
        self._coming = {one: upload for one, upload in self._coming.items() if upload.touched > since}
        of_one = [one for one in self._coming if one.sender_key == key.sender_key]
        if len(of_one) >= UPLOADS_OF_ONE:
            del self._coming[min(of_one, key=lambda one: self._coming[one].touched)]
        elif len(self._coming) >= UPLOADS:
            raise QueueFull(
                f"the texts and files of {UPLOADS} messages are coming in there at once already",
                retry_after_ms=RETRY_WHEN_FULL_MS,
            )
        upload = self._coming[key] = _Upload()
        return upload

    def _require_room(self, upload: _Upload, piece: Piece) -> None:
        most = self._limits.inline_attachment_bytes
        if piece.part != TEXT and piece.described.size > most:
            raise MessageTooLarge(f"a file has {piece.described.size} bytes, more than {most}")
        others = (body.described.size for number, body in upload.bodies.items() if number != piece.part)
        require_payload((piece.described.size, *others), self._limits)
