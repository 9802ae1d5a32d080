"""`herd status`: what became of a message."""

import argparse
import os
from typing import Any

from herd.cli import output
from herd.cli.arguments import exact_text
from herd.cli.caller import Caller
from herd.cli.calling import ask
from herd.cli.context import Context, open_context
from herd.cli.options import add_as, add_session
from herd.cli.sleeping import key_of, status_in
from herd.core.errors import PeerOffline
from herd.mail.receipts import ACCEPTED, PENDING

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
    message = exact_text(options.message)
    if options.other is not None:
        receipt = status_in(context, key_of(context, exact_text(options.other)), message)
    else:
        receipt = _own(context, context.caller(options.as_name), message)
    show(receipt, as_json=options.json)
    return 0


def _own(context: Context, caller: Caller, message: str) -> dict[str, Any]:
    """Ask the caller's coordinator, or look into its mailbox where it has none."""
    if caller.record is None and os.path.exists(context.layout.session_file(caller.session.key)):
        try:
            receipt = status_in(context, caller.session.key, message)
        except PeerOffline:  # another shell's command has the mailbox by now
            caller = Caller(caller.session, context.living(caller.session))
        else:
            if receipt["state"] != PENDING:
                return receipt
            # Somebody may have taken it meanwhile, and only a coordinator asks and tries again.
    return ask(context, caller, "session.status", {"message_id": message})


def show(receipt: dict[str, Any], *, as_json: bool) -> None:
    """Print a receipt."""
    if as_json:
        output.put_json(receipt)
        return
    why = f" ({receipt['outcome']})" if "outcome" in receipt else ""
    if receipt["state"] == ACCEPTED:
        minutes = receipt.get("undrained_minutes")
        why = ", waiting for the host" if minutes is None else f", undrained for {minutes} minutes"
    output.put(f"{receipt['message_id']}  to {receipt['to']}  {receipt['state']}{why}")
    if "hint" in receipt:
        output.put(f"  {receipt['hint']}")
