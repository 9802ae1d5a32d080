"""What is on record of a session, as the evidence about one side of an exchange."""

from typing import TYPE_CHECKING

from assignments.worktrees.groups import Grouped
from herd.core.errors import HerdError
from herd.core.identity import TERMINAL
from herd.core.limits import CWD_CHARACTERS
from herd.presence.record import Presence, Record
from roles.model import Folder, Party

if TYPE_CHECKING:
    from collections.abc import Callable

    from herd.presence.session_file import SessionFile  # who only lists needs none


def party_on_record(record: Record, socket: str | None) -> Party:
    """Give a running session as evidence.

    Args:
        record: Its record.
        socket: The asker's own Herdr socket. Of who lives on the same one, the group is looked up; of
            who lives on another, what it published counts, and nothing is asked there.
    """
    presence = record.presence
    terminal = record.session.host == TERMINAL
    if presence is None:
        return Party(record.key, None, record.kind, terminal=terminal, fault="it is on record and not listed")
    party = Party(record.key, presence.role, record.kind, presence.extent, presence.socket, terminal=terminal)
    if presence.socket == socket:
        return party._replace(folder=_folder(presence))
    return party._replace(membership=_grouped(presence.group))


def party_on_file(key: str, read: "Callable[[str], SessionFile | None]") -> Party:
    """Give a session that does not run, by what is durable about it.

    Args:
        key: Its session key.
        read: Reads its file; None where it has none.
    """
    try:
        file = read(key)
    except HerdError as fault:
        # A kind that cannot be read is none, and surely not `ordinary`.
        return Party(key, None, None, fault=str(fault))
    if file is None:
        return Party(key, None, None, fault="it has no session.json")
    terminal = file.session.host == TERMINAL
    return Party(key, file.role, file.kind, file.extent, file.socket, _grouped(file.group), terminal=terminal)


def _grouped(key: str | None) -> Grouped | None:
    return None if key is None else Grouped(key)


def _folder(presence: Presence) -> Folder | None:
    # One that was cut names another folder, or none.
    if presence.cwd is None or len(presence.cwd) >= CWD_CHARACTERS:
        return None
    return Folder(presence.cwd, presence.workspace_id)
