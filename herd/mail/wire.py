"""What crosses the wire about a message, checked once where it enters: envelope and receipt.

pydantic, strict, no extra field. The names are the protocol's (camelCase); inside, everything is a plain
value with our own names.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from herd.core.errors import InvalidParams, MessageTooLarge, UnsupportedProtocol
from herd.core.identity import is_peer_id, is_target, length_prefixed
from herd.core.limits import (
    CODE_CHARACTERS,
    CONVERSATION_DEPTH,
    CUSTODY_ID_CHARACTERS,
    ENVELOPE_BYTES,
    MESSAGE_ID_CHARACTERS,
    PROTOCOL_VERSION,
    TEXT_BYTES,
    TOPIC_CHARACTERS,
)
from herd.core.text import printable
from herd.mail.receipts import REJECTED, TOLD, Receipt

MessageId = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=MESSAGE_ID_CHARACTERS)]
CustodyId = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", max_length=CUSTODY_ID_CHARACTERS)]
Code = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=CODE_CHARACTERS)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Shape = TypeVar("Shape", bound=BaseModel)
Milliseconds = Annotated[int, Field(ge=0, lt=2**53)]

as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Gives a value as compact JSON. Made once: `json.dumps` makes a new encoder at every call with options."""

_ESCAPE_BYTES = 6
"""Bytes that one character takes in JSON at most, as in `\\u001b`."""

_FIELDS_BYTES = 512
"""Bytes of an envelope's field names, numbers and punctuation, at most; it has some 250."""


