"""`herd recover`: what former instances and runs of this session left behind. Nothing is changed by it."""

import argparse

from herd.cli import output
from herd.cli.arguments import exact_text
from herd.cli.caller import Caller
from herd.cli.context import Context, open_context
from herd.cli.log import line_of
from herd.cli.options import add_as
from herd.cli.standing import told_history
from herd.core.errors import ScopeDenied
from herd.core.identity import target_of
from herd.core.text import printable
from herd.presence.registry import names_of
from herd.presence.session_file import read_session_file

HELP = "show what former instances of this session left unresolved"
DESCRIPTION = (
    "Show the messages that former instances and runs of this session left unresolved, with what was recorded"
    " of their hand-over. Nothing is altered, given to anybody, or moved to another session."
)


_MOST = 100_000
"""More than a mailbox of any allowed size leaves unresolved."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument(
        "--session", dest="other", metavar="TARGET", help="the session meant; it has to be this command's own"
    )


def run(options: argparse.Namespace) -> int:
    """Show it."""
    context = open_context()
    caller = context.caller(options.as_name)
    if options.other is not None:
        _require_own(context, caller, exact_text(options.other))
    messages = told_history(context, caller, most=_MOST, left=True)
    if options.json:
        output.put_json({"messages": messages})
        return 0
    for message in messages:
        output.put(line_of(message))
        output.put(f"    {message.get('instance', 'no instance: it came while the session was not running')}")
    output.put(
        f"{len(messages)} unresolved; they stay where they are, and this session goes on with them by itself"
        if messages
        else "nothing was left unresolved"
    )
    return 0


def _require_own(context: Context, caller: Caller, target: str) -> None:
    if caller.record is not None:
        own = target in names_of(caller.record)
    else:
        file = read_session_file(context.layout, caller.session.key)
        own = file is not None and target == target_of(file.role, caller.session.key)
    if not own:
        raise ScopeDenied(
            f"{printable(target)} is not the session of this command, and what it left is its own",
            hint="Run `herd recover` inside that session, once it runs again.",
        )
