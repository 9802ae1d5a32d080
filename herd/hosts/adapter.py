"""The seam to a host: what Herd needs to know about the agent program that a session runs in.

Each host is one module or package beside this one. It reads the variables of its own host and of no other,
because an agent's shell passes its host's variables to every other host that is started in it.
"""

from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from herd.coordinator.coordinator import Coordinator
    from herd.hosts.serving import Serving

_KNOWN = ("claude", "codex", "pi", "terminal")


class Handed(Protocol):
    """A tool call whose result carried messages, until something tells what became of them."""

    @property
    def settled(self) -> bool:
        """Whether that has been told already; whatever is told later changes nothing."""
        ...

    async def proved(self, evidence: str) -> None:
        """Take it as proved, by something said in a word or two, that the host has them."""
        ...

    def take_back(self) -> None:
        """Give them again, marked so: the host may have had them, and nothing proves it."""
        ...

    async def put_back(self) -> None:
        """Take it as if they had never been handed over: they did not reach the session."""
        ...


class Companion(Protocol):
    """What runs beside the MCP server of one host, for as long as that does.

    Resource handling: an asynchronous context manager.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def served(self, coordinator: "Coordinator | None") -> None:
        """Take note which coordinator serves from now on; None as soon as the one before ends."""
        ...

    def answered(self, call_id: str | None, handed: Handed) -> None:
        """Take note of a call that is answered at this moment, before the host can know."""
        ...

    def proves(self, handed: Handed) -> bool:
        """Tell whether this host's own evidence settles that call, so that its next call is none."""
        ...


class HostAdapter(Protocol):
    """One host as Herd sees it."""

    name: str
    """The host's word, as in a session's name."""
    accompanied: bool
    """Whether something of this host's runs beside its MCP server."""

    def session_id(self, environ: Mapping[str, str]) -> str | None:
        """Give the session id that a command started by this host carries; None where it carries none.

        It is a hint that tells sessions of one host process apart, and never proves a session.
        """
        ...

    def call_id(self, meta: Mapping[str, Any]) -> str | None:
        """Give the id of one tool call that is unique in the session's life, from the call's `_meta`."""
        ...

    def text_alone(self, meta: Mapping[str, Any]) -> bool:
        """Tell by a request's `_meta` whether its client shows a model structured content instead of text."""
        ...

    def companion(self, serving: "Serving") -> Companion | None:
        """Give what runs beside the MCP server; None where there is nothing, or no process of the host."""
        ...


def adapter_of(host: str) -> HostAdapter | None:
    """Give the adapter of a host; None for a host that Herd knows nothing special about."""
    if host not in _KNOWN:
        return None
    adapter: HostAdapter = import_module(f"herd.hosts.{host}").ADAPTER
    return adapter
