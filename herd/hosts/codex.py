"""Codex."""

from collections.abc import Mapping
from typing import NamedTuple


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "codex"

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Codex tells the commands it starts."""
        return environ.get("CODEX_THREAD_ID") or None


ADAPTER = _Adapter()
