"""`herd session`: one coordinator on standard input and output, for host extensions and tests.

JSON-RPC, one object a line, the methods `session.*`. It ends in order when its input ends.
"""

import argparse
import asyncio
import os

from herd.cli.context import Context, open_context
from herd.core.build import seal
from herd.core.errors import InvalidParams
from herd.core.identity import checked_session
from herd.core.processes import start_token

HELP = "coordinate a session over standard input and output, for a host's extension"
DESCRIPTION = (
    "Coordinate one session. JSON-RPC requests come as lines on standard input and are answered on standard "
    "output. Without --session, the first request must be session.bind."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--host", help="the host's word: claude, codex, pi, opencode or another")
    parser.add_argument("--session", metavar="ID", help="the host's own id of the session")
    parser.add_argument("--created", default="", help="the session's creation time, for hosts that reuse ids")
    parser.add_argument("--name", help="the name to list the session under")


def run(options: argparse.Namespace) -> int:
    """Serve until the input ends."""
    if (options.host is None) != (options.session is None):
        raise InvalidParams("--host and --session are given together, or neither")
    context = open_context()
    asyncio.run(_serve(context, options))
    return 0


async def _serve(context: Context, options: argparse.Namespace) -> None:
    from herd.coordinator.adapter_api import AdapterApi, BindParams
    from herd.coordinator.binding import Binding
    from herd.coordinator.coordinator import Coordinator
    from herd.rpc.connection import Connection
    from herd.rpc.stdio import stdio_streams

    parent = os.getppid()
    host = (parent, start_token(parent) or "")
    seal()
    binding = Binding()

    async def bind(params: BindParams) -> Coordinator:
        session = checked_session(params.host, params.session_id, params.created)
        return await binding.bind(context.opening(session, cwd=params.cwd, name=params.name, host=host))

    api = AdapterApi(binding, bind)
    try:
        if options.session is not None:
            words = {"host": options.host, "session_id": options.session, "created": options.created}
            await api.request(None, "session.bind", {**words, "cwd": os.getcwd(), "name": options.name})
        reader, writer = await stdio_streams()
        await Connection(reader, writer, api, limits=context.settings.limits).run()
        api.ended()
    finally:
        await binding.close()
