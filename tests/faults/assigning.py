"""Changes an assignment record and may kill itself on the way: a process of its own.

Started with a data root, what it does (`create`, `rewrite`, `retire`, `set_aside`) and the step at which it
kills itself. `rewrite` changes the record without end, and says so with a line after each change.
"""

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path

from assignments import store
from assignments.lifecycle import Assignments
from assignments.worktrees.inventory import Inventoried, Worktree
from assignments.worktrees.inventory_fake import FakeInventories
from herd.core.paths import Layout
from tests.fakes.assignments import REPO, assignment_of, lock_of
from tests.fakes.records import layout_at

MINE = assignment_of(text="a" * 200_000)
OTHER = MINE._replace(text="b" * 300_000)
GONE = Inventoried(REPO, (Worktree("/home/me/project", "main", linked=False),))


def main(home: str, deed: str, at: str) -> None:
    """Do it."""
    layout = layout_at(Path(home))

    def step(name: str) -> None:
        if name == at:
            os.kill(os.getpid(), signal.SIGKILL)

    assignments = Assignments(layout, lock_of(layout), step=step)
    if deed == "create":
        assignments.create(MINE)
    elif deed == "retire":
        asyncio.run(assignments.retire(MINE.place, FakeInventories(GONE)))
    elif deed == "set_aside":
        assignments.set_aside(MINE.place)
    elif at:
        with lock_of(layout).exclusive() as hold:
            store.write(layout, hold, OTHER, step)
    else:
        _rewrite(layout)


def _rewrite(layout: Layout) -> None:
    for one in itertools.cycle((OTHER, MINE)):
        with lock_of(layout).exclusive() as hold:
            store.write(layout, hold, one)
        sys.stdout.write("changed\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
