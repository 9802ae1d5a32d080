"""The seam to a host: what Herd needs to know about the agent program that a session runs in.

Each host is one module beside this one. It reads the variables of its own host and of no other, because an
agent's shell passes its host's variables to every other host that is started in it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

_KNOWN = ("claude", "codex", "terminal")


class HostAdapter(Protocol):
    """One host as Herd sees it."""

    name: str
    """The host's word, as in a session's name."""

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give the session id that a command started by this host carries; None where it carries none.

        It is a hint that tells sessions of one host process apart, and never proves a session.
        """
        ...

    def call_id(self, meta: Mapping[str, Any]) -> str | None:
        """Give the id of one tool call that is unique in the session's life, from the call's `_meta`."""
        ...


def adapter_of(host: str) -> HostAdapter | None:
    """Give the adapter of a host; None for a host that Herd knows nothing special about."""
    if host not in _KNOWN:
        return None
    adapter: HostAdapter = import_module(f"herd.hosts.{host}").ADAPTER
    return adapter
