"""The reference page of a message's life, read off the table of receipts.

The states, what each claims and what may follow it come from `herd.mail.receipts`. Only who makes each step
is written here, and a state without such a line, or a line without a state, is refused.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from docs.markdown import Undocumented, page, table
from herd.mail.receipts import MEANINGS, NEXT

Following = Mapping[str, AbstractSet[str]]

MADE_BY: dict[str, str] = {
    "pending": "`herd.mail.outbox`, in the sender's mailbox, when the call was allowed",
    "unknown": "nothing: every carrier of today can be asked again",
    "accepted": "`herd.mail.inbox`, in the recipient's mailbox, by its coordinator or by a visit",
    "delivered": "`herd.mail.inbox`, in the recipient's mailbox, by its coordinator alone",
    "replied": (
        "`herd.mail.conversations`, in the sender's mailbox when it accepts the reply, in the recipient's "
        "when it learns of that"
    ),
    "rejected": (
        "`herd.mail.outbox`, for a definitive refusal or a cancellation; `herd.mail.inbox`, for a refusal at "
        "delivery"
    ),
    "expired": (
        "`herd.mail.outbox`, where no mailbox has it when its lifetime is over; `herd.mail.inbox`, in the "
        "recipient's mailbox, where it was not delivered by then"
    ),
}
"""Which code gives a message each state."""

PICTURE = """\
  the sender knows          the recipient's mailbox has it

                            +--------> rejected   (refused when it was to be delivered)
                            |
  pending -------------> accepted --------> delivered --------> replied
     |                      |
     +------> rejected      +--------> expired    (its lifetime was over)
     |
     +------> expired
     |
     +------> unknown
"""
"""The usual way; the table below the picture has every other."""

_INTRODUCTION = """\
A message has a row in its sender's outbox and, once accepted, a row in its recipient's inbox. Each row has a
state of its own. The recipient's row is the first to be `accepted` and `delivered`; the sender's row follows
by receipts, which stay owed until the sender has confirmed them. The sender's row is the first to be
`replied`. What each state proves and does not, and what a crash leaves, stands in
[durability](../explanation/durability.md)."""

_SKIPS = """\
A receipt that comes late, twice or out of order changes nothing that this table does not allow. A sender may
miss a step: one receipt may take its row from `pending` to `replied`."""

_LIFETIMES = """\
A message is good for ever unless its sender gives it a lifetime. What is left of that travels with it in
milliseconds. Up to the acceptance the sender counts, from then on the recipient's mailbox, each by the boot
clock of its own machine, which runs on while the machine sleeps; from one boot to another the wall clock
counts, and never less than nothing. So neither two clocks that differ nor one that is set changes anything.

- Where it is over before any mailbox can have the message, the sender's row becomes `expired`. Where one may
  have it, that one is asked first, and while it cannot be asked the message stays `pending`.
- Where it is over in the recipient's mailbox, the row becomes `expired`, keeps when it was accepted, and owes
  its sender that receipt.
- A message in a host's hands does not expire: it may be read at that very moment, and its evidence counts. If
  the host gives it back, or its reader ends without evidence, it expires then and is not given again.
- A session that does not run ends what is over when it starts, or when it is visited.

`expired` says no more than that there was no evidence in time; it is not replaced by evidence that comes
after it."""

_SEEN = """\
- `session.send` and `herd send` say `queued` for a message that is `pending`, and its state otherwise.
- `session.status` and `herd status` give the receipt. For a pending message that was refused in passing,
  `outcome` is the code of the last refusal, and `hint` says what follows from it.
- `session.read` and `herd inbox` give the receipts that have changed since they were last told, and what
  came here and expired before it was delivered.
- `session.subscribe` with `events` tells each state that was reached, in order and once.

`outcome` of a rejected message is the code of the refusal, one of [errors](errors.md), or `CANCELLED` where
its sender took it back, or `PURGED` where a person removed it from the recipient's mailbox unread.
`accepted_at`, `delivered_at` and `replied_at` are shown and decide nothing. `cursor` counts the events of the
mailbox that holds the row."""


def message_states_page(
    following: Following = NEXT, meanings: Mapping[str, str] = MEANINGS, made_by: Mapping[str, str] = MADE_BY
) -> str:
    """Describe every state of a message and the only ways from one to another.

    Raises:
        Undocumented: a state says nowhere what it claims or who makes it, or a line stands for no state.
    """
    for lines, what in ((meanings, "meaning"), (made_by, "maker")):
        if following.keys() != lines.keys():
            raise Undocumented(f"{what}: {', '.join(sorted(following.keys() ^ lines.keys()))}")
    final = {state: "" if after else "yes" for state, after in following.items()}
    return page(
        "Message states",
        _INTRODUCTION,
        table(("state", "claim", "final"), ((f"`{one}`", meanings[one], final[one]) for one in following)),
        "## The usual way",
        f"```text\n{PICTURE}```",
        "## What may follow what",
        _SKIPS,
        table(("from", *following), _matrix(following)),
        "## Lifetimes",
        _LIFETIMES,
        "## Who makes each step",
        table(("state", "given by"), ((f"`{one}`", made_by[one]) for one in following)),
        "## Where it is seen",
        _SEEN,
    )


def _matrix(following: Following) -> list[tuple[str, ...]]:
    return [
        (f"`{state}`", *("yes" if after in following[state] else "" for after in following))
        for state in following
    ]
