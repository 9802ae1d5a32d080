"""A machine with worktrees, and assignments of them, as a verdict about managed Leads needs it.

It owns the folders, the records and what tells the groups; it holds no rule of who may write to whom.
"""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from assignments import store
from assignments.record import Assignment, encode
from assignments.worktrees.groups import Grouped, Membership, Ungrouped, Unproven
from herd.core.authority_lock import AuthorityLock
from herd.core.config import Place
from herd.core.identity import SessionName
from herd.core.limits import ASSIGNMENT_FILE_BYTES
from herd.core.paths import Layout
from tests.fakes.coordinators import Running, running
from tests.fakes.records import put, session_of

HERE, ELSEWHERE = Place("/run/herdr.sock", "p1", "t1", "w1"), Place("/run/other.sock", "p2", "t2", "w2")


class Memory:
    """Groups that a test tells, by folder; and what they were asked, in order.

    Attributes:
        known: The membership of each folder; any other is certainly in no group.
        asked: The folders that were asked for.
        hangs: Whether nothing is answered for now.
    """

    def __init__(self) -> None:
        self.known: dict[str, Membership] = {}
        self.asked: list[str] = []
        self.hangs = False

    async def membership(self, cwd: str, workspace_id: str | None = None) -> Membership:
        """See `Groups.membership`."""
        self.asked.append(cwd)
        if self.hangs:
            return Unproven("it hangs, and was given up")
        return self.known.get(cwd, Ungrouped("it is no checkout"))


class World:
    """One machine with two repositories: `shop` with two worktrees, and `blog`.

    Args:
        layout: Its folders.
        root: Where the checkouts lie.
    """

    def __init__(self, layout: Layout, root: Path) -> None:
        self.layout = layout
        self.groups = Memory()
        self.shop, self.blog = str(root / "shop/.git"), str(root / "blog/.git")
        self._root = root
        self.lock = AuthorityLock(layout.authority_lock, layout.authority_gate, layout.authority_generation)
        for name in ("shop", "shop-fix", "shop-more", "blog", "nowhere"):
            os.makedirs(root / name)
        for name in ("shop", "shop-fix", "shop-more"):
            self.groups.known[self.folder(name)] = Grouped(self.shop)
        self.groups.known[self.folder("blog")] = Grouped(self.blog)

    def folder(self, name: str) -> str:
        """Give the path of a checkout."""
        return str(self._root / name)

    @asynccontextmanager
    async def lead(
        self, session: SessionName, folder: str, place: Place = HERE, **chosen: Any
    ) -> AsyncIterator[Running]:
        """Run a Lead in a checkout; `kind` is its kind at its first start."""
        given = {"groups": self.groups, "cwd": self.folder(folder), "place": place, **chosen}
        async with running(self.layout, session, **given) as one:
            yield one

    def assignment(
        self, session: SessionName, branch: str, *, socket: str = HERE.socket, repo: str | None = None
    ) -> Assignment:
        """Give a record, not written."""
        return Assignment(
            id=str(uuid.uuid5(uuid.NAMESPACE_URL, branch)),
            socket=socket,
            repo=repo or self.shop,
            branch=branch,
            session=session,
            text="mend it",
            created_at=1_800_000_000_000,
        )

    async def assign(self, session: SessionName, branch: str, **chosen: Any) -> Assignment:
        """Give a branch of the shop to a session."""
        assignment = self.assignment(session, branch, **chosen)

        def write() -> None:
            with self.lock.exclusive() as hold:
                store.write(self.layout, hold, assignment)

        await asyncio.to_thread(write)
        return assignment

    async def end(self, assignment: Assignment) -> None:
        """Remove an assignment."""

        def remove() -> None:
            with self.lock.exclusive() as hold:
                store.remove(self.layout, hold, assignment)

        await asyncio.to_thread(remove)

    async def corrupt(self, how: str = "no JSON") -> str:
        """Put a file that is no record where one belongs; gives its path.

        Args:
            how: `no JSON`, `too big`, `wrong schema`, `an additional key` or `another path`.
        """
        assignment = self.assignment(session_of(77), "corrupt")
        shape = json.loads(encode(assignment))
        data = {
            "no JSON": b"{",
            "too big": json.dumps(shape).encode().ljust(ASSIGNMENT_FILE_BYTES + 1),
            "wrong schema": json.dumps({**shape, "text": 5}).encode(),
            "an additional key": json.dumps({**shape, "status": "active"}).encode(),
            "another path": json.dumps({**shape, "branch": "other"}).encode(),
        }[how]

        def write() -> str:
            with self.lock.exclusive() as hold:
                store.write(self.layout, hold, assignment)
                path = self.layout.assignment(*assignment.place)
                put(path, data)
            return path

        return await asyncio.to_thread(write)
