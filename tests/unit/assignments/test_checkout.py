"""The workspace and the repository of a folder, over checkouts that a real git made, and over forged ones."""

import os
import threading
from pathlib import Path

import pytest

from assignments.worktrees.checkout import common_directory, extent_at, workspace_of
from herd.presence.scopes import Extent
from tests.fakes.checkouts import Checkouts, git


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with a linked worktree, and a clone of it; no link leads there."""
    made = Checkouts(tmp_path)
    (made.main / "src").mkdir()
    (made.linked / "src").mkdir()
    return made.main.parent


class TestWorkspace:
    @pytest.mark.requirement("A-discover-07")
    def test_it_is_the_real_path_of_the_folder_however_that_is_reached(self, place):
        (place / "by").symlink_to(place / "plain")

        for way in ("plain", "by", "shop/../plain", "./plain/"):
            assert workspace_of(f"{place}/{way}") == str(place / "plain")

    @pytest.mark.parametrize("folder", ["absent", "file", "with\0nul", "loop"])
    def test_what_is_no_folder_has_none(self, place, folder):
        (place / "file").touch()
        (place / "loop").symlink_to(place / "loop")

        assert workspace_of(f"{place}/{folder}") is None
        assert common_directory(f"{place}/{folder}") is None

    def test_a_path_that_a_record_could_not_hold_as_it_is_is_no_id(self, place):
        long = place
        while len(str(long)) < 2_048:
            long = long / ("d" * 200)
        named = [long, place / "a\nb", Path(os.fsdecode(bytes(place) + b"/\xff"))]
        for folder in named:
            folder.mkdir(parents=True)

        assert [workspace_of(str(folder)) for folder in named] == [None] * 3


class TestRepository:
    @pytest.mark.requirement("A-discover-08")
    def test_linked_worktrees_have_that_of_their_checkout_and_clones_one_of_their_own(self, place):
        (place / "by").symlink_to(place / "linked" / "src")

        for folder in ("shop", "shop/src", "linked", "linked/src", "by", "shop/.git"):
            assert common_directory(f"{place}/{folder}") == str(place / "shop" / ".git")
        assert common_directory(f"{place}/clone") == str(place / "clone" / ".git")
        assert common_directory(f"{place}/plain") is None

    def test_a_worktree_of_a_bare_repository_has_that(self, place):
        git("clone", "-q", "--bare", place / "shop", place / "bare.git")
        git("-C", place / "bare.git", "worktree", "add", "-q", place / "out", "-b", "out")

        assert common_directory(f"{place}/out") == str(place / "bare.git")

    def test_a_submodule_has_one_of_its_own(self, place):
        git("-C", place / "shop", "submodule", "add", "-q", place / "clone", "part")

        assert common_directory(f"{place}/shop/part") == str(place / "shop" / ".git" / "modules" / "part")

    def test_a_worktree_that_was_moved_by_hand_leads_nowhere_back(self, place):
        (place / "linked").rename(place / "moved")

        assert common_directory(f"{place}/moved") is None

    def test_a_checkout_says_it_with_its_scope(self, place):
        found = extent_at(f"{place}/linked/src", "repository")

        assert found == Extent("repository", str(place / "linked" / "src"), str(place / "shop" / ".git"))


class TestForged:
    def test_a_file_that_leads_into_a_repository_which_does_not_lead_back_is_none(self, place):
        for target in ("shop/.git", "shop/.git/worktrees/linked"):
            forged = place / "forged" / target.replace("/", "-")
            forged.mkdir(parents=True)
            (forged / ".git").write_text(f"gitdir: {place}/{target}\n", encoding="utf-8")
            assert common_directory(str(forged)) is None

    def test_a_link_into_a_repository_is_none(self, place):
        (place / "plain" / ".git").symlink_to(place / "shop" / ".git")

        assert common_directory(f"{place}/plain") is None

    def test_a_folder_of_its_own_that_names_a_repository_is_not_registered_there(self, place):
        own, forged = place / "own", place / "forged"
        own.mkdir()
        forged.mkdir()
        (forged / ".git").write_text(f"gitdir: {own}\n", encoding="utf-8")
        (own / "gitdir").write_text(f"{forged}/.git\n", encoding="utf-8")
        (own / "commondir").write_text(f"{place}/shop/.git\n", encoding="utf-8")

        assert common_directory(str(forged)) is None

    @pytest.mark.parametrize(
        "content", [b"", b"gitdir:", b"gitdir: \n", b"\xff\0", b"gitdir: /" + b"x" * 70_000]
    )
    def test_a_file_that_says_nothing_is_none(self, place, content):
        (place / "plain" / ".git").write_bytes(content)

        assert common_directory(f"{place}/plain") is None

    def test_a_fifo_holds_nobody_up(self, place):
        os.mkfifo(place / "plain" / ".git")
        os.unlink(place / "shop" / ".git" / "worktrees" / "linked" / "gitdir")
        os.mkfifo(place / "shop" / ".git" / "worktrees" / "linked" / "gitdir")
        found: list[str | None] = []
        looking = threading.Thread(
            target=lambda: found.extend(common_directory(f"{place}/{one}") for one in ("plain", "linked")),
            daemon=True,
        )
        looking.start()
        looking.join(20)

        assert found == [None, None]
