"""A chosen instant of a send at which authority changes, and what the evidence at each commit says of it.

It owns where a change begins, and has the evidence of each commit judged apart, by `tests.fakes.said`. What
Herd decides it does not know.

A change begins at the instant that was chosen. Where nobody holds the lock there, it is over before the send
goes on; where somebody does, the send goes on once the change waits with the gate closed, so that it is the
very next thing to happen behind that hold.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from assignments.evidence import Scan
from assignments.worktrees.groups import Groups, Membership
from herd.core.errors import LockTimeout
from herd.core.identity import SessionName
from herd.core.limits import AUTHORITY_WAIT_S
from herd.core.locks import probe
from herd.core.paths import Layout
from herd.mail.steps import (
    COMMIT_AFTER,
    COMMIT_BEFORE,
    HANDOVER_AFTER,
    HANDOVER_BEFORE,
    INBOX_AFTER,
    INBOX_BEFORE,
    OUTBOX_AFTER,
    OUTBOX_BEFORE,
)
from roles.eligibility import verdict
from roles.model import Allowed, Party, Verdict
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.said import said

Change = Callable[[float], None]
"""Changes something, waiting for the authority lock for so many seconds at most. Blocks."""

_BEGUN = {OUTBOX_BEFORE: "outbox", INBOX_BEFORE: "inbox", HANDOVER_BEFORE: "handover"}
_DONE = {OUTBOX_AFTER: "outbox", INBOX_AFTER: "inbox", HANDOVER_AFTER: "handover"}
_PAUSE_S = 0.001


class Committed(NamedTuple):
    """A commit that let the message pass, and what the evidence of that instant said."""

    what: str
    said: str


class Race:
    """One message from a sender to a recipient, and one change at one instant of its way.

    Args:
        layout: The folders of the machine.
        names: The two sessions, by what they are called here: `sender` and `recipient`.

    Attributes:
        commits: The commits that let the message pass, in order.
        passed: Every instant that was passed since the race was armed, in order.
        folders: Where each of the two works.
        fired: Whether the change has begun.
    """

    def __init__(self, layout: Layout, names: dict[str, SessionName]) -> None:
        self.commits: list[Committed] = []
        self.passed: list[str] = []
        self.fired = asyncio.Event()
        self._layout = layout
        self._names = names
        self._loop = asyncio.get_running_loop()
        self._point = ""
        self._change: Change | None = None
        self._changing: threading.Thread | None = None
        self._failed: list[BaseException] = []
        self._now: dict[str, str] = {}
        self._stage = "pieces"
        self._told: dict[str, dict[str, Membership]] = {"sender": {}, "recipient": {}}
        self._judged: dict[str, dict[str, Membership]] = {}
        self.folders: dict[str, str] = {}
        self._stored: Membership | None = None

    def arm(self, point: str, change: Change, folders: dict[str, str]) -> None:
        """Let the change happen at that instant; `folders` says where each of the two works."""
        self._point, self._change, self.folders = point, change, folders

    async def over(self) -> None:
        """Wait until the change has happened."""
        async with asyncio.timeout(IN_TIME_S):
            await self.fired.wait()
            if self._changing is not None:
                await asyncio.to_thread(self._changing.join)
        if self._failed:
            raise self._failed[0]

    # --- the seams ---------------------------------------------------------------------------------

    def step(self, who: str) -> Callable[[str], None]:
        """Give the step of one of the two."""

        def passed(step: str) -> None:
            if step in {COMMIT_BEFORE, COMMIT_AFTER}:
                if who not in self._now:
                    return
                step = f"{self._now[who]}.{step.removeprefix('mailbox.')}"
            elif step in _BEGUN:
                self._now[who] = _BEGUN[step]
            elif step in _DONE:
                self._now.pop(who, None)
                self._committed(_DONE[step])
            self.at(step)

        return passed

    def judge(self, who: str) -> "_Judge":
        """Give the real judge, for one of the two."""
        return _Judge(self, who)

    def groups(self, who: str, groups: Groups) -> "_Told":
        """Give what tells the groups, for one of the two."""
        return _Told(self, who, groups)

    def ruled(self, who: str) -> None:
        """Take note of a verdict that allows it, while its hold stands."""
        self._judged[who] = dict(self._told[who])
        if who == "sender":
            self.at("submission verdict")
            return
        if "bodies.send.after" in self.passed and self._stage == "pieces":
            self._stage = "acceptance"
        self.at(f"{self._stage} verdict")

    def told(self, who: str, folder: str, membership: Membership) -> None:
        """Take note of what one of the two was told of a folder."""
        self._told[who][folder] = membership

    def at(self, point: str) -> None:
        """Pass an instant, in whatever thread."""
        if self._change is None:
            return
        self.passed.append(point)
        if point != self._point:
            return
        self._point, change = "", self._change
        try:
            if self._begins(change):
                self._follows(change)
        finally:
            self._loop.call_soon_threadsafe(self.fired.set)

    def hook(self, point: str, work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Give work that passes an instant once it is done."""

        async def hooked(*given: Any, **more: Any) -> Any:
            found = await work(*given, **more)
            await asyncio.to_thread(self.at, point)
            return found

        return hooked

    # --- the change --------------------------------------------------------------------------------

    def _begins(self, change: Change) -> bool:
        """Try the change; tells whether somebody holds the lock."""
        held: list[bool] = []

        def trying() -> None:
            try:
                change(0)
            except LockTimeout:
                held.append(True)
            except BaseException as fault:  # noqa: BLE001 - told by `over`
                self._failed.append(fault)

        # In a thread of its own: a change may run a loop.
        one = threading.Thread(target=trying)
        one.start()
        one.join(IN_TIME_S)
        return bool(held)

    def _follows(self, change: Change) -> None:
        def changing() -> None:
            try:
                change(max(IN_TIME_S, AUTHORITY_WAIT_S))
            except BaseException as fault:  # noqa: BLE001 - told by `over`
                self._failed.append(fault)

        self._changing = threading.Thread(target=changing)
        self._changing.start()
        pause = threading.Event()
        for _ in range(int(IN_TIME_S / _PAUSE_S)):
            if probe(self._layout.authority_gate).held:
                return
            pause.wait(_PAUSE_S)
        raise AssertionError("the change does not wait at the gate")

    # --- the evidence ------------------------------------------------------------------------------

    def _committed(self, what: str) -> None:
        if self._change is None:
            return
        who = "sender" if what == "outbox" else "recipient"
        known = self._judged.get(who, {})
        of = {one: known.get(self.folders[one]) for one in self._names}
        if what == "inbox":
            self._stage, self._stored = "delivery", of["sender"]
        if what == "handover":
            of["sender"] = self._stored
        self.commits.append(Committed(what, said(self._layout, self._names, of)))


class _Judge:
    def __init__(self, race: Race, who: str) -> None:
        self._race = race
        self._who = who

    def verdict(self, sender: Party, target: Party, scan: Scan, *, reply: bool = False) -> Verdict:
        found = verdict(sender, target, scan, reply=reply)
        if isinstance(found, Allowed):
            self._race.ruled(self._who)
        return found


class _Told:
    def __init__(self, race: Race, who: str, groups: Groups) -> None:
        self._race = race
        self._who = who
        self._groups = groups

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        if self._who == "sender":
            self._race.at("groups looked up")
        found = await self._groups.membership(cwd, workspace_id)
        self._race.told(self._who, cwd, found)
        return found
