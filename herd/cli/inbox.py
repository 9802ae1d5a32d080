"""`herd inbox`: read what came. Shown messages are confirmed once the output that shows them was flushed."""

import argparse
import time
from collections.abc import Iterator
from typing import Any

from herd.cli import output
from herd.cli.arguments import exact_text
from herd.cli.caller import Caller
from herd.cli.calling import Call, ask, calling
from herd.cli.context import Context, open_context
from herd.cli.options import add_as, add_session
from herd.cli.sleeping import waiting_in
from herd.core.errors import CapabilityDenied, InvalidParams, NoSession, PeerOffline
from herd.core.identity import TERMINAL
from herd.core.limits import CONFIRM_MESSAGES, READ_WAIT_MS
from herd.core.text import printable
from herd.mail.header import shown_to_person
from herd.presence.registry import names_of

LET_THROUGH = "at a terminal of your own: `herd inbox --session TARGET --accept`"

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
    parser.add_argument(
        "--save",
        metavar="FOLDER",
        help="write the files attached to what is shown into this folder; nothing there is replaced",
    )
    parser.add_argument(
        "--look", action="store_true", help="show what waits; nothing counts as delivered by it"
    )
    parser.add_argument(
        "--accept",
        action="store_true",
        help="with --session: let through what was held back at that session's start (on_restart = review)",
    )


def run(options: argparse.Namespace) -> int:
    """Read."""
    wait_s = options.wait or 0.0
    if not wait_s >= 0:  # which "nan" is not either
        raise InvalidParams("--wait takes a number of seconds of at least 0")
    if options.accept and options.other is None:
        raise InvalidParams("--accept goes with --session TARGET: the session whose mail you let through")
    context = open_context()
    if options.accept:
        return _accept(context, options)
    if options.other is not None or options.look:
        if wait_s or options.message is not None or options.save is not None:
            raise InvalidParams(
                "--session and --look show what waits, and take none of --wait, --message and --save"
            )
        _show_waiting(_waiting(context, options), as_json=options.json)
        return 0
    if options.save is not None:
        _require_folder(exact_text(options.save))  # before anything is handed over
    with calling(context, context.caller(options.as_name)) as call:
        for answer, whole in _whole_answers(call, options.message, wait_s):
            _show(answer, as_json=options.json)
            if options.save is not None:
                _save(call, answer, exact_text(options.save))
            output.flush()
            # Only now is there evidence: a reader of our output that went away has seen nothing.
            _confirm(call, answer, whole)
    return 0


def _whole_answers(
    call: Call, message_id: str | None, wait_s: float
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    for answer in answers(call, message_id, wait_s):
        if not any("next_offset" in message for message in answer["messages"]):
            yield answer, [message["message_id"] for message in answer["messages"]]
            continue
        from herd.cli.whole_texts import whole_texts  # few messages are that long

        yield whole_texts(call, answer)


def _waiting(context: Context, options: argparse.Namespace) -> dict[str, Any]:
    """Give what waits for a session, and change nothing: for the caller's own, or for another one."""
    if options.other is None:
        return ask(context, context.caller(options.as_name), "session.waiting", {})
    target = exact_text(options.other)
    running = _running(context, target)
    if running is not None and _is_a_persons(context, options.as_name):
        return ask(context, running, "session.waiting", {"review": True})
    return waiting_in(context, target)  # which says that an agent does not look into a running one


def _accept(context: Context, options: argparse.Namespace) -> int:
    """Show a person what waits for a session, and let through what was held back of it."""
    target = exact_text(options.other)
    if not _is_a_persons(context, options.as_name):
        raise CapabilityDenied("only a person lets mail through to a session", hint=LET_THROUGH)
    running = _running(context, target)
    if running is None:
        raise PeerOffline(f"{target} does not run, so nothing is held back", hint="Start that session first.")
    with calling(context, running) as call:
        _show_waiting(call("session.waiting", {"review": True}), as_json=options.json, accepts=True)
        output.flush()
        call("session.let_through", {})
    return 0


def _running(context: Context, target: str) -> Caller | None:
    for peer in context.registry.listed():
        if target in names_of(peer):
            return Caller(peer.session, peer)
    return None


def _is_a_persons(context: Context, name: str | None) -> bool:
    try:
        return context.caller(name).session.host == TERMINAL
    except NoSession:
        return False


def answers(call: Call, message_id: str | None, wait_s: float) -> Iterator[dict[str, Any]]:
    """Read until everything that waits was given; what only tells of receipts ends no wait.

    The last answer alone may be empty.

    Args:
        call: Asks the coordinator.
        message_id: Read this one message, whatever its state.
        wait_s: Seconds to wait where nothing is there; infinite for as long as it takes.
    """
    if message_id is not None:
        yield call("session.read", {"message_id": message_id})
        return
    give_up = time.monotonic() + wait_s
    while True:
        left_ms = int(max(0.0, min(READ_WAIT_MS, (give_up - time.monotonic()) * 1000)))
        answer = call("session.read", {"wait_ms": left_ms})
        empty = not (answer["messages"] or answer["receipts"] or answer.get("expired"))
        if empty and time.monotonic() < give_up:
            continue
        yield answer
        if answer["messages"]:
            give_up = 0.0  # there was something, so nothing more is waited for
        if not answer.get("more") and time.monotonic() >= give_up:
            return


def _confirm(call: Call, answer: dict[str, Any], message_ids: list[str]) -> None:
    parts = [message_ids[at : at + CONFIRM_MESSAGES] for at in range(0, len(message_ids), CONFIRM_MESSAGES)]
    for part in parts or ([[]] if answer["receipts"] or answer.get("expired") else []):
        call("session.confirm", {"message_ids": part, "evidence": "shown by herd inbox"})


def _require_folder(folder: str) -> None:
    from herd.cli.saving import require_folder

    require_folder(folder)


def _save(call: Call, answer: dict[str, Any], folder: str) -> None:
    from herd.cli.saving import saved  # few commands save anything

    for message in answer["messages"]:
        for path in saved(call, message, folder):
            output.remark(f"saved {printable(path, None)}")


def _show_waiting(answer: dict[str, Any], *, as_json: bool, accepts: bool = False) -> None:
    if as_json:
        output.put_json(answer)
        return
    for message in answer["messages"]:
        output.put(shown_to_person(message))
    for message_id in answer["unreadable"]:
        output.put(f"message {printable(message_id)} is stored and cannot be read")
    if answer["more"]:
        output.put("more waits than is shown here")
    held_back = answer.get("held_back", 0)
    if held_back and accepts:
        output.put(f"{held_back} held back until now: let through")
    elif held_back:
        output.put(f"{held_back} held back until a person lets them through: {LET_THROUGH}")
    if not answer["messages"] and not answer["unreadable"] and not held_back:
        output.put("nothing waits")


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
    for ended in answer.get("expired", []):
        output.put(f"message {ended['message_id']} from {ended['from']} expired before it was read")
    for message_id in answer.get("unreadable", []):
        output.put(f"message {printable(message_id)} is damaged where it is stored, and cannot be shown")
    for message_id in answer.get("set_aside", []):
        output.put(f"given twice in vain: {message_id}; read it with `herd inbox --message {message_id}`")
    if not (
        answer["messages"] or answer["receipts"] or answer.keys() & {"set_aside", "unreadable", "expired"}
    ):
        output.put("nothing new")
