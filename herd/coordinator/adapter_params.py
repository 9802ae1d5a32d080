"""What each `session.*` method takes: strict shapes, checked before anything is done.

They are ignorant of what becomes of them.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from herd.coordinator.attaching import AGENT
from herd.core.identity import is_peer_id, is_target
from herd.core.limits import (
    ATTACHMENT_NAME_CHARACTERS,
    ATTACHMENTS,
    BRANCH_CHARACTERS,
    BRANCHES,
    CALL_ID_CHARACTERS,
    CONFIRMED_AT_ONCE,
    CURSOR_CHARACTERS,
    CWD_CHARACTERS,
    DRAIN_CHARACTERS,
    DRAIN_GREATEST_CHARACTERS,
    DRAIN_LEAST_CHARACTERS,
    FILE_CHARACTERS,
    HISTORY_MESSAGES,
    LABEL_CHARACTERS,
    QUERY_CHARACTERS,
    READ_WAIT_MS,
    RECORD_CAPABILITIES,
    REFERENCES_AT_ONCE,
    RUN_ID_CHARACTERS,
    TOPIC_CHARACTERS,
)
from herd.mail.wire import MessageId, PeerId

Label = Annotated[str, Field(min_length=1, max_length=LABEL_CHARACTERS)]
Cwd = Annotated[str, Field(min_length=1, max_length=CWD_CHARACTERS)]
Target = Annotated[str, Field(min_length=1, max_length=LABEL_CHARACTERS)]
FileEntry = Annotated[str, Field(min_length=1, max_length=FILE_CHARACTERS)]
Branch = Annotated[str, Field(min_length=1, max_length=BRANCH_CHARACTERS)]
Branches = Annotated[list[Branch], Field(max_length=BRANCHES)]
Scope = Literal["machine", "repository", "workspace"]
Capability = Literal["message.send", "message.receive", "message.wait"]


def _exact(value: str) -> str:
    # A name that fits nobody's target would read as "nothing came".
    if not (is_target(value) or is_peer_id(value)):
        raise ValueError("is no exact target: use one that a list or a message showed")
    return value


ExactTarget = Annotated[Target, AfterValidator(_exact)]
Digits = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]


def _whole(value: object) -> object:
    # JSON has one kind of number, and its schemas call 1.0 an integer; some clients write it so.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)


def _listed(value: object) -> object:
    # JSON has no tuples, and a strict shape takes no list for one.
    return tuple(value) if isinstance(value, list) else value


class Params(BaseModel):
    """A strict shape in our own spelling."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class Nothing(Params):
    """No field at all."""


class ForRun(Params):
    """What may be asked for one run of the session: then for that one and nobody else.

    Attributes:
        run: The run's peer id; the request is the session's own where None.
    """

    run: PeerId | None = None


class OnlyForRun(ForRun):
    """No field but the run."""


class BindParams(Params):
    """What `session.bind` takes."""

    host: str
    session_id: str
    created: str = ""
    cwd: Cwd
    name: Label | None = None
    scope: Scope | None = None
    alias: Label | None = None
    capabilities: Annotated[list[Capability], Field(max_length=RECORD_CAPABILITIES)] | None = None


class BindRunParams(Params):
    """What `session.bind_run` takes."""

    run_id: Annotated[str, Field(min_length=1, max_length=RUN_ID_CHARACTERS)]
    name: Label | None = None
    parent: PeerId | None = None
    capabilities: (
        Annotated[tuple[Capability, ...], Field(max_length=RECORD_CAPABILITIES), BeforeValidator(_listed)]
        | None
    ) = None
    scope: Scope | None = None
    external: bool = False


class EndRunParams(Params):
    """What `session.end_run` takes."""

    run: PeerId


class UpdateParams(Params):
    """What `session.update` takes; absent fields stay as they are."""

    cwd: Cwd | None = None
    name: Label | None = None
    activity: Annotated[str, Field(pattern="^(idle|working|waiting|away)$")] | None = None
    person_prompted: bool = False
    turn_ended: bool = False


class ListParams(ForRun):
    """What `session.list` takes."""

    scope: Scope | None = None
    query: Annotated[str, Field(min_length=1, max_length=QUERY_CHARACTERS)] | None = None
    cursor: Annotated[str, Field(min_length=1, max_length=CURSOR_CHARACTERS)] | None = None


