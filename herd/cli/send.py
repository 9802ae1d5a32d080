"""`herd send`: one message to one session."""

import argparse
import sys
from typing import Any

from herd.cli import output
from herd.cli.arguments import decoded, exact_text
from herd.cli.calling import ask
from herd.cli.context import open_context
from herd.cli.options import add_as
from herd.core.errors import FrameTooLarge, InvalidParams, MessageTooLarge
from herd.core.limits import STDIN_BYTES

HELP = "send a message to a session"
DESCRIPTION = (
    "Send a message. TARGET is an exact target, or a name that one peer alone bears. The text is the second "
    "argument, or standard input where that is `-` or left out."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument("target", metavar="TARGET", help="whom to write to, as `herd peers` shows it")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the text, or `-` for standard input")
    parser.add_argument(
        "--reply-to", metavar="MESSAGE", help="the message of that peer which this one answers"
    )
    parser.add_argument("--topic", metavar="TOPIC", help="a few words on what it is about")
    parser.add_argument(
        "--no-reply-needed", action="store_true", help="tell the recipient that no answer is expected"
    )


def run(options: argparse.Namespace) -> int:
    """Send it."""
    params: dict[str, Any] = {"target": exact_text(options.target), "message": _text(options.text)}
    for field in ("reply_to", "topic"):
        if getattr(options, field) is not None:
            params[field] = exact_text(getattr(options, field))
    if options.no_reply_needed:
        params["no_reply_needed"] = True
    context = open_context()
    try:
        sent = ask(context, context.caller(options.as_name), "session.send", params)
    except FrameTooLarge as refusal:  # the session's coordinator did not even read it
        raise MessageTooLarge(f"the text is too large to hand it on: {refusal.message}") from None
    if options.json:
        output.put_json(sent)
    else:
        asleep = (
            "" if sent.get("peer_running", True) else " (that session is not running; its mailbox has it)"
        )
        output.put(f"{sent['message_id']}  {sent['status']}{asleep}")
    return 0


def _text(argument: str | None) -> str:
    if argument is not None and argument != "-":
        text = exact_text(argument)
    else:
        text = decoded(_standard_input(asked_for=argument == "-"), "standard input")
    if not text:
        raise InvalidParams("the text is empty")
    return text


def _standard_input(*, asked_for: bool) -> bytes:
    """Read the text; nobody is left waiting at a terminal for a text that he was never asked for."""
    if sys.stdin is None or (sys.stdin.isatty() and not asked_for):
        raise InvalidParams("there is no text: give it as the second argument, or `-` and type it")
    data = sys.stdin.buffer.read(STDIN_BYTES + 1)
    if len(data) > STDIN_BYTES:
        raise MessageTooLarge(f"standard input has more than {STDIN_BYTES} bytes")
    return data
