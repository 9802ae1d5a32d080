"""git as the source of a folder's repository and branch, as labels for people."""

import asyncio
import os
from collections.abc import Mapping

from assignments.worktrees.checkout import Checkout, checkout_of
from assignments.worktrees.running import Git, Silent
from assignments.worktrees.topology import Whereabouts

_QUESTION = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--abbrev-ref", "HEAD")


class GitTopology:
    """Asks the git on the path.

    Args:
        child_environment: What a child process may see; see `Git`.
    """

    def __init__(self, child_environment: Mapping[str, str]) -> None:
        self._git = Git(child_environment)

    async def whereabouts(self, cwd: str) -> Whereabouts:
        """See `Topology.whereabouts`; a forged `.git`, to which nothing leads back, lends no labels."""
        answer = await self._git.ask(cwd, *_QUESTION)
        if isinstance(answer, Silent) or not isinstance(await asyncio.to_thread(checkout_of, cwd), Checkout):
            return Whereabouts()
        common, _, branch = answer.output.decode("utf-8", "replace").partition("\n")
        return Whereabouts(_repository(common), None if branch.strip() in {"", "HEAD"} else branch.strip())


def _repository(common_directory: str) -> str:
    """Name a repository by the folder that holds its common directory, or by that directory if it is bare."""
    path = common_directory.rstrip("/")
    if os.path.basename(path) == ".git":
        path = os.path.dirname(path)
    return os.path.basename(path).removesuffix(".git")