class SendParams(ForRun):
    """What `session.send` takes.

    `drafted` puts what `session.draft` was given on this connection in front of the message. `branches` are
    those of the host's conversation up to where it is now, for references to results among the `files`.
    """

    target: Target
    message: Annotated[str, Field(min_length=1)]
    reply_to: MessageId | None = None
    topic: Annotated[str, Field(min_length=1, max_length=TOPIC_CHARACTERS)] | None = None
    no_reply_needed: bool = False
    expires_in_ms: Annotated[int, Field(ge=1), Whole] | None = None
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID_CHARACTERS)] | None = None
    files: Annotated[list[FileEntry], Field(max_length=ATTACHMENTS)] | None = None
    branches: Branches | None = None
    drafted: bool = False


class DraftParams(Params):
    """What `session.draft` takes: the next piece of a text that is too long for one frame.

    `first` forgets what was drafted before.
    """

    text: Annotated[str, Field(min_length=1)]
    first: bool = False


class ResultParams(Params):
    """What `session.result` takes: `text`, or the `file` that holds it."""

    agent: Annotated[str, Field(pattern=f"^{AGENT}$")]
    text: Annotated[str, Field(min_length=1)] | None = None
    file: FileEntry | None = None
    request_id: MessageId | None = None
    branch: Branch | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.text is None) == (self.file is None):
            raise ValueError("exactly one of text and file is given")
        return self


class TextParams(Params):
    """What `session.references` takes."""

    text: str


class SelectedParams(Params):
    """One reference of a text, in characters, and the exact peer that a person selected for it."""

    start: Annotated[int, Field(ge=0), Whole]
    end: Annotated[int, Field(ge=1), Whole]
    to: ExactTarget


class ComposeParams(Params):
    """What `session.compose` takes."""

    text: Annotated[str, Field(min_length=1)]
    references: Annotated[list[SelectedParams], Field(max_length=REFERENCES_AT_ONCE)] = []
    call_id: Annotated[str, Field(min_length=1, max_length=CALL_ID_CHARACTERS)] | None = None


class SubscribeParams(ForRun):
    """What `session.subscribe` takes."""

    events: bool = False
    after: Digits | None = None


class ReadParams(ForRun):
    """What `session.read` takes. `sender` is spelt `from` outside."""

    after: Digits | None = None
    sender: ExactTarget | None = Field(default=None, alias="from")
    reply_to: MessageId | None = None
    message_id: MessageId | None = None
    offset: Annotated[int, Field(ge=0), Whole] = 0
    attachment: Annotated[str, Field(min_length=1, max_length=ATTACHMENT_NAME_CHARACTERS)] | None = None
    wait_ms: Annotated[int, Field(ge=0, le=READ_WAIT_MS), Whole] = 0


class WaitingParams(ForRun):
    """What `session.waiting` takes."""

    review: bool = False


class ConfirmParams(ForRun):
    """What `session.confirm` takes: messages that were read; receipts that came with them need no naming."""

    message_ids: Annotated[list[MessageId], Field(max_length=CONFIRMED_AT_ONCE)]
    evidence: Label


class ReleaseParams(ForRun):
    """What `session.release` takes."""

    message_ids: Annotated[list[MessageId], Field(max_length=CONFIRMED_AT_ONCE)]
    counted: bool = True


class DrainParams(ForRun):
    """What `session.drain` takes."""

    most: Annotated[int, Field(ge=DRAIN_LEAST_CHARACTERS, le=DRAIN_GREATEST_CHARACTERS), Whole] = (
        DRAIN_CHARACTERS
    )


class HistoryParams(Params):
    """What `session.history` takes."""

    most: Annotated[int, Field(ge=1, le=HISTORY_MESSAGES), Whole] = 50
    skip: Annotated[int, Field(ge=0, lt=2**53), Whole] = 0
    left: bool = False
    wait_ms: Annotated[int, Field(ge=0, le=READ_WAIT_MS), Whole] = 0


class PurgeParams(Params):
    """What `session.purge` takes."""

    message_id: MessageId | None = None


class MessageParams(ForRun):
    """What `session.status` and `session.cancel` take."""

    message_id: MessageId
