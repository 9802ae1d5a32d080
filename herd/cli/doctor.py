"""`herd doctor`: what Herd finds here, one line a thing, with the next step where something is wrong.

It looks and changes nothing. It needs no session, so it also serves where nothing else starts.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from herd.cli import output
from herd.core import config
from herd.core.build import running_build
from herd.core.config import Settings
from herd.core.errors import DONE, RECOVERY, HerdError
from herd.core.filesystems import filesystem_type
from herd.core.identity import target_of
from herd.core.limits import HANDOVERS
from herd.core.paths import Layout, machine_id, open_layout
from herd.core.text import printable
from herd.presence.registry import Registry, sleeping_keys
from herd.presence.session_file import SessionFile, read_session_file

HELP = "look whether everything is in order, and say what to do where it is not"
DESCRIPTION = "Look at settings, folders, records and mailboxes; nothing is changed."


class Finding(NamedTuple):
    """One thing looked at."""

    what: str
    ok: bool
    detail: str
    next_step: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.set_defaults(needs_session=False)


def run(options: argparse.Namespace) -> int:
    """Look, and give 0 where all is in order, else the status of `recovery required`."""
    findings = list(look())
    if options.json:
        output.put_json({"findings": [_shape(finding) for finding in findings]})
    else:
        for finding in findings:
            mark = "ok  " if finding.ok else "LOOK"
            output.put(f"{mark} {finding.what}: {printable(finding.detail, None)}")
            if finding.next_step:
                output.put(f"       -> {printable(finding.next_step, None)}")
    return DONE if all(finding.ok for finding in findings) else RECOVERY


def look() -> Iterator[Finding]:
    """Give every finding, from the settings inwards."""
    yield _build()
    settings: list[Settings] = []
    yield _tried("settings", lambda: _settings(settings))
    if not settings:
        return
    layouts: list[Layout] = []
    yield _tried("data root", lambda: _data_root(settings[0], layouts))
    yield _machine()
    if not layouts:
        return
    layout = layouts[0]
    yield from _records(layout)
    for key in sleeping_keys(layout):
        yield from _session(layout, key)


def _tried(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, ok=True, detail=check())
    except HerdError as refusal:
        return Finding(what, ok=False, detail=refusal.message, next_step=refusal.next_step)


def _build() -> Finding:
    import sqlite3

    build = running_build()
    return Finding(
        "build", ok=True, detail=f"{build.version} · {build.sha256[:12]}, SQLite {sqlite3.sqlite_version}"
    )


def _settings(found: list[Settings]) -> str:
    settings = config.load(config.environment())
    found.append(settings)
    there = "read" if os.path.exists(settings.config_file) else "not there, so the defaults hold"
    return f"{settings.config_file} {there}"


def _data_root(settings: Settings, found: list[Layout]) -> str:
    layout = open_layout(settings.home)
    found.append(layout)
    return f"{layout.root} on {filesystem_type(layout.root) or 'a file system of unknown type'}"


def _machine() -> Finding:
    _, source = machine_id()
    if source == "machine-id":
        return Finding("machine", ok=True, detail="named by its machine id")
    return Finding(
        "machine",
        ok=True,
        detail="it has no machine id, so its host name names its folder: machines that share a home need two names",
    )


def _records(layout: Layout) -> Iterator[Finding]:
    registry = Registry(layout)
    listed = registry.listed()
    yield Finding("presence", ok=True, detail=f"{len(listed)} listed, sockets in {_socket_folders(registry)}")
    for fault in registry.faults:
        yield Finding(
            "record",
            ok=False,
            detail=f"{fault.path} {fault.reason}",
            next_step="It is left as it is and hides nobody. Remove it if none of your sessions wrote it.",
        )


def _socket_folders(registry: Registry) -> str:
    folders = {os.path.dirname(record.endpoint) for record in registry.scan() if registry.lives(record)}
    return ", ".join(sorted(folders)) or "use by nobody"


def _session(layout: Layout, key: str) -> Iterator[Finding]:
    try:
        file = read_session_file(layout, key)
        if file is None:
            return
        label = f"{target_of(file.role, key)} ({file.session.host} {printable(file.session.session_id, 40)})"
        yield from _mailbox(layout, file, label)
    except HerdError as refusal:
        yield Finding("session", ok=False, detail=refusal.message, next_step=refusal.next_step)


def _mailbox(layout: Layout, file: SessionFile, label: str) -> Iterator[Finding]:
    from herd.mail.inbox import undelivered
    from herd.mail.visit import look as look_into

    record = Registry(layout).record(file.session.key)
    if record is not None and Registry(layout).lives(record):
        listed = record.presence is not None
        yield Finding(
            "session",
            ok=listed,
            detail=f"{label} is running" if listed else f"{label} is running and not listed: it is unhealthy",
            next_step=None if listed else "Its own tools and `herd inbox` inside it say why.",
        )
        return
    rows = look_into(layout, file.session.key, lambda connection, _: undelivered(connection)) or []
    held = [row.message_id for row in rows if row.handovers >= HANDOVERS]
    yield Finding(
        "session",
        ok=not held,
        detail=f"{label} sleeps with {len(rows)} undelivered messages, {len(held)} of them handed over in vain",
        next_step=f"Inside that session: `herd inbox --message {held[0]}`." if held else None,
    )


def _shape(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in finding._asdict().items() if value is not None}
