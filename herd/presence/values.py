"""What an instance record says, as values: the words in it, the presence, the whole.

How they are written and read is told in `herd.presence.record`, whose names they are for everybody else.
"""

from typing import NamedTuple

from herd.core.build import Build
from herd.core.config import SCOPE_MACHINE
from herd.core.identity import SessionName
from herd.core.locks import Owner
from herd.presence.scopes import Extent

SEND = "message.send"
RECEIVE = "message.receive"
WAIT = "message.wait"
CAPABILITIES = (SEND, RECEIVE, WAIT, "resource.request", "resource.control")
"""Every capability a record may name; an unknown one makes the record malformed."""

OF_SESSIONS = (SEND, RECEIVE, WAIT)
"""What a session may do unless it was started with less."""

KINDS = ("ordinary", "managed")
ROLES = ("lead", "manager")
ACTIVITIES = ("idle", "working", "waiting", "away")


class Presence(NamedTuple):
    """What lists the session: its role, where it lives and how it is labelled."""

    role: str
    socket: str
    cwd: str | None = None
    name: str | None = None
    repo: str | None = None
    branch: str | None = None
    workspace_label: str | None = None
    activity: str | None = None
    since: int | None = None
    pane_id: str | None = None
    tab_id: str | None = None
    workspace_id: str | None = None
    scope: str = SCOPE_MACHINE
    workspace: str | None = None
    repository: str | None = None
    undrained_since: int | None = None
    runs: bool | None = None
    """Whether it has runs, so that nobody asks for them who need not; never False."""
    group: str | None = None
    """The key of the worktree group that topology proved for this generation; None without proof."""

    @property
    def extent(self) -> Extent:
        """What the session's scope is, and what others' scopes know it by."""
        return Extent(self.scope, self.workspace, self.repository)


class Record(NamedTuple):
    """One instance of a session's coordinator, as its file says."""

    session: SessionName
    kind: str
    claim: Owner
    host_pid: int
    host_start: str
    instance_id: str
    protocol: int
    endpoint: str
    public_key: str
    capabilities: tuple[str, ...]
    build: Build
    presence: Presence | None = None

    @property
    def key(self) -> str:
        """The session key."""
        return self.session.key
