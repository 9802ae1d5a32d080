"""`herd peers`: who is there. Reads the registry and nothing else: no connection, no mailbox."""

import argparse
from collections.abc import Sequence
from typing import Any

from herd.cli import output
from herd.cli.arguments import exact_text
from herd.cli.context import open_context
from herd.cli.judging import peers_of
from herd.cli.options import add_as, add_scope
from herd.cli.self_view import as_party, listed_self, own_extent
from herd.core.clock import SystemClock
from herd.core.text import printable
from herd.presence.entries import entries_of, matches, undrained_minutes
from herd.presence.record import Record
from herd.presence.registry import names_of
from herd.presence.scopes import narrowed
from roles.model import next_step

HELP = "list the sessions you can write to"
DESCRIPTION = "List the sessions that this one can write to. Being listed is a hint, not a permission."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    add_scope(parser, "only peers within this scope, which may not be wider than the session's own")
    parser.add_argument("query", nargs="?", help="only peers with this text in a label")


def run(options: argparse.Namespace) -> int:
    """List."""
    context = open_context()
    query = None if options.query is None else exact_text(options.query)
    caller = context.caller(options.as_name)
    listed = context.registry.listed()
    extent = narrowed(own_extent(context, caller, listed), options.scope)
    peers, unproven = peers_of(context, listed, as_party(context, caller)._replace(extent=extent))
    for verdict in unproven[:1]:
        # Beside the list, which is right: of whom nothing is proven nobody is shown.
        step = next_step(verdict) or "See `herd doctor`."
        output.remark(f"somebody is not shown: {verdict.reason}. {step}")
    view: dict[str, Any] = {"self": listed_self(context, caller), "peers": _entries(peers, query)}
    if options.json:
        output.put_json(view)
        return 0
    me = view["self"]
    output.put(f"you are {me['target']}  {printable(me['name'])}")
    if not view["peers"]:
        output.put("nobody else is here")
    lying = _lying(peers)
    for entry in view["peers"]:
        place = " ".join(filter(None, (entry.get("repo"), entry.get("branch")))) or entry.get("cwd", "")
        doing = f"{entry.get('activity', '')}{lying.get(entry['target'], '')}"
        output.put(f"{entry['target']}  {entry.get('name', '')}  {place}  {doing}".rstrip())
    return 0


def _entries(peers: Sequence[Record], query: str | None) -> list[dict[str, Any]]:
    return [entry for entry in entries_of(peers) if query is None or matches(entry, query)]


def _lying(peers: Sequence[Record]) -> dict[str, str]:
    """Say of each peer whose host leaves its mail lying for how long."""
    now = SystemClock().wall_ms()
    minutes = {names_of(peer)[0]: undrained_minutes(peer, now) for peer in peers}
    return {
        target: f" (undrained for {some} minutes)" for target, some in minutes.items() if some is not None
    }
