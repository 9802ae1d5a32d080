"""`session.result`: what an agent of this session made becomes a result that can be attached by reference."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from herd.coordinator.numbering import next_number
from herd.core.errors import InvalidParams, MessageTooLarge
from herd.core.limits import Limits
from herd.core.paths import Layout
from herd.mail import results
from herd.mail.attachments import read_file
from herd.mail.mailbox import Mailbox
from herd.mail.parts import PREFIX, Binding


class Made(NamedTuple):
    """What is to be registered: a text, or the file that holds it.

    Attributes:
        agent: The name of the agent that made it.
        text: The text.
        file: The path of a file with it, which is read now.
        request_id: The host's id of the call that made it; None has one made.
        branch: The branch of the conversation on which it was made; None where the host has none.
    """

    agent: str
    text: str | None = None
    file: str | None = None
    request_id: str | None = None
    branch: str | None = None


class Registering:
    """Registers the results of one session.

    Args:
        layout: The folders of this machine.
        mailbox: The session's own.
        limits: The bounds in force.
        folder: Gives the folder from which relative paths start.
    """

    def __init__(self, layout: Layout, mailbox: Mailbox, limits: Limits, folder: Callable[[], str]) -> None:
        self._layout = layout
        self._mailbox = mailbox
        self._limits = limits
        self._folder = folder

    async def register(self, made: Made) -> Binding:
        """Store a result and give its two references; one registered before keeps those it has.

        Raises:
            InvalidParams: it is neither a text nor such a file, or holds a NUL.
            MessageTooLarge: it is larger than an attachment may be.
            RequestIdConflict: another text, or another agent's result, was registered for that call.
            RecoveryRequired, LockTimeout: no number can be given now.
        """
        data = await asyncio.to_thread(self._data, made)
        canonical = PREFIX + (made.request_id or _new_id())
        known = await self._mailbox.read(
            lambda connection: results.registered(connection, canonical, made.agent, data)
        )
        if known is not None:
            return known
        number = await asyncio.to_thread(next_number, self._layout, made.agent)
        binding = Binding(f"{PREFIX}{made.agent}#{number}", canonical)
        return await self._mailbox.run(
            lambda connection: results.register(connection, binding, made.branch, data, self._limits)
        )

    def _data(self, made: Made) -> bytes:
        most = self._limits.inline_attachment_bytes
        if made.file is not None:
            return read_file(made.file, self._folder(), most).data
        data = (made.text or "").encode()
        if len(data) > most:
            raise MessageTooLarge(f"the result has {len(data)} bytes, more than {most}")
        if b"\0" in data:
            raise InvalidParams("text: holds a NUL, which no text has", field="text")
        return data


def _new_id() -> str:
    from uuid_utils.compat import uuid7  # as a message's, loaded at the first need

    return str(uuid7())
