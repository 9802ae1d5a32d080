"""The named instants of an assignment's life at which whoever changes its record may die.

Code calls `step(NAME)` before and after each change of a file, as it does for a message's life at those of
`herd.mail.steps`. The default does nothing; a fault test passes a callable that kills there.
"""

from herd.mail.steps import Step, no_step

WRITE_BEFORE = "assignment.write.before"
WRITE_AFTER = "assignment.write.after"
REMOVE_BEFORE = "assignment.remove.before"
REMOVE_AFTER = "assignment.remove.after"
ASIDE_BEFORE = "assignment.set_aside.before"
ASIDE_AFTER = "assignment.set_aside.after"

ASSIGNMENT_STEPS = (WRITE_BEFORE, WRITE_AFTER, REMOVE_BEFORE, REMOVE_AFTER, ASIDE_BEFORE, ASIDE_AFTER)
"""Every step, each passed at one place; the folder is synced after the last of each pair."""

__all__ = [
    "ASIDE_AFTER",
    "ASIDE_BEFORE",
    "ASSIGNMENT_STEPS",
    "REMOVE_AFTER",
    "REMOVE_BEFORE",
    "WRITE_AFTER",
    "WRITE_BEFORE",
    "Step",
    "no_step",
]