class Wire(BaseModel):
    """A strict shape: exact types, no unknown field, camelCase outside."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=False,
        # A process that answers its first call pays for the shapes it meets, not for all of them.
        defer_build=True,
    )


class Sender(Wire):
    """Who the message says it is from; believed only as far as the connection proved it."""

    session: str


class Conversation(Wire):
    """The chain a message belongs to and how many automatic steps led to it."""

    id: MessageId
    depth: Annotated[int, Field(ge=0, le=CONVERSATION_DEPTH)]


class Envelope(Wire):
    """One message as `peer.send` carries it: at most `ENVELOPE_BYTES` serialized."""

    version: Annotated[int, Field(ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)]  # a Literal takes True and 1.0
    message_id: MessageId
    sender: Sender = Field(alias="from")
    to: str
    custody_id: CustodyId | None = None
    content: Annotated[str, Field(min_length=1)]
    created_at: Milliseconds
    topic: Annotated[str, Field(min_length=1, max_length=TOPIC_CHARACTERS)] | None = None
    reply_to: MessageId | None = None
    correlation_id: MessageId
    conversation: Conversation
    no_reply_needed: bool = False

    @field_validator("to")
    @classmethod
    def _is_exact(cls, value: str) -> str:
        if not (is_target(value) or is_peer_id(value)):
            raise ValueError("is neither a target nor a peer id")
        return value

    def to_wire(self) -> dict[str, Any]:
        """Give the JSON object that travels, without the fields that are absent."""
        # By hand, since pydantic's way takes five times as long, and twice for every message.
        shape = {
            "version": self.version,
            "messageId": self.message_id,
            "from": {"session": self.sender.session},
            "to": self.to,
            "custodyId": self.custody_id,
            "content": self.content,
            "createdAt": self.created_at,
            "topic": self.topic,
            "replyTo": self.reply_to,
            "correlationId": self.correlation_id,
            "conversation": {"id": self.conversation.id, "depth": self.conversation.depth},
            "noReplyNeeded": self.no_reply_needed,
        }
        return {name: value for name, value in shape.items() if value is not None}


# The first shape that is built has pydantic look for its plugins on the disk: now, and not in an event loop.
Conversation.model_rebuild(force=True)


class ReceiptShape(Wire):
    """A receipt as it travels."""

    message_id: MessageId
    to: str
    custody_id: CustodyId
    state: str
    cursor: Milliseconds
    accepted_at: Milliseconds | None = None
    delivered_at: Milliseconds | None = None
    replied_at: Milliseconds | None = None
    outcome: Code | None = None

    @field_validator("state")
    @classmethod
    def _is_told(cls, value: str) -> str:
        # A sender that believed `pending` or `unknown` from outside would stop trying, with nothing accepted.
        if value not in TOLD:
            raise ValueError("is no state that a custody tells")
        return value

    @model_validator(mode="after")
    def _names_its_code(self) -> Self:
        if self.state == REJECTED and self.outcome is None:
            raise ValueError("a rejected message has its code in outcome")
        return self


class StatusQuestion(Wire):
    """What `peer.status` asks: one message of the caller's, by id and exact recipient.

    Attributes:
        digest: The content digest of what the caller sent; a message of other content is not that message.
    """

    message_id: MessageId
    to: str
    digest: Digest | None = None


class ReceiptOffer(Wire):
    """What `peer.receipt` tells: a receipt of a message of the one who is asked.

    Attributes:
        receipt: The receipt.
        digest: The content digest of the message that it is about.
    """

    receipt: ReceiptShape
    digest: Digest | None = None


def checked_offer(params: Mapping[str, Any]) -> tuple[Receipt, str | None]:
    """Read the params of `peer.receipt`: the receipt, and the digest where there is one.

    Raises:
        InvalidParams: they have another shape.
    """
    offer = checked(ReceiptOffer, params)
    return _receipt(offer.receipt), offer.digest


def checked_status(params: Mapping[str, Any]) -> StatusQuestion:
    """Read the params of `peer.status`.

    Raises:
        InvalidParams: they have another shape.
    """
    return checked(StatusQuestion, params)


def read_envelope(params: Mapping[str, Any]) -> Envelope:
    """Read the params of `peer.send`.

    Raises:
        UnsupportedProtocol: `version` is another integer than 1.
        InvalidParams: any field is missing, unknown, mistyped or out of range; the message names it.
        MessageTooLarge: text or envelope is over its bound.
    """
    version = params.get("version")
    if type(version) is int and version != PROTOCOL_VERSION:
        raise UnsupportedProtocol(f"the envelope has version {version}, not {PROTOCOL_VERSION}")
    envelope = checked(Envelope, params)
    require_fitting(envelope)
    return envelope


def require_fitting(envelope: Envelope) -> None:
    """Refuse what is over its bound.

    Raises:
        MessageTooLarge: the text has more than `TEXT_BYTES`, or the whole more than `ENVELOPE_BYTES`.
    """
    ids = (envelope.message_id, envelope.to, envelope.correlation_id, envelope.conversation.id)
    if surely_fits(
        (envelope.content, envelope.topic, envelope.sender.session),
        (*ids, envelope.reply_to, envelope.custody_id),
    ):
        return
    text = len(envelope.content.encode())
    if text > TEXT_BYTES:
        raise MessageTooLarge(f"the text has {text} bytes, more than {TEXT_BYTES}")
    size = size_of(envelope)
    if size > ENVELOPE_BYTES:
        raise MessageTooLarge(
            f"the message as JSON, where quotes and line breaks count twice, has {size} bytes with its other "
            f"fields, more than {ENVELOPE_BYTES}"
        )


def size_of(envelope: Envelope) -> int:
    """Give the bytes of an envelope as it travels."""
    return len(as_json(envelope.to_wire()).encode())


def surely_fits(texts: Iterable[str | None], ids: Iterable[str | None]) -> bool:
    """Tell whether an envelope fits however its texts are written as JSON: most do, and need not be written.

    Args:
        texts: Those with any characters at all.
        ids: Those of letters, digits, dashes and colons.
    """
    free = sum(len(text.encode()) for text in texts if text is not None)
    plain = sum(len(one) for one in ids if one is not None)
    return _ESCAPE_BYTES * free + plain + _FIELDS_BYTES <= ENVELOPE_BYTES


def content_digest(content: str, topic: str | None, reply_to: str | None, correlation_id: str) -> str:
    """Give what two messages with one id must agree on; labels, times and attempts are not part of it."""
    optional = [f"+{field}" if field is not None else "-" for field in (topic, reply_to)]
    return hashlib.sha256(length_prefixed(content, *optional, correlation_id)).hexdigest()


def digest_of(envelope: Envelope) -> str:
    """Give the content digest of an envelope."""
    return content_digest(envelope.content, envelope.topic, envelope.reply_to, envelope.correlation_id)


def read_receipt(value: Any) -> Receipt:
    """Read a receipt that came over the wire.

    Raises:
        InvalidParams: it has another shape; the message names the field.
    """
    return _receipt(checked(ReceiptShape, value))


def _receipt(shape: ReceiptShape) -> Receipt:
    return Receipt(
        shape.message_id,
        shape.to,
        shape.custody_id,
        shape.state,
        shape.cursor,
        shape.accepted_at,
        shape.delivered_at,
        shape.replied_at,
        shape.outcome,
    )


_RECEIPT_NAMES = tuple(to_camel(name) for name in Receipt._fields)


def receipt_to_wire(receipt: Receipt) -> dict[str, Any]:
    """Give a receipt as it travels, without the steps not reached."""
    return {name: value for name, value in zip(_RECEIPT_NAMES, receipt, strict=True) if value is not None}


def checked(shape: type[Shape], value: Any) -> Shape:
    """Check foreign data against a shape.

    Raises:
        InvalidParams: it does not fit; the message names the first field that does not, `field` repeats it.
    """
    try:
        return shape.model_validate(value)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
        # An unknown field has the name that its sender chose.
        field = printable(".".join(str(part) for part in first["loc"]))
        raise InvalidParams(f"{field or 'params'}: {first['msg']}", field=field) from None
