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
from herd.cli.sleeping import key_of, sent_in, status_in, status_of
from herd.core.clock import SystemClock
from herd.core.errors import PeerOffline
from herd.core.moments import Moment
from herd.mail.lifetimes import is_over
from herd.mail.outbox import Outgoing
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
            sent = sent_in(context, caller.session.key, message)
        except PeerOffline:  # another shell's command has the mailbox by now
            caller = Caller(caller.session, context.living(caller.session))
        else:
            if not _may_be_otherwise(sent):
                return status_of(context, sent)
            # Only a coordinator asks the recipient, and tries again.
    return ask(context, caller, "session.status", {"message_id": message})


def _may_be_otherwise(sent: Outgoing) -> bool:
    """Tell whether a message may have been taken, or have expired, since its sender was told."""
    state = sent.receipt.state
    return state == PENDING or (state == ACCEPTED and is_over(sent, Moment.now(SystemClock())))


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
