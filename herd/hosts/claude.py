"""Claude Code."""

from collections.abc import Mapping
from typing import NamedTuple


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "claude"

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Claude Code tells the commands it starts."""
        return environ.get("CLAUDE_CODE_SESSION_ID") or None


ADAPTER = _Adapter()
