"""`herd install HOST`: put Herd into a host, or tell what that would change, or whether it is in place."""

import argparse
import os
import sys

from herd.cli import output
from herd.cli.hosting import HOSTS, describe, place
from herd.core.errors import DONE, NOT_FOUND, RECOVERY, InvalidParams
from herd.core.limits import LINE_CHARACTERS
from herd.core.paths import Layout, open_layout
from herd.core.text import printable
from herd.hosts.install.found import find
from herd.hosts.install.host import Finding, Host
from herd.hosts.install.installing import Installer
from herd.hosts.install.looking import look, status_of
from herd.hosts.install.plan import UNCHANGED, Outcome

HELP = "put Herd into a host: Claude Code or Pi"
DESCRIPTION = (
    "Write Herd's entries into the files that a host reads, and nothing else; `herd uninstall` takes them "
    "out again. Copies of what was there are kept in the data root. Afterwards the host's own program is "
    "asked whether it sees Herd."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "host", choices=HOSTS, nargs="?", help="the host; with --check, all where none is named"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
    mode.add_argument(
        "--check", action="store_true", help="tell whether everything is in place, and ask the host"
    )
    allowing = parser.add_mutually_exclusive_group()
    allowing.add_argument(
        "--allow-tools",
        action="store_true",
        default=None,
        help="let the agent use Herd's three tools without asking (Claude Code)",
    )
    allowing.add_argument(
        "--no-allow-tools",
        dest="allow_tools",
        action="store_false",
        help="add no permission, and ask no question about it",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace Herd's own file although somebody changed it"
    )
    parser.set_defaults(needs_session=False)


def run(options: argparse.Namespace) -> int:
    """Install, plan or look."""
    if options.host is None:
        return _check_all(options)
    environ, settings, layout = place()
    tools = options.allow_tools is True
    host = describe(options.host, environ, settings, layout, tools=tools, force=options.force)
    if options.check:
        return _check(host, layout, as_json=options.json)
    installer = Installer(host, layout)
    plan = installer.plan_install()
    if options.dry_run:
        _show_plan(host, plan.outcomes, as_json=options.json)
        return DONE
    allowed = host.name != "claude" or _allows_tools(host)
    if options.allow_tools is None and not allowed and _wants_tools(options):
        allowed = True
        host = describe(options.host, environ, settings, layout, tools=True, force=options.force)
        installer = Installer(host, layout)
        plan = installer.plan_install()
    if plan.changes:
        open_layout(settings.home)
    plan = installer.install()
    findings = host.ask({one.part: find(one.path).content for one in host.targets})
    _show_done(options, plan.outcomes, findings, hint=options.allow_tools is None and not allowed)
    return DONE if all(one.ok for one in findings) else RECOVERY


def _check_all(options: argparse.Namespace) -> int:
    """Look at every host; what is installed nowhere is not found."""
    if not options.check:
        raise InvalidParams(f"a host is missing: {' or '.join(HOSTS)}")
    environ, settings, layout = place()
    hosts = [describe(name, environ, settings, layout, tools=False) for name in HOSTS]
    statuses = {_check(host, layout, as_json=options.json) for host in hosts}
    return max(statuses - {NOT_FOUND}, default=NOT_FOUND)


def show_outcomes(outcomes: list[Outcome]) -> None:
    """Print what became of each file, a line each, and what keeps it from taking effect."""
    for one in outcomes:
        output.put(f"{one.what:<9} {printable(one.path, LINE_CHARACTERS)}")
    for one in outcomes:
        for remark in one.remarks:
            output.remark(remark)


def shape(outcome: Outcome) -> dict[str, object]:
    """Give what became of a file as JSON has it."""
    return {"path": outcome.path, "change": outcome.what, "remarks": list(outcome.remarks)}


def _check(host: Host, layout: Layout, *, as_json: bool) -> int:
    findings = look(host, layout)
    if findings and host.name == "claude":
        findings.append(_tools(host))
    if as_json:
        output.put_json({"host": host.name, "findings": [_finding_shape(one) for one in findings]})
    elif not findings:
        output.put(f"Herd is not installed into {host.title}; `herd install {host.name}` does that.")
    for one in [] if as_json else findings:
        _put(one)
    return status_of(findings)


def _show_plan(host: Host, outcomes: list[Outcome], *, as_json: bool) -> None:
    if as_json:
        shapes = [{**shape(one), "diff": one.diff()} for one in outcomes]
        output.put_json({"host": host.name, "files": shapes})
        return
    for one in outcomes:
        for line in one.diff().splitlines():
            output.put(printable(line, None))
    show_outcomes(outcomes)
    output.put("Nothing was changed: this is what would be.")


def _show_done(
    options: argparse.Namespace, outcomes: list[Outcome], findings: list[Finding], *, hint: bool
) -> None:
    if options.json:
        output.put_json(
            {
                "host": options.host,
                "files": [shape(one) for one in outcomes],
                "findings": [_finding_shape(one) for one in findings],
            }
        )
        return
    show_outcomes(outcomes)
    if all(one.what == UNCHANGED and not one.remarks for one in outcomes):
        output.put("Everything was in place already; no byte was changed.")
    for one in findings:
        _put(one)
    if hint:
        output.put(
            "Claude Code asks before each use of Herd's tools unless they are allowed: add --allow-tools."
        )


def _tools(host: Host) -> Finding:
    from herd.hosts.install.claude import denied_tools

    settings = [find(one.path).content for one in host.targets if one.part == "settings"]
    denied = [rule for content in settings for rule in denied_tools(content)]
    if denied:
        return Finding(
            "tools",
            ok=False,
            detail=f"{host.title} is told to deny {', '.join(denied)}",
            next_step="Take that out of permissions.deny, which outranks permissions.allow.",
        )
    asks = "it uses them without asking" if _allows_tools(host) else "it asks before each use of one"
    return Finding("tools", ok=True, detail=f"{host.title} knows three of Herd's, and {asks}")


def _allows_tools(host: Host) -> bool:
    from herd.hosts.install.claude import allows_tools

    return any(allows_tools(find(one.path).content) for one in host.targets if one.part == "settings")


def _wants_tools(options: argparse.Namespace) -> bool:
    """Ask the person, where there is one to ask."""
    if options.json or not (_is_terminal(0) and _is_terminal(2)):
        return False
    output.complain_of("Let Claude Code use Herd's tools (list_peers, message_peer, peer_messages)")
    output.complain_of("without asking each time? [y/N]")
    try:
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
    except (OSError, UnicodeDecodeError):
        return False


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def _put(finding: Finding) -> None:
    mark = "LOOK" if not finding.ok else "?   " if finding.unverified else "ok  "
    output.put(f"{mark} {finding.what}: {printable(finding.detail, LINE_CHARACTERS)}")
    if finding.next_step:
        output.put(f"       -> {printable(finding.next_step, LINE_CHARACTERS)}")


def _finding_shape(finding: Finding) -> dict[str, object]:
    return {name: value for name, value in finding._asdict().items() if value is not None}
