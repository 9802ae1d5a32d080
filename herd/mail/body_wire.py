"""Bodies as they cross the wire: an envelope's description of them, and `peer.body`, which carries pieces."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from herd.core.errors import InvalidParams, InvalidRpc
from herd.core.limits import (
    ATTACHMENT_NAME_CHARACTERS,
    ATTACHMENTS,
    BODY_FIELDS_BYTES,
    PAYLOAD_GREATEST_BYTES,
)
from herd.mail.parts import Part, Parts
from herd.mail.strict import Digest, MessageId, Wire, checked

BodyBytes = Annotated[int, Field(ge=0, le=PAYLOAD_GREATEST_BYTES)]
ShownName = Annotated[str, Field(min_length=1, max_length=ATTACHMENT_NAME_CHARACTERS)]


class BodyShape(Wire):
    """A text that travels by `peer.body`, as its envelope describes it."""

    sha256: Digest
    bytes: Annotated[int, Field(ge=1, le=PAYLOAD_GREATEST_BYTES)]


class AttachmentShape(Wire):
    """An attached file as its message's envelope describes it."""

    name: ShownName
    sha256: Digest
    bytes: BodyBytes


class BindingShape(Wire):
    """Which result an attached file is; never shown to a model."""

    ref: ShownName
    canonical: ShownName


def described_in(parts: Parts) -> dict[str, Any]:
    """Give the fields of an envelope that describe what lies outside it, without those that are absent."""
    fields: dict[str, Any] = {
        "body": parts.body and BodyShape.model_construct(sha256=parts.body.sha256, bytes=parts.body.size),
        "attachments": [
            AttachmentShape.model_construct(name=one.name, sha256=one.sha256, bytes=one.size)
            for one in parts.attachments
        ],
        "bindings": [BindingShape.model_construct(**one._asdict()) for one in parts.bindings],
    }
    return {name: value for name, value in fields.items() if value}


class _PieceShape(Wire):
    message_id: MessageId
    to: str
    part: Annotated[int, Field(ge=0, le=ATTACHMENTS)]
    sha256: Digest
    bytes: BodyBytes
    offset: BodyBytes
    text: str


class Piece(NamedTuple):
    """Some bytes of one part of a message that has not come yet.

    Attributes:
        message_id: The message.
        to: Its exact recipient.
        part: The number of the part.
        described: The whole part; its name travels with the message.
        offset: Where in the part the bytes belong.
        data: The bytes, which are whole characters of UTF-8.
    """

    message_id: str
    to: str
    part: int
    described: Part
    offset: int
    data: bytes

    def to_wire(self) -> dict[str, Any]:
        """Give the params of `peer.body`.

        Raises:
            InvalidParams: it is no text: the body is damaged where it comes from.
        """
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            raise InvalidParams(f"part {self.part} is no text any more at its sender") from None
        return {
            "messageId": self.message_id,
            "to": self.to,
            "part": self.part,
            "sha256": self.described.sha256,
            "bytes": self.described.size,
            "offset": self.offset,
            "text": text,
        }


def read_piece(params: Mapping[str, Any]) -> Piece:
    """Read the params of `peer.body`.

    Raises:
        InvalidParams: any field is missing, unknown, mistyped or out of range; the message names it.
    """
    shape = checked(_PieceShape, params)
    try:
        data = shape.text.encode()
    except UnicodeEncodeError:
        raise InvalidParams("text: has a lone surrogate", field="text") from None
    if shape.offset + len(data) > shape.bytes:
        raise InvalidParams("text: goes beyond the end of the part", field="text")
    described = Part(shape.sha256, shape.bytes)
    return Piece(shape.message_id, shape.to, shape.part, described, shape.offset, data)


class _HeldShape(Wire):
    received: BodyBytes


def read_received(result: Any, most: int) -> int:
    """Read what answered `peer.body`: how many bytes of the part the other side has.

    Raises:
        InvalidRpc: it has another shape, or is more than there are.
    """
    try:
        received = checked(_HeldShape, result).received
    except InvalidParams as fault:
        raise InvalidRpc(f"the other side did not say how much it has: {fault.message}") from None
    if received > most:
        raise InvalidRpc("the other side says that it has more of a body than there is")
    return received


def piece_bytes(frame_bytes: int) -> int:
    """Give the bytes that a piece of a body may have in the JSON of one frame, beside the other fields."""
    return max(frame_bytes - BODY_FIELDS_BYTES, 1)
