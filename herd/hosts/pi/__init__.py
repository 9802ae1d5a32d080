"""Pi."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "pi"

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Pi tells the commands it starts."""
        return environ.get("PI_SESSION_ID") or None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.call_id`."""
        return None  # its extension names each call in `session.tool`, and a plain MCP call carries no id


ADAPTER = _Adapter()
