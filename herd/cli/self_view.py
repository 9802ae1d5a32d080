"""The calling session as a command shows it, running or not."""

from typing import Any

from herd.cli.caller import Caller
from herd.cli.context import Context
from herd.core import config
from herd.core.build import running_build
from herd.core.identity import DEFAULT_TERMINAL, TERMINAL, generated_name, target_of
from roles.model import LEAD, ORDINARY, Party


def as_party(caller: Caller) -> Party:
    """Give the caller as evidence: its record where it runs; a terminal session is an ordinary Lead."""
    record = caller.record
    role = record.presence.role if record and record.presence else LEAD
    return Party(caller.session.key, role, record.kind if record else ORDINARY)


def listed_self(caller: Caller) -> dict[str, Any]:
    """Give the caller as `list_peers` shows it under `self`."""
    party = as_party(caller)
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
        **listed_self(caller),
        "socket": presence.socket if presence else config.herdr_place(context.environ).socket,
        "build": (record.build if record else running_build())._asdict(),
    }


def _name_without_presence(caller: Caller) -> str:
    """Name a session that is not listed now: as its coordinator does, except that its project is unknown."""
    session = caller.session
    if session.host != TERMINAL:
        return generated_name(session.host, session.key)  # never its id, which is the host's own business
    return TERMINAL if session.session_id == DEFAULT_TERMINAL else session.session_id
