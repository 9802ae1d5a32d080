"""`herd send`: one message to one session."""

import argparse
import os
import sys
import time
from typing import Any, Literal

from herd.cli import output
from herd.cli.arguments import decoded, exact_text
from herd.cli.caller import Caller
from herd.cli.calling import Call, calling
from herd.cli.context import open_context
from herd.cli.options import add_as
from herd.core.errors import BY_CODE, FrameTooLarge, InvalidParams, InvalidRpc, MessageTooLarge
from herd.core.identity import TERMINAL
from herd.core.limits import CARRY_S, RETRY_FIRST_MS, STDIN_BYTES, Limits
from herd.core.text import printable
from herd.mail.parts import PREFIX
from herd.mail.receipts import PENDING, REJECTED

HELP = "send a message to a session"
DESCRIPTION = (
    "Send a message. TARGET is an exact target, or a name that one peer alone bears, and `:NAME` is the same "
    "as NAME. The text is the second argument, or standard input where that is `-` or left out."
)

_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument("target", metavar="TARGET", help="whom to write to, as `herd peers` shows it")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="the text, or `-` for standard input")
    parser.add_argument(
        "--reply-to", metavar="MESSAGE", help="the message of that peer which this one answers"
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        dest="files",
        help="attach a UTF-8 text file, or a result by `result:AGENT#N`; may be given more than once",
    )
    parser.add_argument("--topic", metavar="TOPIC", help="a few words on what it is about")
    parser.add_argument(
        "--no-reply-needed", action="store_true", help="tell the recipient that no answer is expected"
    )
    parser.add_argument(
        "--expires-in",
        nargs="?",
        const=True,  # no text: an empty one is no time
        metavar="TIME",
        help="give it up where it is not delivered in time: milliseconds, or a number with s, m or h behind "
        "it; without TIME as long as `expiry_ms` says",
    )


def run(options: argparse.Namespace) -> int:
    """Send it."""
    params: dict[str, Any] = {"target": addressed(options.target), "message": _text(options.text)}
    for field in ("reply_to", "topic"):
        if getattr(options, field) is not None:
            params[field] = exact_text(getattr(options, field))
    if options.files:
        params["files"] = [_entry(exact_text(one)) for one in options.files]
    if options.no_reply_needed:
        params["no_reply_needed"] = True
    context = open_context()
    if options.expires_in is not None:
        params["expires_in_ms"] = lifetime_ms(options.expires_in, context.settings.limits)
    caller = context.caller(options.as_name)
    with calling(context, caller) as call:
        sent = _sent(call, params)
        if caller.session.host == TERMINAL:
            sent = carried(call, sent)
    try:
        if options.json:
            output.put_json(sent)
        else:
            output.put(f"{sent['message_id']}  {sent['status']}{_remark(sent, caller)}")
        output.flush()
    except output.OutputLostError:
        # Whoever only sees the status would send it again, as another message.
        output.remark(f"message {sent['message_id']} is {sent['status']}; do not send it again")
        raise
    return 0


def lifetime_ms(text: str | Literal[True], limits: Limits) -> int:
    """Give the milliseconds that `--expires-in` asks for; True, no time at all, asks for the usual ones.

    Raises:
        InvalidParams: it is no time, or not above zero, or longer than a message may be good for.
    """
    if text is True:
        return limits.expiry_ms
    number = text.rstrip("hms")
    unit = _UNITS_MS.get(text[len(number) :])
    if unit is None or not (number.isascii() and number.isdigit()) or int(number[:18]) == 0:
        raise InvalidParams(
            f"--expires-in: {printable(text)} is no time, such as 90s or 10m; TEXT does not come behind it",
            field="expires_in_ms",
        )
    asked = int(number[:18]) * unit
    if asked > limits.max_expiry_ms:
        raise InvalidParams(
            f"--expires-in: {printable(text)} is more than {limits.max_expiry_ms} ms", field="expires_in_ms"
        )
    return asked


def carried(call: Call, sent: dict[str, Any]) -> dict[str, Any]:
    """Give a message its time until a mailbox has it: who would carry it has ended with this command.

    Args:
        call: Asks the coordinator.
        sent: What `session.send` gave.

    Returns:
        The same with the status reached within `CARRY_S`.

    Raises:
        HerdError: the recipient refused it.
    """
    give_up = time.monotonic() + CARRY_S
    while sent["status"] == "queued" and time.monotonic() < give_up:
        time.sleep(RETRY_FIRST_MS / 1000)
        receipt = call("session.status", {"message_id": sent["message_id"]})
        if receipt["state"] == REJECTED:
            raise BY_CODE.get(receipt.get("outcome", ""), InvalidRpc)("the message was refused")
        if receipt["state"] != PENDING:
            sent = {**sent, "status": receipt["state"]}
    return sent


def _entry(given: str) -> str:
    """Give a path as it stands from this shell; the session may be elsewhere."""
    return given if given.startswith(PREFIX) else os.path.join(os.getcwd(), given)


def _sent(call: Call, params: dict[str, Any]) -> dict[str, Any]:
    try:
        return call("session.send", params)
    except FrameTooLarge as refusal:  # the session's coordinator did not even read it
        raise MessageTooLarge(f"the call is too large to hand it on: {refusal.message}") from None


def _remark(sent: dict[str, Any], caller: Caller) -> str:
    if sent["status"] == "queued":
        why = f"no mailbox has it yet; `herd status {sent['message_id']}` follows it"
        again = "any later command of this session, such as `herd inbox`, tries again"
        return f" ({why}, and {again})" if caller.session.host == TERMINAL else f" ({why})"
    if "undrained_minutes" in sent:
        return f" (its host has left mail lying for {sent['undrained_minutes']} minutes)"
    return "" if sent.get("peer_running", True) else " (that session is not running; its mailbox has it)"


def addressed(argument: str) -> str:
    """Give whom it goes to; what is no reference as a whole is a target or name as it stands."""
    target = exact_text(argument)
    if not target.startswith(":"):
        return target
    from herd.core.references import named_by  # a plain name needs no parser

    return named_by(target) or target


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
