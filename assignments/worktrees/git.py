"""git as the source of a folder's repository and branch.

git runs with an allow-listed environment, so no `GIT_*` variable of a host reaches it, without hooks, file
monitors or prompts, and for two seconds at most.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from assignments.worktrees.topology import Whereabouts
from herd.core.limits import SUBPROCESS_S

_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_QUESTION = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--abbrev-ref", "HEAD")


class GitTopology:
    """Asks the git on the path.

    Args:
        child_environment: What a child process may see; `GIT_TERMINAL_PROMPT=0` is added.
    """

    def __init__(self, child_environment: Mapping[str, str]) -> None:
        self._child_environment = {
            **{name: value for name, value in child_environment.items() if not name.startswith("GIT_")},
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
        }

    async def whereabouts(self, cwd: str) -> Whereabouts:
        """See `Topology.whereabouts`."""
        answer = await self._ask(cwd, *_QUESTION)
        if answer is None:
            return Whereabouts()
        common, _, branch = answer.partition("\n")
        return Whereabouts(_repository(common), None if branch.strip() in {"", "HEAD"} else branch.strip())

    async def _ask(self, cwd: str, *arguments: str) -> str | None:
        starting = asyncio.ensure_future(self._started(cwd, arguments))
        try:
            child = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Called off between fork and here, asyncio would end git alone and not what it started.
            child = await starting
            if child is not None:
                await _ended(child)
            raise
        if child is None:
            return None
        try:
            async with asyncio.timeout(SUBPROCESS_S):
                output, _ = await child.communicate()
        except TimeoutError:
            return None
        finally:
            await _ended(child)
        return output.decode("utf-8", "replace") if child.returncode == 0 else None

    async def _started(self, cwd: str, arguments: Sequence[str]) -> asyncio.subprocess.Process | None:
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
        except (OSError, ValueError):
            return None


async def _ended(child: asyncio.subprocess.Process) -> None:
    """End a git and whatever it started; it is a session of its own."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        # To the end of its output, which closes the pipe; whoever left the group may keep it open.
        with suppress(TimeoutError):
            async with asyncio.timeout(SUBPROCESS_S):
                await child.communicate()


def _repository(common_directory: str) -> str:
    """Name a repository by the folder that holds its common directory, or by that directory if it is bare."""
    path = common_directory.rstrip("/")
    if os.path.basename(path) == ".git":
        path = os.path.dirname(path)
    return os.path.basename(path).removesuffix(".git")
