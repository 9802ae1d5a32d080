"""A repository with a linked worktree, a clone of it and a plain folder, made by a real git.

It owns making them, and what each is to scopes, written out here once more. It is ignorant of what is tested.
"""

import os
import subprocess
from pathlib import Path

_IDENTITY = ("-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always")


def git(*arguments: object) -> None:
    """Run git without anybody's settings; it has to succeed."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/dev/null"}
    words = ("git", *_IDENTITY, *map(str, arguments))
    subprocess.run(words, check=True, capture_output=True, env=environment)


class Checkouts:
    """Folders below one that is there, by the names they have in tests.

    Args:
        place: Where they are made.

    Attributes:
        main: The checkout of a repository.
        linked: A linked worktree of it.
        clone: A clone of it.
        plain: A folder in no checkout.
    """

    def __init__(self, place: Path) -> None:
        place = place.resolve()
        self.main, self.linked = place / "shop", place / "linked"
        self.clone, self.plain = place / "clone", place / "plain"
        git("init", "-q", "-b", "main", self.main)
        git("-C", self.main, "commit", "-q", "--allow-empty", "-m", "Begin")
        git("-C", self.main, "worktree", "add", "-q", self.linked, "-b", "cart")
        git("clone", "-q", self.main, self.clone)
        self.plain.mkdir()

    @property
    def repository(self) -> str:
        """The id of the repository that `main` and `linked` are of."""
        return str(self.main / ".git")
