"""What an inventory of a group by git has, and when there is none."""

import os
import shutil
from pathlib import Path

import pytest

from assignments.worktrees import git_groups, running
from assignments.worktrees.git_groups import GitInventories
from assignments.worktrees.inventory import Inventoried, Partial, Worktree
from tests.fakes.checkouts import Checkouts, git
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.hanging import Hanging

_PATH = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give git all the time that a busy machine needs, where it is not to hang."""
    if "hangs" not in request.node.name:
        for module in (git_groups, running):
            monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)


@pytest.fixture
def made(tmp_path: Path) -> Checkouts:
    return Checkouts(tmp_path / "of it")


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> None:
    (tmp_path / "of it").mkdir()


async def taken(key: object) -> tuple[Worktree, ...]:
    found = await GitInventories(_PATH).inventory(str(key))
    assert isinstance(found, Inventoried), found
    assert found.key == str(key)
    return found.worktrees


async def test_it_has_every_worktree_of_the_group(made):
    place = made.main.parent
    git("-C", made.main, "worktree", "add", "-q", "--detach", place / "at")
    git("-C", made.main, "worktree", "add", "-q", "--lock", place / "kept", "-b", "kept")

    assert await taken(made.repository) == (
        Worktree(str(made.main), "main", linked=False),
        Worktree(str(place / "at"), None),
        Worktree(str(place / "kept"), "kept", locked=True),
        Worktree(str(made.linked), "cart"),
    )


async def test_a_removed_worktree_is_on_it_no_more(made):
    git("-C", made.main, "worktree", "remove", made.linked)

    assert await taken(made.repository) == (Worktree(str(made.main), "main", linked=False),)


async def test_a_worktree_whose_folder_is_gone_is_prunable_and_not_present(made):
    shutil.rmtree(made.linked)

    assert (await taken(made.repository))[1] == Worktree(
        str(made.linked), "cart", prunable=True, present=False
    )


async def test_what_stands_where_a_worktree_was_is_present(made):
    shutil.rmtree(made.linked)
    made.linked.symlink_to("nowhere")

    listed = await taken(made.repository)

    assert listed[1].present
    assert listed[1].prunable


async def test_the_primary_of_a_bare_repository_is_that(made):
    bare = made.main.parent / "bare.git"
    git("clone", "-q", "--bare", made.main, bare)
    git("-C", bare, "worktree", "add", "-q", bare.parent / "out", "-b", "out")

    assert await taken(bare) == (
        Worktree(str(bare), None, linked=False),
        Worktree(str(bare.parent / "out"), "out"),
    )


async def test_what_is_no_common_directory_by_its_real_path_has_none(made):
    place = made.main.parent
    (place / "by").symlink_to(made.main)
    keys = ("shop", "plain", "absent", "by/.git", "shop/.git/", "shop/.git/worktrees/linked", "no\0path")

    for key in keys:
        assert isinstance(await GitInventories(_PATH).inventory(f"{place}/{key}"), Partial), key
    assert isinstance(await GitInventories(_PATH).inventory("shop/.git"), Partial)


async def test_a_spoilt_repository_inside_another_does_not_give_that_ones(made):
    inner = made.main / "inner"
    git("init", "-q", inner)
    (inner / ".git" / "HEAD").write_text("spoilt\n", encoding="utf-8")

    assert isinstance(await GitInventories(_PATH).inventory(f"{inner}/.git"), Partial)


async def test_variables_of_git_lead_it_nowhere(made):
    other = f"{made.clone}/.git"
    misled = GitInventories({**_PATH, "GIT_DIR": other, "GIT_COMMON_DIR": other})

    found = await misled.inventory(made.repository)

    assert isinstance(found, Inventoried)
    assert found.worktrees[0].path == str(made.main)


@pytest.mark.parametrize("line", ["exit 1", "exit 0", "printf 'worktree /a\\0bare\\0\\0'"])
async def test_an_answer_that_is_none_gives_none(made, tmp_path, line):
    (tmp_path / "git").write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    (tmp_path / "git").chmod(0o755)

    assert isinstance(await GitInventories({"PATH": f"{tmp_path}:/bin"}).inventory(made.repository), Partial)


async def test_a_git_that_hangs_is_given_up_and_ended(made, tmp_path):
    hanging = Hanging(tmp_path)
    try:
        assert isinstance(await GitInventories({"PATH": hanging.path}).inventory(made.repository), Partial)
        assert hanging.ended()
    finally:
        hanging.close()
