"""What every topology answers, and what git's must survive besides."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from assignments.worktrees import running
from assignments.worktrees.fake import FakeTopology
from assignments.worktrees.git import GitTopology
from assignments.worktrees.topology import Topology, Whereabouts
from tests.fakes.coordinators import IN_TIME_S
from tests.fakes.hanging import Hanging

_PATH = {"PATH": os.environ["PATH"]}


def git(*arguments: object) -> None:
    words = [str(one) for one in arguments]
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    subprocess.run(
        ("git", *identity, *words), check=True, capture_output=True, env={**_PATH, "HOME": "/dev/null"}
    )


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give git all the time that a busy machine needs, where it is not to hang."""
    if "hangs" not in request.node.name:
        for module in (running,):
            monkeypatch.setattr(module, "SUBPROCESS_S", IN_TIME_S)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git("init", "-q", "-b", "main", tmp_path / "shop")
    git("-C", tmp_path / "shop", "commit", "-q", "--allow-empty", "-m", "Begin")
    git("-C", tmp_path / "shop", "worktree", "add", "-q", tmp_path / "elsewhere", "-b", "feature/cart")
    (tmp_path / "shop" / "src").mkdir()
    (tmp_path / "plain").mkdir()
    return tmp_path


@pytest.fixture(params=["git", "fake"])
def topology(request: pytest.FixtureRequest, repository: Path) -> Topology:
    if request.param == "git":
        return GitTopology(child_environment=_PATH)
    main = Whereabouts("shop", "main")
    return FakeTopology(
        {
            str(repository / "shop"): main,
            str(repository / "shop" / "src"): main,
            str(repository / "elsewhere"): Whereabouts("shop", "feature/cart"),
        }
    )


class TestEvery:
    async def test_a_checkout_and_a_folder_in_it_have_the_repository_and_branch(self, topology, repository):
        for folder in (repository / "shop", repository / "shop" / "src"):
            assert await topology.whereabouts(str(folder)) == Whereabouts("shop", "main")

    async def test_a_linked_worktree_has_its_repository_and_its_own_branch(self, topology, repository):
        found = await topology.whereabouts(str(repository / "elsewhere"))

        assert found == Whereabouts("shop", "feature/cart")

    @pytest.mark.parametrize("folder", ["plain", "absent", "with\0nul"])
    async def test_what_is_no_checkout_has_no_labels(self, topology, repository, folder):
        assert await topology.whereabouts(f"{repository}/{folder}") == Whereabouts()


class TestGit:
    async def test_a_detached_head_is_no_branch(self, repository):
        git("-C", repository / "shop", "checkout", "-q", "--detach")

        assert await GitTopology(_PATH).whereabouts(str(repository / "shop")) == Whereabouts("shop", None)

    async def test_variables_of_git_do_not_lead_it_elsewhere(self, repository):
        misled = GitTopology({**_PATH, "GIT_DIR": str(repository / "shop" / ".git")})

        assert await misled.whereabouts(str(repository / "plain")) == Whereabouts()

    @pytest.mark.requirement("H-eligib-19")
    async def test_a_forged_git_file_lends_no_labels(self, repository):
        forged = repository / "plain" / ".git"
        forged.write_bytes((repository / "elsewhere" / ".git").read_bytes())

        assert await GitTopology(_PATH).whereabouts(str(forged.parent)) == Whereabouts()

    async def test_no_git_is_no_labels(self, repository):
        assert await GitTopology({"PATH": "/nowhere"}).whereabouts(str(repository / "shop")) == Whereabouts()

    async def test_a_git_that_hangs_is_given_up_and_ended(self, hanging):
        assert await GitTopology({"PATH": hanging.path}).whereabouts("/") == Whereabouts()
        assert hanging.ended()

    async def test_a_look_up_that_is_called_off_leaves_nothing_running(self, hanging):
        looking = asyncio.create_task(GitTopology({"PATH": hanging.path}).whereabouts("/"))
        await hanging.begun()
        looking.cancel()

        with pytest.raises(asyncio.CancelledError):
            await looking
        assert hanging.ended()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    program = Hanging(tmp_path)
    yield program
    program.close()
