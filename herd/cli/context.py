"""What every command starts from: the settings, the folders, the registry, and whose command it is."""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from herd.cli.arguments import as_text
from herd.cli.caller import Caller, find_caller, process_tree
from herd.core import config
from herd.core.config import Settings
from herd.core.errors import CommunicationDisabled, InvalidParams
from herd.core.identity import SessionName
from herd.core.paths import Layout, layout_below, open_layout
from herd.presence.record import Record
from herd.presence.registry import Registry

if TYPE_CHECKING:
    from assignments.worktrees.groups import Groups
    from herd.coordinator.opening import Opening


class Context(NamedTuple):
    """One command's surroundings."""

    environ: Mapping[str, str]
    settings: Settings
    layout: Layout
    registry: Registry

    def caller(self, name: str | None) -> Caller:
        """Find the session that the command acts for; see `find_caller`.

        Its folders are there afterwards: whoever has no session leaves nothing behind.
        """
        caller = find_caller(self.registry, process_tree(), self.environ, name)
        if not os.path.lexists(self.layout.root):
            open_layout(self.settings.home)
        return caller

    def living(self, session: SessionName) -> Record | None:
        """Give the record of a session's running instance."""
        return self.registry.running(session.key)

    def groups(self) -> "Groups":
        """Give what tells the worktree groups here."""
        from assignments.worktrees.source import groups_at

        environ = self.environ
        return groups_at(config.herdr_place(environ).socket, config.child_environment(environ))

    def opening(
        self,
        session: SessionName,
        *,
        cwd: str | None = None,
        name: str | None = None,
        host: tuple[int, str] = (0, ""),
        scope: str | None = None,
        alias: str | None = None,
        capabilities: Collection[str] | None = None,
    ) -> "Opening":
        """Give what a coordinator of that session is opened with.

        Args:
            session: The session.
            cwd: Its folder; that of this process where None.
            name: What its host calls it.
            host: The host's process, as pid and start token.
            scope: Its scope, in place of the user's.
            alias: Its alias, in place of the user's.
            capabilities: What it may do; all that sessions may where None.

        Raises:
            InvalidParams: the alias is none.
        """
        from assignments.worktrees.git import GitTopology
        from herd.coordinator.opening import Opening
        from herd.core.choices import checked_alias
        from herd.presence.record import OF_SESSIONS

        return Opening(
            layout=self.layout,
            session=session,
            cwd=cwd or working_directory(self.environ),
            limits=self.settings.limits,
            topology=GitTopology(config.child_environment(self.environ)),
            groups=self.groups(),
            place=config.herdr_place(self.environ),
            name=name,
            host_pid=host[0],
            host_start=host[1],
            idle=self.settings.idle,
            on_restart=self.settings.on_restart,
            scope=scope or self.settings.scope,
            alias=self.settings.alias if alias is None else checked_alias(alias, "alias"),
            capabilities=tuple(one for one in OF_SESSIONS if capabilities is None or one in capabilities),
        )


def open_context(*, make: bool = False) -> Context:
    """Read the settings and check the folders.

    Args:
        make: Make the folder of this machine at once where it is not there; else `Context.caller` makes it.

    Raises:
        CommunicationDisabled: a person switched Herd off; nothing was looked at.
        HerdError: a setting or a folder is not usable; the message names it.
    """
    environ = config.environment()
    settings = config.load(environ)
    require_enabled(settings)
    if as_text(settings.home) != settings.home:
        # It stands in records, which every process has to read alike.
        raise InvalidParams(
            f"the data root {as_text(settings.home)} has a name that this locale cannot spell",
            hint="Set HERD_HOME to a name of UTF-8 text, or use a UTF-8 locale (LC_ALL=C.UTF-8).",
        )
    layout = layout_below(settings.home)
    if make or not _is_absent(layout.root):
        layout = open_layout(settings.home)
    return Context(environ, settings, layout, Registry(layout))


def require_enabled(settings: Settings) -> None:
    """Check that sessions may communicate at all.

    Raises:
        CommunicationDisabled: they may not.
    """
    if not settings.enabled:
        raise CommunicationDisabled(f"Herd is switched off: {settings.config_file} has `enabled = false`")


def _is_absent(root: str) -> bool:
    """Tell whether a folder is not there and could be made; what stands in its way is refused at once."""
    there = root
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    return there != root and os.path.isdir(there)


def host_process(parent: int | None = None) -> tuple[int, str]:
    """Give the host of a session whose coordinator this process is, by pid and start token.

    Process 1 is nobody's host. It adopts whoever lost its parent, and it is an ancestor of every command line
    on the machine: each of them would then belong to that session.

    Args:
        parent: The process that started this one; the kernel is asked where it is None.
    """
    from herd.core.processes import start_token  # looking at the registry needs no process

    parent = os.getppid() if parent is None else parent
    return (parent, start_token(parent) or "") if parent > 1 else (0, "")


def working_directory(environ: Mapping[str, str]) -> str:
    """Give the folder this process was started in, as text; the home folder where that one is gone."""
    try:
        return as_text(os.getcwd())
    except FileNotFoundError:
        return as_text(environ.get("HOME") or "/")
