"""Running git for an answer: what it may see, how much it may say, how long it may take.

git runs with an allow-listed environment, so no `GIT_*` variable of a host reaches it, without hooks, file
monitors or prompts, and for two seconds at most. What is asked, this module does not know.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from herd.core.limits import SUBPROCESS_S, TOPOLOGY_BYTES

_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_PIECE_BYTES = 65_536


class Said(NamedTuple):
    """git did what it was asked and ended well."""

    output: bytes


class Silent(NamedTuple):
    """There is no answer that counts: it could not start, failed, took too long or said too much."""

    reason: str


class Git:
    """Asks the git on the path.

    Args:
        child_environment: What a child process may see; variables of git's own are left out, and those that
            keep it from prompting and from locking are added.
    """

    def __init__(self, child_environment: Mapping[str, str]) -> None:
        self._child_environment = {
            **{name: value for name, value in child_environment.items() if not name.startswith("GIT_")},
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
        }

    async def ask(self, cwd: str, *arguments: str) -> Said | Silent:
        """Run one git command in a folder, for `SUBPROCESS_S` at most; nothing of it is left running."""
        starting = asyncio.ensure_future(self._started(cwd, arguments))
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Called off between fork and here, asyncio would end git alone and not what it started.
            child = await starting
            if isinstance(child, asyncio.subprocess.Process):
                await _ended(child)
            raise
        if isinstance(child, Silent):
            return child
        try:
            async with asyncio.timeout(SUBPROCESS_S):
                output = await _output(child)
                status = await child.wait() if len(output) <= TOPOLOGY_BYTES else None
        except TimeoutError:
            return Silent(f"git did not end within {SUBPROCESS_S} s")
        finally:
            await _ended(child)
        if status is None:
            return Silent(f"git said more than {TOPOLOGY_BYTES} bytes")
        return Said(output) if status == 0 else Silent(f"git failed with status {status}")

    async def _started(self, cwd: str, arguments: Sequence[str]) -> asyncio.subprocess.Process | Silent:
        try:
            return await asyncio.create_subprocess_exec(
                "git",
                *_SAFE,
                *arguments,
                cwd=cwd,
                env=self._child_environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Silent(f"git could not be started: {error}")


async def _output(child: asyncio.subprocess.Process) -> bytes:
    """Read what it says to the end, or until that is too much."""
    assert child.stdout is not None
    output = bytearray()
    while len(output) <= TOPOLOGY_BYTES and (piece := await child.stdout.read(_PIECE_BYTES)):
        output += piece
    return bytes(output)


async def _ended(child: asyncio.subprocess.Process) -> None:
    """End a git and whatever it started; it is a session of its own."""
    assert child.stdout is not None
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        # To the end of its output, which closes the pipe; whoever left the group may keep it open.
        with suppress(TimeoutError):
            async with asyncio.timeout(SUBPROCESS_S):
                while await child.stdout.read(_PIECE_BYTES):
                    pass
                await child.wait()
