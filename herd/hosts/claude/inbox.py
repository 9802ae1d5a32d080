"""The inbox of a running Claude Code: a private socket on which a line of JSON starts a turn.

Claude Code tells its path and a token to the servers it starts. Only the fixed notice is ever sent there.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from herd.core.errors import HerdError
from herd.core.limits import INBOX_PUSH_S
from herd.mail.header import NOTICE
from herd.rpc.unix import peer_credentials

_log = logging.getLogger("herd.hosts.claude")


class Inbox(NamedTuple):
    """Where the notice goes."""

    path: str
    token: str
    pid: int
    """The process that has to be at the other end."""


def inbox_of(environ: Mapping[str, str], pid: int) -> Inbox | None:
    """Give the inbox that Claude Code told its server of; None where it told none."""
    path, token = environ.get("CLAUDE_CODE_MESSAGING_SOCKET"), environ.get("CLAUDE_CODE_MESSAGING_TOKEN")
    return Inbox(path, token, pid) if path and token else None


async def push_notice(inbox: Inbox, number: int) -> bool:
    """Have the session begin a turn with the fixed notice; gives whether the inbox took it.

    Args:
        inbox: Where it goes.
        number: Another one for each notice. For half a minute Claude Code drops what one sender repeats, and
            these words are always the same; how often they may come is bounded by `wakes_per_hour`.
    """
    frames = (
        {"type": "auth", "token": inbox.token},
        {
            "type": "user",
            "message": {"role": "user", "content": NOTICE},
            "from": f"herd-{number}",
            "priority": "next",
        },
    )
    try:
        async with asyncio.timeout(INBOX_PUSH_S):
            _, writer = await asyncio.open_unix_connection(inbox.path)
            try:
                _require_host(writer.get_extra_info("socket"), inbox)
                writer.writelines(json.dumps(frame).encode() + b"\n" for frame in frames)
                await writer.drain()
            finally:
                writer.close()
            await writer.wait_closed()
    except (HerdError, OSError, TimeoutError, ValueError) as fault:
        _log.warning("claude.inbox.failed reason=%s", fault)
        return False
    return True


def _require_host(sock: socket.socket, inbox: Inbox) -> None:
    """Check that the host itself listens: whoever else did would be given the token."""
    pid, uid, _ = peer_credentials(sock)
    if (pid, uid) != (inbox.pid, os.geteuid()):
        raise PermissionError(f"process {pid} of user {uid} listens at {inbox.path}")
