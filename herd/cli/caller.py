"""Whose command line this is: proved by the process tree, never by what a variable or an option claims.

A command belongs to the session whose host is among its ancestors, the nearest one. Only where there is no
such host and a controlling terminal exists, it belongs to the terminal session. `--as NAME` names terminal
sessions and nothing else.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from herd.core import processes
from herd.core.errors import AmbiguousTarget, CapabilityDenied, InvalidParams, NoSession
from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, SessionName
from herd.core.limits import TERMINAL_NAME_CHARACTERS
from herd.hosts.adapter import adapter_of
from herd.presence.record import Record
from herd.presence.registry import Registry, names_of

_NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_-]{{0,{TERMINAL_NAME_CHARACTERS - 1}}}")


class Tree(NamedTuple):
    """What the process tree shows: the ancestors, nearest first, and whether a terminal controls them."""

    ancestors: Sequence[tuple[int, str]]
    has_terminal: bool


class Caller(NamedTuple):
    """The session a command acts for, and its running instance where it has one."""

    session: SessionName
    record: Record | None


def process_tree() -> Tree:
    """Look at this process's own tree."""
    return Tree(processes.ancestors(), processes.has_controlling_terminal())


def find_caller(registry: Registry, tree: Tree, environ: Mapping[str, str], name: str | None) -> Caller:
    """Find the session that this command acts for.

    Args:
        registry: Where instances are on record.
        tree: The process tree, as `process_tree` gives it.
        environ: The variables; only the proved host's own id variable is read.
        name: What `--as` said.

    Raises:
        AmbiguousTarget: several sessions run in that host process and its variable names none of them.
        CapabilityDenied: `--as` under a host.
        InvalidParams: `--as` with something that is no name.
        NoSession: neither a host nor a controlling terminal, and no `--as`.
    """
    records = registry.scan()
    hosted = _hosted(registry, records, tree, environ)
    if hosted is not None:
        if name is not None:
            raise CapabilityDenied(
                f"this command runs in a {hosted.session.host} session; --as names terminal sessions only",
                hint="Leave --as out: the command acts for the session it runs in.",
            )
        return Caller(hosted.session, hosted)
    if name is None and not tree.has_terminal:
        raise NoSession(
            "no session is proven for this command: no session's host is among its ancestors, and it has no "
            "controlling terminal",
            hint="Name a terminal session of yours: `--as NAME`.",
        )
    return _terminal(registry, records, name)


def _hosted(
    registry: Registry, records: Sequence[Record], tree: Tree, environ: Mapping[str, str]
) -> Record | None:
    by_host: dict[tuple[int, str], list[Record]] = {}
    for record in records:
        if record.session.host != TERMINAL:
            by_host.setdefault((record.host_pid, record.host_start), []).append(record)
    for ancestor in tree.ancestors:
        living = [record for record in by_host.get(ancestor, []) if registry.lives(record)]
        if living:
            return living[0] if len(living) == 1 else _named_by_host(living, environ)
    return None


def _named_by_host(records: Sequence[Record], environ: Mapping[str, str]) -> Record:
    named = []
    for record in records:
        adapter = adapter_of(record.session.host)
        if adapter is not None and adapter.session_id(environ) == record.session.session_id:
            named.append(record)
    if len(named) != 1:
        targets = sorted(names_of(record)[0] for record in records)
        raise AmbiguousTarget(
            f"{len(records)} sessions run in the host process of this command: {', '.join(targets)}",
            candidates=targets,
            hint="Use the host's own tools: a command line cannot tell these sessions apart.",
        )
    return named[0]


def _terminal(registry: Registry, records: Sequence[Record], name: str | None) -> Caller:
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidParams(
            f"--as {name[:80]!r} is no name: a letter, then letters, digits, _ or -, "
            f"{TERMINAL_NAME_CHARACTERS} characters at most"
        )
    # The default session is shown under the word `terminal`, and nothing else may be.
    session = SessionName(TERMINAL, DEFAULT_TERMINAL if name in {None, TERMINAL} else str(name))
    for record in records:
        if record.session == session and registry.lives(record):
            return Caller(session, record)
    return Caller(session, None)
