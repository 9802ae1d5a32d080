"""A person's home with the configuration files of hosts in it, and what installs into it.

It owns realistic contents of those files. It is ignorant of what an installation is expected to do.
"""

import os
from pathlib import Path
from typing import Any

from herd.core.config import Settings
from herd.core.limits import DEFAULT_LIMITS
from herd.core.paths import Layout, open_layout
from herd.hosts.install import claude, pi
from herd.hosts.install.disk import Step
from herd.hosts.install.host import Host
from herd.hosts.install.installing import Installer
from herd.hosts.install.plan import Plan

SERVERS = b"""{
  "numStartups": 41,
  "tipsHistory": {"new-user-warmup": 3, "shift-enter": 12},
  "oauthAccount": {"emailAddress": "person@example.org", "note": "\\u00fc \xc3\xbc"},
  "mcpServers": {
    "tickets": {
      "type": "http",
      "url": "https://tickets.example.org/mcp"
    },
    "files": {"command": "npx", "args": ["-y", "server-files", "/home/person"], "env": {}}
  },
  "projects": {
    "/home/person/shop": {"allowedTools": [], "hasTrustDialogAccepted": true, "mcpServers": {}}
  }
}"""
"""As Claude Code writes it: two blanks, no line end at the end."""

SETTINGS = (
    b'{\r\n\t"permissions": {\r\n\t\t"allow": ["Bash(git status)", "WebFetch"],\r\n\t\t"deny": []\r\n\t},\r\n'
    b'\t"hooks": {\r\n\t\t"Stop": [\r\n\t\t\t{"hooks": [{"type": "command", "command": "notify-send"}]}\r\n'
    b'\t\t]\r\n\t},\r\n\t"model": "opus"\r\n}\r\n'
)
"""Of a person who edits with tabs and another system's line ends."""

COMMENTED = b"""{
    // what I may do without being asked
    "permissions": {
        "allow": [
            "Bash(ls:*)", // harmless
        ],
    },
    /* none yet */
    "hooks": {},
}
"""
"""With comments and commas too many, which some editors and some hosts take."""

SNAPSHOT = dict[str, tuple[str, bytes, int]]


class Person:
    """One user's home, and Herd's data root.

    Args:
        folder: Where both are made.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder / "person"
        self.home.mkdir()
        self.command = folder / "bin" / "herd"
        self.command.parent.mkdir()
        self.command.write_text("#!/bin/sh\n", encoding="utf-8")
        self.command.chmod(0o755)
        self.layout: Layout = open_layout(str(folder / "root"), machine="one")
        self.settings = Settings(str(folder / "root"), DEFAULT_LIMITS, str(folder / "none.toml"))
        self.environ = {"HOME": str(self.home), "PATH": str(folder / "no programs")}

    @property
    def servers(self) -> Path:
        """Claude Code's file with the MCP servers."""
        return self.home / ".claude.json"

    @property
    def claude_settings(self) -> Path:
        """Claude Code's file with hooks and permissions."""
        return self.home / ".claude" / "settings.json"

    @property
    def extension(self) -> Path:
        """Pi's file of ours."""
        return self.home / ".pi" / "agent" / "extensions" / "herd.ts"

    def with_files(self, servers: bytes = SERVERS, settings: bytes = SETTINGS) -> "Person":
        """Let Claude Code have been used here."""
        self.claude_settings.parent.mkdir(exist_ok=True)
        self.servers.write_bytes(servers)
        self.servers.chmod(0o600)
        self.claude_settings.write_bytes(settings)
        self.claude_settings.chmod(0o640)
        return self

    def claude(self, *, tools: bool = False, **environ: str) -> Host:
        """Describe Claude Code here."""
        found = {**self.environ, **environ}
        work = self.layout.backups
        return claude.host(str(self.command), found, self.settings, work, "/usr/bin/python3", tools=tools)

    def pi(self, *, force: bool = False, **environ: str) -> Host:
        """Describe Pi here."""
        found = {**self.environ, **environ}
        return pi.host(str(self.command), found, self.settings, self.layout.backups, force=force)

    def install(self, host: Host, step: Step = lambda _, __: None) -> Plan:
        """Install into a host."""
        installer = Installer(host, self.layout, step)
        plan = installer.plan_install()
        installer.carry_out(plan)
        return plan

    def uninstall(self, host: Host, step: Step = lambda _, __: None) -> Plan:
        """Uninstall from a host."""
        installer = Installer(host, self.layout, step)
        plan = installer.plan_uninstall()
        installer.carry_out(plan)
        return plan

    def snapshot(self) -> SNAPSHOT:
        """Give everything below the home: kind or link, content, mode."""
        return snapshot(self.home)


def snapshot(folder: Path) -> SNAPSHOT:
    """Give everything below a folder by its path: where it leads or what it is, content and mode."""
    found: SNAPSHOT = {}
    for path in sorted(folder.rglob("*")):
        kind = os.readlink(path) if path.is_symlink() else "folder" if path.is_dir() else "file"
        content = path.read_bytes() if kind == "file" else b""
        found[str(path.relative_to(folder))] = (kind, content, path.lstat().st_mode)
    return found


def failing_at(number: int, fault: OSError) -> tuple[Step, list[Any]]:
    """Give a step that fails when it is called for the number-th time, and the list of its calls."""
    called: list[Any] = []

    def step(word: str, path: str) -> None:
        called.append((word, path))
        if len(called) == number:
            raise fault

    return step, called
