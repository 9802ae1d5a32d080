"""Claude Code."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "claude"

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Claude Code tells the commands it starts."""
        return environ.get("CLAUDE_CODE_SESSION_ID") or None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:
        """See `HostAdapter.call_id`."""
        value = meta.get("claudecode/toolUseId")
        return value if isinstance(value, str) and value else None


ADAPTER = _Adapter()
