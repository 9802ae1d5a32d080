"""The words of authority: roles, kinds, and the three verdicts.

A verdict is a value. `Denied` and `Unverified` carry the reason as a person reads it; only the first of
them rejects anything, the second keeps what waits and asks again later.
"""

from typing import NamedTuple

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


Verdict = Allowed | Denied | Unverified


class Party(NamedTuple):
    """One side of an exchange as verified evidence shows it; None where the evidence is missing."""

    key: str
    role: str | None
    kind: str | None
    extent: Extent = ANYWHERE
    """What its scope takes in and is taken in by. No verdict rests on it; see `herd.presence.scopes`."""


def require(verdict: Verdict) -> None:
    """Let an allowed exchange pass.

    Raises:
        EligibilityDenied: the verdict is `Denied`.
        EligibilityUnverified: the verdict is `Unverified`.
    """
    if isinstance(verdict, Denied):
        raise EligibilityDenied(verdict.reason)
    if isinstance(verdict, Unverified):
        raise EligibilityUnverified(verdict.reason)
