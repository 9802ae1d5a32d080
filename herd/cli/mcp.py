"""`herd mcp`: the MCP server that an agent's host starts, one process a session.

The first request is answered before the rest of Herd is loaded; see `herd.mcp.opening`.
"""

import argparse

from herd.cli.options import add_own_choices
from herd.core.errors import InvalidParams
from herd.core.limits import LABEL_CHARACTERS
from herd.mcp.opening import Opened, answer_first, take_over

HELP = "serve the tools to an agent's host over standard input and output (MCP)"
DESCRIPTION = (
    "Serve Herd's tools by the Model Context Protocol. The host's installer writes this command; without "
    "--session the tools answer NO_SESSION until the host names its session."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--host", required=True, help="the host's word: claude, codex, pi, opencode or another"
    )
    parser.add_argument("--session", metavar="ID", help="the host's own id of the session")
    parser.add_argument("--created", default="", help="the session's creation time, for hosts that reuse ids")
    parser.add_argument("--name", help="the name to list the session under")
    add_own_choices(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the input ends."""
    if options.session is not None and not options.session:
        raise InvalidParams("--session takes the host's own id of the session")
    if options.name is not None and not 0 < len(options.name) <= LABEL_CHARACTERS:
        raise InvalidParams(f"--name takes a name of 1 to {LABEL_CHARACTERS} characters")
    opened = answer_first(*take_over())
    if not opened.ended:
        _serve(options, opened)
    return 0


def _serve(options: argparse.Namespace, opened: Opened) -> None:
    import asyncio  # from here on everything is loaded, at once
    from contextlib import suppress

    from herd.mcp.process import serve

    with suppress(asyncio.CancelledError):  # by a signal, after everything has ended in order
        asyncio.run(serve(options, opened))
