"""The calling session as a command shows it, running or not."""

from collections.abc import Iterable
from typing import Any

from herd.cli.caller import Caller
from herd.cli.context import Context, working_directory
from herd.core import config
from herd.core.build import running_build
from herd.core.config import SCOPE_MACHINE, SCOPE_WORKSPACE
from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, generated_name, target_of
from herd.presence.record import Record
from herd.presence.scopes import Extent
from roles.evidence import party_on_record
from roles.model import LEAD, ORDINARY, Party


def as_party(context: Context, caller: Caller) -> Party:
    """Give the caller as evidence: its record where it runs; a terminal session is an ordinary Lead."""
    record = caller.record
    if record is not None:
        socket = record.presence.socket if record.presence else None
        party = party_on_record(record, socket)
        return party._replace(role=party.role or LEAD)
    socket = config.herdr_place(context.environ).socket
    terminal = caller.session.host == TERMINAL
    return Party(caller.session.key, LEAD, ORDINARY, socket=socket, terminal=terminal)


def listed_self(context: Context, caller: Caller) -> dict[str, Any]:
    """Give the caller as `list_peers` shows it under `self`."""
    party = as_party(context, caller)
    presence = caller.record.presence if caller.record else None
    return {
        "target": target_of(party.role or LEAD, party.key),
        "name": (presence and presence.name) or _name_without_presence(caller),
        "role": party.role,
        "kind": party.kind,
    }


def self_view(context: Context, caller: Caller) -> dict[str, Any]:
    """Give what `session.whoami` gives, without asking anybody."""
    record = caller.record
    presence = record.presence if record else None
    return {
        **listed_self(context, caller),
        "scope": _scope(context, caller),
        "socket": presence.socket if presence else config.herdr_place(context.environ).socket,
        **({"group": presence.group} if presence and presence.group else {}),
        "build": (record.build if record else running_build())._asdict(),
    }


def own_extent(context: Context, caller: Caller, among: Iterable[Record]) -> Extent:
    """Give what the caller's scope takes in and is taken in by, as its coordinator does or would.

    Args:
        context: The command's surroundings.
        caller: The session that the command acts for.
        among: The sessions it is judged with; where no scope of all these is narrower than the machine, no
            folder is looked at.
    """
    record, scope = caller.record, _scope(context, caller)
    if record is not None and record.presence is not None:
        return record.presence.extent
    others = (one.presence.scope for one in among if one.presence is not None)
    if all(one == SCOPE_MACHINE for one in (scope, *others)):
        return Extent(scope)
    if record is not None:
        return _durable(context, caller)
    from assignments.worktrees.checkout import extent_at

    return extent_at(working_directory(context.environ), scope)


def _scope(context: Context, caller: Caller) -> str:
    record = caller.record
    if record is None:
        return context.settings.scope
    return record.presence.scope if record.presence is not None else _durable(context, caller).scope


def _durable(context: Context, caller: Caller) -> Extent:
    """Give what stands in the file of a session that runs and is not listed now."""
    from herd.presence.session_file import read_session_file

    file = read_session_file(context.layout, caller.session.key)
    return Extent(SCOPE_WORKSPACE) if file is None else file.extent


def _name_without_presence(caller: Caller) -> str:
    """Name a session that is not listed now: as its coordinator does, except that its project is unknown."""
    session = caller.session
    if session.host != TERMINAL:
        return generated_name(session.host, session.key)  # never its id, which is the host's own business
    return TERMINAL if session.session_id == DEFAULT_TERMINAL else session.session_id
