"""Checkouts of every kind that groups are told apart by, made by a real git, and a Herdr that knows them.

It owns making them and what each one's group is, written out here once more. It is ignorant of what is
tested.
"""

import os
import subprocess
from pathlib import Path

from assignments.worktrees.groups import Grouped, Membership, Ungrouped, Unproven
from assignments.worktrees.herdr_fake_world import HerdrWorld, Repository, Row, Workspace
from tests.fakes.checkouts import Checkouts, git

_FORGED = "forged"


class GroupWorld:
    """Folders below one that is there, by their names.

    Args:
        place: Where they are made.

    Attributes:
        expected: What each folder's membership is; only its kind counts where it is not `Grouped`.
    """

    def __init__(self, place: Path) -> None:
        self.place = place.resolve()
        made = Checkouts(self.place)
        self.main = made.main
        for name, *how in (
            ("detached", "--detach"),
            ("locked", "--lock", "-b", "kept"),
            ("gone", "-b", "gone"),
            ("moved", "-b", "moved"),
        ):
            git("-C", made.main, "worktree", "add", "-q", *how, self.place / name)
        git("clone", "-q", made.main, made.main / "vendor" / "x")
        git("-C", made.clone, "submodule", "add", "-q", made.main, "part")
        git("clone", "-q", "--bare", made.main, self.place / "bare.git")
        git("-C", self.place / "bare.git", "worktree", "add", "-q", self.place / "out", "-b", "out")
        git("clone", "-q", "--bare", made.main, made.main / "hidden.git")
        subprocess.run(("rm", "-r", self.place / "gone"), check=True)
        (self.place / "moved").rename(self.place / "moved-by-hand")
        for folder in (made.main / "src", made.linked / "src", self.place / "plain" / "deep"):
            folder.mkdir()
        (self.place / "s").symlink_to(made.linked)
        (self.place / "to-src").symlink_to(made.main / "src")
        self._forge()
        self.expected = self._expected()

    def _forge(self) -> None:
        for name, line in (
            ("to-common", f"{self.main}/.git"),
            ("to-entry", f"{self.main}/.git/worktrees/linked"),
            ("to-nowhere", f"{self.place}/nowhere"),
        ):
            folder = self.place / _FORGED / name
            folder.mkdir(parents=True)
            (folder / ".git").write_text(f"gitdir: {line}\n", encoding="utf-8")
        (self.place / _FORGED / "link").mkdir()
        (self.place / _FORGED / "link" / ".git").symlink_to(self.main / ".git")

    def _expected(self) -> dict[str, Membership]:
        shop, clone = Grouped(f"{self.main}/.git"), Grouped(f"{self.place}/clone/.git")
        lacking = Unproven("the way back")
        return {
            "shop": shop,
            "shop/src": shop,
            "linked": shop,
            "linked/src": shop,
            "s": shop,
            "s/src": shop,
            "to-src": shop,
            "detached": shop,
            "locked": shop,
            "clone": clone,
            "shop/vendor/x": Grouped(f"{self.main}/vendor/x/.git"),
            "clone/part": Grouped(f"{self.place}/clone/.git/modules/part"),
            "out": Grouped(f"{self.place}/bare.git"),
            "plain": Ungrouped("no checkout"),
            "plain/deep": Ungrouped("no checkout"),
            "absent": Unproven("no folder"),
            "gone": Unproven("no folder"),
            "moved-by-hand": lacking,
            "shop/hidden.git": lacking,
            **{f"{_FORGED}/{one}": lacking for one in ("to-common", "to-entry", "to-nowhere", "link")},
        }

    def known(self) -> dict[str, Membership]:
        """Give the memberships by real path, of what is there."""
        paths = {os.path.realpath(self.place / name): what for name, what in self.expected.items()}
        return {path: what for path, what in paths.items() if os.path.isdir(path)}

    def herdr(self, *workspaces: Workspace, protocol: int = 22) -> HerdrWorld:
        """Give what a Herdr knows that is taken in by every forged `.git`, as git is."""
        repositories = [
            Repository(key, _rows(Path(key)), (f"{self.place}/clone/part",) if "modules" in key else ())
            for key in dict.fromkeys(one.key for one in self.expected.values() if isinstance(one, Grouped))
        ]
        shop = repositories[0]
        forged = [f"{self.place}/{name}" for name in self.expected if name.startswith(_FORGED)]
        rows = (*shop.rows, *(Row(path, f"b{number}", linked=True) for number, path in enumerate(forged)))
        return HerdrWorld((shop._replace(rows=rows), *repositories[1:]), workspaces, protocol)


def _rows(key: Path) -> tuple[Row, ...]:
    """Give what git lists, read on its own."""
    listed = subprocess.run(
        ("git", f"--git-dir={key}", "worktree", "list", "--porcelain"),
        check=True,
        capture_output=True,
        encoding="utf-8",
        env={"PATH": os.environ["PATH"], "HOME": "/dev/null"},
    )
    rows = []
    for number, block in enumerate(listed.stdout.strip().split("\n\n")):
        said = {name: value for name, _, value in (line.partition(" ") for line in block.splitlines())}
        rows.append(
            Row(
                said["worktree"],
                said["branch"].removeprefix("refs/heads/") if "branch" in said else None,
                linked=number > 0,
                bare="bare" in said,
                prunable="prunable" in said,
            )
        )
    return tuple(rows)
