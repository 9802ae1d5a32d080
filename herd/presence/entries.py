"""What a list shows of each peer: its target and labels, made safe to print, and nothing that names a pane.

Pure. Tools and command lines show the same entries.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from herd.core.clock import shown_time
from herd.core.limits import CWD_CHARACTERS, SHOWN_CHARACTERS
from herd.core.text import printable
from herd.presence.record import Record
from herd.presence.registry import names_of

_TWIN_TAILS = (4, 10)
"""Characters of the target that tell peers of one name apart; the second where the first made a twin anew."""


def entries_of(peers: Sequence[Record]) -> list[dict[str, Any]]:
    """Give the entries of listed records, in the order given; absent labels are left out.

    Peers that bear one name as it is shown get the end of their target behind it, so that no two look alike.
    """
    names = [_shown(peer.presence.name) if peer.presence else None for peer in peers]
    for tail in _TWIN_TAILS:
        bearers = Counter(names)
        names = [
            _with_tail(name, peer, tail) if name and bearers[name] > 1 else name
            for peer, name in zip(peers, names, strict=True)
        ]
    return [_entry(peer, name) for peer, name in zip(peers, names, strict=True)]


def names_shown(peer: Record) -> set[str]:
    """Give the names under which a list shows a peer: while it alone bears its own, and while others do."""
    name = _shown(peer.presence.name) if peer.presence else None
    return {name, _with_tail(name, peer, _TWIN_TAILS[0])} if name else set()


def undrained_minutes(peer: Record | None, now_ms: int, accepted_ms: int = 0) -> int | None:
    """Give the minutes for which a listed session's host has left mail lying; None where it has not.

    Args:
        peer: The record of the running session, None where it does not run.
        now_ms: Milliseconds since the epoch.
        accepted_ms: When the message that is asked about was accepted, where it is about one.
    """
    since = peer.presence.undrained_since if peer is not None and peer.presence is not None else None
    return None if since is None else max(0, now_ms - max(since, accepted_ms)) // 60_000


def matches(entry: dict[str, Any], query: str) -> bool:
    """Tell whether a text stands in the target or any label of an entry, whatever its case."""
    wanted = query.casefold()
    return any(
        wanted in value.casefold() for name, value in entry.items() if name != "since" and value is not True
    )


def _with_tail(name: str, peer: Record, tail: int) -> str:
    return f"{printable(name, SHOWN_CHARACTERS - tail - 1)}-{names_of(peer)[0][-tail:]}"


def _entry(record: Record, name: str | None) -> dict[str, Any]:
    presence = record.presence
    assert presence is not None, "only listed records have an entry"
    labels = {
        "name": name,
        "cwd": _shown(presence.cwd, CWD_CHARACTERS),
        "repo": _shown(presence.repo),
        "branch": _shown(presence.branch),
        "workspace_label": _shown(presence.workspace_label),
        "activity": presence.activity,
        "since": shown_time(presence.since),
    }
    known = {label: value for label, value in labels.items() if value is not None}
    return {"target": names_of(record)[0], **known}


def _shown(label: str | None, limit: int = SHOWN_CHARACTERS) -> str | None:
    return printable(label or "", limit) or None
