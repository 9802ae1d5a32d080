"""Looking whether Herd is in place in a host: its entries, the command they name, and what the host says.

It changes nothing of the person's.
"""

import os
from collections.abc import Iterator

from herd.core.errors import DONE, MAY_PASS, NOT_FOUND, RECOVERY, HerdError
from herd.core.paths import Layout
from herd.hosts.install.found import find
from herd.hosts.install.host import Finding, Host
from herd.hosts.install.installing import Installer
from herd.hosts.install.ledger import shelf_of
from herd.hosts.install.plan import UNCHANGED

_AGAIN = "Run `herd install {}` again."


def look(host: Host, layout: Layout, *, ask: bool = True) -> list[Finding]:
    """Give a finding for each thing that an installation consists of; none where nothing is installed.

    Args:
        host: The host.
        layout: The folders of this machine.
        ask: Whether the host's program is asked, too.
    """
    try:
        outcomes = Installer(host, layout).plan_install().outcomes
        left = Installer(host, layout).plan_uninstall().outcomes
        files = {one.part: find(one.path).content for one in host.targets}
    except HerdError as refusal:
        return [Finding(host.name, ok=False, detail=refusal.message, next_step=refusal.next_step)]
    here = {one.path for one in left if one.what != UNCHANGED or one.remarks}
    if not here and shelf_of(layout, host.name).ledger() is None:
        return []
    findings = []
    for one in outcomes:
        if not one.remarks:
            findings.append(_file(host, one.path, there=one.path in here, same=one.what == UNCHANGED))
        findings += [Finding("remark", ok=False, detail=remark) for remark in one.remarks]
    findings += _command(host, layout)
    if ask and here:
        findings += host.ask(files)
    return findings


def status_of(findings: list[Finding]) -> int:
    """Give the exit status for what was found; see `herd.core.errors.EXIT_STATUSES`."""
    if not findings:
        return NOT_FOUND
    if not all(one.ok for one in findings):
        return RECOVERY
    return MAY_PASS if any(one.unverified for one in findings) else DONE


def _file(host: Host, path: str, *, there: bool, same: bool) -> Finding:
    again = _AGAIN.format(host.name)
    if same:
        return Finding("file", ok=True, detail=f"{path} is as this version writes it")
    if there:
        return Finding(
            "file", ok=False, detail=f"{path} differs from what this version writes", next_step=again
        )
    return Finding("file", ok=False, detail=f"{path} lacks Herd's entries", next_step=again)


def _command(host: Host, layout: Layout) -> Iterator[Finding]:
    ledger = shelf_of(layout, host.name).ledger()
    command = host.command if ledger is None else ledger.command
    if os.access(command, os.X_OK) and os.path.isfile(command):
        yield Finding("command", ok=True, detail=f"{command} is there")
    else:
        yield Finding(
            "command",
            ok=False,
            detail=f"{command}, which {host.title} is to start, is gone",
            next_step=_AGAIN.format(host.name),
        )
