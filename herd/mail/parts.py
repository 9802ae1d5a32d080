"""What of a message lies outside its envelope: a long text, attached files, and what binds one to a result.

Pure. A part has a number within its message: `TEXT` is the text, the attached files count on from there.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from herd.core.errors import BodyMissing, InvalidParams, MessageTooLarge, RecoveryRequired
from herd.core.limits import Limits

PREFIX = "result:"
"""What begins a reference to a result; the path of a file that is so called begins with `./`."""

TEXT = 0
"""The number of the part that is the text."""


_BESIDE_BYTES = 16_384
"""Bytes that storing a body needs beside its own: pages that are not full, and rows and indexes."""

_CHUNKS_BESIDE = 64
"""One more byte for so many, since pages that hold nothing but a body link to one another."""


class Part(NamedTuple):
    """What is known of a body wherever the body itself lies."""

    sha256: str
    size: int
    name: str | None = None
    """Under which an attached file is shown; the text has none."""

    @classmethod
    def of(cls, data: bytes, name: str | None = None) -> Self:
        """Describe a body."""
        return cls(hashlib.sha256(data).hexdigest(), len(data), name)

    def is_of(self, data: bytes) -> bool:
        """Tell whether a body is the one described: its length and its SHA-256 are right."""
        return len(data) == self.size and hashlib.sha256(data).hexdigest() == self.sha256

    def shape(self) -> dict[str, Any]:
        """Give it as it is stored and travels."""
        named = {} if self.name is None else {"name": self.name}
        return {**named, "sha256": self.sha256, "bytes": self.size}


class Binding(NamedTuple):
    """Which result of which call an attached file is: its semantic reference and its canonical one."""

    ref: str
    canonical: str


class Parts(NamedTuple):
    """Everything of one message that lies outside its envelope."""

    body: Part | None = None
    """The text, where the envelope has none."""
    attachments: tuple[Part, ...] = ()
    bindings: tuple[Binding, ...] = ()

    @property
    def numbered(self) -> dict[int, Part]:
        """Every body that belongs to it, by number."""
        whole = {} if self.body is None else {TEXT: self.body}
        return whole | dict(enumerate(self.attachments, TEXT + 1))

    @property
    def stored_bytes(self) -> int:
        """How much of a mailbox its bodies take up, at most."""
        return stored_bytes(one.size for one in self.numbered.values())

    def shape(self) -> dict[str, Any]:
        """Give the fields of the envelope that tell of it, without those that are absent."""
        fields = {
            "body": None if self.body is None else self.body.shape(),
            "attachments": [one.shape() for one in self.attachments],
            "bindings": [one._asdict() for one in self.bindings],
        }
        return {name: value for name, value in fields.items() if value}

    def text(self) -> str:
        """Give it as it is stored, and digested."""
        return json.dumps(self.shape(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Give one back as `text` wrote it; None where a message has none.

        Raises:
            RecoveryRequired: it is none of ours.
        """
        if text is None:
            return None
        try:
            shape = json.loads(text)
            body = shape.get("body")
            return cls(
                None if body is None else Part(body["sha256"], body["bytes"]),
                tuple(Part(one["sha256"], one["bytes"], one["name"]) for one in shape.get("attachments", ())),
                tuple(Binding(**one) for one in shape.get("bindings", ())),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            raise RecoveryRequired("what is stored of a message's text and files is damaged") from fault

    def bound(self, part: int) -> Binding | None:
        """Give what binds a part to a result; an attached result has its reference for a name."""
        name = self.numbered[part].name
        return next((one for one in self.bindings if one.ref == name), None)

    def require_within(self, limits: Limits) -> None:
        """Refuse what is over a session's bounds.

        Raises:
            MessageTooLarge: one file, or all bodies together.
        """
        for one in self.attachments:
            if one.size > limits.inline_attachment_bytes:
                raise MessageTooLarge(
                    f"file {str(one.name)!r} has {one.size} bytes, more than inline_attachment_bytes, "
                    f"{limits.inline_attachment_bytes}"
                )
        require_payload((one.size for one in self.numbered.values()), limits)


def stored_bytes(sizes: Iterable[int]) -> int:
    """Give how much of a mailbox bodies of these sizes take up, at most."""
    return sum(size + size // _CHUNKS_BESIDE + _BESIDE_BYTES for size in sizes)


class Bodies(NamedTuple):
    """All bodies of one message, by the numbers of their parts."""

    parts: Parts
    data: Mapping[int, bytes]

    def require_right(self) -> None:
        """Refuse what is not what it was to be.

        Raises:
            InvalidParams: a body is missing, or its length or SHA-256 is another.
        """
        for number, described in self.parts.numbered.items():
            if not described.is_of(self.data.get(number, b"")):
                raise InvalidParams(f"part {number} has not the SHA-256 that it was to have", field="sha256")


def require_payload(sizes: Iterable[int], limits: Limits) -> None:
    """Refuse bodies that are too much for one message.

    Raises:
        MessageTooLarge: they have more than `mailbox_payload_bytes` together.
    """
    whole = sum(sizes)
    if whole > limits.mailbox_payload_bytes:
        raise MessageTooLarge(
            f"text and files have {whole} bytes together, more than mailbox_payload_bytes, "
            f"{limits.mailbox_payload_bytes}"
        )


def require_taken(parts: Parts, bodies: Bodies | None, limits: Limits) -> None:
    """Refuse a message whose bodies may not be taken with it.

    Raises:
        BodyMissing: they are not there, or are those of another message.
        InvalidParams: one is no UTF-8, or a file holds a NUL.
        MessageTooLarge: they are over the session's bounds.
    """
    parts.require_within(limits)
    if bodies is None or bodies.parts != parts:
        raise BodyMissing("the text or the files of the message are not here")
    for number, data in bodies.data.items():
        try:
            data.decode()
        except UnicodeDecodeError:
            raise InvalidParams(f"part {number} is no UTF-8", field="data") from None
        if number != TEXT and b"\0" in data:
            raise InvalidParams(f"part {number} holds a NUL, which no text has", field="data")
