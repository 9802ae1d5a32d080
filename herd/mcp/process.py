"""The process of `herd mcp` once it is loaded: settings, session, host and server joined."""

import argparse
from contextlib import AsyncExitStack

from herd.cli.arguments import exact_text
from herd.cli.context import Context, host_process, open_context, require_enabled
from herd.cli.options import OWN_CHOICES
from herd.coordinator.binding import Binding
from herd.coordinator.coordinator import Coordinator
from herd.core import config
from herd.core.build import seal
from herd.core.errors import HerdError
from herd.core.identity import checked_session
from herd.core.limits import DEFAULT_LIMITS
from herd.core.signals import end_on_signals
from herd.hosts.adapter import Companion, HostAdapter, adapter_of
from herd.hosts.serving import Serving
from herd.mcp.opening import Opened
from herd.mcp.server import Server
from herd.mcp.tools import Tools
from herd.rpc.descriptors import SOURCE, hung_up
from herd.rpc.stdio import stdio_streams


async def serve(options: argparse.Namespace, opened: Opened) -> None:
    """Serve one client to the end of its input, and end its session in order.

    A session that cannot be opened does not end the process: the tools say why.
    """
    seal()
    end_on_signals()
    adapter = adapter_of(options.host)
    process = _Process(options)
    try:
        reader, writer = await stdio_streams(opened.source, opened.sink)
        context = process.context(adapter)
        async with AsyncExitStack() as stack:
            if context is not None:
                await process.begin(context, adapter, stack)
            limits = DEFAULT_LIMITS if context is None else context.settings.limits
            server = Server(
                reader,
                writer,
                Tools(process.binding, adapter, capabilities=options.capabilities),
                modern=opened.modern,
                requests=limits.pending_requests,
                companion=process.companion,
                has_left=lambda: hung_up(writer.get_extra_info(SOURCE)),
            )
            await server.run(opened.left)
    finally:
        await process.binding.close()


class _Process:
    """The session of this process, and what runs beside its server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._host = host_process()
        self.binding = Binding(self._served)
        self.companion: Companion | None = None
        self._coordinator: Coordinator | None = None

    def context(self, adapter: HostAdapter | None) -> Context | None:
        """Give settings and folders; None where nothing asks for them, or where the tools tell why not."""
        try:
            if self._options.session is None and not (adapter is not None and adapter.accompanied):
                require_enabled(config.load(config.environment()))
                return None
            return open_context(make=True)
        except (HerdError, OSError) as fault:
            self.binding.refused(fault)
            return None

    async def begin(self, context: Context, adapter: HostAdapter | None, stack: AsyncExitStack) -> None:
        """Serve the session that the options name, and from then on whichever the host is in."""

        async def bind(session_id: str, cwd: str | None = None) -> None:
            await self._bind(context, session_id, cwd)

        if self._options.session is not None:
            await bind(self._options.session)
        if adapter is not None:
            serving = Serving(context.layout, context.environ, *self._host, bind)
            self.companion = adapter.companion(serving)
        if self.companion is not None:
            await stack.enter_async_context(self.companion)
            if self._coordinator is not None and self._options.session is not None:
                self.companion.served(self._coordinator)  # it served before there was anybody to tell

    async def _bind(self, context: Context, session_id: str, cwd: str | None) -> None:
        try:
            words = (self._options.host, session_id, self._options.created)
            session = checked_session(*map(exact_text, words))
            name = None if self._options.name is None else exact_text(self._options.name)
            own = {field: getattr(self._options, field) for field in OWN_CHOICES}
            await self.binding.bind(context.opening(session, cwd=cwd, name=name, host=self._host, **own))
        except (HerdError, OSError) as fault:
            self.binding.refused(fault)

    def _served(self, coordinator: Coordinator | None) -> None:
        self._coordinator = coordinator
        if self.companion is not None:
            self.companion.served(coordinator)
