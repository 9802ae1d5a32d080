"""The look at a session that runs: what it says itself over its socket, and who has its mailbox open."""

import os
from typing import Any, NamedTuple

from herd.cli.looking.finding import Finding, Findings, lasting
from herd.cli.looking.waiting import set_aside
from herd.client import Client
from herd.core.errors import DeliveryUnknown, HerdError, PeerOffline
from herd.core.limits import DOCTOR_ANSWER_S
from herd.core.paths import Layout
from herd.core.record_locks import Opener, opener_of
from herd.presence.record import Record
from herd.presence.registry import Registry

_SAYS_WHY = "Its own tools and `herd inbox` inside it say why; mostly its disk is full."


def running(layout: Layout, record: Record, label: str, *, listed: bool) -> Findings:
    """Look at a session whose instance lives.

    Args:
        layout: The folders of this machine.
        record: Its record.
        label: What it is called.
        listed: Whether lists show it.

    Raises:
        HerdError: its socket or token is not safe to use, or it refuses to say what waits.
    """
    yield from _mailbox(layout, record, label, listed=listed)
    if not os.path.lexists(layout.token(record.key)):
        detail = f"{label} is running, and {layout.token(record.key)} is missing: no command reaches it"
        yield Finding("session", ok=False, detail=detail, next_step="End that session and start it again.")
        return
    answer, refusal = _asked(layout, record)
    if not listed:
        why = f": {refusal.message}" if refusal is not None else ""
        detail = f"{label} is running and not listed: it is unhealthy{why}"
        step = refusal.next_step if refusal is not None else _SAYS_WHY
        yield Finding("session", ok=False, detail=detail, next_step=step)
    elif isinstance(refusal, PeerOffline | DeliveryUnknown):
        yield from _silent(layout, record, label)
    elif refusal is not None:
        raise refusal
    else:
        yield set_aside(f"{label} is running", len(answer.get("set_aside", [])))


def _asked(layout: Layout, record: Record) -> tuple[dict[str, Any], HerdError | None]:
    # Of what waits its messages come along; nothing here keeps or shows more of them than their number.
    try:
        with Client(layout, record, wait_s=DOCTOR_ANSWER_S) as client:
            return client.request("session.waiting", {}, wait_s=DOCTOR_ANSWER_S), None
    except HerdError as refusal:
        return {}, refusal


def _silent(layout: Layout, record: Record, label: str) -> Findings:
    if not Registry(layout).lives(record):
        yield Finding("session", ok=True, detail=f"{label} has ended just now")
        return
    yield Finding(
        "session",
        ok=False,
        detail=f"{label} is running and does not answer: process {record.claim.pid} is stopped or hangs",
        next_step=f"`kill -CONT {record.claim.pid}` lets it go on; else end it and start it again.",
    )


def _mailbox(layout: Layout, record: Record, label: str, *, listed: bool) -> Findings:
    path = layout.mailbox(record.key)

    def strange(seen: _Mailbox) -> bool:
        if seen.opener is not None:
            return seen.opener.pid > 0 and seen.opener.pid != record.claim.pid
        return seen.there and listed  # one that is unhealthy may have given it up

    seen = lasting(lambda: _looked_at(path), strange)
    if not strange(seen):
        return
    if seen.opener is not None:
        pid = seen.opener.pid
        detail = f"{label} runs in process {record.claim.pid}, and process {pid} has {path} open"
        step = f"End process {pid} if it is another program; if it is of Herd, end both and start one again."
    else:
        detail = f"{label} is running, and {path} is not the file that it has open: somebody replaced it"
        step = "Read its mail now, inside that session; then end it and keep both files."
    yield Finding("session", ok=False, detail=detail, next_step=step)


class _Mailbox(NamedTuple):
    """A session's mailbox: whether there is one, and who has it open."""

    there: bool
    opener: Opener | None


def _looked_at(path: str) -> _Mailbox:
    try:
        return _Mailbox(there=True, opener=opener_of(path))
    except OSError:  # there is none, or none that Herd would open: the look at the files names that
        return _Mailbox(there=False, opener=None)
