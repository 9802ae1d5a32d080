"""Section steady: what two sessions hold after 1,000 messages and after 10,000 more: the same.

Only the mailboxes may grow, with the rows they keep; they are told by themselves. Batches stay below the
bound of the inbox, and each is read, confirmed and told to be delivered before the next begins. A third
session does nothing meanwhile: what it holds more is other processes' doing, who share its files' pages or
have ceased to, and is taken off.
"""

import os
import time
from collections.abc import Iterator
from operator import sub
from pathlib import Path
from typing import NamedTuple

from herd.core.identity import SessionName
from herd.core.paths import open_layout
from tests.bench.processes import Memory, descriptors, memory
from tests.bench.report import Check, Figure, Finding
from tests.bench.workshop import TEXT, Workshop, session, target
from tests.fakes.herd_session import HerdSession

_BATCH = 25
_FIRST = 1_000
_MORE = 10_000
_SETTLED_S = 1.0
_WAIT_S = 60.0

_MEMORY_BOUND_MIB = 0.1
_COUNT_BOUND = 0.0


class Held(NamedTuple):
    """What one session holds; memory in MiB, the mailbox in bytes with its log."""

    proportional: float
    private: float
    anonymous: float
    descriptors: int
    mailbox: int


def measure(workshop: Workshop) -> Iterator[Finding]:
    """Measure."""
    home = workshop.home(wide=True)
    with (
        session(home, "sender") as sender,
        session(home, "receiver") as receiver,
        session(home, "idle") as idle,
    ):
        to = target(receiver)
        sender.request("session.list")
        running = {"sender": sender, "receiver": receiver, "idle": idle}
        got = _exchanged(sender, receiver, to, _FIRST)
        early, files_early = _held(home, running), files_below(home)
        got += _exchanged(sender, receiver, to, _MORE)
        late, files_late = _held(home, running), files_below(home)
    missing = _FIRST + _MORE - got
    yield Check(f"all {_FIRST + _MORE:,} messages came", f"{missing} did not" if missing else None)
    beside = Memory(*map(sub, late["idle"][:3], early["idle"][:3]))
    yield Figure("an idle one, PSS, more per 1,000", beside.proportional * 1_000 / _MORE, "MiB")
    for name in ("sender", "receiver"):
        yield from grown(name, early[name], late[name], _MORE, beside)
    yield Figure(
        f"files in the data root, more after {_MORE:,}", files_late - files_early, "", bound=_COUNT_BOUND
    )


def grown(name: str, early: Held, late: Held, messages: int, beside: Memory) -> Iterator[Figure]:
    """Tell how much more one session holds `messages` later: memory for each 1,000, without `beside`."""
    thousands = messages / 1_000
    kinds = (("PSS", "proportional"), ("private pages", "private"), ("anonymous pages", "anonymous"))
    for kind, member in kinds:
        more = (getattr(late, member) - getattr(early, member) - getattr(beside, member)) / thousands
        yield Figure(f"{name}, {kind}, more per 1,000", more, "MiB", bound=_MEMORY_BOUND_MIB)
    more = late.descriptors - early.descriptors
    yield Figure(f"{name}, descriptors, more after {messages:,}", more, "", bound=_COUNT_BOUND)
    rows = (late.mailbox - early.mailbox) / messages
    yield Figure(f"{name}, mailbox, for each message of {len(TEXT):,} bytes", rows, "B")


def files_below(folder: Path) -> int:
    """Count the files, of whatever kind, in a folder and all that are in it."""
    return sum(len(names) for _, _, names in os.walk(folder))


def _held(home: Path, sessions: dict[str, HerdSession]) -> dict[str, Held]:
    time.sleep(_SETTLED_S)
    layout = open_layout(str(home))
    found = {}
    for name, one in sessions.items():
        mailbox = Path(layout.mailbox(SessionName("bench", name).key))
        size = sum(file.stat().st_size for file in mailbox.parent.glob(f"{mailbox.name}*"))
        found[name] = Held(*memory(one.pid), descriptors(one.pid), size)
    return found


def _exchanged(sender: HerdSession, receiver: HerdSession, to: str, count: int) -> int:
    """Send `count` messages, batch by batch, to the last receipt; gives how many the receiver read."""
    got = 0
    for _ in range(count // _BATCH):
        asked = [sender.begin("session.send", target=to, message=TEXT) for _ in range(_BATCH)]
        sent = {str(sender.result(request)["message_id"]) for request in asked}
        got += _read(receiver, sent)
        _hear_of(sender, sent)
    return got


def _read(receiver: HerdSession, sent: set[str]) -> int:
    waiting = set(sent)
    give_up = time.monotonic() + _WAIT_S
    while waiting and time.monotonic() < give_up:
        messages = receiver.request("session.read", wait_ms=1_000)["messages"]
        ids = [message["message_id"] for message in messages]
        if ids:
            receiver.request("session.confirm", message_ids=ids, evidence="bench")
        waiting -= set(ids)
    return len(sent) - len(waiting)


def _hear_of(sender: HerdSession, sent: set[str]) -> None:
    waiting = set(sent)
    give_up = time.monotonic() + _WAIT_S
    while waiting and time.monotonic() < give_up:
        receipts = sender.request("session.read", wait_ms=1_000)["receipts"]
        waiting -= {receipt["message_id"] for receipt in receipts if receipt["status"] == "delivered"}
