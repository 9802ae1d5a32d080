"""The words of authority: roles, kinds, the evidence about one side, and the three verdicts.

A verdict is a value. `Denied` and `Unverified` carry the reason as a person reads it; only the first of
them rejects anything, the second keeps what waits and asks again later.
"""

from typing import NamedTuple

from assignments.worktrees.groups import Membership
from herd.core.errors import EligibilityDenied, EligibilityUnverified
from herd.presence.scopes import ANYWHERE, Extent

LEAD = "lead"
MANAGER = "manager"
ORDINARY = "ordinary"
MANAGED = "managed"


class Allowed(NamedTuple):
    """Verified evidence allows it."""


class Denied(NamedTuple):
    """Verified evidence forbids it."""

    reason: str


class Unverified(NamedTuple):
    """The evidence that would allow it is missing, unreadable or ambiguous."""

    reason: str
    of_group: bool = False
    """Whether all that is missing is a worktree group, which looking it up may supply."""


Verdict = Allowed | Denied | Unverified


class Folder(NamedTuple):
    """Where to look up the worktree group of a session that lives on the asker's own socket."""

    cwd: str
    workspace_id: str | None = None


class Party(NamedTuple):
    """One side of an exchange as verified evidence shows it; None where the evidence is missing."""

    key: str
    role: str | None
    kind: str | None
    extent: Extent = ANYWHERE
    """What its scope takes in and is taken in by. No verdict rests on it; see `herd.presence.scopes`."""
    socket: str | None = None
    """The Herdr socket that it lives on, or `none`."""
    membership: Membership | None = None
    """Its worktree group. It is looked up only where a verdict needs it, and is None until then."""
    terminal: bool = False
    """Whether it is a terminal session, where a person writes."""
    fault: str | None = None
    """Why its role and kind are not proven, and by which file."""
    folder: Folder | None = None
    """Where its group is looked up; None where it is not. No verdict rests on it."""


# The doctor looks at files of Herd, and asks neither git nor Herdr.
UNPROVEN_GROUP = (
    "Look whether that session's folder is still there, whether `git worktree list` answers in it, and, if it"
    " is in Herdr, whether Herdr answers; then try again."
)
"""What to do where a verdict is open for a worktree group."""


def next_step(verdict: Unverified) -> str | None:
    """Give what to do about an open verdict; None where the refusal's own hint says it."""
    return UNPROVEN_GROUP if verdict.of_group else None


def require(verdict: Verdict) -> None:
    """Let an allowed exchange pass.

    Raises:
        EligibilityDenied: the verdict is `Denied`.
        EligibilityUnverified: the verdict is `Unverified`.
    """
    if isinstance(verdict, Denied):
        raise EligibilityDenied(verdict.reason)
    if isinstance(verdict, Unverified):
        raise EligibilityUnverified(verdict.reason, hint=next_step(verdict))
