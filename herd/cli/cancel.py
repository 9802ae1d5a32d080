"""`herd cancel`: take back a message that no mailbox has yet."""

import argparse

from herd.cli.arguments import exact_text
from herd.cli.calling import ask
from herd.cli.context import open_context
from herd.cli.options import add_as
from herd.cli.status import show

HELP = "take back a message that was not accepted yet"
DESCRIPTION = "Take back a pending message. One that a mailbox has, or may have, stays."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument("message", metavar="MESSAGE", help="the message id that sending gave")


def run(options: argparse.Namespace) -> int:
    """Take it back."""
    context = open_context()
    message = exact_text(options.message)
    receipt = ask(context, context.caller(options.as_name), "session.cancel", {"message_id": message})
    show(receipt, as_json=options.json)
    return 0
