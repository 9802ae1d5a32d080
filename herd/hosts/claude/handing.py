"""What was given to Claude Code and is not proved yet: texts that hooks printed, results of tool calls.

A printed text counts once a later hook event shows that the turn went on with it. A result counts once an
event names its call. What neither happens to is looked for in the transcript once the turn is over, and is
given again if it is not there.
"""

import asyncio
import json
import logging
from collections.abc import Callable

from herd.coordinator.coordinator import Coordinator
from herd.core.config import IDLE_AUTO
from herd.core.errors import HerdError
from herd.core.limits import DRAIN_CHARACTERS, HOOK_TEXT_UNITS
from herd.hosts.adapter import Handed
from herd.hosts.claude import transcript
from herd.hosts.claude.events import SESSION_END, STOP, TOOL, TOOLS, Event

_log = logging.getLogger("herd.hosts.claude")

_WITHIN_A_TURN = frozenset({TOOL, TOOLS, STOP})
_MORE = "More messages wait: call peer_messages."


class Text:
    """A text that a hook is to print; it is the reader that holds the messages in it.

    Attributes:
        printed: Whether the hook said that it was printed; None until it has said anything.
        more: Whether more waits that a hook can carry.
    """

    def __init__(self, event: str, coordinator: Coordinator) -> None:
        self.event = event
        self.coordinator = coordinator
        self.message_ids: list[str] = []
        self.said = ""
        self.printed: bool | None = None
        self.more = False

    def output(self, line: str | None = None) -> bytes:
        """Give what the hook prints, as Claude Code reads it; the line is for the person alone."""
        if self.event == STOP:
            shown: dict[str, object] = {"decision": "block", "reason": self.said}
        else:
            specific = {"hookEventName": self.event, "additionalContext": self.said}
            shown = {"hookSpecificOutput": specific}
        return json.dumps({**shown, **_beside(line)}).encode("ascii")


def shown_to_person(line: str | None) -> bytes:
    """Give what a hook prints that has nothing for the model; nothing at all where there is no line."""
    return json.dumps(_beside(line)).encode("ascii") if line else b""


class Handing:
    """What is owed evidence in the session served now.

    Args:
        changed: Called whenever something was added or settled.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._texts: list[Text] = []
        self._calls: dict[str, Handed] = {}
        self.gave_back = False
        """Whether the event settled last gave something back, which waits again."""

    @property
    def owes(self) -> bool:
        """Whether a hook would bring evidence of something."""
        return bool(self._texts or self._calls)

    def answered(self, tool_use_id: str, handed: Handed) -> None:
        """Note a call whose result is on its way."""
        self._calls[tool_use_id] = handed
        self._changed()

    async def taken(self, event: str, coordinator: Coordinator) -> Text | None:
        """Hand over what waits as a text for the hook of an event; None where there is nothing to say.

        Raises:
            HerdError: nothing can be handed over now.
        """
        text = Text(event, coordinator)
        drained = await coordinator.delivery.drain(text, DRAIN_CHARACTERS)
        if _units(drained.text) > HOOK_TEXT_UNITS:
            await coordinator.delivery.put_back(text)
            drained = await coordinator.delivery.drain(text, HOOK_TEXT_UNITS // 2)
        if not drained.text:
            return None
        text.message_ids = drained.message_ids
        text.more = drained.more and bool(drained.message_ids)
        text.said = f"{drained.text}\n\n{_MORE}" if text.more else drained.text
        if text.message_ids:
            self._texts.append(text)
            self._changed()
        return text

    async def printed(self, text: Text, *, told: bool | None) -> None:
        """Note whether the hook printed a text; None where it was gone before, as if there had been none."""
        text.printed = told
        if told is None:
            self._forget(text)
            await text.coordinator.delivery.put_back(text)
        elif not told:
            self._release(text)

    async def happened(self, event: Event, path: str | None) -> None:
        """Settle what an event proves or disproves."""
        self.gave_back = False
        for tool_use_id in event.tool_use_ids:
            handed = self._calls.pop(tool_use_id, None)
            if handed is not None and not handed.settled:
                # What a subagent fetched stands in the subagent's conversation, which ends with it.
                await (handed.put_back() if event.of_subagent else handed.proved(f"hook {event.name}"))
        if event.of_subagent:
            return
        if event.name == SESSION_END:
            await self.over(path)
            return
        for text in [text for text in self._texts if text.printed]:
            # A prompt behind a prompt: the first was cut off before it was answered, and may have been taken
            # back, and what stood beside it with it.
            if event.name in _WITHIN_A_TURN:
                await self._confirm(text, f"hook {event.name}")
            else:
                await self._settle(text, path)
        self._changed()

    async def over(self, path: str | None) -> None:
        """Settle everything once a turn has ended."""
        for text in [text for text in self._texts if text.printed]:
            await self._settle(text, path)
        for tool_use_id, handed in list(self._calls.items()):
            del self._calls[tool_use_id]
            if handed.settled:
                continue
            if path is not None and await asyncio.to_thread(transcript.has_result, path, tool_use_id):
                await handed.proved("transcript entry")
            else:
                handed.take_back()
        self._changed()

    def dropped(self) -> None:
        """Give back every text: the session is served here no longer. Calls have their own end."""
        for text in list(self._texts):
            self._release(text)
        self._calls.clear()

    async def _settle(self, text: Text, path: str | None) -> None:
        # Beside a prompt it proves nothing that the text was written down: the prompt may be taken back.
        written = transcript.has_message if text.event in _WITHIN_A_TURN else transcript.was_kept
        if path is not None and await asyncio.to_thread(written, path, text.message_ids[0]):
            await self._confirm(text, "transcript entry")
        else:
            self._release(text)

    async def _confirm(self, text: Text, evidence: str) -> None:
        self._forget(text)
        try:
            await text.coordinator.delivery.confirm_held(text, evidence)
        except HerdError as fault:
            # The host has it and we cannot write that down: better given again than held by nobody.
            _log.warning("claude.evidence.failed reason=%s", fault)
            text.coordinator.delivery.release(text)

    def _release(self, text: Text) -> None:
        self.gave_back = True
        self._forget(text)
        text.coordinator.delivery.release(text)

    def _forget(self, text: Text) -> None:
        if text in self._texts:
            self._texts.remove(text)
        self._changed()


async def may_go_on(event: Event, coordinator: Coordinator) -> bool:
    """Tell whether mail may keep a turn from ending: once in a turn, and only mail that may wake.

    Raises:
        HerdError: the mailbox cannot be read.
    """
    if event.again or coordinator.opening.idle != IDLE_AUTO:
        return False
    return (await coordinator.attention.waits()).newest_waking > 0


def _beside(line: str | None) -> dict[str, str]:
    return {"systemMessage": line} if line else {}


def _units(text: str) -> int:
    """Count a text as Claude Code does: in the UTF-16 units of its own strings."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
