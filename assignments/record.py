"""The assignment record as a value: that one exact session carries one branch of one repository.

It keeps what a person or a Manager intended and nothing that may be observed: whether anybody works, where,
and under whom stands in no field, so that none of it can be out of date. A field that is not in the schema
makes the record corrupt. Nothing here touches a file.
"""

import hashlib
import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

from herd.core.errors import InvalidParams, NewerState
from herd.core.identity import SessionName, checked_session, is_session_key
from herd.core.limits import (
    ASSIGNMENT_FILE_BYTES,
    ASSIGNMENT_PAYLOAD_BYTES,
    ASSIGNMENT_VERSION,
    ATTACHMENT_NAME_CHARACTERS,
    ATTACHMENTS,
    CWD_CHARACTERS,
    GIT_BRANCH_CHARACTERS,
    LABEL_CHARACTERS,
    MOMENT_MS,
    PLACE_ID_BYTES,
)
from herd.mail.parts import Binding
from herd.presence.fields import Fields, Malformed, read_fields

NO_SOCKET = "none"
"""The socket of what is assigned outside of Herdr."""

_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REMEMBERED = 1_024


class Place(NamedTuple):
    """Where a record lies: the SHA-256 of its socket, repository and branch, each as 64 hex digits."""

    socket: str
    repo: str
    branch: str


class Attachment(NamedTuple):
    """A text that goes with the work, whole, under the name that it is shown by."""

    name: str
    text: str


class Assignment(NamedTuple):
    """One assignment; two equal ones are the same record."""

    id: str
    """A UUID, by which a later assignment of the same branch is another one."""
    socket: str
    """The path of the Herdr socket in whose namespace it lies, or `none`."""
    repo: str
    """The key of the repository's worktree group: the real path of its common directory."""
    branch: str
    session: SessionName
    """The exact session that carries the branch."""
    text: str
    """The work, as it was given."""
    created_at: int
    """When it was made, in milliseconds since the epoch; it decides nothing."""
    checkout: str | None = None
    """The real path of the checkout that the work was placed in; None where that was not said."""
    attachments: tuple[Attachment, ...] = ()
    bindings: tuple[Binding, ...] = ()
    """Which results the attached texts are, as `herd.mail` binds them."""

    @property
    def place(self) -> Place:
        """Where its record lies."""
        return place_of(self.socket, self.repo, self.branch)

    @property
    def payload_bytes(self) -> int:
        """UTF-8 bytes of what it hands over."""
        texts = [self.text, *(part for pair in (*self.attachments, *self.bindings) for part in pair)]
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def place_of(socket: str, repo: str, branch: str) -> Place:
    """Give the place of what is assigned of a branch of a repository in the namespace of a socket."""
    return Place(digest(socket), digest(repo), digest(branch))


def is_digest(name: str) -> bool:
    """Tell whether a name is canonical: 64 hex digits in lower case."""
    return is_session_key(name)


def encode(assignment: Assignment) -> bytes:
    """Give the bytes of a record's file.

    Raises:
        InvalidParams: it is larger than the bounds, or a reader would call it corrupt; the message names the
            field.
    """
    if assignment.payload_bytes > ASSIGNMENT_PAYLOAD_BYTES:
        raise InvalidParams(
            f"the assignment hands over more than {ASSIGNMENT_PAYLOAD_BYTES} bytes",
            hint="Shorten the text or attach less.",
        )
    text = json.dumps(_shape(assignment), ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate becomes the escape of itself, so that the check of what was written names its field.
    data = text.encode("utf-8", "backslashreplace") + b"\n"
    try:
        decode(data, assignment.place)
    except Malformed as fault:
        raise InvalidParams(f"the assignment {fault}") from None
    return data


def decode(data: bytes, place: Place) -> Assignment:
    """Read the bytes of a record's file.

    Args:
        data: The whole file.
        place: Where it lies; the socket, repository and branch inside must hash to it.

    Raises:
        Malformed: the record is corrupt; the text completes "<path> ...".
        NewerState: a newer Herd wrote it.
    """
    if len(data) > ASSIGNMENT_FILE_BYTES:
        raise Malformed(f"is larger than {ASSIGNMENT_FILE_BYTES} bytes")
    fields = read_fields(data)
    version = fields.integer("version", least=1)
    if version > ASSIGNMENT_VERSION:
        raise NewerState(f"has version {version}, and this Herd knows {ASSIGNMENT_VERSION}")
    assignment = Assignment(
        fields.text("id", most=36),
        fields.text("socket", most=CWD_CHARACTERS),
        fields.text("repo", most=PLACE_ID_BYTES),
        fields.text("branch", most=GIT_BRANCH_CHARACTERS),
        _session(fields.inner("session")),
        fields.text("text", most=ASSIGNMENT_PAYLOAD_BYTES),
        fields.integer("created_at", most=MOMENT_MS),
        checkout=fields.text("checkout", most=PLACE_ID_BYTES) if fields.has("checkout") else None,
        attachments=tuple(map(_attachment, fields.objects("attachments", most=ATTACHMENTS))),
        bindings=tuple(map(_binding, fields.objects("bindings", most=ATTACHMENTS))),
    )
    fields.end()
    _check(assignment, place)
    # No escape is shorter than what it stands for, so a file within the bound hands over no more than that.
    if len(data) > ASSIGNMENT_PAYLOAD_BYTES and assignment.payload_bytes > ASSIGNMENT_PAYLOAD_BYTES:
        raise Malformed(f"hands over more than {ASSIGNMENT_PAYLOAD_BYTES} bytes")
    return assignment


def _check(assignment: Assignment, place: Place) -> None:
    if not _ID.fullmatch(assignment.id):
        raise Malformed("has no UUID in id")
    if assignment.socket != NO_SOCKET and not assignment.socket.startswith("/"):
        raise Malformed(f"has neither an absolute path nor {NO_SOCKET} in socket")
    if not assignment.repo.startswith("/"):
        raise Malformed("has no absolute path in repo")
    if assignment.checkout is not None and not assignment.checkout.startswith("/"):
        raise Malformed("has no absolute path in checkout")
    if not assignment.text.strip():
        raise Malformed("has a blank text")
    if assignment.place != place:
        raise Malformed("names another socket, repository or branch than its path does")


def _session(fields: Fields) -> SessionName:
    session = SessionName(fields.text("host"), fields.text("session_id"), fields.text("created", least=0))
    fields.end()
    try:
        return checked_session(*session)
    except InvalidParams as refusal:
        raise Malformed(f"has no session: {refusal}") from None


def _attachment(fields: Fields) -> Attachment:
    name = fields.text("name", most=ATTACHMENT_NAME_CHARACTERS)
    attachment = Attachment(name, fields.text("text", least=0, most=ASSIGNMENT_PAYLOAD_BYTES))
    fields.end()
    return attachment


def _binding(fields: Fields) -> Binding:
    binding = Binding(
        fields.text("ref", most=LABEL_CHARACTERS), fields.text("canonical", most=LABEL_CHARACTERS)
    )
    fields.end()
    return binding


def _shape(assignment: Assignment) -> dict[str, Any]:
    shape = {
        "version": ASSIGNMENT_VERSION,
        **assignment._asdict(),
        "session": assignment.session._asdict(),
        "attachments": [one._asdict() for one in assignment.attachments],
        "bindings": [one._asdict() for one in assignment.bindings],
    }
    return {name: value for name, value in shape.items() if value not in (None, [])}


@lru_cache(maxsize=_REMEMBERED)
def digest(text: str) -> str:
    """Give the SHA-256 of a text as 64 hex digits: what stands for it in a path."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
