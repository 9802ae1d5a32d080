"""`herd status`: what became of a message."""

import argparse
import os
from typing import Any

from herd.cli import output
from herd.cli.calling import ask
from herd.cli.context import open_context
from herd.cli.options import add_as, add_session
from herd.cli.sleeping import key_of, status_in

HELP = "show what became of a message you sent"
DESCRIPTION = "Show the receipt of a message: what is known of it, and nothing more."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    add_session(parser)
    parser.add_argument("message", metavar="MESSAGE", help="the message id that sending gave")


def run(options: argparse.Namespace) -> int:
    """Show it."""
    context = open_context()
    if options.other is not None:
        receipt = status_in(context, key_of(context, options.other), options.message)
    else:
        caller = context.caller(options.as_name)
        running = caller.record is not None
        asleep = not running and os.path.exists(context.layout.session_file(caller.session.key))
        if asleep:
            receipt = status_in(context, caller.session.key, options.message)
        else:
            receipt = ask(context, caller, "session.status", {"message_id": options.message})
    show(receipt, as_json=options.json)
    return 0


def show(receipt: dict[str, Any], *, as_json: bool) -> None:
    """Print a receipt."""
    if as_json:
        output.put_json(receipt)
        return
    why = f" ({receipt['outcome']})" if "outcome" in receipt else ""
    output.put(f"{receipt['message_id']}  to {receipt['to']}  {receipt['state']}{why}")
