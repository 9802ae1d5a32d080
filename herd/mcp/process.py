"""The process of `herd mcp` once it is loaded: settings, session and server joined."""

import argparse
import os

from herd.cli.context import open_context
from herd.coordinator.binding import Binding
from herd.core.build import seal
from herd.core.errors import HerdError
from herd.core.identity import checked_session
from herd.core.processes import start_token
from herd.hosts.adapter import adapter_of
from herd.mcp.opening import Opened
from herd.mcp.server import Server
from herd.mcp.tools import Tools
from herd.rpc.stdio import stdio_streams


async def serve(options: argparse.Namespace, opened: Opened, cwd: str) -> None:
    """Serve one client to the end of its input, and end its session in order.

    A session that cannot be opened does not end the process: the tools say why.
    """
    seal()
    binding = Binding()
    try:
        reader, writer = await stdio_streams(opened.source, opened.sink)
        if options.session is not None:
            await _bind(binding, options, cwd)
        tools = Tools(binding, adapter_of(options.host))
        await Server(reader, writer, tools, modern=opened.modern).run(opened.left)
    finally:
        await binding.close()


async def _bind(binding: Binding, options: argparse.Namespace, cwd: str) -> None:
    parent = os.getppid()
    host = (parent, start_token(parent) or "")
    try:
        context = open_context()
        session = checked_session(options.host, options.session, options.created)
        await binding.bind(context.opening(session, cwd=cwd, name=options.name, host=host))
    except HerdError as refusal:
        binding.refused(refusal)
