"""Programs that stand in for real ones on a path of their own."""

import os
from pathlib import Path


def hanging_git(folder: Path, begun: Path) -> dict[str, str]:
    """Make a git that tells its pid in the FIFO `begun` and then hangs; gives the variables that lead to it.

    It is one process that executes nothing else, so whoever kills it leaves nothing behind.
    """
    os.mkfifo(begun)
    nothing = folder / "nothing comes here"
    os.mkfifo(nothing)
    git = folder / "git"
    git.write_text(f"#!/bin/sh\necho $$ >'{begun}'\nread -r never <'{nothing}'\n", encoding="utf-8")
    git.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}
