"""`herd inbox`: read what came. Shown messages are confirmed once the output that shows them was flushed."""

import argparse
import time
from collections.abc import Iterator
from typing import Any

from herd.cli import output
from herd.cli.calling import Call, calling
from herd.cli.context import open_context
from herd.cli.options import add_as, add_session
from herd.cli.sleeping import waiting_in
from herd.core.errors import InvalidParams
from herd.core.limits import READ_WAIT_MS
from herd.mail.header import shown_to_person

HELP = "read the messages that came"
DESCRIPTION = "Read what came to this session. What was shown counts as delivered."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    add_session(parser)
    parser.add_argument(
        "--wait",
        nargs="?",
        type=float,
        const=float("inf"),
        metavar="SECONDS",
        help="wait for a message where none is there, this long or until interrupted",
    )
    parser.add_argument("--message", metavar="MESSAGE", help="show this one message, read before or not")


def run(options: argparse.Namespace) -> int:
    """Read."""
    context = open_context()
    if options.other is not None:
        _show(waiting_in(context, options.other), as_json=options.json)
        return 0
    wait = options.wait or 0.0
    if wait < 0:
        raise InvalidParams("--wait takes a number of seconds of at least 0")
    with calling(context, context.caller(options.as_name)) as call:
        for answer in _answers(call, options.message, wait):
            _show(answer, as_json=options.json)
            output.flush()
            # Only now is there evidence: a reader of our output that went away has seen nothing.
            _confirm(call, answer)
    return 0


def _answers(call: Call, message_id: str | None, wait: float) -> Iterator[dict[str, Any]]:
    if message_id is not None:
        yield call("session.read", {"message_id": message_id})
        return
    end = time.monotonic() + wait
    more = True
    while more:
        left = max(
            0,
            min(READ_WAIT_MS, int((end - time.monotonic()) * 1000) if wait != float("inf") else READ_WAIT_MS),
        )
        answer = call("session.read", {"wait_ms": left})
        more = bool(answer.get("more")) or (
            answer["timed_out"] and (wait == float("inf") or time.monotonic() < end)
        )
        if answer["messages"] or answer["receipts"] or not more:
            end = 0.0
            yield answer


def _confirm(call: Call, answer: dict[str, Any]) -> None:
    message_ids = [message["message_id"] for message in answer["messages"]]
    if message_ids:
        call("session.confirm", {"message_ids": message_ids, "evidence": "shown by herd inbox"})


def _show(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.put_json(answer)
        return
    for receipt in answer["receipts"]:
        outcome = f" ({receipt['outcome']})" if "outcome" in receipt else ""
        output.put(
            f"your message {receipt['message_id']} to {receipt['target']} is {receipt['status']}{outcome}"
        )
    for message in answer["messages"]:
        output.put(shown_to_person(message))
    if not answer["messages"] and not answer["receipts"]:
        output.put("nothing new")
