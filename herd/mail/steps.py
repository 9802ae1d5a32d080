"""The named instants of a message's life at which a process may die.

Code calls `step(NAME)` at each persist, send and hand-over, before and after. The default does nothing;
a fault test passes a callable through the constructors that raises, waits or kills there.
"""

from collections.abc import Callable

Step = Callable[[str], None]

COMMIT_BEFORE = "mailbox.commit.before"
COMMIT_AFTER = "mailbox.commit.after"
OUTBOX_BEFORE = "outbox.persist.before"
OUTBOX_AFTER = "outbox.persist.after"
SEND_BEFORE = "message.send.before"
SEND_AFTER = "message.send.after"
SEVERAL_SENT_BEFORE = "messages.send.before"
SEVERAL_SENT_AFTER = "messages.send.after"
BODIES_BEFORE = "bodies.send.before"
BODIES_AFTER = "bodies.send.after"
INBOX_BEFORE = "inbox.persist.before"
INBOX_AFTER = "inbox.persist.after"
SEVERAL_TAKEN_BEFORE = "messages.persist.before"
SEVERAL_TAKEN_AFTER = "messages.persist.after"
RECEIPT_BEFORE = "receipt.persist.before"
RECEIPT_AFTER = "receipt.persist.after"
HANDOVER_BEFORE = "handover.count.before"
HANDOVER_AFTER = "handover.count.after"
EVIDENCE_BEFORE = "evidence.persist.before"
EVIDENCE_AFTER = "evidence.persist.after"
RUN_END_BEFORE = "run.end.before"
RUN_END_AFTER = "run.end.after"
OFFER_BEFORE = "receipt.offer.before"
OFFER_AFTER = "receipt.offer.after"

STEPS = (
    OUTBOX_BEFORE,
    OUTBOX_AFTER,
    SEND_BEFORE,
    SEND_AFTER,
    SEVERAL_SENT_BEFORE,
    SEVERAL_SENT_AFTER,
    BODIES_BEFORE,
    BODIES_AFTER,
    INBOX_BEFORE,
    INBOX_AFTER,
    SEVERAL_TAKEN_BEFORE,
    SEVERAL_TAKEN_AFTER,
    RECEIPT_BEFORE,
    RECEIPT_AFTER,
    HANDOVER_BEFORE,
    HANDOVER_AFTER,
    EVIDENCE_BEFORE,
    EVIDENCE_AFTER,
    RUN_END_BEFORE,
    RUN_END_AFTER,
    OFFER_BEFORE,
    OFFER_AFTER,
    COMMIT_BEFORE,
    COMMIT_AFTER,
)
"""Every step, in the order of a message's life; the two of the commit lie inside each persist.

A message that travels with others of its route passes those of several messages in place of its own two; one
whose text or files do not fit into its envelope passes those of the bodies first."""


def no_step(_: str) -> None:
    """Do nothing, as in every real process."""
