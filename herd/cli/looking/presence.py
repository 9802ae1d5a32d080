"""The look at the records in `peers/`: who is listed, where sockets lie, and which files are no records."""

import os
from collections.abc import Container
from typing import NamedTuple

from herd.cli.looking.finding import Finding, Findings
from herd.core.paths import Layout
from herd.presence.record import Record
from herd.presence.registry import Fault, Registry

_LEFT = "It is left as it is and hides nobody. Remove it if none of your sessions wrote it."


class Seen(NamedTuple):
    """What one scan of the records showed."""

    records: list[Record]
    """All of them."""
    living: list[Record]
    """Those whose instance lives."""
    listed: int
    """How many of them a list shows."""
    faults: list[Fault]
    """The files that are no records."""


def scan(layout: Layout) -> Seen:
    """Read every record.

    Raises:
        UnsafeEndpoint: `peers/` is no private folder of ours.
        OSError: it cannot be read.
    """
    registry = Registry(layout)
    records = registry.scan()
    living = [record for record in records if registry.lives(record)]
    return Seen(records, living, sum(registry.is_listed(record) for record in living), registry.faults)


def presence(seen: Seen, named: Container[str]) -> Findings:
    """Tell what was seen.

    Args:
        seen: What `scan` gave.
        named: Paths that another look has named already.
    """
    folders = sorted({os.path.dirname(record.endpoint) for record in seen.living})
    used = ", ".join(folders) or "use by nobody"
    yield Finding("presence", ok=True, detail=f"{seen.listed} listed, sockets in {used}")
    for fault in seen.faults:
        if fault.path not in named:
            detail = f"{fault.path} {fault.reason}"
            yield Finding("record", ok=False, detail=detail, next_step=_LEFT)
