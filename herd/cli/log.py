"""`herd log`: what became of this session's messages, in both directions, with times."""

import argparse
from collections.abc import Iterator
from typing import Any

from herd.cli import output
from herd.cli.calling import Call, calling
from herd.cli.context import open_context
from herd.cli.options import add_as
from herd.cli.standing import told_history
from herd.core.errors import InvalidParams
from herd.core.limits import HISTORY_MESSAGES, READ_WAIT_MS
from herd.core.text import printable

HELP = "show what became of your messages, with times"
DESCRIPTION = "Show the messages this session received and sent: stored, handed over, seen. No text is shown."

_SHOWN = 50
_STEPS = (
    ("stored_at", "stored"),
    ("accepted_at", "accepted"),
    ("handed_over_at", "handed over"),
    ("seen_at", "seen"),
    ("replied_at", "replied"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument("--follow", action="store_true", help="go on showing what changes, until interrupted")
    parser.add_argument(
        "--most",
        type=int,
        default=_SHOWN,
        metavar="COUNT",
        help=f"show the newest so many messages, 1 to {HISTORY_MESSAGES} (default: {_SHOWN})",
    )


def run(options: argparse.Namespace) -> int:
    """Show them."""
    if not 1 <= options.most <= HISTORY_MESSAGES:
        raise InvalidParams(f"--most takes a number from 1 to {HISTORY_MESSAGES}")
    context = open_context()
    caller = context.caller(options.as_name)
    question = {"most": options.most}
    if options.follow:
        with calling(context, caller) as call:
            for message in changes(call, question):
                _put(message, as_json=options.json)
                output.flush()
        return 0
    messages = told_history(context, caller, most=options.most, left=False)
    if options.json:
        output.put_json({"messages": messages})
        return 0
    for message in messages:
        output.put(line_of(message))
    if not messages:
        output.put("no messages")
    return 0


def changes(call: Call, question: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give each message as it is, and again whenever more has become of it; it ends by interruption alone."""
    shown: dict[tuple[str, str, str], dict[str, Any]] = {}
    wait_ms = 0
    while True:
        for message in call("session.history", {**question, "wait_ms": wait_ms})["messages"]:
            known = message["direction"], message["message_id"], message["peer"]
            if shown.get(known) != message:
                shown[known] = message
                yield message
        wait_ms = READ_WAIT_MS


def line_of(message: dict[str, Any]) -> str:
    """Give one message as one line."""
    towards = "from" if message["direction"] == "in" else "to"
    name = f" {printable(message['name'])}" if "name" in message else ""
    steps = [f"{word} {message[step]}" for step, word in _STEPS if step in message]
    times = message.get("handed_over", 0)
    again = [f"handed over {times} times"] if times > 1 else []
    why = f" ({printable(message['outcome'])})" if "outcome" in message else ""
    run = [f"run {message['run']}"] if "run" in message else []
    peer = f"{towards} {printable(message['peer'])}{name}"
    return "  ".join([message["message_id"], peer, message["state"] + why, ", ".join([*steps, *again, *run])])


def _put(message: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.put_json(message)
    else:
        output.put(line_of(message))
