"""`herd uninstall HOST`: take out of a host what `herd install` put in, and give back what was there."""

import argparse

from herd.cli import output
from herd.cli.hosting import HOSTS, describe, place
from herd.cli.install import shape, show_outcomes
from herd.core.errors import CONFLICT, DONE
from herd.core.paths import open_layout
from herd.hosts.install.installing import Installer
from herd.hosts.install.plan import UNCHANGED

HELP = "take Herd out of a host: Claude Code or Pi"
DESCRIPTION = (
    "Give back every byte of a host's files that nobody has changed since the installation; of a file that "
    "was changed, remove exactly Herd's entries. Messages and settings of Herd stay."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("host", choices=HOSTS, nargs="?", help="the host; all where none is named")
    parser.add_argument(
        "--force", action="store_true", help="remove Herd's own file although somebody changed it"
    )
    parser.set_defaults(needs_session=False)


def run(options: argparse.Namespace) -> int:
    """Uninstall."""
    return max(_uninstall(options, name) for name in ([options.host] if options.host else HOSTS))


def _uninstall(options: argparse.Namespace, name: str) -> int:
    environ, settings, layout = place()
    host = describe(name, environ, settings, layout, tools=True, force=options.force)
    installer = Installer(host, layout)
    if installer.plan_uninstall().changes:
        open_layout(settings.home)
    plan = installer.uninstall()
    status = CONFLICT if any(one.remarks for one in plan.outcomes) else DONE
    if options.json:
        output.put_json({"host": host.name, "files": [shape(one) for one in plan.outcomes]})
        return status
    show_outcomes(plan.outcomes)
    if status == DONE and all(one.what == UNCHANGED for one in plan.outcomes):
        output.put(f"Nothing of Herd was in the files of {host.title}; no byte was changed.")
    return status
