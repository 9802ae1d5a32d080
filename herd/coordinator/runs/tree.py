"""Which runs one instance has and has had, which of them is below which, and what each may do. Pure.

A run is never bound twice: its peer id is computed from the instance and the run's id, and names that one
execution for ever.
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from herd.core.errors import InvalidParams, QueueFull, TargetEnded
from herd.core.identity import generated_name, peer_id_of
from herd.core.limits import RUN_ID_CHARACTERS, RUNS_IN_A_LIFE
from herd.presence.scopes import narrower

CONTROL = "resource.control"
"""The capability that no run has unless it was delegated expressly."""


class Wanted(NamedTuple):
    """What a parent binds.

    Attributes:
        run_id: The execution's own id.
        name: What people call it; made from its id where None.
        parent: The run that it is below, by its peer id; None for one right below the session.
        capabilities: What is delegated to it; its parent's, without control of resources, where None.
        scope: How far it reaches; as far as its parent where None.
        external: Whether it is only to be seen: it can do nothing.
    """

    run_id: str
    name: str | None = None
    parent: str | None = None
    capabilities: tuple[str, ...] | None = None
    scope: str | None = None
    external: bool = False


class Run(NamedTuple):
    """One bound run."""

    run_id: str
    peer_id: str
    name: str
    parent: str | None
    capabilities: tuple[str, ...]
    scope: str | None
    external: bool


class Tree:
    """The runs of one instance.

    Args:
        instance_id: Whose runs.
        capabilities: What the session itself may do.
        live_at_once: Runs that may be live at once.
    """

    def __init__(self, instance_id: str, capabilities: Sequence[str], live_at_once: int) -> None:
        self._instance_id = instance_id
        self._capabilities = tuple(capabilities)
        self._most = live_at_once
        self._live: dict[str, Run] = {}
        self._closing: set[str] = set()
        self._ever: set[str] = set()

    def __len__(self) -> int:
        return len(self._live)

    @property
    def live(self) -> list[Run]:
        """Every run that lives and is not closing, in the order in which they were bound."""
        return [run for run in self._live.values() if run.peer_id not in self._closing]

    def bind(self, wanted: Wanted) -> Run:
        """Add a run.

        Raises:
            InvalidParams: its id is no id, or was bound in this instance before, be it over or not.
            TargetEnded: its parent is over or closing.
            QueueFull: as many live as may, or this instance has had as many as it may.
        """
        _require_run_id(wanted.run_id)
        parent = None if wanted.parent is None else self.require(wanted.parent)
        peer_id = peer_id_of(self._instance_id, wanted.run_id)
        if peer_id in self._ever:
            raise InvalidParams("that run_id was bound in this instance before", field="run_id")
        if len(self._live) >= self._most:
            raise QueueFull(f"{self._most} runs of this session live already", hint="End one of them first.")
        if len(self._ever) >= RUNS_IN_A_LIFE:
            raise QueueFull(
                f"this instance has had {RUNS_IN_A_LIFE} runs", hint="It binds none any more; restart it."
            )
        run = Run(
            wanted.run_id,
            peer_id,
            wanted.name or generated_name("run", hashlib.sha256(wanted.run_id.encode()).hexdigest()),
            wanted.parent,
            delegated(parent.capabilities if parent else self._capabilities, wanted),
            _narrower(parent.scope if parent else None, wanted.scope),
            wanted.external,
        )
        self._live[peer_id] = run
        self._ever.add(peer_id)
        return run

    def require(self, peer_id: str) -> Run:
        """Give a run that lives and is not closing.

        Raises:
            TargetEnded: there is none, now or any more.
        """
        run = self._live.get(peer_id)
        if run is None or peer_id in self._closing:
            raise TargetEnded(f"this instance has no live run {peer_id}")
        return run

    def close(self, peer_id: str) -> list[Run]:
        """Let a run and all below it close from now on; gives those that did not before, the deepest first.

        Raises:
            TargetEnded: the run is over, or closing already.
        """
        closing = [self.require(peer_id)]
        for run in closing:  # it grows while it is gone through
            closing += [child for child in self.live if child.parent == run.peer_id]
        self._closing.update(run.peer_id for run in closing)
        return closing[::-1]

    def retire(self, peer_id: str) -> None:
        """End a run that has closed."""
        self._live.pop(peer_id, None)
        self._closing.discard(peer_id)


def delegated(parents: Sequence[str], wanted: Wanted) -> tuple[str, ...]:
    """Give what a run may do: never more than its parent, and nothing at all where it is external."""
    if wanted.external:
        return ()
    if wanted.capabilities is None:
        return tuple(one for one in parents if one != CONTROL)
    return tuple(one for one in parents if one in wanted.capabilities)


def _narrower(parents: str | None, wanted: str | None) -> str | None:
    """Give the narrower of two scopes; None is that of the session."""
    if parents is None or wanted is None:
        return parents or wanted
    return narrower(parents, wanted)


def _require_run_id(run_id: str) -> None:
    if not 1 <= len(run_id) <= RUN_ID_CHARACTERS:
        raise InvalidParams(f"run_id has 1 to {RUN_ID_CHARACTERS} characters", field="run_id")
    if any(unicodedata.category(one) in {"Cc", "Cs"} for one in run_id):
        raise InvalidParams("run_id has a control character or a lone surrogate", field="run_id")
