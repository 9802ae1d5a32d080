"""`herd whoami`: the session this command line acts for."""

import argparse

from herd.cli import output
from herd.cli.context import open_context
from herd.cli.options import add_as
from herd.cli.self_view import self_view
from herd.core.text import printable

HELP = "show which session this command line acts for"
DESCRIPTION = "Show the session that this command line is proved to belong to."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)


def run(options: argparse.Namespace) -> int:
    """Show it."""
    context = open_context()
    view = self_view(context, context.caller(options.as_name))
    if options.json:
        output.put_json(view)
        return 0
    for label in ("target", "name", "role", "kind", "scope", "socket"):
        output.put(f"{label:8}{printable(view[label])}")
    output.put(f"build   {view['build']['version']} · {view['build']['sha256'][:12]}")
    return 0
