"""`herd peers`: who is there. Reads the registry and nothing else: no connection, no mailbox."""

import argparse
from typing import Any

from herd.cli import output
from herd.cli.arguments import exact_text
from herd.cli.context import Context, open_context
from herd.cli.options import add_as
from herd.cli.self_view import as_party, listed_self
from herd.core.text import printable
from herd.presence.entries import entries_of, matches
from roles.discovery import eligible
from roles.eligibility import OrdinaryLeads

HELP = "list the sessions you can write to"
DESCRIPTION = "List the sessions that this one can write to. Being listed is a hint, not a permission."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_as(parser)
    parser.add_argument("query", nargs="?", help="only peers with this text in a label")


def run(options: argparse.Namespace) -> int:
    """List."""
    context = open_context()
    query = None if options.query is None else exact_text(options.query)
    view = listing(context, options.as_name, query)
    if options.json:
        output.put_json(view)
        return 0
    me = view["self"]
    output.put(f"you are {me['target']}  {printable(me['name'])}")
    if not view["peers"]:
        output.put("nobody else is here")
    for entry in view["peers"]:
        place = " ".join(filter(None, (entry.get("repo"), entry.get("branch")))) or entry.get("cwd", "")
        doing = entry.get("activity", "")
        output.put(f"{entry['target']}  {entry.get('name', '')}  {place}  {doing}".rstrip())
    return 0


def listing(context: Context, name: str | None, query: str | None) -> dict[str, Any]:
    """Give what `list_peers` gives, whole."""
    caller = context.caller(name)
    peers = eligible(context.registry.listed(), as_party(caller), OrdinaryLeads())
    entries = [entry for entry in entries_of(peers) if query is None or matches(entry, query)]
    return {"self": listed_self(caller), "peers": entries}
