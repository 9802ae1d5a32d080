"""Pi. Its extension, `extension.ts`, coordinates each session; `files` makes the file that is installed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from herd.hosts.adapter import Companion
    from herd.hosts.serving import Serving


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "pi"
    accompanied: bool = False

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Pi tells the commands it starts."""
        return environ.get("PI_SESSION_ID") or None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.call_id`."""
        return None  # its extension names each call in `session.tool`; a call by plain MCP carries no id

    def text_alone(self, meta: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.text_alone`."""
        return False

    def companion(self, serving: "Serving") -> "Companion | None":  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.companion`."""
        return None  # the extension does all of it


ADAPTER = _Adapter()
