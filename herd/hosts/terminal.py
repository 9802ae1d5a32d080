"""The terminal: a person's shells. Its sessions are `default` and those named by `--as NAME`."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class _Adapter(NamedTuple):
    """See `herd.hosts.adapter.HostAdapter`."""

    name: str = "terminal"

    def session_id(self, environ: Mapping[str, str]) -> str | None:  # noqa: ARG002 - a terminal sets none
        """Give nothing: a shell names no session."""
        return None

    def call_id(self, meta: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - the seam's shape
        """See `HostAdapter.call_id`."""
        return None


ADAPTER = _Adapter()
