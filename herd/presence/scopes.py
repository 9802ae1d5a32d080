"""Scopes: how far a session reaches, and from how far it may be reached. The rule, and nothing else.

Pure. What a session is judged by here is published in its record while it runs, and stands in its
`session.json` while it does not. Evidence that is missing narrows: no id is equal to none.
"""

from typing import NamedTuple

from herd.core.config import SCOPE_MACHINE, SCOPE_REPOSITORY, SCOPE_WORKSPACE
from herd.core.errors import ScopeDenied

SCOPES = (SCOPE_WORKSPACE, SCOPE_REPOSITORY, SCOPE_MACHINE)
"""Every scope, the narrowest first; each takes in what those before it do."""


class Extent(NamedTuple):
    """What one session's scope is, and the ids by which others' scopes know it."""

    scope: str = SCOPE_MACHINE
    workspace: str | None = None
    """The real path of its working directory; None where there is no such folder."""
    repository: str | None = None
    """The real path of its repository's common directory; None outside a checkout."""


ANYWHERE = Extent()
"""That of a session which nothing narrows, and of whose place nothing is known."""


def includes(mine: Extent, theirs: Extent) -> bool:
    """Tell whether my scope takes the other session in; its scope is not looked at."""
    if mine.scope == SCOPE_MACHINE:
        return True
    same_workspace = mine.workspace is not None and mine.workspace == theirs.workspace
    if mine.scope == SCOPE_WORKSPACE:
        return same_workspace
    return same_workspace or (mine.repository is not None and mine.repository == theirs.repository)


def mutual(one: Extent, other: Extent) -> bool:
    """Tell whether each of two sessions takes the other in."""
    return includes(one, other) and includes(other, one)


def require_mutual(sender: Extent, target: Extent) -> None:
    """Let an exchange pass that both sides' scopes allow.

    Raises:
        ScopeDenied: one of them leaves the other out; both scopes are named.
    """
    if mutual(sender, target):
        return
    leaving = [
        side
        for side, mine, theirs in (("sender's", sender, target), ("recipient's", target, sender))
        if not includes(mine, theirs)
    ]
    raise ScopeDenied(
        f"the sender's scope is {sender.scope} and the recipient's is {target.scope}: the "
        f"{' and the '.join(leaving)} {'leaves' if len(leaving) == 1 else 'leave'} the other session out"
    )


def narrower(one: str, other: str) -> str:
    """Give the narrower of two scopes."""
    return min(one, other, key=SCOPES.index)


def limited(extent: Extent, scope: str | None) -> Extent:
    """Give an extent whose scope is the narrower of its own and another one; as it is where that is None."""
    return extent if scope is None else extent._replace(scope=narrower(extent.scope, scope))


def narrowed(mine: Extent, wanted: str | None) -> Extent:
    """Give what one call asks for: its own scope where it names one, else the session's.

    Raises:
        ScopeDenied: it asks for more than the session has; nothing is widened, and nothing cut down.
    """
    if wanted is None or wanted == mine.scope:
        return mine
    if narrower(wanted, mine.scope) != wanted:
        raise ScopeDenied(f"scope {wanted} was asked for, and this session's scope is {mine.scope}")
    return mine._replace(scope=wanted)
