"""What all assignment records of a user prove together: which session holds which work, or what is lacking.

These are values. `assignments.scan` reads the records, and `roles.eligibility` judges by what they prove.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Held(NamedTuple):
    """One branch of one repository that an assignment gives to a session."""

    socket: str
    """The Herdr socket in whose namespace the record lies, or `none`."""
    repo: str
    """The key of the repository's worktree group: the real path of its common directory."""
    branch: str


class Lacking(NamedTuple):
    """Why the records prove nothing: one of them is corrupt, vanished or could not be read."""

    reason: str
    """As a person reads it, bounded."""
    path: str
    """The file or folder it is about."""


class Scan(NamedTuple):
    """The canonical records of every socket namespace, as one look found them."""

    held: Mapping[str, tuple[Held, ...]]
    """What each session holds, by its session key; who holds nothing is missing. More than one: ambiguous."""
    lacking: Lacking | None = None
    """None where the scan is complete; otherwise `held` proves nothing about anybody."""


NOTHING_ASSIGNED = Scan({})
"""A complete scan that found no record."""
