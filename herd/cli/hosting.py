"""What `herd install`, `herd uninstall` and `herd doctor` share: the hosts, and the `herd` they are given."""

import os
import shutil
import sys
from collections.abc import Mapping

from herd.cli.arguments import as_text
from herd.core import config
from herd.core.config import Settings
from herd.core.errors import InvalidParams, UnknownTarget
from herd.core.paths import Layout, machine_folder, machine_id
from herd.hosts.install.host import Host

HOSTS = ("claude", "pi")
"""The hosts that Herd can be installed into."""


def place() -> tuple[Mapping[str, str], Settings, Layout]:
    """Give the variables, the settings and the folders of this machine; nothing is made."""
    environ = config.environment()
    settings = config.load(environ)
    layout = Layout(os.path.join(settings.home, machine_folder(machine_id()[0])))
    return environ, settings, layout


def describe(
    name: str,
    environ: Mapping[str, str],
    settings: Settings,
    layout: Layout,
    *,
    tools: bool,
    force: bool = False,
) -> Host:
    """Describe a host as it is installed for this user.

    Args:
        name: One of `HOSTS`.
        environ: The variables.
        settings: Herd's settings.
        layout: The folders of this machine.
        tools: Whether our tools are to be allowed, where the host asks for permission.
        force: Whether a person's changes of a file of ours give way.

    Raises:
        HerdError: a variable of the host cannot be used, or there is no command `herd`.
    """
    command = herd_command(environ)
    _require_text(command, sys.executable, settings.home)
    if name == "claude":
        from herd.hosts.install import claude

        host = claude.host(command, environ, settings, layout.backups, sys.executable, tools=tools)
    else:
        from herd.hosts.install import pi

        host = pi.host(command, environ, settings, layout.backups, force=force)
    _require_text(*(one.path for one in host.targets))
    return host


def _require_text(*paths: str) -> None:
    """Refuse a path that cannot be written into a file of text."""
    for path in paths:
        if as_text(path) != path:
            raise InvalidParams(
                f"{as_text(path)} has a name that is no UTF-8, or that this locale cannot spell",
                hint="Give it a name of UTF-8 text, or use a UTF-8 locale (LC_ALL=C.UTF-8).",
            )


def herd_command(environ: Mapping[str, str]) -> str:
    """Give the absolute path of this command, as a host is to start it.

    The name by which it was called is kept where it is a link: what it leads to may change at an upgrade.

    Raises:
        UnknownTarget: it runs as a module, and no command lies beside its interpreter or on the search path.
    """
    called = sys.argv[0]
    beside = os.path.join(os.path.dirname(sys.executable), "herd")
    found = shutil.which("herd", path=environ.get("PATH", os.defpath))
    for path in (called if os.path.basename(called) == "herd" else None, beside, found):
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.abspath(path)
    raise UnknownTarget(
        "there is no command `herd` that a host could start",
        hint="Install Herd, for example with `pipx install herd-coordinator`, and run that command.",
    )
