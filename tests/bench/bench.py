"""`./run bench [SECTION...] [--json]`: measures, and shows each figure beside its floor and its bound.

Nothing here is a test: figures of a machine that is never quiet decide nothing, only a failed check ends it
with status 1. It runs when asked for by name and at no other time.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator

from tests.bench import (
    assigned,
    bodies,
    burst,
    grid,
    growth,
    hooks,
    judged,
    latency,
    lists,
    report,
    routes,
    servers,
    starts,
    stored,
    takeover,
    verdicts,
    waiting,
)
from tests.bench.report import Finding
from tests.bench.workshop import Workshop

SECTIONS: dict[str, tuple[Callable[[Workshop], Iterator[Finding]], ...]] = {
    "send": (latency.measure, routes.measure, burst.measure),
    "list": (lists.measure,),
    "start": (starts.measure,),
    "mcp": (servers.measure, takeover.measure),
    "hook": (hooks.measure,),
    "grid": (grid.measure,),
    "stored": (stored.measure,),
    "bodies": (bodies.measure,),
    "authority": (assigned.measure, judged.measure),
    "steady": (growth.measure, waiting.measure, verdicts.measure),
}
"""Each section and what it measures, in its order."""

_ABOUT = """sections:
  send    one message on a warm, a first and a crowded route; eight hundred at once
  list    who is there, read from records and asked on the command line
  start   what a session costs to start, and while it does nothing
  mcp     what a server costs to start, alone and twenty at once; its takeover, memory and tool list
  hook    what a hook of Claude Code costs; how soon mail reaches an idle session
  grid    rings of 2, 10 and 50 sessions, with messages of 128, 1,024 and 8,000 bytes
  stored  sending, sending again and fetching with 200,000 messages stored
  bodies  a file of 1 MiB, from the call to its acceptance
  authority  a scan of 1,000 assignments on ten sockets, a verdict, and a send that rests on them
  steady  10,000 messages later; a reader that waits; the authority lock under twenty judges
"""


def main() -> int:
    """Measure what was asked for; 1 where a check failed."""
    asked = _parser().parse_args()
    findings: dict[str, list[Finding]] = {}
    with Workshop(asked.folder) as workshop:
        found = report.surroundings(str(workshop.folder))
        if not asked.json:
            report.put_surroundings(found)
        for name in asked.sections or SECTIONS:
            findings[name] = list(_section(name, workshop, quiet=asked.json))
    if asked.json:
        shaped = {name: [finding.as_json() for finding in some] for name, some in findings.items()}
        sys.stdout.write(json.dumps({"surroundings": found, "sections": shaped}, indent=2) + "\n")
    return int(any(report.failed(some) for some in findings.values()))


def _section(name: str, workshop: Workshop, *, quiet: bool) -> Iterator[Finding]:
    if not quiet:
        report.put_section(name)
    for measure in SECTIONS[name]:
        for finding in measure(workshop):
            if not quiet:
                report.put(finding)
            yield finding


def _known(name: str) -> str:
    if name not in SECTIONS:
        raise argparse.ArgumentTypeError(f"there is no section {name!r}, only {', '.join(SECTIONS)}")
    return name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run bench",
        description="Measure Herd on this machine.",
        epilog=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "sections", nargs="*", type=_known, metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all of them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--folder",
        default="/var/tmp",
        help="where the data roots are made: on the kind of disk that homes lie on (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
