"""Worktree groups by Herdr's word, checked against the files of the checkout.

Herdr answers one request a connection. It says which workspaces belong together; that the checkout and the
common directory lead to each other is read from the files, as it is without Herdr.
"""

import asyncio
import json
import os
import socket
from contextlib import suppress
from typing import Any

from assignments.worktrees.checkout import Checkout, checkout_of
from assignments.worktrees.groups import Grouped, Membership, Ungrouped, Unproven
from assignments.worktrees.herdr_wire import Group, Refused, Unreadable, group_of, protocol_of, result_of
from herd.core.errors import HerdError
from herd.core.limits import SUBPROCESS_S, TOPOLOGY_BYTES
from herd.rpc.endpoints import peer_credentials
from herd.rpc.frames import FrameDecoder

_PIECE_BYTES = 65_536


class HerdrGroups:
    """Asks the Herdr that listens on a socket.

    Args:
        path: That socket.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """See `Groups.membership`.

        With a workspace its group is asked for, and the folder has to lie in that very group.
        """
        try:
            async with asyncio.timeout(SUBPROCESS_S):
                return await self._membership(cwd, workspace_id)
        except TimeoutError:
            return Unproven(f"Herdr did not tell the worktree group within {SUBPROCESS_S} s")
        except Unreadable as error:
            return Unproven(f"Herdr's answer proves no worktree group: {error}")
        except (HerdError, OSError, ValueError) as error:
            return Unproven(f"Herdr cannot be asked for the worktree group: {error}")

    async def _membership(self, cwd: str, workspace_id: str | None) -> Membership:
        checkout = await asyncio.to_thread(checkout_of, cwd)
        if isinstance(checkout, Unproven):
            return checkout
        if workspace_id is None and isinstance(checkout, Ungrouped):
            return checkout
        pong = await self._ask("ping", {}, "pong")
        if isinstance(pong, Refused):
            return _failed(pong)
        protocol_of(pong)
        asked = {"cwd": cwd} if workspace_id is None else {"workspace_id": workspace_id}
        listed = await self._ask("worktree.list", asked, "worktree_list")
        if isinstance(listed, Refused):
            if listed.no_repository and workspace_id is not None:
                return Ungrouped(f"Herdr has the workspace {workspace_id!r:.70} in no repository")
            return _failed(listed)  # of a folder that is a checkout by its files, nothing else is certain
        return await asyncio.to_thread(_confirmed, checkout, group_of(listed), workspace_id)

    async def _ask(self, method: str, params: dict[str, str], kind: str) -> dict[str, Any] | Refused:
        asked = f"herd:{method}"
        request = json.dumps({"id": asked, "method": method, "params": params}).encode()
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            _require_ours(writer.get_extra_info("socket"))
            writer.write(request + b"\n")
            await writer.drain()
            return result_of(await _answer(reader), asked, kind)
        finally:
            # What is left unread must hold nobody up.
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


def _require_ours(connected: socket.socket) -> None:
    _, owner, _ = peer_credentials(connected)
    if owner != os.geteuid():
        raise Unreadable(f"who listens there is user {owner}")


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    decoder = FrameDecoder(TOPOLOGY_BYTES)
    while True:
        piece = await reader.read(_PIECE_BYTES)
        answers = decoder.feed(piece)
        if answers:
            return answers[0]
        fault = decoder.fault if piece else decoder.end()
        if fault is not None:
            raise Unreadable(f"{fault}")
        if not piece:
            raise Unreadable("it closed the connection without one")


def _failed(refused: Refused) -> Unproven:
    return Unproven(f"Herdr failed to tell the worktree group: {refused.code!r:.70}")


def _confirmed(checkout: Checkout | Ungrouped, group: Group, workspace_id: str | None) -> Membership:
    """Give the group of a checkout, if it is the one that Herdr told of and has this checkout."""
    if workspace_id is not None and workspace_id not in group.workspaces:
        return Unproven(f"the group that Herdr told of does not have the workspace {workspace_id!r:.70}")
    if isinstance(checkout, Ungrouped):
        return Unproven(f"Herdr has the workspace {workspace_id!r:.70} in a group, but {checkout.reason}")
    if os.path.realpath(group.key) != checkout.common:
        return Unproven("Herdr tells of another repository than the checkout leads to")
    # For a submodule's own checkout git, and so Herdr, lists the common directory.
    own = {checkout.top} if checkout.linked else {checkout.top, checkout.common}
    if own.isdisjoint(os.path.realpath(path) for path in group.paths):
        return Unproven(f"the group that Herdr told of does not have the checkout {checkout.top}")
    return Grouped(checkout.common)
