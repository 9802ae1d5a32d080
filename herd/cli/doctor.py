"""`herd doctor`: what Herd finds here, one line a thing, with the next step where something is wrong.

It looks, and makes and changes nothing, unless a person asks for a repair. It needs no session, so it also
serves where nothing else starts. What it looks at stands in `herd.cli.looking`, a module for each look; here
is their order.
"""

import argparse
from collections.abc import Mapping, Sequence

from herd.cli import output
from herd.cli.looking import surroundings
from herd.cli.looking.assignments import assignments
from herd.cli.looking.authority import authority
from herd.cli.looking.files import files, missing_folders
from herd.cli.looking.finding import Finding, Findings, tried
from herd.cli.looking.hosts import hosts
from herd.cli.looking.presence import Seen, presence, scan
from herd.cli.looking.sessions import session
from herd.core import config
from herd.core.config import Settings
from herd.core.errors import DONE, RECOVERY, InvalidParams
from herd.core.limits import LINE_CHARACTERS
from herd.core.paths import MACHINE_ID_FILES, Layout, machine_id
from herd.core.text import printable
from herd.presence.registry import sleeping_keys

__all__ = ["DESCRIPTION", "HELP", "Finding", "add_arguments", "look", "run"]

HELP = "look whether everything is in order, and say what to do where it is not"
DESCRIPTION = (
    "Look at settings, folders, records and mailboxes; nothing is changed. With --repair, set corrupt"
    " assignment records aside instead, their bytes unchanged, on a person's word."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.set_defaults(needs_session=False)
    parser.add_argument("--repair", action="store_true", help="set corrupt assignment records aside; it asks")
    parser.add_argument("--yes", action="store_true", help="do not ask whether they are to be set aside")


def run(options: argparse.Namespace) -> int:
    """Look, and give 0 where all is in order, else the status of `recovery required`."""
    if options.repair:
        from herd.cli.repair import repair  # and with it the locks that a change needs

        return repair(given=options.yes, as_json=options.json)
    if options.yes:
        raise InvalidParams("--yes answers what --repair asks, and nothing else does ask")
    findings = list(look(config.environment()))
    if options.json:
        output.put_json({"findings": [_shape(finding) for finding in findings]})
    else:
        for finding in findings:
            _put(finding)
    return DONE if all(finding.ok for finding in findings) else RECOVERY


def look(environ: Mapping[str, str], machine_files: Sequence[str] = MACHINE_ID_FILES) -> Findings:
    """Give every finding, from the settings inwards; what is there and cannot be used ends nothing else.

    Args:
        environ: The variables, as `config.environment` gives them.
        machine_files: Where the machine's id may stand.
    """
    yield surroundings.build()
    machine, source = machine_id(machine_files)
    settings: list[Settings] = []
    yield from tried("settings", lambda: surroundings.settings(environ, settings))
    yield surroundings.machine(source)
    if not settings:
        return
    layouts: list[Layout] = []
    roots = list(tried("data root", lambda: surroundings.data_root(settings[0].home, machine, layouts)))
    yield from roots
    for layout in layouts:
        yield from _inside(environ, settings[0], layout, sound=all(one.ok for one in roots))


def _inside(environ: Mapping[str, str], settings: Settings, layout: Layout, *, sound: bool) -> Findings:
    seen = Seen([], [], 0, [])
    named: set[str] = set()
    troubles: list[Finding] = []

    def scanned() -> Findings:
        nonlocal seen
        seen = scan(layout)
        yield from ()

    troubles += tried("presence", scanned)
    wrong = list(files(layout, seen.living, named))
    if not sound:
        # Nothing of Herd works there before that is mended; what else has to be is named with it.
        yield from (finding for finding in wrong if not finding.ok)
        return
    yield from tried("disk", lambda: surroundings.disk(layout.root))
    yield from missing_folders(layout)
    yield from wrong
    yield from (finding for finding in troubles if not any(path in finding.detail for path in named))
    if not troubles:
        yield from presence(seen, named)
    yield from tried("authority", lambda: authority(layout), named=named)
    yield from tried("assignments", lambda: assignments(layout, named))
    yield from tried("hosts", lambda: hosts(environ, settings, layout))
    for key in sorted({*sleeping_keys(layout), *(record.key for record in seen.records)}):
        yield from tried("session", lambda: session(layout, key, named), named=named)  # noqa: B023 - used at once


def _put(finding: Finding) -> None:
    mark = "ok  " if finding.ok else "LOOK"
    output.put(f"{mark} {finding.what}: {printable(finding.detail, LINE_CHARACTERS)}")
    if finding.next_step:
        output.put(f"       -> {printable(finding.next_step, LINE_CHARACTERS)}")


def _shape(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in finding._asdict().items() if value is not None}
