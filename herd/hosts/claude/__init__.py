"""Claude Code: hooks name its sessions and hand mail over, its inbox wakes an idle one.

`guard` and `hook` are what Claude Code itself runs; the rest runs inside `herd mcp --host claude`, joined by
`companion`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from herd.hosts.adapter import Companion
    from herd.hosts.serving import Serving


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "claude"
    accompanied: bool = True

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Claude Code tells the commands it starts."""
        return environ.get("CLAUDE_CODE_SESSION_ID") or None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:
        """See `HostAdapter.call_id`."""
        value = meta.get("claudecode/toolUseId")
        return value if isinstance(value, str) and value else None

    def text_alone(self, meta: Mapping[str, Any]) -> bool:
        """See `HostAdapter.text_alone`: Claude Code does, and says who it is only in the modern era."""
        client = meta.get("io.modelcontextprotocol/clientInfo")
        return isinstance(client, dict) and client.get("name") == "claude-code"

    def companion(self, serving: "Serving") -> "Companion | None":
        """See `HostAdapter.companion`; without a host's process there are no hooks either."""
        from herd.hosts.claude.companion import ClaudeCompanion  # only a server needs it

        return ClaudeCompanion(serving) if serving.host_pid > 0 else None


ADAPTER = _Adapter()
