"""From the entries of `files` to what is attached: files that are read now, and results that are looked up.

All or nothing: one entry that cannot be attached as it is refuses the call, and nothing is queued.
"""

import asyncio
import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from herd.core.errors import HerdError, InvalidParams, MessageIdConflict
from herd.core.limits import AGENT_CHARACTERS, MESSAGE_ID_CHARACTERS, Limits
from herd.mail import results
from herd.mail.attachments import NOTHING_SENT, distinct, read_files
from herd.mail.mailbox import Mailbox
from herd.mail.parts import PREFIX, Binding, Part
from herd.mail.results import Result

AGENT = rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{AGENT_CHARACTERS - 1}}}"
"""What the name of an agent looks like in a reference to its result."""

_SEMANTIC = re.compile(rf"{PREFIX}{AGENT}#[1-9][0-9]{{0,17}}")
_CANONICAL = re.compile(rf"{PREFIX}[A-Za-z0-9-]{{1,{MESSAGE_ID_CHARACTERS}}}")


class Attached(NamedTuple):
    """What is attached to one message, in the order of the entries."""

    parts: tuple[Part, ...] = ()
    data: tuple[bytes, ...] = ()
    bindings: tuple[Binding, ...] = ()


class _One(NamedTuple):
    name: str
    data: bytes
    binding: Binding | None


class Attaching:
    """Attaches for one session.

    Args:
        mailbox: The session's own, with its results and those that came to it.
        limits: The bounds in force.
        folder: Gives the folder from which relative paths start.
    """

    def __init__(self, mailbox: Mailbox, limits: Limits, folder: Callable[[], str]) -> None:
        self._mailbox = mailbox
        self._limits = limits
        self._folder = folder

    async def attached(self, entries: Sequence[str], branches: Collection[str] | None) -> Attached:
        """Give what the entries of a call attach.

        Args:
            entries: Paths and references.
            branches: The branches of the conversation up to where it is; None for the whole of it.

        Raises:
            InvalidParams: an entry is no such file or result; the message says which and why.
            MessageTooLarge: a file is too large.
            HerdError: the mailbox cannot be read.
        """
        references = [entry for entry in entries if entry.startswith(PREFIX)]
        found = {entry: await self._result(entry, branches) for entry in dict.fromkeys(references)}
        paths = [entry for entry in entries if not entry.startswith(PREFIX)]
        return await asyncio.to_thread(self._together, paths, list(found.values()))

    def _together(self, paths: Sequence[str], found: Sequence[Result]) -> Attached:
        files = read_files(paths, self._folder(), self._limits.inline_attachment_bytes)
        by_call = {one.binding.canonical: one for one in found}  # two references to one result attach it once
        whole = [_One(one.binding.ref, one.data, one.binding) for one in by_call.values()]
        whole += [
            _One(name, file.data, None)
            for name, file in zip(distinct(file.name for file in files), files, strict=True)
        ]
        return Attached(
            tuple(Part.of(one.data, one.name) for one in whole),
            tuple(one.data for one in whole),
            tuple(one.binding for one in whole if one.binding is not None),
        )

    async def _result(self, reference: str, branches: Collection[str] | None) -> Result:
        if not (_SEMANTIC.fullmatch(reference) or _CANONICAL.fullmatch(reference)):
            raise _unresolved(
                reference, "is neither result:<agent>#<n> nor result:<request-id>; a path begins with ./"
            )
        found = await self._mailbox.read(lambda connection: results.find(connection, reference, branches))
        if found is None:
            raise _unresolved(
                reference,
                "is no result of this conversation as it is now, and none that came to this session",
            )
        return found


def sent_before(message_id: str, state: str, fault: HerdError) -> MessageIdConflict:
    """Give the refusal of a call made again whose files cannot be attached any more.

    Whether they are those that went cannot be told; that nothing was sent would not be true.

    Args:
        message_id: The message that the call made when it was made first.
        state: What is known of that message.
        fault: Why the files cannot be attached.
    """
    why = fault.message.removesuffix(NOTHING_SENT)
    return MessageIdConflict(
        f"this call was made before, and its message {message_id} is {state}; "
        f"what it attaches cannot be compared now: {why}",
        hint=f"Ask for the status of message {message_id}; nothing was sent again.",
        message_id=message_id,
    )


def _unresolved(reference: str, why: str) -> InvalidParams:
    return InvalidParams(
        f"files: {reference!r} {why}{NOTHING_SENT}",
        hint="Use a reference that a registration gave, or the name of an attachment that came.",
        field="files",
        entry=reference,
    )
