"""`herd doctor --repair`: set corrupt assignment records aside, on a person's word and nobody else's."""

import sys
from collections.abc import Sequence
from contextlib import suppress

from assignments.lifecycle import Assignments
from assignments.reading import Fault, every_record
from assignments.record import Place
from herd.cli import output
from herd.cli.caller import find_caller, process_tree
from herd.cli.context import Context, open_context
from herd.cli.looking.assignments import assignments
from herd.cli.looking.authority import authority
from herd.cli.looking.finding import Finding, tried
from herd.core.authority_lock import AuthorityLock
from herd.core.errors import DONE, AssignmentConflict, CapabilityDenied, InvalidParams
from herd.core.identity import TERMINAL
from herd.core.limits import LINE_CHARACTERS
from herd.core.text import printable

_ASKED = "Set them aside, their bytes unchanged? What they assigned is then assigned to nobody. [y/N]"


def repair(*, given: bool, as_json: bool) -> int:
    """Set every corrupt record aside, and give the exit status.

    Args:
        given: Whether the person has said yes already.
        as_json: Whether the answer is JSON.

    Raises:
        CapabilityDenied: an agent's command asks for it, or one without a terminal.
        InvalidParams: nobody is there to be asked, or the answer was no; nothing was changed.
        LockTimeout: a lock was not free in time.
    """
    context = open_context()
    _require_person(context)
    corrupt = {
        found.place: found
        for found in every_record(context.layout)
        if isinstance(found, Fault) and found.corrupt and found.place is not None
    }
    if corrupt:
        _require_consent(list(corrupt.values()), given=given)
    done = [_set_aside(context, place, fault) for place, fault in corrupt.items()]
    if as_json:
        output.put_json({"set_aside": done})
        return DONE
    for one in done:
        what = f"is kept as {one['kept_as']}" if one["kept_as"] else "was left as it is, since it has changed"
        output.put(printable(f"{one['path']} {what}", LINE_CHARACTERS))
    if done:
        output.put("run `herd doctor` again")
        return DONE
    output.put("no assignment record is corrupt; nothing was changed")
    for finding in _others(context):
        output.put(printable(f"this keeps verdicts open all the same: {finding.detail}", LINE_CHARACTERS))
        output.put("`herd doctor` says what mends it")
    return DONE


def _others(context: Context) -> list[Finding]:
    """Give what is wrong and is not for this command to mend."""
    layout = context.layout
    looks = (("assignments", assignments), ("authority", lambda one, _: authority(one)))
    found = [finding for what, look in looks for finding in tried(what, lambda: look(layout, ()))]  # noqa: B023
    return [finding for finding in found if not finding.ok]


def _set_aside(context: Context, place: Place, fault: Fault) -> dict[str, str | None]:
    layout = context.layout
    lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
    kept_as: str | None = None
    with suppress(AssignmentConflict):  # somebody else has mended it, or removed it
        kept_as = Assignments(layout, lock).set_aside(place)
    return {"path": fault.path, "reason": fault.reason, "kept_as": kept_as}


def _require_person(context: Context) -> None:
    # It needs no session of its own. What has left its ancestors behind, as an agent's command can, has left
    # its terminal too, and is nobody's.
    tree = process_tree()
    caller = find_caller(context.registry, tree._replace(has_terminal=True), context.environ, None)
    if caller.session.host != TERMINAL:
        raise CapabilityDenied(
            "an agent's command repairs nothing: what is assigned is a person's decision",
            hint="A person does it, in a terminal of their own.",
        )
    if not tree.has_terminal:
        raise CapabilityDenied(
            "nothing proves that a person asks for this: the command has no controlling terminal",
            hint="Run it in a terminal; --yes answers what it asks there.",
        )


def _require_consent(corrupt: Sequence[Fault], *, given: bool) -> None:
    if given:
        return
    if not sys.stdin.isatty():
        raise InvalidParams(
            f"nobody is there to be asked whether {len(corrupt)} corrupt records are to be set aside",
            hint="Say it with --yes.",
        )
    for fault in corrupt:
        output.put(printable(f"{fault.path} {fault.reason}", LINE_CHARACTERS))
    output.put(_ASKED)
    output.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise InvalidParams("nothing was set aside", hint="Answer y to set them aside.")
