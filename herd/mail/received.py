"""What there is to say of received messages, as values: who sent one, its row, and with what it is admitted.

How rows come about and change is told in `herd.mail.inbox`, whose names these are for everybody else.
"""

from typing import NamedTuple

from herd.core.errors import HerdError
from herd.core.limits import Limits
from herd.core.moments import Moment
from herd.mail.correspondents import identity_of
from herd.mail.rates import Rates
from herd.mail.receipts import Receipt


class Sender(NamedTuple):
    """What acceptance verified about a message's sender; it is stored with the message and stands.

    `host` and `name` are for people; the target and key were proved by the connection. Of a run, `key` is the
    session it belongs to, and `target` and `run` are its peer id.
    """

    key: str
    target: str
    role: str
    host: str
    name: str | None = None
    kind: str = "ordinary"
    socket: str = "none"
    run: str | None = None
    group: str | None = None
    """The key of the worktree group that it was in: as it was proven for this verdict, or published."""
    branch: str | None = None
    """The branch that an assignment gave it then."""

    @property
    def identity(self) -> str:
        """Who sends, as messages are told apart by it: the session, or one exact run of it."""
        return identity_of(self.key, self.run)


class Incoming(NamedTuple):
    """One row of the inbox. `content` is empty where the text is one of the `parts`: see `whole`."""

    sequence: int
    sender_key: str
    message_id: str
    recipient: str
    digest: str
    sender: Sender
    content: str
    topic: str | None
    reply_to: str | None
    correlation_id: str
    conversation_id: str
    depth: int
    no_reply_needed: bool
    created_at: int
    handovers: int
    evidence: str | None
    owed: bool
    receipt: Receipt
    run: str | None = None
    instance_id: str | None = None
    lifetime_ms: int | None = None
    since: str | None = None
    parts: str | None = None
    stripped: int = 0


class Lying(NamedTuple):
    """What there is to know of a message that lies undelivered, without its text."""

    sequence: int
    message_id: str
    handovers: int
    depth: int
    no_reply_needed: bool
    accepted_at: int


class Admitted(NamedTuple):
    """What the verdict at a mailbox's door found, to be held to until the commit.

    Attributes:
        closed: Why it is not taken; None where everything is.
        replies: Whether replies are taken nevertheless.
        group: The sender's worktree group, where the verdict rests on it.
        branch: The branch that an assignment gives the sender.
    """

    closed: HerdError | None = None
    group: str | None = None
    branch: str | None = None
    replies: bool = True

    def noted(self, sender: Sender) -> Sender:
        """Give the sender with what was found out about it."""
        return sender._replace(group=self.group or sender.group, branch=self.branch)


class Admission(NamedTuple):
    """With what a mailbox admits messages.

    Attributes:
        custody_id: That of the mailbox.
        limits: The bounds in force.
        now: When.
        instance_id: The coordinator's that takes them; None for a visitor.
        rates: What each sender may still hand in; None to tell it from the inbox alone.
        closed: Why nothing new is taken, for good; None where it is. What came before is answered: a refusal
            now would say of a message in custody that it is in none.
        replies: Whether a message that answers one of this session's is taken nevertheless.
        came: When the request came in; None for the moment that is `now`.
        driven: Whether mail can make this session act, so that what came without a person is counted.
        run: The run that they are for, by its peer id; None for the session itself.
    """

    custody_id: str
    limits: Limits
    now: Moment
    instance_id: str | None = None
    rates: Rates | None = None
    closed: HerdError | None = None
    replies: bool = False
    came: Moment | None = None
    driven: bool = False
    run: str | None = None


class Acceptance(NamedTuple):
    """What handing a message in led to: its receipt, and whether the message is new to this mailbox."""

    receipt: Receipt
    new: bool
