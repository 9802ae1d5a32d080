"""What runs beside `herd mcp` in a session of Claude Code: it joins hooks, state file, inbox and coordinator.

Hooks name the session and carry mail into running turns; the state file says what the session does; the inbox
wakes it. Everything that one of them tells is dealt with one after the other.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import TracebackType
from typing import Self

from herd.coordinator.attention import Arrival
from herd.coordinator.coordinator import Coordinator
from herd.coordinator.tasks import Tasks
from herd.coordinator.waking import Waiting
from herd.core.errors import HerdError
from herd.hosts.adapter import Handed
from herd.hosts.claude import policy
from herd.hosts.claude.door import Answer, Door
from herd.hosts.claude.events import PROMPT, SESSION_END, STOP, TOOLS, Event, read_event
from herd.hosts.claude.handing import Handing, Text, may_go_on, shown_to_person
from herd.hosts.claude.inbox import inbox_of, push_notice
from herd.hosts.claude.session_file import ACTIVITIES, IDLE, Process, State, StateWatch, settings_folder
from herd.hosts.claude.telling import Telling
from herd.hosts.claude.turns import Turns
from herd.hosts.claude.waking import Waker
from herd.hosts.claude.wire import Told
from herd.hosts.serving import Serving

_log = logging.getLogger("herd.hosts.claude")

_HANDS_OVER = frozenset({PROMPT, TOOLS, STOP})
"""Not the begin of a session: a run with a prompt of its own would put that text into the request twice."""
_LARGE_BYTES = 65_536


class ClaudeCompanion:
    """See `herd.hosts.adapter.Companion`.

    Args:
        serving: The server it runs beside.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._settings = settings_folder(serving.environ)
        self._tasks = Tasks()
        self._turn = asyncio.Lock()
        self._handing = Handing(self._refresh)
        self._waker = Waker(self._wake)
        self._turns = Turns(self._settings)
        self._door = Door(serving.layout, serving.host_pid, self._hook)
        self._notices = count(1)
        self._watch: StateWatch | None = None
        self._watching = False
        self._state: State | None = None
        self._followed: State | None = None
        self._coordinator: Coordinator | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self._session_id: str | None = None
        self._unread_since: float | None = None
        self._telling = Telling()
        self._hooks_seen = False
        self._transcript: str | None = None
        self._permission_mode: str | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        process = Process(self._serving.host_pid, self._serving.host_start)
        if self._settings is not None:
            self._watch = StateWatch(self._settings, process, self._state_changed)
        self._watching = True
        self._tasks.create_task(self._open_door())
        if self._state is not None:
            await self._follow(self._state)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waker.ending()
        if self._watch is not None:
            self._watch.close()
        await self._door.close()
        await self._tasks.__aexit__(kind, error, trace)

    def served(self, coordinator: Coordinator | None) -> None:
        """See `Companion.served`."""
        self._unlisten()
        self._unlisten = lambda: None
        self._handing.dropped()
        self._coordinator = coordinator
        self._unread_since = None
        self._telling = Telling()
        if coordinator is not None:
            self._session_id = coordinator.own.session.session_id
            self._report(coordinator)  # before it can wake: an unknown activity would allow that
            self._unlisten = coordinator.attention.listen(self._arrived)
        self._refresh()

    def answered(self, call_id: str | None, handed: Handed) -> None:
        """See `Companion.answered`."""
        if call_id is not None:
            self._handing.answered(call_id, handed)

    def proves(self, handed: Handed) -> bool:  # noqa: ARG002 - the seam's shape
        """See `Companion.proves`: once a hook has come, hooks tell of every call."""
        return self._hooks_seen

    async def _open_door(self) -> None:
        if await self._door.open_when_free():
            self._refresh()

    # --- hooks ---------------------------------------------------------------------------------------------

    async def _hook(self, told: Told, gone: Callable[[], bool]) -> Answer:
        large = len(told.data) > _LARGE_BYTES
        event = await asyncio.to_thread(read_event, told) if large else read_event(told)
        if event is None:
            return Answer()
        async with self._turn:
            self._learn(event)
            if event.name != SESSION_END and event.session_id != self._session_id:
                await self._bind(event.session_id, event.cwd)
            await self._handing.happened(event, self._transcript)
            if self._handing.gave_back and self._unread_since is None:
                self._unread_since = time.monotonic()
            coordinator = self._coordinator
            if coordinator is None or gone():
                return Answer()
            if event.by_person:
                coordinator.update(person_prompted=True)
            text = await self._text_for(event, coordinator)
            self._turns.heard(event, prolongs=text is not None)
            self._refresh()
            waits = self._unread_since is not None
            brought = len(text.message_ids) if text is not None else 0
            line = await self._telling.line(event, coordinator, brought=brought, waits=waits)
            self._refresh()
            if text is None:
                return Answer(shown_to_person(line))
        return Answer(text.output(line), lambda told: self._handing.printed(text, told=told))

    def _learn(self, event: Event) -> None:
        self._hooks_seen = True
        self._turns.heard(event, prolongs=False)
        self._transcript = event.transcript or self._transcript
        self._permission_mode = event.permission_mode or self._permission_mode
        if event.name == SESSION_END:
            self._waker.ending()
        elif not event.of_subagent:
            self._waker.went_on()

    async def _text_for(self, event: Event, coordinator: Coordinator) -> Text | None:
        if event.of_subagent or event.name not in _HANDS_OVER or self._unread_since is None:
            return None
        try:
            if event.name == STOP and not await may_go_on(event, coordinator):
                return None
            text = await self._handing.taken(event.name, coordinator)
        except HerdError as fault:
            _log.warning("claude.handover.failed reason=%s", fault.message)
            return None
        if text is None or not text.more:
            self._unread_since = None  # what waits yet is not for a hook; whatever comes is told anew
        return text

    # --- what Claude Code says of itself -------------------------------------------------------------------

    def _state_changed(self, state: State) -> None:
        before, self._state = self._state, state
        self._turns.changed(before, state)
        if self._watching:
            self._tasks.create_task(self._changed(before, state))

    async def _changed(self, before: State | None, state: State) -> None:
        over = before is not None and state.status == IDLE and before.changed != state.changed
        # Outside of the lock, which hooks wait for; until the answer is there, the session counts as busy.
        stood = await self._waits() if over and not self._handing.owes else None
        cut = over and await self._was_cut(state)
        async with self._turn:
            if state is not self._state:
                return  # the next one is on its way
            if cut:
                self._waker.cut_off()  # before anything is given back, which counts as mail that waits
            await self._follow(state)
            if over:
                await self._turn_over(stood)
        self._waker.changed(self._state, unread=self._unread_since is not None)

    async def _follow(self, state: State) -> None:
        self._followed = state
        if state.session_id != self._session_id and not self._hooks_seen:
            await self._bind(state.session_id, state.cwd)
        if self._coordinator is not None:
            self._report(self._coordinator)
        self._refresh()

    async def _was_cut(self, state: State) -> bool:
        if self._unread_since is None and not self._handing.owes:
            return False  # nothing depends on it
        return await self._turns.was_cut(state, self._transcript, lambda: state is not self._state)

    async def _turn_over(self, stood: Waiting | None) -> None:
        await self._handing.over(self._transcript)
        # What came while the end was looked into came after it; what the turn gives back did not.
        waiting = stood or await self._waits()
        if waiting is not None:
            self._waker.stands(waiting)
        if self._coordinator is not None:
            self._coordinator.update(activity=IDLE, turn_ended=True)

    async def _waits(self) -> Waiting | None:
        with suppress(HerdError):
            return await self._coordinator.attention.waits() if self._coordinator is not None else None
        return None

    def _report(self, coordinator: Coordinator) -> None:
        if self._state is not None and self._state.status is not None:
            coordinator.update(activity=ACTIVITIES[self._state.status])

    async def _bind(self, session_id: str, cwd: str | None) -> None:
        self._session_id = session_id
        await self._serving.bind(session_id, cwd)

    def _arrived(self, arrival: Arrival) -> None:
        if self._unread_since is None and arrival.unread:
            self._unread_since = time.monotonic()
        self._telling.arrived(arrival)
        self._refresh()
        known = self._state if self._state is self._followed else None
        taken = self._waker.arrived(arrival, known)
        if arrival.wake and not taken and self._coordinator is not None:
            self._coordinator.update(turn_ended=True)  # nobody is woken, so no wake is open

    def _wake(self) -> None:
        self._tasks.create_task(self._woken())

    async def _woken(self) -> None:
        environ, pid = self._serving.environ, self._serving.host_pid
        found = inbox_of(environ, pid)
        if found is not None and self._settings is not None:
            asked = policy.sources(self._settings, environ, pid)
            if await asyncio.to_thread(policy.may_wake, asked, self._permission_mode):
                await push_notice(found, next(self._notices))

    def _refresh(self) -> None:
        """Bring the flags into line with what a hook would have to do now."""
        current = self._state.session_id if self._state is not None else self._session_id
        moved = current != self._session_id
        waits = self._unread_since is not None or self._telling.held_back > 0
        serves = self._coordinator is not None and (waits or self._handing.owes)
        prompt = self._coordinator is not None and self._coordinator.thread.awaits_prompt
        self._door.flags.show(current, wanted=moved or serves, prompt=prompt)
