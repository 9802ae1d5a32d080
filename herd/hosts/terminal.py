"""The terminal: a person's shells. Its sessions are `default` and those named by `--as NAME`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from herd.hosts.adapter import Companion
    from herd.hosts.serving import Serving


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "terminal"
    accompanied: bool = False

    def session_id(self, environ: Mapping[str, str]) -> str | None:  # noqa: ARG002 - a terminal sets none
        """Give nothing: a shell names no session."""
        return None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.call_id`."""
        return None

    def text_alone(self, meta: Mapping[str, Any]) -> bool:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.text_alone`."""
        return False

    def companion(self, serving: "Serving") -> "Companion | None":  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.companion`."""
        return None


ADAPTER = _Adapter()
