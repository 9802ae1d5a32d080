"""`herd doctor`: what Herd finds here, one line a thing, with the next step where something is wrong.

It looks and changes nothing. It needs no session, so it also serves where nothing else starts.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from herd.cli import output
from herd.core import config
from herd.core.build import running_build
from herd.core.config import Settings
from herd.core.errors import DONE, RECOVERY, HerdError, PeerOffline
from herd.core.files import checked_folder
from herd.core.filesystems import filesystem_type, require_local_locks
from herd.core.identity import target_of
from herd.core.limits import HANDOVERS, LINE_CHARACTERS
from herd.core.paths import MACHINE_ID_FILES, Layout, machine_folder, machine_id, open_layout
from herd.core.text import printable
from herd.presence.record import Record
from herd.presence.registry import Registry, sleeping_keys
from herd.presence.session_file import read_session_file

HELP = "look whether everything is in order, and say what to do where it is not"
DESCRIPTION = "Look at settings, folders, records and mailboxes; nothing is changed."

_MEND = "Mend what holds it, or who may read it; nothing there was changed."


class Finding(NamedTuple):
    """One thing looked at."""

    what: str
    ok: bool
    detail: str
    next_step: str | None = None


Findings = Iterator[Finding]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.set_defaults(needs_session=False)


def run(options: argparse.Namespace) -> int:
    """Look, and give 0 where all is in order, else the status of `recovery required`."""
    findings = list(look(config.environment()))
    if options.json:
        output.put_json({"findings": [_shape(finding) for finding in findings]})
    else:
        for finding in findings:
            _put(finding)
    return DONE if all(finding.ok for finding in findings) else RECOVERY


def look(environ: Mapping[str, str], machine_files: Sequence[str] = MACHINE_ID_FILES) -> Findings:
    """Give every finding, from the settings inwards; what is there and cannot be used ends nothing else.

    Args:
        environ: The variables, as `config.environment` gives them.
        machine_files: Where the machine's id may stand.
    """
    yield _build()
    machine, source = machine_id(machine_files)
    settings: list[Settings] = []
    yield from _tried("settings", lambda: _settings(environ, settings))
    yield _machine(source)
    if not settings:
        return
    layouts: list[Layout] = []
    yield from _tried("data root", lambda: _data_root(settings[0].home, machine, layouts))
    for layout in layouts:
        yield from _tried("presence", lambda: _records(layout))  # noqa: B023 - used at once
        yield from _tried("hosts", lambda: _hosts(environ, settings[0], layout))  # noqa: B023
        for key in sleeping_keys(layout):
            yield from _tried("session", lambda: _session(layout, key))  # noqa: B023


def _tried(what: str, check: Callable[[], Findings]) -> Findings:
    try:
        yield from check()
    except HerdError as refusal:
        yield Finding(what, ok=False, detail=refusal.message, next_step=refusal.next_step)
    except OSError as fault:
        yield Finding(what, ok=False, detail=f"{fault.filename}: {fault.strerror}", next_step=_MEND)


def _build() -> Finding:
    import sqlite3

    build = running_build()
    return Finding(
        "build", ok=True, detail=f"{build.version} · {build.sha256[:12]}, SQLite {sqlite3.sqlite_version}"
    )


def _settings(environ: Mapping[str, str], found: list[Settings]) -> Findings:
    settings = config.load(environ)
    found.append(settings)
    there = "read" if os.path.exists(settings.config_file) else "not there, so the defaults hold"
    yield Finding("settings", ok=True, detail=f"{settings.config_file} {there}")


def _machine(source: str) -> Finding:
    if source == "machine-id":
        return Finding("machine", ok=True, detail="named by its machine id")
    return Finding(
        "machine",
        ok=True,
        detail=(
            "it has no machine id, so its host name names its folder: "
            "machines that share a home need two names"
        ),
    )


def _data_root(home: str, machine: str, found: list[Layout]) -> Findings:
    root = os.path.join(home, machine_folder(machine))
    require_local_locks(root)
    if not os.path.lexists(root):
        yield _absent(home, root)
        return
    layout = open_layout(home, machine=machine)
    found.append(layout)
    kind = filesystem_type(layout.root) or "a file system of unknown type"
    yield Finding("data root", ok=True, detail=f"{layout.root} on {kind}")


def _absent(home: str, root: str) -> Finding:
    if os.path.lexists(home):
        checked_folder(home)
    there = home
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK):
        return Finding("data root", ok=True, detail=f"{root} is not there yet; the first session makes it")
    return Finding(
        "data root",
        ok=False,
        detail=f"{root} cannot be made: {there} is no folder in which you may make one",
        next_step="Set HERD_HOME to a place of yours.",
    )


def _records(layout: Layout) -> Findings:
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


def _hosts(environ: Mapping[str, str], settings: Settings, layout: Layout) -> Findings:
    """Look at the files of the hosts that Herd is installed into; the hosts themselves are not asked."""
    from herd.cli.hosting import HOSTS, describe
    from herd.hosts.install.ledger import shelf_of
    from herd.hosts.install.looking import look as look_at

    for name in HOSTS:
        if not os.path.lexists(shelf_of(layout, name).ledger_file):
            continue

        for one in look_at(describe(name, environ, settings, layout, tools=False), layout, ask=False):
            yield Finding(f"{name}: {one.what}", one.ok, one.detail, one.next_step)


def _session(layout: Layout, key: str) -> Findings:
    file = read_session_file(layout, key)
    if file is None:
        if os.path.lexists(layout.mailbox(key)):
            path = layout.session_file(key)
            yield Finding(
                "session",
                ok=False,
                detail=f"{path} is missing, although its session has a mailbox",
                next_step="Bring it back from a backup; until then nobody can read or write that mailbox.",
            )
        return
    label = f"{target_of(file.role, key)} ({file.session.host} {printable(file.session.session_id, 40)})"
    registry = Registry(layout)
    record = registry.record(key)
    if record is not None and registry.lives(record):
        yield _running(record, label)
    else:
        yield _sleeping(layout, key, label)


def _running(record: Record, label: str) -> Finding:
    if record.presence is not None:
        return Finding("session", ok=True, detail=f"{label} is running")
    return Finding(
        "session",
        ok=False,
        detail=f"{label} is running and not listed: it is unhealthy",
        next_step="Its own tools and `herd inbox` inside it say why.",
    )


def _sleeping(layout: Layout, key: str, label: str) -> Finding:
    from herd.mail.inbox import undelivered
    from herd.mail.outbox import pending
    from herd.mail.visit import look as look_into

    try:
        looked = look_into(layout, key, lambda connection, _: (undelivered(connection), pending(connection)))
    except PeerOffline:
        return Finding("session", ok=True, detail=f"{label} is being started or written to just now")
    rows, unsent = looked or ([], [])
    held = [row.message_id for row in rows if row.handovers >= HANDOVERS]
    return Finding(
        "session",
        ok=not held,
        detail=f"{label} sleeps with {len(rows)} undelivered messages, {len(held)} handed over in vain"
        + (f", and {len(unsent)} to be sent when it runs again" if unsent else ""),
        next_step=f"Inside that session: `herd inbox --message {held[0]}`." if held else None,
    )


def _put(finding: Finding) -> None:
    mark = "ok  " if finding.ok else "LOOK"
    output.put(f"{mark} {finding.what}: {printable(finding.detail, LINE_CHARACTERS)}")
    if finding.next_step:
        output.put(f"       -> {printable(finding.next_step, LINE_CHARACTERS)}")


def _shape(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in finding._asdict().items() if value is not None}
