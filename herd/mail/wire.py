"""What crosses the wire about a message, checked once where it enters: envelope and receipt.

pydantic, strict, no extra field. The names are the protocol's (camelCase); inside, everything is a plain
value with our own names.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from herd.core.errors import InvalidParams, MessageTooLarge, UnsupportedProtocol
from herd.core.identity import is_peer_id, is_target, length_prefixed
from herd.core.limits import (
    ATTACHMENTS,
    CONVERSATION_DEPTH,
    ENVELOPE_BYTES,
    PROTOCOL_VERSION,
    TOPIC_CHARACTERS,
)
from herd.mail.body_wire import AttachmentShape, BindingShape, BodyShape
from herd.mail.parts import Binding, Part, Parts
from herd.mail.receipts import REJECTED, TOLD, Receipt
from herd.mail.strict import Code, CustodyId, Digest, MessageId, Milliseconds, PeerId, Wire, checked

__all__ = ["MessageId", "PeerId", "Wire", "checked"]

as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Gives a value as compact JSON. Made once: `json.dumps` makes a new encoder at every call with options."""

_ESCAPE_BYTES = 6
"""Bytes that one character takes in JSON at most, as in `\\u001b`."""

_FIELDS_BYTES = 512
"""Bytes of an envelope's field names, numbers and punctuation, at most; it has some 250."""


class Sender(Wire):
    """Who the message says it is from; believed only as far as the connection proved it.

    Attributes:
        session: The target of the session.
        run: The peer id of the run of it that sends, where it is one.
    """

    session: str
    run: PeerId | None = None

    def to_wire(self) -> dict[str, Any]:
        """Give the JSON object that travels."""
        return {"session": self.session} if self.run is None else {"session": self.session, "run": self.run}


class Conversation(Wire):
    """The chain a message belongs to and how many automatic steps led to it."""

    id: MessageId
    depth: Annotated[int, Field(ge=0, le=CONVERSATION_DEPTH)]


class Envelope(Wire):
    """One message as `peer.send` carries it: at most `ENVELOPE_BYTES` serialized.

    It has either its text as `content` or, where that is too long, a description of it as `body`.
    """

    version: Annotated[int, Field(ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)]  # a Literal takes True and 1.0
    message_id: MessageId
    sender: Sender = Field(alias="from")
    to: str
    custody_id: CustodyId | None = None
    content: Annotated[str, Field(min_length=1)] | None = None
    body: BodyShape | None = None
    attachments: Annotated[list[AttachmentShape], Field(min_length=1, max_length=ATTACHMENTS)] | None = None
    bindings: Annotated[list[BindingShape], Field(min_length=1, max_length=ATTACHMENTS)] | None = None
    created_at: Milliseconds
    topic: Annotated[str, Field(min_length=1, max_length=TOPIC_CHARACTERS)] | None = None
    reply_to: MessageId | None = None
    correlation_id: MessageId
    conversation: Conversation
    no_reply_needed: bool = False
    expires_in_ms: Annotated[int, Field(ge=1, lt=2**53)] | None = None

    @field_validator("to")
    @classmethod
    def _is_exact(cls, value: str) -> str:
        if not (is_target(value) or is_peer_id(value)):
            raise ValueError("is neither a target nor a peer id")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.content is None) == (self.body is None):
            raise ValueError("content: exactly one of content and body is there")
        names = [one.name for one in self.attachments or ()]
        if len(set(names)) != len(names):
            raise ValueError("attachments: two have one name")
        refs = [one.ref for one in self.bindings or ()]
        if len(set(refs)) != len(refs) or not set(refs) <= set(names):
            raise ValueError("bindings: each belongs to one attached file, by its name")
        return self

    @property
    def parts(self) -> Parts | None:
        """What of the message lies outside; None where nothing does, as of most."""
        if self.body is None and self.attachments is None:
            return None
        body = None if self.body is None else Part(self.body.sha256, self.body.bytes)
        files = tuple(Part(one.sha256, one.bytes, one.name) for one in self.attachments or ())
        return Parts(body, files, tuple(Binding(one.ref, one.canonical) for one in self.bindings or ()))

    def to_wire(self) -> dict[str, Any]:
        """Give the JSON object that travels, without the fields that are absent."""
        # By hand, since pydantic's way takes five times as long, and twice for every message.
        shape = {
            "version": self.version,
            "messageId": self.message_id,
            "from": self.sender.to_wire(),
            "to": self.to,
            "custodyId": self.custody_id,
            "content": self.content,
            "createdAt": self.created_at,
            "topic": self.topic,
            "replyTo": self.reply_to,
            "correlationId": self.correlation_id,
            "conversation": {"id": self.conversation.id, "depth": self.conversation.depth},
            "noReplyNeeded": self.no_reply_needed,
            "expiresInMs": self.expires_in_ms,
        }
        parts = self.parts
        if parts is not None:
            shape |= parts.shape()
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
        run: The run of the caller's session that sent it, by its peer id, where one did.
    """

    message_id: MessageId
    to: str
    digest: Digest | None = None
    run: PeerId | None = None


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
        MessageTooLarge: the envelope is over its bound.
    """
    version = params.get("version")
    if type(version) is int and version != PROTOCOL_VERSION:
        raise UnsupportedProtocol(f"the envelope has version {version}, not {PROTOCOL_VERSION}")
    if not params.keys() & {"content", "body"}:
        raise InvalidParams("content: Field required", field="content")
    envelope = checked(Envelope, params)
    require_fitting(envelope)
    return envelope


def require_fitting(envelope: Envelope) -> None:
    """Refuse an envelope that is over its bound.

    Raises:
        MessageTooLarge: it has more than `ENVELOPE_BYTES`.
    """
    ids = (envelope.message_id, envelope.to, envelope.correlation_id, envelope.conversation.id)
    texts = (envelope.content, envelope.topic, envelope.sender.session)
    plain = (*ids, envelope.reply_to, envelope.custody_id, envelope.sender.run)
    if envelope.parts is None and surely_fits(texts, plain):
        return
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


def content_digest(
    content: str | None,
    topic: str | None,
    reply_to: str | None,
    correlation_id: str,
    parts: Parts | None = None,
) -> str:
    """Give what two messages with one id must agree on; labels, times and attempts are not part of it.

    Args:
        content: The text; None where it is one of the parts.
        topic: What it is about.
        reply_to: What it answers.
        correlation_id: What it belongs to.
        parts: What of it lies outside its envelope.
    """
    optional = [f"+{field}" if field is not None else "-" for field in (topic, reply_to)]
    outside = [] if parts is None else [parts.text()]
    return hashlib.sha256(length_prefixed(content or "", *optional, correlation_id, *outside)).hexdigest()


def digest_of(envelope: Envelope) -> str:
    """Give the content digest of an envelope."""
    return content_digest(
        envelope.content, envelope.topic, envelope.reply_to, envelope.correlation_id, envelope.parts
    )


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
