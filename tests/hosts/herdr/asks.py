"""A program for a newer Python than ours: asks the Herdr at a socket by the client that others wrote.

Run as `asks.py SOCKET`. It prints one JSON object: what the client made of each answer.
"""

import asyncio
import importlib
import json
import sys
from typing import Any


async def _asked(path: str) -> dict[str, Any]:
    sdk = importlib.import_module("herdr_sdk")
    async with sdk.AsyncHerdrClient(path) as client:
        try:
            pong = await client.ping()
        except sdk.HerdrProtocolMismatchError:
            return {"refused": "another protocol"}
        agents = await client.agent_list()
        snapshot = (await client.session_snapshot()).snapshot
        workspaces = (await client.workspace_list()).workspaces
        listed = await client.worktree_list({"workspace_id": "w1"})
        try:
            await client.worktree_list({"cwd": "/elsewhere"})
            code = None
        except sdk.HerdrAPIError as refusal:
            code = refusal.code
    return {
        "protocol": pong.protocol,
        "agents": [[one.name, one.agent_session and one.agent_session.value] for one in agents.agents],
        "workspaces": [one.workspace_id for one in workspaces],
        "panes": [one.pane_id for one in snapshot.panes],
        "group": listed.source.repo_key,
        "worktrees": [[one.path, one.branch] for one in listed.worktrees],
        "elsewhere": code,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_asked(sys.argv[1]))))
