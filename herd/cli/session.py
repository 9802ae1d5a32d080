"""`herd session`: one coordinator on standard input and output, for host extensions and tests.

JSON-RPC, one object a line, the methods `session.*`. It ends in order when its input ends, and on SIGTERM and
SIGHUP.
"""

import argparse
import asyncio
import sys
from contextlib import suppress
from typing import Any

from herd.cli.arguments import exact_text
from herd.cli.context import Context, host_process, open_context, working_directory
from herd.cli.options import OWN_CHOICES, add_own_choices
from herd.core.build import seal
from herd.core.errors import CommunicationDisabled, HerdError, InvalidParams, SessionHeld, UnsafeEndpoint
from herd.core.identity import checked_session
from herd.core.limits import DEFAULT_LIMITS

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
    add_own_choices(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the input ends."""
    if (options.host is None) != (options.session is None):
        raise InvalidParams("--host and --session are given together, or neither")
    _require_streams()
    try:
        serving = serve(open_context(make=True), options)
    except CommunicationDisabled as refusal:
        if options.session is not None:
            raise
        serving = refuse(refusal)  # whoever starts it asks on its stdio, and has to be told there
    with suppress(asyncio.CancelledError):  # by a signal, after everything has ended in order
        asyncio.run(serving)
    return 0


def _require_streams() -> None:
    """Refuse a closed descriptor while its number is free: the next file opened would become the wire."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None:
            raise UnsafeEndpoint(f"standard {name} is closed", hint="Start it with both ends of a pipe.")


async def serve(context: Context, options: argparse.Namespace) -> None:
    """Serve until the input ends or a signal comes, and end the session in order.

    Raises:
        HerdError: the session that the options name could not be opened, or a frame was malformed.
    """
    from herd.coordinator.adapter_api import AdapterApi, BindParams
    from herd.coordinator.binding import Binding
    from herd.coordinator.coordinator import Coordinator
    from herd.core.signals import end_on_signals
    from herd.mcp.tool_api import ToolApi
    from herd.rpc.connection import Connection
    from herd.rpc.stdio import stdio_streams

    host = host_process()
    seal()
    end_on_signals()
    binding = Binding()

    async def bind(params: BindParams) -> Coordinator:
        session = checked_session(params.host, params.session_id, params.created)
        # What a bind leaves open is as this process was started.
        named = params.model_dump(include=set(OWN_CHOICES), exclude_none=True)
        own = {field: named.get(field, getattr(options, field)) for field in OWN_CHOICES}
        return await binding.bind(
            context.opening(session, cwd=params.cwd, name=params.name, host=host, **own)
        )

    api = AdapterApi(binding, bind)
    try:
        if options.session is not None:
            try:
                await api.request(None, "session.bind", bind_params(context, options))
            except SessionHeld as held:  # this process ends, so it will not take over
                raise SessionHeld(held.message, **held.details) from None
        reader, writer = await stdio_streams()
        served = ToolApi(api, binding)
        connection = Connection(reader, writer, served, limits=context.settings.limits)
        await connection.run()
        api.ended()
    finally:
        await binding.close()
    if connection.fault is not None:
        raise connection.fault


async def refuse(refusal: HerdError) -> None:
    """Answer every call with one refusal until the input ends; no session is bound and nothing is made.

    Raises:
        HerdError: a frame was malformed.
    """
    from herd.coordinator.adapter_api import AdapterApi, BindParams
    from herd.coordinator.binding import Binding
    from herd.coordinator.coordinator import Coordinator
    from herd.core.signals import end_on_signals
    from herd.mcp.tool_api import ToolApi
    from herd.rpc.connection import Connection
    from herd.rpc.stdio import stdio_streams

    end_on_signals()
    binding = Binding()
    binding.refused(refusal)

    async def bind(_: BindParams) -> Coordinator:
        raise refusal

    reader, writer = await stdio_streams()
    served = ToolApi(AdapterApi(binding, bind), binding)
    connection = Connection(reader, writer, served, limits=DEFAULT_LIMITS)
    await connection.run()
    if connection.fault is not None:
        raise connection.fault


def bind_params(context: Context, options: argparse.Namespace) -> dict[str, Any]:
    """Give what `session.bind` takes for the session that the options name.

    Raises:
        InvalidParams: an option is no UTF-8.
    """
    return {
        "host": options.host,
        "session_id": exact_text(options.session),
        "created": exact_text(options.created),
        "cwd": working_directory(context.environ),
        "name": None if options.name is None else exact_text(options.name),
    }
