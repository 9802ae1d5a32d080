"""Codex."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from herd.hosts.adapter import Companion
    from herd.hosts.serving import Serving


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "codex"
    accompanied: bool = False

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give what Codex tells the commands it starts."""
        return environ.get("CODEX_THREAD_ID") or None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.call_id`."""
        return None  # codex names the thread and turn of a call, not the call

    def text_alone(self, meta: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.text_alone`."""
        return False

    def companion(self, serving: "Serving") -> "Companion | None":  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.companion`."""
        return None


ADAPTER = _Adapter()
