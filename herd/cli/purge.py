"""`herd purge`: remove the texts of resolved mail now, and empty folders of old sessions."""

import argparse
import sys

from herd.cli import output
from herd.cli.arguments import exact_text
from herd.cli.caller import Caller
from herd.cli.context import Context, open_context
from herd.cli.folders import remove_empty_folders
from herd.cli.options import add_as
from herd.cli.standing import asked_or_looked
from herd.coordinator.records import purge_resolved, remove_one
from herd.core.clock import SystemClock
from herd.core.errors import CapabilityDenied, InvalidParams, UnknownTarget
from herd.core.identity import TERMINAL
from herd.core.limits import KEPT_AT_ONCE
from herd.core.moments import Moment
from herd.core.text import printable

HELP = "remove the texts of resolved mail, and empty folders of old sessions"
DESCRIPTION = (
    "Remove what is kept of this session's resolved mail, and the folders of old sessions that hold nothing."
    " A message that was not delivered is removed by its id alone, and only on a person's word."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument("--message", metavar="MESSAGE", help="remove this one message, though nobody read it")
    parser.add_argument("--yes", action="store_true", help="do not ask whether that message is to go")


def run(options: argparse.Namespace) -> int:
    """Remove."""
    context = open_context()
    caller = context.caller(options.as_name)
    if options.message is not None:
        message_id = exact_text(options.message)
        _require_consent(caller, message_id, given=options.yes)
        removed = _remove(context, caller, message_id)
        _tell(
            {"removed": removed},
            f"message {printable(message_id)} is removed, and its sender is told",
            options,
        )
        return 0
    removed = _purge(context, caller)
    folders = remove_empty_folders(context.layout)
    text = f"removed the texts of {removed} resolved messages and {folders} empty folders of old sessions"
    _tell({"removed": removed, "folders": folders}, text, options)
    return 0


def _purge(context: Context, caller: Caller) -> int:
    count = 0
    while True:
        removed = asked_or_looked(
            context,
            caller,
            ("session.purge", {}),
            lambda answer: int(answer["removed"]),
            lambda connection, _: purge_resolved(connection, Moment.now(SystemClock())),
            0,
        )
        count += removed
        if removed < KEPT_AT_ONCE:
            return count


def _remove(context: Context, caller: Caller, message_id: str) -> int:
    removed = asked_or_looked(
        context,
        caller,
        ("session.purge", {"message_id": message_id}),
        lambda answer: int(answer["removed"]),
        lambda connection, _: len(remove_one(connection, message_id, Moment.now(SystemClock()))),
        0,
    )
    if not removed:
        raise UnknownTarget(f"no message {printable(message_id)} came to this session")
    return removed


def _require_consent(caller: Caller, message_id: str, *, given: bool) -> None:
    if caller.session.host != TERMINAL:
        raise CapabilityDenied(
            "an agent's command removes no mail that was not delivered",
            hint="A person does it, in a terminal of their own.",
        )
    if given:
        return
    if not sys.stdin.isatty():
        raise InvalidParams(
            "nobody is there to be asked whether the message is to go",
            hint="Say it with --yes.",
        )
    output.put(f"Remove message {printable(message_id)}, which was not delivered? Its sender is told. [y/N]")
    output.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InvalidParams("nothing was removed", hint="Answer y to remove it.")


def _tell(answer: dict[str, int], text: str, options: argparse.Namespace) -> None:
    if options.json:
        output.put_json(answer)
    else:
        output.put(text)
