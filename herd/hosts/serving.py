"""What `herd mcp` gives to the part of a host's adapter that runs beside it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from herd.core.paths import Layout


class Serving(NamedTuple):
    """One server process and the host that started it."""

    layout: Layout
    """The folders of this machine."""
    environ: Mapping[str, str]
    """The server's variables."""
    host_pid: int
    """The process that started the server; 0 where there is none that counts."""
    host_start: str
    """Its start token; empty where there is none."""
    bind: Callable[[str, str | None], Awaitable[None]]
    """Serves the session with that id of the host from now on, in that folder where it is known. A refusal is
    told by the tools and not raised."""
