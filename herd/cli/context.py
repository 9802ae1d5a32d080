"""What every command starts from: the settings, the folders, the registry, and whose command it is."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from herd.cli.caller import Caller, find_caller, process_tree
from herd.core import config
from herd.core.config import Settings
from herd.core.identity import SessionName
from herd.core.paths import Layout, open_layout
from herd.presence.record import Record
from herd.presence.registry import Registry

if TYPE_CHECKING:
    from herd.coordinator.opening import Opening


class Context(NamedTuple):
    """One command's surroundings."""

    environ: Mapping[str, str]
    settings: Settings
    layout: Layout
    registry: Registry

    def caller(self, name: str | None) -> Caller:
        """Find the session that the command acts for; see `find_caller`."""
        return find_caller(self.registry, process_tree(), self.environ, name)

    def living(self, session: SessionName) -> Record | None:
        """Give the record of a session's running instance."""
        record = self.registry.record(session.key)
        return record if record is not None and self.registry.lives(record) else None

    def opening(
        self,
        session: SessionName,
        *,
        cwd: str | None = None,
        name: str | None = None,
        host: tuple[int, str] = (0, ""),
    ) -> "Opening":
        """Give what a coordinator of that session is opened with."""
        from assignments.worktrees.git import GitTopology
        from herd.coordinator.opening import Opening

        return Opening(
            layout=self.layout,
            session=session,
            cwd=cwd or working_directory(self.environ),
            limits=self.settings.limits,
            topology=GitTopology(config.child_environment(self.environ)),
            place=config.herdr_place(self.environ),
            name=name,
            host_pid=host[0],
            host_start=host[1],
        )


def open_context() -> Context:
    """Read the settings and open the folders.

    Raises:
        HerdError: a setting or a folder is not usable; the message names it.
    """
    environ = config.environment()
    settings = config.load(environ)
    layout = open_layout(settings.home)
    return Context(environ, settings, layout, Registry(layout))


def working_directory(environ: Mapping[str, str]) -> str:
    """Give the folder this process was started in; the home folder where that one is gone."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return environ.get("HOME") or "/"
