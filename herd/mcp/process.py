"""The process of `herd mcp` once it is loaded: settings, session and server joined."""

import argparse
import asyncio
import signal

from herd.cli.arguments import exact_text
from herd.cli.context import host_process, open_context
from herd.coordinator.binding import Binding
from herd.core.build import seal
from herd.core.errors import HerdError
from herd.core.identity import checked_session
from herd.core.limits import DEFAULT_LIMITS, Limits
from herd.hosts.adapter import adapter_of
from herd.mcp.opening import Opened
from herd.mcp.server import Server
from herd.mcp.tools import Tools
from herd.rpc.stdio import stdio_streams

_ENDING = (signal.SIGTERM, signal.SIGHUP)


async def serve(options: argparse.Namespace, opened: Opened) -> None:
    """Serve one client to the end of its input, and end its session in order.

    A session that cannot be opened does not end the process: the tools say why.
    """
    seal()
    _end_on_signals()
    binding = Binding()
    try:
        reader, writer = await stdio_streams(opened.source, opened.sink)
        limits = DEFAULT_LIMITS if options.session is None else await _bind(binding, options)
        tools = Tools(binding, adapter_of(options.host))
        server = Server(reader, writer, tools, modern=opened.modern, requests=limits.pending_requests)
        await server.run(opened.left)
    finally:
        await binding.close()


async def _bind(binding: Binding, options: argparse.Namespace) -> Limits:
    limits = DEFAULT_LIMITS
    try:
        context = open_context()
        limits = context.settings.limits
        words = (options.host, options.session, options.created)
        session = checked_session(*map(exact_text, words))
        name = None if options.name is None else exact_text(options.name)
        await binding.bind(context.opening(session, name=name, host=host_process()))
    except (HerdError, OSError) as fault:
        binding.refused(fault)
    return limits


def _end_on_signals() -> None:
    """End this task at the first SIGTERM or SIGHUP; a second one ends the process at once."""
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None, "it is called in a task"

    def end() -> None:
        for number in _ENDING:
            loop.remove_signal_handler(number)
        serving.cancel()

    for number in _ENDING:
        loop.add_signal_handler(number, end)
