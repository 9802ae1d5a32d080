"""What a list shows of each peer: its target and labels, made safe to print, and nothing that names a pane.

Pure. Tools and command lines show the same entries.
"""

from collections.abc import Sequence
from typing import Any

from herd.core.limits import SHOWN_CHARACTERS
from herd.core.text import printable
from herd.presence.record import Record
from herd.presence.registry import names_of

_TWIN = 4
"""Characters of the target that tell peers of one name apart."""


def entries_of(peers: Sequence[Record]) -> list[dict[str, Any]]:
    """Give the entries of listed records, in the order given; absent labels are left out.

    Peers that bear one name get the end of their target behind it, so that no two entries look alike.
    """
    names = [peer.presence.name if peer.presence else None for peer in peers]
    return [_entry(peer, twin=names.count(name) > 1) for peer, name in zip(peers, names, strict=True)]


def matches(entry: dict[str, Any], query: str) -> bool:
    """Tell whether a text stands in any label of an entry, whatever its case."""
    wanted = query.casefold()
    return any(wanted in value.casefold() for value in entry.values() if isinstance(value, str))


def _entry(record: Record, *, twin: bool) -> dict[str, Any]:
    target = names_of(record)[0]
    presence = record.presence
    assert presence is not None, "only listed records have an entry"
    name = printable(presence.name, SHOWN_CHARACTERS - _TWIN - 1) if presence.name else None
    labels = {
        "name": f"{name}-{target[-_TWIN:]}" if name and twin else name,
        "cwd": printable(presence.cwd, None) if presence.cwd else None,
        "repo": printable(presence.repo) if presence.repo else None,
        "branch": printable(presence.branch) if presence.branch else None,
        "workspace_label": printable(presence.workspace_label) if presence.workspace_label else None,
        "activity": presence.activity,
        "since": presence.since,
    }
    return {"target": target, **{label: value for label, value in labels.items() if value is not None}}
